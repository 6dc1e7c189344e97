package report_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"testbed/experiment/sweep"
	"testbed/internal/stats"
	"testbed/policy"
	"testbed/record"
	"testbed/report"
)

const fieldsFile = "../docs/record-fields.md"

const fieldsOpening = `# Fields of results and events

Reference: every field of a result (%[1]ssummary.json%[1]s, %[1]s--json%[1]s of %[1]srun%[1]s and
%[1]ssimulate%[1]s), a comparison (%[1]scomparison.json%[1]s, %[1]s--json%[1]s of
%[1]scompare%[1]s), a sweep (its %[1]ssummary.json%[1]s), an event
(%[1]sevents.jsonl%[1]s), and an event of [programs of your own](programs.md)
(%[1]sprograms.jsonl%[1]s). [Results and records](results.md) and [Sweeps and
tuning](sweep.md) explain how the fields work together.
%[1]sgo test ./report -run PageOfFields -update%[1]s makes this page from the
program.

- A **time** is in whole microseconds of scenario time. A moment counts from the
  start of the run.
- A field whose type says **optional** is absent if it is empty.
- A **worker** is a number: 3 is w3. Beside a field %[1]sid%[1]s, the field
  %[1]sworker%[1]s has the same value.
`

// TestPageOfFields: the page of fields says what the structs say now.
func TestPageOfFields(t *testing.T) {
	result, comparison, swept, event, ofPrograms := reflect.TypeFor[record.Summary](), reflect.TypeFor[report.Comparison](), reflect.TypeFor[sweep.Summary](), reflect.TypeFor[record.Event](), reflect.TypeFor[record.ProgramEvent]()
	p := fieldsPage{t: t, titles: map[reflect.Type]string{result: "The result", comparison: "The comparison", swept: "The sweep", event: "Fields of events", ofPrograms: "Fields of events of programs"}, written: map[reflect.Type]bool{}}
	p.read("record", "report", "report/agreement", "report/learning", "internal/stats", "experiment/sweep")
	for _, root := range []reflect.Type{result, comparison, swept, event, ofPrograms} {
		p.name(root, "")
	}
	fmt.Fprintf(&p.out, fieldsOpening, "`")
	p.structure(result)
	p.structure(comparison)
	p.structure(swept)
	p.table("Types of events", "event.go")
	p.structure(event)
	p.table("Types of events of programs", "programs.go")
	p.structure(ofPrograms)
	if *update {
		if err := os.WriteFile(fieldsFile, p.out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(fieldsFile); err != nil || !bytes.Equal(got, p.out.Bytes()) {
		t.Errorf("%s is not what the structs say (%v); go test ./report -run PageOfFields -update writes it anew", fieldsFile, err)
	}
}

// fieldsPage writes the page from the structs and the comments on their fields.
type fieldsPage struct {
	t        *testing.T
	out      bytes.Buffer
	comments map[string]map[string]string // by type with its package, and field
	types    map[string][][2]string       // of events with their comments, by file
	titles   map[reflect.Type]string
	written  map[reflect.Type]bool
}

// read takes the comments of packages.
func (p *fieldsPage) read(packages ...string) {
	p.comments, p.types = map[string]map[string]string{}, map[string][][2]string{}
	text := func(doc, comment *ast.CommentGroup) string {
		return strings.Join(strings.Fields(doc.Text()+" "+comment.Text()), " ")
	}
	for _, pkg := range packages {
		files, err := filepath.Glob(filepath.Join("..", pkg, "*.go"))
		if err != nil {
			p.t.Fatal(err)
		}
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				p.t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					if s, ok := n.Type.(*ast.StructType); ok {
						of := map[string]string{}
						for _, field := range s.Fields.List {
							for _, name := range field.Names {
								of[name.Name] = text(field.Doc, field.Comment)
							}
						}
						p.comments["testbed/"+pkg+"."+n.Name.Name] = of
					}
				case *ast.ValueSpec:
					if kind, ok := n.Type.(*ast.Ident); ok && kind.Name == "Type" {
						value := n.Values[0].(*ast.BasicLit).Value
						p.types[filepath.Base(name)] = append(p.types[filepath.Base(name)], [2]string{strings.Trim(value, `"`), text(n.Doc, n.Comment)})
					}
				}
				return true
			})
		}
	}
}

func (p *fieldsPage) known(of reflect.Type) bool {
	return of != nil && p.comments[of.PkgPath()+"."+of.Name()] != nil
}

// standing are the titles of structs that stand in many places.
var standing = map[reflect.Type]string{
	reflect.TypeFor[stats.Estimate](): "An estimate", reflect.TypeFor[stats.Interval](): "An interval", reflect.TypeFor[record.Split](): "`split`",
	reflect.TypeFor[record.ProgramsRun](): "`run` of programs",
}

