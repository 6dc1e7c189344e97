package _test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is this module's path; a package is named below by its folder.
const module = "testbed"

// room is a folder with all that is below it, but for the folders that are rooms of
// their own.
type room struct {
	folder string
	why    string // it stands where it stands
}

// rooms are in order from top to bottom: a package imports packages of its own room
// and of rooms below, never of one above.
var rooms = []room{
	{"cmd", "verbs call everything, so that nothing has to call them"},
	{"internal/stories", "tests: torchft's failures, played in every world"},
	{"internal/randscenario", "tests: scenarios drawn at random"},
	{"internal/testscenario", "tests: what they do with scenarios"},
	{"internal/memnet", "tests: a network in memory, in virtual time"},
	{"internal/testprogram", "tests: a trainer of a user's own"},
	{"report/sweeps", "shows the tables of sweeps"},
	{"experiment", "plays many runs; how one is played on a real network is given to it"},
	{"report", "shows what runs have left behind, and plays none"},
	{"emulation", "the real network of a machine, and everything that runs on it"},
	{"stacks", "what a stack is and what its marks mean, whoever starts its programs"},
	{"estimate", "formulas, and scaled-down runs that check them"},
	{"scenarios", "a scenario does not know who plays it"},
	{"sim", "the simulator plays values, and knows no scenario"},
	{"node", "what runs inside a node does not know which world it is in"},
	{"train/replay", "what workers learnt, computed from a record"},
	{"scenarios/resolved", "the values that a scenario is taken apart into, for every room below"},
	{"scenarios/faults", "what happens to workers and links, whoever carries it out"},
	{"train", "what workers learn"},
	{"python", "the package that trainers of a user's own import, as a file"},
	{"record", "events and summaries, whichever world they come from, and whatever a scenario is"},
	{"policy/torchft", "the policy whose core is torchft's"},
	{"policy/program", "policies that are processes: the policies that are code cannot know of any"},
	{"torchft", "torchft's decisions, and the servers that take them for its clients"},
	{"allreduce", "the all-reduce does not judge who takes part"},
	{"shaping", "what a link is, and how the kernel or the router carries it out"},
	{"policy", "the same decisions in every world: nothing of a world may reach them"},
	{"internal", "statistics, and other things that know nothing of the project"},
}

// roomOf returns the position in rooms of a package's room, -1 if it has none.
func roomOf(folder string) (at int) {
	at = -1
	for i, r := range rooms {
		if (folder == r.folder || strings.HasPrefix(folder, r.folder+"/")) && (at < 0 || len(r.folder) > len(rooms[at].folder)) {
			at = i
		}
	}
	return at
}

// ban forbids packages an import, or the use of some of its names.
type ban struct {
	in       []string
	imports  string              // exact path, or a prefix that ends with /
	names    []string            // if given, only these uses
	except   map[string][]string // if given, every use but these, by folder
	contrary bool                // forbids everywhere but in the packages
	why      string
}

var (
	pure   = []string{"policy", "policy/adaptive", "policy/timescale", "policy/torchft", "policy/worker", "torchft", "allreduce", "allreduce/int8", "allreduce/reduction", "allreduce/ringorder", "allreduce/rivals", "allreduce/tuner", "shaping", "shaping/fidelity", "scenarios/faults", "sim", "internal/stats", "node/outcomes", "estimate", "train", "train/charlm", "train/matrix", "train/work"}
	clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
)

var bans = []ban{
	{in: []string{"shaping/kernel"}, contrary: true, imports: "github.com/vishvananda/netlink", why: "one room talks to the kernel's network, and can be checked against it"},
	{in: []string{"shaping/kernel"}, contrary: true, imports: "github.com/vishvananda/netlink/", why: "one room talks to the kernel's network, and can be checked against it"},
	{in: append(slices.Clone(pure), "scenarios", "record", "allreduce/entropy"), imports: "time", names: clocks, why: "time is an argument here; a clock would make runs differ"},
	{in: pure, imports: "os", why: "pure: no files, no environment, no processes"},
	{in: []string{"internal/filelock"}, contrary: true, imports: "golang.org/x/sys/unix", names: []string{"Flock"}, why: "what flock answers is told apart in one place: held by somebody else, or not supported"},
	{in: []string{"internal/lines", "torchft/lighthouse"}, contrary: true, imports: "os", names: []string{"O_APPEND"}, why: "a file that grows is opened by internal/lines, which mends what a killed process has left; a lighthouse replaces its journal"},
	{in: pure, imports: "net", except: map[string][]string{"shaping": {"ParseMAC", "HardwareAddr"}}, why: "pure: no sockets; names and addresses as data are fine"},
	{in: pure, imports: "net/http", why: "pure: no sockets"},
	{in: pure, imports: "syscall", why: "pure: no system calls"},
	{in: []string{"policy", "policy/torchft", "policy/worker", "torchft", "allreduce", "allreduce/tuner", "shaping", "shaping/fidelity", "sim"}, imports: "sync", except: map[string][]string{"shaping": {"OnceValue"}}, why: "single-threaded by design, so that the order of events is the only order"},
	{in: []string{"policy", "policy/torchft", "policy/worker", "torchft"}, imports: "math/rand/v2", why: "decisions are never random"},
	{in: []string{"policy", "policy/adaptive", "policy/torchft", "policy/worker", "torchft"}, imports: "time", why: "the machine knows scenario time only"},
	{in: []string{}, contrary: true, imports: "math/rand", why: "its streams are not promised to stay the same; use math/rand/v2 with a seeded source"},
	{in: []string{"node", "node/state", "allreduce/quicring", "report", "report/agreement", "report/sweeps", "report/timeline", "report/runs", "report/words", "report/document", "report/estimates", "allreduce/bench", "experiment", "experiment/sweep"}, imports: "os/exec", why: "nodes are started by the host, and never start anything"},
}

