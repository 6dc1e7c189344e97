package testbed_test

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

// rooms is the table of DESIGN.md: what each package may import of this
// module, and why no more. A package that needs another row's door is two
// packages, or the row is wrong: change the table with the code.
var rooms = map[string]struct {
	may []string // folders; "*" is all of them
	why string
}{
	"cmd/testbed":        {[]string{"*"}, "the verbs may call everything, so that nothing has to call them"},
	"scenarios":          {[]string{"policy", "shaping"}, "a scenario does not know who plays it"},
	"worker":             {[]string{"policy"}, "what a worker decides, in every world; it tells the coordinator in the events of its machine"},
	"policy":             {nil, "the same decisions in every world: nothing of a world may reach them"},
	"allreduce":          {nil, "schedule and codec are judged without a transport"},
	"allreduce/int8":     {nil, "kernels see bytes and floats only"},
	"allreduce/entropy":  {nil, "codes are bytes to it; it moves none and reads no clock"},
	"allreduce/quicring": {[]string{"allreduce", "allreduce/int8", "allreduce/entropy"}, "the ring does not judge who takes part"},
	"shaping":            {nil, "what a link is, apart from how it is made"},
	"shaping/kernel":     {[]string{"shaping"}, "the kernel's side installs plans and does not know scenarios"},
	"shaping/userlink":   {[]string{"shaping"}, "the user-space side installs the same plans"},
	"shaping/fidelity":   {[]string{"shaping"}, "a verdict on measurements, wherever they come from"},
	"shaping/probe":      {[]string{"shaping"}, "measures paths against a plan, however they were installed"},
	"node/identity":      {nil, "who a node is does not depend on what it does"},
	"node/state":         {[]string{"policy", "worker", "allreduce/quicring", "node/identity"}, "keeps and moves the outer state; when that is wanted, the worker's driver says"},
	"node":               {[]string{"node/identity", "node/state", "scenarios", "policy", "worker", "allreduce", "allreduce/int8", "allreduce/quicring", "runlog"}, "a node does not know which world it is in"},
	"node/host":          {[]string{"node", "node/identity", "node/state", "node/host/sandbox", "scenarios", "policy", "shaping", "shaping/kernel", "shaping/userlink", "shaping/fidelity", "shaping/probe", "runlog", "bench", "allreduce/quicring"}, "the host starts nodes and carries injects out; it neither trains nor simulates"},
	"node/host/sandbox":  {nil, "a sandbox runs any program"},
	"sim":                {[]string{"scenarios", "policy", "worker", "allreduce", "allreduce/entropy", "shaping", "runlog"}, "the simulator shares the rules with the real run and nothing of its network"},
	"bench":              {[]string{"allreduce", "allreduce/int8", "allreduce/quicring", "shaping"}, "measures what others built; it builds no network and starts no process"},
	"calibrate":          {[]string{"sim", "runlog", "scenarios", "policy", "stats"}, "fits parameters to records; it starts no runs"},
	"runlog":             {[]string{"policy", "scenarios"}, "a record knows what was played, and not its readers"},
	"stats":              {nil, "what numbers allow to be said, whatever they measure"},
	"sweep":              {[]string{"scenarios", "policy", "runlog", "stats"}, "what varies and what comes of it; who plays the points is the caller's business"},
	"report/words":       {[]string{"policy", "scenarios"}, "wording does not know what it is read in"},
	"report/record":      {[]string{"runlog", "scenarios", "policy"}, "reads directories of runs only; what follows from them is others' business"},
	"report/timeline":    {[]string{"report/record", "report/words", "runlog", "scenarios", "policy"}, "follows from one run; it compares none"},
	"report/document":    {nil, "the frame of a page does not know what is on it"},
	"report/sweeps":      {[]string{"report/words", "report/document", "runlog", "scenarios", "stats", "sweep"}, "a sweep's page is about its table, and reads no run"},
	"report":             {[]string{"report/words", "report/record", "report/timeline", "report/document", "runlog", "scenarios", "policy", "stats"}, "shows runs and comparisons, without root and off Linux"},
	"internal/memnet":    {[]string{"shaping", "shaping/userlink", "node/identity"}, "the network of the test world; it knows no protocol of the nodes"},
	"internal/browser":   {nil, "shows tests what a page does, whatever is on it"},
	"internal/testenv":   {[]string{"shaping/kernel", "shaping"}, "says what tests need of the machine"},
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
	pure   = []string{"policy", "worker", "allreduce", "allreduce/int8", "shaping", "shaping/fidelity", "sim", "stats"}
	clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
)

