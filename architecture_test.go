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

// doors is the page with the import table: what each package may import of this
// module, and why no more. A package that needs another row's door is two
// packages, or the row is wrong: change the table with the code.
const doors = "docs/architecture.md"

// room is a row of the import table.
type room struct {
	line int
	may  []string // folders
	all  bool     // every folder
	why  string
}

// tableHead begins the import table.
const tableHead = "| folder | may import | why |"

// parseDoors reads the import table of a page. Every problem names the line and
// the mend.
func parseDoors(page string) (rooms map[string]room, problems []string) {
	rooms = map[string]room{}
	lines := strings.Split(page, "\n")
	at := slices.Index(lines, tableHead)
	if at < 0 {
		return nil, []string{fmt.Sprintf("%s:1: there is no import table; begin it with a line %q", doors, tableHead)}
	}
	for i := at + 2; i < len(lines) && strings.HasPrefix(lines[i], "|"); i++ {
		bad := func(format string, args ...any) {
			problems = append(problems, fmt.Sprintf("%s:%d: ", doors, i+1)+fmt.Sprintf(format, args...))
		}
		cells := strings.Split(strings.Trim(lines[i], "|"), "|")
		if len(cells) != 3 || strings.TrimSpace(cells[2]) == "" {
			bad("a row has three cells, | `folder` | `folder`, `folder` | why |; write it so")
			continue
		}
		folders, ok := folderList(cells[0])
		if !ok || len(folders) != 1 {
			bad("the first cell is %q; write one folder there, in backticks", strings.TrimSpace(cells[0]))
			continue
		}
		r := room{line: i + 1, why: strings.TrimSpace(cells[2])}
		switch may := strings.TrimSpace(cells[1]); may {
		case "everything":
			r.all = true
		case "nothing":
		default:
			if r.may, ok = folderList(may); !ok {
				bad("the second cell is %q; write folders in backticks with commas between, or nothing, or everything", may)
				continue
			}
		}
		if old, twice := rooms[folders[0]]; twice {
			bad("%s has a row already, on line %d; make one of the two", folders[0], old.line)
		}
		rooms[folders[0]] = r
	}
	if len(rooms) == 0 && len(problems) == 0 {
		problems = []string{fmt.Sprintf("%s:%d: the import table has no rows; add one for each package", doors, at+1)}
	}
	return rooms, problems
}

// folderList reads names in backticks with commas between.
func folderList(cell string) (folders []string, ok bool) {
	for name := range strings.SplitSeq(cell, ",") {
		inner := strings.Trim(strings.TrimSpace(name), "`")
		if strings.TrimSpace(name) != "`"+inner+"`" || inner == "" || strings.Contains(inner, "`") {
			return nil, false
		}
		folders = append(folders, inner)
	}
	return folders, true
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
	pure   = []string{"policy", "policy/adaptive", "policy/torchft", "worker", "quorum", "allreduce", "allreduce/int8", "allreduce/rivals", "allreduce/tuner", "shaping", "shaping/fidelity", "sim", "sim/agenda", "sim/burst", "sim/churn", "sim/linerate", "sim/replay", "stats", "estimate", "scenarios/work", "scenarios/regions", "scenarios/truth", "scenarios/ringorder", "scenarios/placement", "train", "train/matrix", "train/charlm"}
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
	{in: []string{"policy", "policy/torchft", "worker", "quorum", "allreduce", "allreduce/tuner", "shaping", "shaping/fidelity", "sim", "scenarios"}, imports: "sync", except: map[string][]string{"shaping": {"OnceValue"}}, why: "single-threaded by design, so that the order of events is the only order"},
	{in: []string{"policy", "policy/torchft", "worker", "quorum"}, imports: "math/rand/v2", why: "decisions are never random"},
	{in: []string{"policy", "policy/adaptive", "policy/torchft", "worker", "quorum"}, imports: "time", why: "the machine knows scenario time only"},
	{in: []string{}, contrary: true, imports: "math/rand", why: "its streams are not promised to stay the same; use math/rand/v2 with a seeded source"},
	{in: []string{"node", "node/state", "allreduce/quicring", "report", "report/agreement", "report/sweeps", "report/timeline", "report/record", "report/words", "report/document", "report/estimates", "bench", "experiment"}, imports: "os/exec", why: "nodes are started by the host, and never start anything"},
}

