package node

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// testLines reads a file of testdata: lines, between comments and empty lines.
func testLines(t *testing.T, name string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") && line != "\n" {
			lines = append(lines, line)
		}
	}
	return lines
}

// constants returns the values of a file's constants of a type.
func constants(t *testing.T, file, typeName string) (values []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is {
			return true
		}
		if of, is := spec.Type.(*ast.Ident); is && of.Name == typeName {
			for _, v := range spec.Values {
				value, err := strconv.Unquote(v.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, value)
			}
		}
		return false
	})
	if len(values) == 0 {
		t.Fatalf("%s has no constants of type %s", file, typeName)
	}
	return values
}

// TestOldMessagesStay: messages and lines of journals of an earlier version decode, and
// encode to the same bytes. Every kind of message and entry has a line, and every field
// of a message is in one. A change of what is written is another version of the protocol
// or the journal; a new kind or field gets a line.
func TestOldMessagesStay(t *testing.T) {
	told, fields := map[string]bool{}, map[string]bool{}
	for _, line := range testLines(t, "testdata/control.txt") {
		m, err := parseMessage([]byte(line))
		if err != nil {
			t.Errorf("%s is not read: %v", line, err)
			continue
		}
		var again bytes.Buffer
		if err := json.NewEncoder(&again).Encode(m); err != nil || again.String() != line {
			t.Errorf("%s is written as %s (%v)", line, again.String(), err)
		}
		told[string(m.Type)] = true
		var raw map[string]any
		if err := json.Unmarshal([]byte(line), &raw); err != nil {
			t.Fatal(err)
		}
		for name := range raw {
			fields[name] = true
		}
	}
	for f := range reflect.TypeFor[message]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && !fields[name] {
			t.Errorf("no message in testdata/control.txt has the field %s; add a line", name)
		}
	}

	lines := testLines(t, "testdata/journal.txt")
	var header journalHeader
	if err := strictly([]byte(lines[0]), &header); err != nil || describe(header)+"\n" != lines[0] {
		t.Errorf("the header %s is written as %s (%v)", lines[0], describe(header), err)
	}
	for _, line := range lines[1:] {
		var e entry
		if err := strictly([]byte(line), &e); err != nil {
			t.Errorf("%s is not read: %v", line, err)
			continue
		}
		if again := describe(e) + "\n"; again != line {
			t.Errorf("%s is written as %s", line, again)
		}
		told[string(e.What)] = true
		if e.Msg != nil {
			told[string(e.Msg.Type)] = true
		}
	}
	for _, kind := range slices.Concat(constants(t, "control.go", "verb"), constants(t, "journal.go", "cause")) {
		if !told[kind] {
			t.Errorf("neither testdata/control.txt nor testdata/journal.txt has a line of the kind %q; add one", kind)
		}
	}
}
