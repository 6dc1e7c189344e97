package record

import (
	"bytes"
	"flag"
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

	"testbed/policy"
)

var update = flag.Bool("update", false, "write the page of fields anew")

const pageFile = "../docs/record-fields.md"

const pageOpening = `# Fields of results and events

A reference, made from the program itself by %[1]sgo test ./record -run Page
-update%[1]s: every field of a result (%[1]ssummary.json%[1]s, %[1]s--json%[1]s
of %[1]srun%[1]s and %[1]ssimulate%[1]s) and of an event
(%[1]sevents.jsonl%[1]s). Meanings are the comments on the fields of the
program. [Results and records](results.md) explains how they work together.

- A **time** is in whole microseconds of scenario time, since the start of the
  run where it is a moment.
- A field whose type says **optional** is absent if it is empty.
- A **worker** is a number: 3 is w3. Where the field is %[1]sid%[1]s, the field
  %[1]sworker%[1]s beside it has the same value.
`

// TestPageOfFields: the page of fields says what the structs say now.
func TestPageOfFields(t *testing.T) {
	result, event := reflect.TypeFor[Summary](), reflect.TypeFor[Event]()
	p := page{t: t, comments: comments(t), titles: map[reflect.Type]string{result: "The result", event: "Fields of events"}, written: map[reflect.Type]bool{}}
	p.name(result, "")
	p.name(event, "")
	fmt.Fprintf(&p.out, pageOpening, "`")
	p.structure(result)
	p.types()
	p.structure(event)
	if *update {
		if err := os.WriteFile(pageFile, p.out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(pageFile); err != nil || !bytes.Equal(got, p.out.Bytes()) {
		t.Errorf("%s is not what the structs say (%v); go test ./record -run Page -update writes it anew", pageFile, err)
	}
}

// commented are the comments on the fields of structs, by their types, and on the types
// of events in the order of the file.
type commented struct {
	fields map[string]map[string]string
	events [][2]string
}

func comments(t *testing.T) commented {
	c := commented{fields: map[string]map[string]string{}}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	text := func(doc, comment *ast.CommentGroup) string {
		return strings.Join(strings.Fields(doc.Text()+" "+comment.Text()), " ")
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
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
					c.fields[n.Name.Name] = of
				}
			case *ast.ValueSpec:
				if kind, ok := n.Type.(*ast.Ident); ok && kind.Name == "Type" && name == "event.go" {
					value := n.Values[0].(*ast.BasicLit).Value
					c.events = append(c.events, [2]string{strings.Trim(value, `"`), text(n.Doc, n.Comment)})
				}
			}
			return true
		})
	}
	return c
}

type page struct {
	t        *testing.T
	out      bytes.Buffer
	comments commented
	titles   map[reflect.Type]string
	written  map[reflect.Type]bool
}

// name gives the structs in a struct, which is at a path, the paths of their fields as
// titles.
func (p *page) name(of reflect.Type, path string) {
	for f := range fields(of) {
		s := structIn(f.Type)
		if s == nil || s.PkgPath() != of.PkgPath() {
			continue
		}
		at := strings.TrimPrefix(path+"."+nameOf(f), ".")
		if f.Type.Kind() == reflect.Slice {
			at += "[]"
		}
		before, known := p.titles[s]
		if p.titles[s] = "`" + at + "`"; known {
			p.titles[s] = before + ", `" + at + "`"
		} else {
			p.name(s, at)
		}
	}
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
func (p *page) structure(of reflect.Type) {
	p.written[of] = true
	fmt.Fprintf(&p.out, "\n## %s\n\n| field | type | meaning |\n|---|---|---|\n", p.titles[of])
	var inner []reflect.StructField
	for f := range fields(of) {
		kind := p.kind(f.Type)
		if s := structIn(f.Type); p.titles[s] != "" {
			kind = fmt.Sprintf("[%s](#%s)", kind, anchor(p.titles[s]))
			inner = append(inner, f)
		}
		if strings.Contains(f.Tag.Get("json"), ",omit") {
			kind += ", optional"
		}
		p.row(nameOf(f), kind, p.comments.fields[of.Name()][f.Name])
	}
	for _, f := range inner {
		if s := structIn(f.Type); !p.written[s] {
			p.structure(s)
		}
	}
}

// types writes a table of the types of events.
func (p *page) types() {
	fmt.Fprint(&p.out, "\n## Types of events\n\n| type | meaning |\n|---|---|\n")
	for _, e := range p.comments.events {
		p.row(e[0], "", e[1])
	}
}

func (p *page) row(name, kind, meaning string) {
	if !strings.HasSuffix(meaning, ".") {
		p.t.Errorf("%s means %q, which is no sentence", name, meaning)
	}
	cells := []string{"`" + name + "`", kind, strings.ReplaceAll(meaning, "|", `\|`)}
	fmt.Fprintf(&p.out, "| %s |\n", strings.Join(slices.DeleteFunc(cells, func(s string) bool { return s == "" }), " | "))
}

// fields are the fields of a struct that have a name in JSON.
func fields(of reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range of.NumField() {
			if f := of.Field(i); f.IsExported() && f.Tag.Get("json") != "-" && !yield(f) {
				return
			}
		}
	}
}

// structIn is the struct that a value is, points to, or has as entries.
func structIn(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		return t
	}
	return nil
}

func (p *page) kind(t reflect.Type) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return p.kind(t.Elem())
	case t == reflect.TypeFor[policy.Time]():
		return "time"
	case t == reflect.TypeFor[policy.ID]():
		return "worker"
	case t == reflect.TypeFor[[]policy.ID]():
		return "workers"
	case t.Kind() == reflect.Struct:
		return "object"
	case t.Kind() == reflect.Slice:
		return "list"
	case t.Kind() == reflect.Map:
		return "numbers by worker"
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
