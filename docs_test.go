package _test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// lineLimit is how long a line of prose may be, in characters.
const lineLimit = 80

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|href)="([^"]+)"`)
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// A path is a name that begins with a folder or file of the repository's root.
	// With a colon a name declared there follows: file.go:Type.method.
	filePath = regexp.MustCompile(`^([\w.-]+(?:/[\w.-]+)*)/?(?::([A-Za-z_][\w.]*))?$`)
	cited    = regexp.MustCompile(`\bdocs/[\w./-]+\.(?:md|sh)\b`)
)

// page is a Markdown file.
type page struct {
	name  string
	lines []string // those in fences are empty
}

func (p page) at(line int) string { return fmt.Sprintf("%s:%d", p.name, line+1) }

// dir is the folder that links are relative to.
func (p page) dir() string { return path.Dir(p.name) }

// pages reads all Markdown of the repository, without fenced code.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	for _, name := range files(t, ".md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p := page{name: name, lines: strings.Split(string(text), "\n")}
		fenced := false
		for i, l := range p.lines {
			fence := strings.HasPrefix(strings.TrimSpace(l), "```")
			if fenced || fence {
				p.lines[i] = ""
			}
			fenced = fenced != fence
		}
		all = append(all, p)
	}
	if len(all) < 5 {
		t.Fatalf("only %d pages found; does the test run at the root of the module?", len(all))
	}
	return all
}

// prose reports whether a line may be wrapped: no table, no HTML, and no single
// word that is too long.
func prose(line string) bool {
	line = strings.TrimLeft(line, " -")
	return strings.Contains(line, " ") && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "<")
}

func TestProseIsWrapped(t *testing.T) {
	for _, p := range pages(t) {
		for i, l := range p.lines {
			if n := utf8.RuneCountInString(l); n > lineLimit && prose(l) {
				t.Errorf("%s: %d characters; wrap prose at %d", p.at(i), n, lineLimit)
			}
		}
	}
}

// anchors returns the fragments by which the headings of a page can be linked
// to, as GitHub makes them.
func (p page) anchors() (all []string) {
	for _, l := range p.lines {
		if text, ok := strings.CutPrefix(strings.TrimLeft(l, "#"), " "); ok && strings.HasPrefix(l, "#") {
			all = append(all, strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case r == '-' || r == '_' || r >= 0x80 || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
					return r
				}
				return -1
			}, strings.ToLower(text)))
		}
	}
	return all
}

// TestLinks: every relative link leads to a file, and to a heading of it, and
// every page of docs/ is linked to: from the first page or the index, and
// notes from any.
func TestLinks(t *testing.T) {
	all := pages(t)
	byName, linked := map[string]page{}, map[string]bool{}
	for _, p := range all {
		byName[p.name] = p
	}
	for _, p := range all {
		for i, l := range p.lines {
			for _, m := range link.FindAllStringSubmatch(l, -1) {
				target := m[1] + m[2]
				if strings.Contains(target, "://") {
					continue
				}
				file, anchor, _ := strings.Cut(target, "#")
				name := p.name
				if file != "" {
					name = path.Join(p.dir(), file)
				}
				if _, err := os.Stat(name); err != nil {
					t.Errorf("%s: the link to %s leads nowhere: %v", p.at(i), target, err)
					continue
				}
				if to, ok := byName[name]; ok && anchor != "" && !slices.Contains(to.anchors(), anchor) {
					t.Errorf("%s: %s has no heading #%s", p.at(i), name, anchor)
				}
				if p.name == "README.md" || p.name == "docs/index.md" || strings.HasPrefix(name, "docs/notes/") && name != p.name {
					linked[name] = true
				}
			}
		}
	}
	for _, p := range all {
		if strings.HasPrefix(p.name, "docs/") && !linked[p.name] {
			t.Errorf("%s is not linked to from README.md or docs/index.md (or, a note, from anywhere)", p.name)
		}
	}
}

// TestNotesSayWhenAndWhere figures were measured, and by which command.
func TestNotesSayWhenAndWhere(t *testing.T) {
	for _, p := range pages(t) {
		text := strings.ToLower(strings.Join(p.lines, "\n"))
		for _, word := range []string{"when:", "machine", "command"} {
			if strings.HasPrefix(p.name, "docs/notes/") && !strings.Contains(text, word) {
				t.Errorf("%s does not say %q; a note begins with the date, the machine and the commands of its figures", p.name, word)
			}
		}
	}
}

// TestPathsInBackticks: what looks like a file or folder of the repository
// exists, and what is said to be declared there is.
func TestPathsInBackticks(t *testing.T) {
	declared := map[string][]string{}
	for _, p := range pages(t) {
		for i, l := range p.lines {
			for _, span := range codeSpan.FindAllStringSubmatch(l, -1) {
				m := filePath.FindStringSubmatch(span[1])
				if m == nil {
					continue
				}
				name, what := m[1], m[2]
				root, _, inner := strings.Cut(name, "/")
				if root == "runs" || root == "dist" || root == "build" { // what commands leave
					continue
				}
				if _, err := os.Stat(root); !strings.HasSuffix(name, ".go") && what == "" && (!inner || err != nil) {
					continue
				}
				if _, err := os.Stat(name); err != nil {
					t.Errorf("%s: there is no %s in the repository", p.at(i), name)
					continue
				}
				if what == "" {
					continue
				}
				if declared[name] == nil {
					declared[name] = declarations(t, name)
				}
				if !slices.Contains(declared[name], what) {
					t.Errorf("%s: %s declares no %s", p.at(i), name, what)
				}
			}
		}
	}
}

// declarations returns the names that a Go file declares; methods as
// Type.method.
func declarations(t *testing.T, name string) (all []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			all = append(all, receiver(d)+d.Name.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					all = append(all, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						all = append(all, n.Name)
					}
				}
			}
		}
	}
	return all
}

// receiver returns the type of a method and a dot, and nothing for a function.
func receiver(d *ast.FuncDecl) (prefix string) {
	if d.Recv == nil {
		return ""
	}
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && prefix == "" {
			prefix = id.Name + "."
		}
		return true
	})
	return prefix
}

// TestCodeCitesPagesThatExist: comments and messages name pages of docs/.
func TestCodeCitesPagesThatExist(t *testing.T) {
	for _, name := range append(files(t, ".go"), files(t, ".sh")...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cited.FindAllString(string(text), -1) {
			if _, err := os.Stat(c); err != nil {
				t.Errorf("%s cites %s, which does not exist", name, c)
			}
		}
	}
}