// roots are the structs that the page is about.
var roots = map[reflect.Type]bool{reflect.TypeFor[record.Summary](): true, reflect.TypeFor[report.Comparison](): true, reflect.TypeFor[sweep.Summary](): true, reflect.TypeFor[record.Event](): true, reflect.TypeFor[record.ProgramEvent](): true}

// name gives the structs in a struct, which is at a path, the paths of their fields as
// titles.
func (p *fieldsPage) name(of reflect.Type, path string) {
	for _, f := range fields(of) {
		s := structIn(f.Type)
		if !p.known(s) {
			continue
		}
		at := strings.TrimPrefix(path+"."+nameOf(f.StructField), ".") + suffix(f.Type)
		if title, ok := standing[s]; ok {
			at = title
		} else {
			at = "`" + at + "`"
		}
		switch before, named := p.titles[s]; {
		case !named:
			p.titles[s] = at
			p.name(s, strings.Trim(at, "`"))
		case standing[s] == "" && !roots[s]:
			p.titles[s] = before + ", " + at
		}
	}
}

// suffix is what stands for the entries of a value in the path of a struct in it.
func suffix(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return suffix(t.Elem())
	case reflect.Slice:
		return "[]" + suffix(t.Elem())
	case reflect.Map:
		return ".NAME" + suffix(t.Elem())
	}
	return ""
}

func nameOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// anchor is where a link to a heading leads.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '_' || r >= 'a' && r <= 'z':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

// structure writes a table of a struct's fields, and the structs in it.
func (p *fieldsPage) structure(of reflect.Type) {
	p.written[of] = true
	fmt.Fprintf(&p.out, "\n## %s\n\n| field | type | meaning |\n|---|---|---|\n", p.titles[of])
	var inner []ownedField
	for _, f := range fields(of) {
		kind := p.kind(of, f.Type)
		if s := structIn(f.Type); p.titles[s] != "" {
			kind = fmt.Sprintf("[%s](#%s)", kind, anchor(p.titles[s]))
			inner = append(inner, f)
		}
		if strings.Contains(f.Tag.Get("json"), ",omit") {
			kind += ", optional"
		}
		p.row(nameOf(f.StructField), kind, p.comments[f.Owner][f.Name])
	}
	for _, f := range inner {
		if s := structIn(f.Type); !p.written[s] {
			p.structure(s)
		}
	}
}

// table writes a table of the types of events that a file declares.
func (p *fieldsPage) table(title, file string) {
	fmt.Fprintf(&p.out, "\n## %s\n\n| type | meaning |\n|---|---|\n", title)
	for _, e := range p.types[file] {
		p.row(e[0], "", e[1])
	}
}

func (p *fieldsPage) row(name, kind, meaning string) {
	if !strings.HasSuffix(meaning, ".") {
		p.t.Errorf("%s means %q, which is no sentence", name, meaning)
	}
	cells := []string{"`" + name + "`", kind, strings.ReplaceAll(meaning, "|", `\|`)}
	fmt.Fprintf(&p.out, "| %s |\n", strings.Join(slices.DeleteFunc(cells, func(s string) bool { return s == "" }), " | "))
}

// ownedField is a field, and the struct that declares it.
type ownedField struct {
	reflect.StructField
	Owner string
}

// fields are the fields of a struct that have a name in JSON, those of embedded
// structs among them.
func fields(of reflect.Type) (all []ownedField) {
	for i := range of.NumField() {
		switch f := of.Field(i); {
		case f.Anonymous:
			all = append(all, fields(f.Type)...)
		case f.IsExported() && f.Tag.Get("json") != "-":
			all = append(all, ownedField{f, of.PkgPath() + "." + of.Name()})
		}
	}
	return all
}

// structIn is the struct that a value is, points to, or has as entries.
func structIn(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		return t
	}
	return nil
}

// kind is the type of a value in a struct, in words.
func (p *fieldsPage) kind(of, t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return p.kind(of, t.Elem())
	case t == reflect.TypeFor[policy.Time]():
		return "time"
	case t == reflect.TypeFor[policy.ID]():
		return "worker"
	case t == reflect.TypeFor[[]policy.ID]():
		return "workers"
	case t.Kind() == reflect.Struct, t == reflect.TypeFor[sweep.Assignment]():
		return "object"
	case t.Kind() == reflect.Slice:
		return "list"
	case t.Kind() == reflect.Map && t.Key() == reflect.TypeFor[policy.ID]():
		return "by worker: " + p.kind(of, t.Elem())
	case t.Kind() == reflect.Map:
		return "by name: " + p.kind(of, t.Elem())
	case t.Kind() == reflect.Interface && of == reflect.TypeFor[report.Speedup]():
		return "number or list"
	case t.Kind() == reflect.Interface:
		return "any value"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Float64:
		return "number"
	case t.ConvertibleTo(reflect.TypeFor[float64]()):
		return "whole number"
	}
	p.t.Errorf("the page does not know the type %v", t)
	return ""
}