// seeded are the names of math/rand/v2 that tests may use, and drawn those of rapid that
// they may not: what rapid draws has the seed of internal/rapidtest.
var (
	seeded = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG", "ChaCha8", "Zipf", "Source"}
	drawn  = []string{"Check", "MakeCheck"}
)

// pureDecisions are the only packages that policy imports; reflect and
// encoding/json, because the fields of a policy are its parameters.
var pureDecisions = []string{"cmp", "encoding/json", "errors", "fmt", "maps", "math", "reflect", "slices", "sort", "strconv", "strings", "testbed/internal/errs"}

type source struct {
	name string // of the file
	fset *token.FileSet
	ast  *ast.File
}

func (s source) at(pos token.Pos) string {
	return fmt.Sprintf("%s:%d", s.name, s.fset.Position(pos).Line)
}

// files returns the files of the module whose names end so, and leaves out
// inner modules, test data, releases and what begins with a dot.
func files(t *testing.T, suffix string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			_, inner := os.Stat(filepath.Join(name, "go.mod"))
			if name != "." && (inner == nil || name == "build" || name == "dist" || base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, suffix) {
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// packages parses every file of the module that is no test, for whatever
// system it is meant, by folder. It does not compile: the test holds for
// packages that are still being written, and for other systems.
func packages(t *testing.T) map[string][]source {
	t.Helper()
	found := map[string][]source{}
	for _, name := range files(t, ".go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		folder := path.Dir(name)
		found[folder] = append(found[folder], source{name, fset, file})
	}
	if len(found) < 4 {
		t.Fatalf("only %d packages found; does the test run at the root of the module?", len(found))
	}
	return found
}

// imported returns the paths a file imports with the names it uses them by.
func (s source) imported() map[string]*ast.ImportSpec {
	out := map[string]*ast.ImportSpec{}
	for _, spec := range s.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has seen to it
		}
		out[p] = spec
	}
	return out
}

// uses returns the names of an imported package that a file uses.
func (s source) uses(p string, spec *ast.ImportSpec) map[string]token.Pos {
	local := path.Base(strings.TrimSuffix(p, "/v2"))
	if spec.Name != nil {
		local = spec.Name.Name
	}
	out := map[string]token.Pos{}
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == local {
				out[sel.Sel.Name] = sel.Pos()
			}
		}
		return true
	})
	return out
}

// TestImportsGoDown: a package imports from its own room and from rooms below.
func TestImportsGoDown(t *testing.T) {
	all := packages(t)
	for _, folder := range slices.Sorted(maps.Keys(all)) {
		from := roomOf(folder)
		if from < 0 {
			t.Errorf("%s is in none of the rooms of architecture_test.go: move it into one, or say what the new room is for", folder)
			continue
		}
		for _, s := range all[folder] {
			for p, spec := range s.imported() {
				if inner, ours := strings.CutPrefix(p, module+"/"); ours && roomOf(inner) < from {
					to := rooms[roomOf(inner)]
					t.Errorf("%s: %s may not import %s: the room %s stands above %s (%s)", s.at(spec.Pos()), folder, inner, to.folder, rooms[from].folder, to.why)
				}
			}
		}
	}
	for i, r := range rooms {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(all)), func(folder string) bool { return roomOf(folder) == i }) {
			t.Errorf("there is no package in the room %s; remove it from the list", r.folder)
		}
	}
}

func TestBans(t *testing.T) {
	all := packages(t)
	for _, b := range bans {
		for _, folder := range slices.Sorted(maps.Keys(all)) {
			if slices.Contains(b.in, folder) == b.contrary {
				continue
			}
			for _, s := range all[folder] {
				for p, spec := range s.imported() {
					if p == b.imports || strings.HasSuffix(b.imports, "/") && strings.HasPrefix(p, b.imports) {
						b.check(t, folder, s, p, spec)
					}
				}
			}
		}
	}
}