// pureDecisions are the only packages that policy imports; reflect, because the
// fields of a policy are its parameters.
var pureDecisions = []string{"cmp", "errors", "fmt", "maps", "math", "reflect", "slices", "sort", "strconv", "strings"}

type source struct {
	name string // of the file
	fset *token.FileSet
	ast  *ast.File
}

func (s source) at(pos token.Pos) string {
	return fmt.Sprintf("%s:%d", s.name, s.fset.Position(pos).Line)
}

// files returns the files of the module whose names end so, and leaves out
// inner modules, test data and what begins with a dot.
func files(t *testing.T, suffix string) (names []string) {
	t.Helper()
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

// TestEveryPackageImportsWhatItsRowAllows, and nothing stands open that nobody
// goes through: a row without a package, or a door that no file of the row's
// folder uses, is out of date.
func TestEveryPackageImportsWhatItsRowAllows(t *testing.T) {
	page, err := os.ReadFile(doors)
	if err != nil {
		t.Fatal(err)
	}
	rooms, problems := parseDoors(string(page))
	for _, p := range problems {
		t.Error(p)
	}
	all, used := packages(t), map[[2]string]bool{}
	for _, folder := range slices.Sorted(maps.Keys(all)) {
		room, ok := rooms[folder]
		if !ok {
			t.Errorf("%s: %s has no row in the import table; say what it may import, and why no more", doors, folder)
			continue
		}
		for _, s := range all[folder] {
			for p, spec := range s.imported() {
				inner, ours := strings.CutPrefix(p, module+"/")
				if !ours {
					continue
				}
				used[[2]string{folder, inner}] = true
				if !room.all && !slices.Contains(room.may, inner) {
					t.Errorf("%s: %s may not import %s: %s (%s:%d)", s.at(spec.Pos()), folder, inner, room.why, doors, room.line)
				}
			}
		}
	}
	for folder, room := range rooms {
		if all[folder] == nil {
			t.Errorf("%s:%d: there is no package %s; remove the row, or mend its name", doors, room.line, folder)
			continue
		}
		for _, inner := range room.may {
			switch {
			case all[inner] == nil:
				t.Errorf("%s:%d: there is no package %s for %s to import; mend its name", doors, room.line, inner, folder)
			case !used[[2]string{folder, inner}]:
				t.Errorf("%s:%d: no file of %s imports %s; take it out of the row", doors, room.line, folder, inner)
			}
		}
	}
}

func TestMalformedImportTables(t *testing.T) {
	head := tableHead + "\n|---|---|---|\n"
	for page, want := range map[string]string{
		"no table":                                        ":1: there is no import table",
		head:                                              ":1: the import table has no rows",
		"text\n\n" + head + "| `a` | nothing |":           ":5: a row has three cells",
		head + "| `a` | nothing | |":                      ":3: a row has three cells",
		head + "| a | nothing | pure |":                   ":3: the first cell is \"a\"",
		head + "| `a`, `b` | nothing | pure |":            ":3: the first cell is",
		head + "| `a` | `b` `c` | pure |":                 ":3: the second cell is",
		head + "| `a` | | pure |":                         ":3: the second cell is \"\"",
		head + "| `a` | nothing | x |\n| `a` | `b` | y |": ":4: a has a row already, on line 3",
	} {
		_, problems := parseDoors(page)
		if len(problems) != 1 || !strings.HasPrefix(problems[0], doors+want) {
			t.Errorf("problems of %q are %q, want one that begins with %q", page, problems, doors+want)
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

// What a reader can hold in mind, in lines.
const (
	maxPackage  = 2500
	maxFunction = 80
)

// TestPackagesAndFunctionsAreShort: tests and generated code do not count.
func TestPackagesAndFunctionsAreShort(t *testing.T) {
	for folder, files := range packages(t) {
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
