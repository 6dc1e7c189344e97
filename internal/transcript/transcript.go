// Package transcript runs tests that are text files: inputs, line by line, with
// the observed outputs indented below each line.
//
//	A worker that is evicted ends.
//
//	start round=1
//	  begin_step round=1 step=1 factor=1
//	# A comment.
//	evict
//	  stop
//	  end evicted
//
// The first paragraph describes the file. With the flag -update the files get
// the present outputs: review the difference.
package transcript

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

var update = flag.Bool("update", false, "rewrite the outputs of the transcripts; review the difference")

const indent = "  "

// Run plays every file that matches the pattern, as a subtest of its own. begin
// returns a function for a file: it carries out a line, and returns the
// observed lines, or an error if the line is invalid.
func Run(t *testing.T, pattern string, begin func(t *testing.T) (do func(line string) ([]string, error))) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts match %s: %v", pattern, err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)), func(t *testing.T) { play(t, name, begin(t)) })
	}
}

func play(t *testing.T, name string, do func(line string) ([]string, error)) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	about, rest, found := strings.Cut(string(text), "\n\n")
	if !found || strings.TrimSpace(about) == "" {
		t.Fatalf("%s does not begin with a paragraph that describes it", name)
	}
	lines := strings.Split(strings.TrimSuffix(rest, "\n"), "\n")
	first := strings.Count(about, "\n") + 3 // number of the first of them
	var played []string
	done := 0
	for k := 0; k < len(lines); k++ {
		line := lines[k]
		played = append(played, line)
		switch {
		case strings.HasPrefix(line, indent):
			t.Fatalf("%s:%d: there is no input line before this output", name, first+k)
		case line == "" || line[0] == '#':
			continue
		}
		var want []string
		for k+1 < len(lines) && strings.HasPrefix(lines[k+1], indent) {
			k++
			want = append(want, strings.TrimPrefix(lines[k], indent))
		}
		got, err := do(line)
		if err != nil {
			t.Fatalf("%s:%d: %s: %v", name, first+k-len(want), line, err)
		}
		done++
		for _, seen := range got {
			played = append(played, indent+seen)
		}
		if !slices.Equal(got, want) && !*update {
			t.Fatalf("%s:%d: the input\n%s\ngives\n%s\ninstead of\n%s", name, first+k-len(want), line, block(got), block(want))
		}
	}
	if done == 0 {
		t.Fatalf("%s has no input line", name)
	}
	if now := about + "\n\n" + strings.Join(played, "\n") + "\n"; *update && now != string(text) {
		if err := os.WriteFile(name, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func block(lines []string) string {
	if len(lines) == 0 {
		return indent + "(nothing)"
	}
	return indent + strings.Join(lines, "\n"+indent)
}

// Show writes a struct as a line: the name of its type, its non-zero fields,
// and all fields of a type called ID. A field that is true has no value, and an
// embedded interface shows its content.
func Show(v any) string {
	of := reflect.ValueOf(v)
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	words := []string{snake(of.Type().Name())}
	for f, value := range of.Fields() {
		switch {
		case value.IsZero() && f.Type.Name() != "ID":
		case f.Anonymous && value.Kind() == reflect.Interface:
			words = append(words, Show(value.Interface()))
		case value.Kind() == reflect.Bool:
			words = append(words, snake(f.Name))
		default:
			words = append(words, snake(f.Name)+"="+text(value))
		}
	}
	return strings.Join(words, " ")
}

// text writes a value without spaces, unless it is a quoted string.
func text(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Pointer:
		return text(v.Elem())
	case reflect.Slice:
		var all []string
		for _, e := range v.Seq2() {
			all = append(all, text(e))
		}
		return strings.Join(all, ",")
	case reflect.String:
		if s := v.String(); strings.ContainsAny(s, " =") {
			return strconv.Quote(s)
		}
	}
	return fmt.Sprint(v.Interface())
}

// Read reads lines in the format of Show, of one of these kinds, which are
// structs. A field other than a list may have several values: then there is a
// struct for each, in order. A field that a line lacks has the value of its
// kind.
func Read(line string, kinds ...any) (structs []any, err error) {
	name, rest, _ := strings.Cut(line, " ")
	at := slices.IndexFunc(kinds, func(k any) bool { return snake(reflect.TypeOf(k).Name()) == name })
	if at < 0 {
		return nil, fmt.Errorf("%q is not a kind of line", name)
	}
	all := []reflect.Value{copied(reflect.ValueOf(kinds[at]))}
	for word := range strings.FieldsSeq(rest) {
		key, value, given := strings.Cut(word, "=")
		if !given {
			value = "true"
		}
		var next []reflect.Value
		for _, s := range all {
			field := s.FieldByNameFunc(func(f string) bool { return snake(f) == key })
			if !field.IsValid() {
				return nil, fmt.Errorf("%s has no field %q", name, key)
			}
			values := []string{value}
			if field.Kind() != reflect.Slice {
				values = strings.Split(value, ",")
			}
			for _, v := range values {
				one := copied(s)
				if err := set(one.FieldByNameFunc(func(f string) bool { return snake(f) == key }), v); err != nil {
					return nil, fmt.Errorf("%s: %w", key, err)
				}
				next = append(next, one)
			}
		}
		all = next
	}
	for _, s := range all {
		structs = append(structs, s.Interface())
	}
	return structs, nil
}

// copied is a copy whose fields can be set.
func copied(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}

// set sets a field to a value that is written as text.
func set(field reflect.Value, value string) error {
	switch field.Kind() {
	case reflect.Pointer:
		p := reflect.New(field.Type().Elem())
		if err := set(p.Elem(), value); err != nil {
			return err
		}
		field.Set(p)
	case reflect.Slice:
		for part := range strings.SplitSeq(value, ",") {
			e := reflect.New(field.Type().Elem()).Elem()
			if err := set(e, part); err != nil {
				return err
			}
			field.Set(reflect.Append(field, e))
		}
	case reflect.String:
		field.SetString(value)
	case reflect.Bool:
		b, err := strconv.ParseBool(value)
		field.SetBool(b)
		return err
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(value, 10, 64)
		field.SetInt(n)
		return err
	case reflect.Float64:
		x, err := strconv.ParseFloat(value, 64)
		field.SetFloat(x)
		return err
	default:
		return fmt.Errorf("a field of kind %v cannot be given", field.Kind())
	}
	return nil
}

// snake is the name of a type or field in transcripts: HasState is has_state,
// and ID is id.
func snake(name string) string {
	runes := []rune(name)
	var b strings.Builder
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 && unicode.IsLower(runes[i-1]) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
