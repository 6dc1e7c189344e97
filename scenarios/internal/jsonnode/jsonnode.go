// Package jsonnode reads JSON as the nodes of a YAML document. A YAML library
// does not read all JSON: it refuses \/, a colon on the next line and some
// characters, and turns others into spaces.
package jsonnode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Is reports whether a text begins as a JSON object or list does. YAML may, too.
func Is(text []byte) bool {
	text = bytes.TrimLeft(trimMark(text), " \t\r\n")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}

// trimMark removes the byte order mark with which some programs begin a file in
// UTF-8.
func trimMark(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

// Error is a problem of a text, with its line.
type Error struct {
	Line    int // from 1
	Problem string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Problem) }

// Parse reads the single value of a text, as encoding/json does, and keeps the
// lines. It keeps repeated keys of an object. An error is an *Error.
func Parse(text []byte) (*yaml.Node, error) {
	text = trimMark(text)
	p := &parser{text: text, line: 1, dec: json.NewDecoder(bytes.NewReader(text))}
	p.dec.UseNumber()
	if !utf8.Valid(text) {
		at := 0
		for rest := text; ; {
			r, size := utf8.DecodeRune(rest)
			if r == utf8.RuneError && size < 2 {
				break
			}
			at, rest = at+size, rest[size:]
		}
		return nil, p.fail(int64(at), "a byte is not UTF-8; save the file as UTF-8")
	}
	n, err := p.value()
	if err != nil {
		return nil, err
	}
	if _, err := p.dec.Token(); !errors.Is(err, io.EOF) {
		return nil, p.fail(p.dec.InputOffset(), "text follows the end of the JSON value; remove that text")
	}
	return n, nil
}

type parser struct {
	text []byte
	dec  *json.Decoder
	at   int64 // the offset whose line is known
	line int
}

// lineAt is the line of an offset; offsets only grow.
func (p *parser) lineAt(offset int64) int {
	offset = min(max(offset, p.at), int64(len(p.text)))
	p.line += bytes.Count(p.text[p.at:offset], []byte("\n"))
	p.at = offset
	return p.line
}

func (p *parser) fail(offset int64, problem string) error {
	return &Error{Line: p.lineAt(offset), Problem: problem}
}

// value reads the next value.
func (p *parser) value() (*yaml.Node, error) {
	token, err := p.dec.Token()
	if err != nil {
		var syntax *json.SyntaxError
		switch {
		case errors.As(err, &syntax):
			return nil, p.fail(syntax.Offset, syntax.Error())
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, p.fail(int64(len(p.text)), "the JSON text ends too early")
		}
		return nil, p.fail(p.dec.InputOffset(), err.Error())
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: p.lineAt(p.dec.InputOffset())}
	switch v := token.(type) {
	case string:
		n.Tag, n.Value, n.Style = "!!str", v, yaml.DoubleQuotedStyle
		return n, nil
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(v)
		return n, nil
	case json.Number:
		n.Tag, n.Value = "!!int", v.String()
		_, err := strconv.ParseInt(n.Value, 10, 64)
		_, err2 := strconv.ParseUint(n.Value, 10, 64)
		if err != nil && err2 != nil || strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
		return n, nil
	case nil:
		n.Tag, n.Value = "!!null", "null"
		return n, nil
	}
	n.Kind, n.Tag, n.Style = yaml.SequenceNode, "!!seq", yaml.FlowStyle
	object := token == json.Delim('{')
	if object {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	for p.dec.More() {
		child, err := p.value()
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, child)
		if object {
			if child, err = p.value(); err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
	}
	if _, err := p.dec.Token(); err != nil { // its end
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, p.fail(syntax.Offset, syntax.Error())
		}
		return nil, p.fail(int64(len(p.text)), "the JSON text ends too early")
	}
	return n, nil
}