func (b ban) check(t *testing.T, folder string, s source, p string, spec *ast.ImportSpec) {
	t.Helper()
	switch {
	case spec.Name != nil && spec.Name.Name == ".":
		t.Errorf("%s: %s imports %s with a dot, which hides what it uses", s.at(spec.Pos()), folder, p)
	case b.names == nil && b.except[folder] == nil:
		t.Errorf("%s: %s may not import %s: %s", s.at(spec.Pos()), folder, p, b.why)
	default:
		for name, pos := range s.uses(p, spec) {
			if b.names != nil && slices.Contains(b.names, name) || b.names == nil && !slices.Contains(b.except[folder], name) {
				t.Errorf("%s: %s may not use %s.%s: %s", s.at(pos), folder, p, name, b.why)
			}
		}
	}
}

// TestRandomTestsHaveASeed: what CI has tried, everybody can try again. Fresh seeds are
// for internal/explore.
func TestRandomTestsHaveASeed(t *testing.T) {
	for _, name := range files(t, "_test.go") {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		s := source{name, fset, file}
		for p, spec := range s.imported() {
			for used, pos := range s.uses(p, spec) {
				if p == "pgregory.net/rapid" && slices.Contains(drawn, used) || p == "math/rand/v2" && !slices.Contains(seeded, used) {
					t.Errorf("%s: a test may not use %s.%s: take rapidtest.Check, or rand.New with a fixed seed or rapidtest.Seed()", s.at(pos), p, used)
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is && slices.ContainsFunc(call.Args, s.clock) {
				if fun, is := call.Fun.(*ast.SelectorExpr); is && (fun.Sel.Name == "NewPCG" || fun.Sel.Name == "NewChaCha8") {
					t.Errorf("%s: a seed is not taken from the clock", s.at(call.Pos()))
				}
			}
			return true
		})
	}
}

// clock says whether an expression asks for the time.
func (s source) clock(e ast.Expr) (asks bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		sel, is := n.(*ast.SelectorExpr)
		asks = asks || is && sel.Sel.Name == "Now"
		return !asks
	})
	return asks
}

// TestPurePackagesUseTheStandardLibraryOnly: a third party's package could do
// anything, and later versions of it something else.
func TestPurePackagesUseTheStandardLibraryOnly(t *testing.T) {
	all := packages(t)
	for _, folder := range pure {
		for _, s := range all[folder] {
			for p, spec := range s.imported() {
				first, _, _ := strings.Cut(p, "/")
				// Which instructions there are changes the speed, never the bytes.
				dispatch := (folder == "allreduce/int8" || folder == "train/matrix") && p == "golang.org/x/sys/cpu"
				if strings.Contains(first, ".") && !dispatch {
					t.Errorf("%s: %s may not import %s: a pure package uses the standard library only", s.at(spec.Pos()), folder, p)
				}
				if folder == "policy" && !slices.Contains(pureDecisions, p) {
					t.Errorf("%s: policy may not import %s: only %s, which do nothing but compute", s.at(spec.Pos()), p, strings.Join(pureDecisions, ", "))
				}
			}
		}
	}
}

// TestPurePackagesAreSequential: goroutines and channels bring an order of
// their own.
func TestPurePackagesAreSequential(t *testing.T) {
	all := packages(t)
	for _, folder := range append(slices.Clone(pure), "scenarios") {
		for _, s := range all[folder] {
			ast.Inspect(s.ast, func(n ast.Node) bool {
				switch n.(type) {
				case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt:
					t.Errorf("%s: %s may not start goroutines or use channels: the same input has to give the same output", s.at(n.Pos()), folder)
				}
				return true
			})
		}
	}
}

// TestEveryPackageSaysWhatItIs in a doc comment.
func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for folder, files := range packages(t) {
		described := slices.ContainsFunc(files, func(s source) bool {
			want := "Package " + s.ast.Name.Name + " "
			if s.ast.Name.Name == "main" {
				want = "Command "
			}
			return s.ast.Doc != nil && (strings.HasPrefix(s.ast.Doc.Text(), want) || s.ast.Name.Name == "main" && s.ast.Doc.Text() != "")
		})
		if !described {
			t.Errorf("%s has no doc comment that begins with what it is", folder)
		}
	}
}

// TestEveryPackageHasItsSentence in docs/architecture.md, where a newcomer looks for
// what lives where.
func TestEveryPackageHasItsSentence(t *testing.T) {
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for folder := range packages(t) {
		if !strings.Contains(string(page), "`"+folder+"`") {
			t.Errorf("docs/architecture.md does not say what %s is; name it in its room, with one sentence", folder)
		}
	}
}