var bans = []ban{
	{in: []string{"shaping/kernel"}, contrary: true, imports: "github.com/vishvananda/netlink", why: "one room talks to the kernel's network, and can be checked against it"},
	{in: []string{"shaping/kernel"}, contrary: true, imports: "github.com/vishvananda/netlink/", why: "one room talks to the kernel's network, and can be checked against it"},
	{in: append(slices.Clone(pure), "scenarios", "runlog", "allreduce/entropy"), imports: "time", names: clocks, why: "time is an argument here; a clock would make runs differ"},
	{in: pure, imports: "os", why: "pure: no files, no environment, no processes"},
	{in: pure, imports: "net", except: map[string][]string{"shaping": {"ParseMAC", "HardwareAddr"}}, why: "pure: no sockets; names and addresses as data are fine"},
	{in: pure, imports: "net/http", why: "pure: no sockets"},
	{in: pure, imports: "syscall", why: "pure: no system calls"},
	{in: []string{"policy", "worker", "allreduce", "shaping", "shaping/fidelity", "sim", "scenarios"}, imports: "sync", except: map[string][]string{"shaping": {"OnceValue"}}, why: "single-threaded by design, so that the order of events is the only order"},
	{in: []string{"policy", "worker"}, imports: "math/rand/v2", why: "decisions are never random"},
	{in: []string{"policy", "worker"}, imports: "time", why: "the machine knows scenario time only"},
	{in: []string{}, contrary: true, imports: "math/rand", why: "its streams are not promised to stay the same; use math/rand/v2 with a seeded source"},
	{in: []string{"node", "node/state", "allreduce/quicring", "report", "report/sweeps", "report/timeline", "report/record", "report/words", "report/document", "bench"}, imports: "os/exec", why: "nodes are started by the host, and never start anything"},
}

// pureDecisions are the only packages that policy imports.
var pureDecisions = []string{"cmp", "errors", "fmt", "maps", "math", "slices", "sort", "strconv", "strings"}

type source struct {
	name string // of the file
	fset *token.FileSet
	ast  *ast.File
}

func (s source) at(pos token.Pos) string {
	return fmt.Sprintf("%s:%d", s.name, s.fset.Position(pos).Line)
}

// packages parses every file of the module that is no test, for whatever
// system it is meant, by folder. It does not compile: the test holds for
// packages that are still being written, and for other systems.
func packages(t *testing.T) map[string][]source {
	t.Helper()
	found := map[string][]source{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			_, inner := os.Stat(filepath.Join(name, "go.mod"))
			if name != "." && (inner == nil || base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder := filepath.ToSlash(filepath.Dir(name))
		found[folder] = append(found[folder], source{filepath.ToSlash(name), fset, file})
		return nil
	})
	if err != nil {
		t.Fatal(err)
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
	local := path.Base(p)
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

func TestEveryPackageImportsWhatItsRowAllows(t *testing.T) {
	for folder, files := range packages(t) {
		room, ok := rooms[folder]
		if !ok {
			t.Errorf("%s has no row in the table of rooms; say what it is for and what it may import", folder)
			continue
		}
		for _, s := range files {
			for p, spec := range s.imported() {
				inner, ours := strings.CutPrefix(p, module+"/")
				if ours && !slices.Contains(room.may, inner) && !slices.Contains(room.may, "*") {
					t.Errorf("%s: %s may not import %s: %s", s.at(spec.Pos()), folder, inner, room.why)
				}
			}
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

// TestPurePackagesUseTheStandardLibraryOnly: a third party's package could do
// anything, and later versions of it something else.
func TestPurePackagesUseTheStandardLibraryOnly(t *testing.T) {
	all := packages(t)
	for _, folder := range pure {
		for _, s := range all[folder] {
			for p, spec := range s.imported() {
				first, _, _ := strings.Cut(p, "/")
				// Which instructions there are changes the speed, never the bytes.
				dispatch := folder == "allreduce/int8" && p == "golang.org/x/sys/cpu"
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

// What a reader can hold in mind, in lines.
const (
	maxPackage  = 2500
	maxFunction = 80
)

// larger are packages that are still to be cut.
var larger = []string{"allreduce/quicring", "cmd/testbed", "node/host", "sim"}

// TestPackagesAndFunctionsAreShort: tests and generated code do not count.
func TestPackagesAndFunctionsAreShort(t *testing.T) {
	for folder, files := range packages(t) {
		if slices.Contains(larger, folder) {
			continue
		}
		total := 0
		for _, s := range files {
			if ast.IsGenerated(s.ast) {
				continue
			}
			total += s.fset.File(s.ast.Pos()).LineCount()
			for _, d := range s.ast.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				if n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1; n > maxFunction {
					t.Errorf("%s: function %s has %d lines, more than %d: cut it where a reader would", s.at(f.Pos()), f.Name.Name, n, maxFunction)
				}
			}
		}
		if total > maxPackage {
			t.Errorf("%s has %d lines, more than %d: it is two packages", folder, total, maxPackage)
		}
	}
}
