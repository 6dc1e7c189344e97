package jsonnode_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/scenarios/internal/jsonnode"
)

// plain is what a node holds, as encoding/json has it with UseNumber.
func plain(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			m[n.Content[i].Value] = plain(n.Content[i+1]) // of keys that are there twice the last one
		}
		return m
	case yaml.SequenceNode:
		all := []any{}
		for _, c := range n.Content {
			all = append(all, plain(c))
		}
		return all
	}
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return n.Value == "true"
	case "!!int", "!!float":
		return json.Number(n.Value)
	}
	return n.Value
}

// agree compares Parse with encoding/json on any text.
func agree(text []byte) error {
	var want any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	valid := json.Valid(text)
	n, err := jsonnode.Parse(text)
	switch {
	case valid && err != nil:
		return fmt.Errorf("encoding/json reads it: %w", err)
	case !valid && err == nil:
		return fmt.Errorf("encoding/json refuses it")
	case !valid:
		return nil
	}
	if err := dec.Decode(&want); err != nil {
		return err
	}
	if got := plain(n); !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%#v, encoding/json has %#v", got, want)
	}
	return nil
}

// write writes a value as some encoder may: with any escapes, and any white space.
func write(t *rapid.T, b *strings.Builder, depth int) {
	space := func() {
		b.WriteString(strings.Repeat(rapid.SampledFrom([]string{" ", "\n", "\t", "\r\n"}).Draw(t, "space"), rapid.IntRange(0, 2).Draw(t, "n")))
	}
	text := func() {
		b.WriteByte('"')
		for range rapid.IntRange(0, 6).Draw(t, "length") {
			r := rapid.OneOf(rapid.SampledFrom([]rune{'/', '"', '\\', '\n', '\t', 0, 0x7f, 0x85, 0xa0, 0x2028, 0x2029, 0xfeff, 0xfffe, 0xffff, 0x1f600, '#', ':', '-', '<', '&'}), rapid.Rune()).Draw(t, "rune")
			escape := rapid.Bool().Draw(t, "escape")
			switch {
			case escape && r == '/':
				b.WriteString(`\/`)
			case escape && r > 0xffff:
				r -= 0x10000
				fmt.Fprintf(b, `\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			case escape || r < ' ' || r == '"' || r == '\\':
				fmt.Fprintf(b, `\u%04x`, r)
			default:
				b.WriteRune(r)
			}
		}
		b.WriteByte('"')
	}
	space()
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	if depth == 0 {
		kind %= 4
	}
	switch kind {
	case 0:
		text()
	case 1:
		out, err := json.Marshal(rapid.Float64Range(-1e300, 1e300).Draw(t, "number"))
		if err != nil {
			t.Fatal(err)
		}
		b.Write(out)
	case 2:
		fmt.Fprint(b, rapid.Int64().Draw(t, "whole"))
	case 3:
		b.WriteString(rapid.SampledFrom([]string{"null", "true", "false", "1.0", "1e+16", "1E5", "-0", "18446744073709551616"}).Draw(t, "word"))
	case 4:
		b.WriteByte('[')
		for i := range rapid.IntRange(0, 3).Draw(t, "entries") {
			if i > 0 {
				b.WriteByte(',')
			}
			write(t, b, depth-1)
		}
		b.WriteByte(']')
	default:
		b.WriteByte('{')
		for i := range rapid.IntRange(0, 3).Draw(t, "fields") {
			if i > 0 {
				b.WriteByte(',')
			}
			space()
			text()
			space()
			b.WriteByte(':')
			write(t, b, depth-1)
		}
		b.WriteByte('}')
	}
	space()
}

// TestJSONIsJSON: what encoders write is read as encoding/json reads it.
func TestJSONIsJSON(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		var b strings.Builder
		write(t, &b, 4)
		if err := agree([]byte(b.String())); err != nil {
			t.Fatalf("%q: %v", b.String(), err)
		}
		if cut := rapid.IntRange(0, b.Len()).Draw(t, "cut"); cut < b.Len() {
			if text := strings.ToValidUTF8(b.String()[:cut], ""); agree([]byte(text)) != nil {
				t.Fatalf("%q: %v", text, agree([]byte(text)))
			}
		}
	})
}

func TestWhereItIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"{\n\"a\": 1,\n}":          "line 3: ",
		"{\"a\": 1}\n{\"b\": 2}":   "line 2: text follows",
		"{\n\"a\":":                "line 2: the JSON text ends too early",
		"{\"a\": NaN}":             "line 1: ",
		"[1,\n2,\n\"\xff\"]":       "line 3: a byte is not UTF-8",
		"{\"a\":\n\"line\nline\"}": "line 2: ",
	} {
		_, err := jsonnode.Parse([]byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{`{"a":[1,2.5e-7,null,true,"\u0085\/\ud83d\ude00"]}`, "{\"a\"\n:1}", `"\ud800"`, `{"a":1,"a":2}`, "[", "1 2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text = strings.ToValidUTF8(text, "?"); strings.HasPrefix(text, "\ufeff") {
			return // encoding/json refuses the mark
		}
		if err := agree([]byte(text)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
