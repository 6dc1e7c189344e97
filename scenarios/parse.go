package scenarios

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"testbed/allreduce/reduction"
	"testbed/policy"
	"testbed/scenarios/faults"
	"testbed/scenarios/internal/fields"
	"testbed/scenarios/internal/jsonnode"
)

// maxFileBytes bounds a scenario file.
const maxFileBytes = 4 << 20

// Parse reads and validates a scenario. The file name is used in errors and
// for the scenario's name. Every error is an *Error. The scenario may not name
// other files; Load reads these too.
func Parse(file string, data []byte) (*Scenario, error) { return parse(file, data, nil) }

// parse reads a scenario, and the files that it names from dir.
func parse(file string, data []byte, dir fs.FS) (*Scenario, error) {
	p := parser{file: file, dir: dir}
	if err := p.document(data, "scenario", "`testbed list` names scenarios to start from"); err != nil {
		return nil, err
	}
	if err := p.expandWorkers(); err != nil {
		return nil, err
	}
	s := &Scenario{
		Policy: DefaultPolicies(),
		Real:   Real{TimeScale: DefaultTimeScale, Dilation: 1, Parameters: notGiven, CheckpointEvery: DefaultCheckpointEvery, MinSlack: -1, AllReduce: reduction.Default},
	}
	if err := p.fill(s); err != nil {
		return nil, err
	}
	if s.Name == "" {
		s.Name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	}
	if err := p.fillParameters(s); err != nil {
		return nil, err
	}
	if s.Train.Foreign() {
		dir, err := filepath.Abs(filepath.Dir(file))
		if err != nil {
			return nil, p.fail("train.program", err.Error())
		}
		s.Train.Dir = dir
	}
	if s.Real.MinSlack < 0 { // not given
		s.Real.MinSlack = defaultMinSlack(len(s.Workers))
	}
	if s.Injects == nil {
		s.Injects = []faults.Inject{} // in JSON a list, not null
	}
	links := &s.Real.Links
	for _, list := range []any{&links.Nodes, &links.Pairs, &links.Groups, &links.Paths, &s.Real.Injects} { // as it comes back from JSON
		if v := reflect.ValueOf(list).Elem(); v.Len() == 0 {
			v.SetZero()
		}
	}
	if s.Work != nil && len(s.Work.Classes) == 0 {
		s.Work.Classes = nil
	}
	if err := p.validate(s); err != nil {
		return nil, err
	}
	return s, nil
}

// document reads the one document that a file of this kind holds. The hint says
// what to do if it is empty.
func (p *parser) document(data []byte, kind, hint string) error {
	if len(data) > maxFileBytes {
		return p.fail("", fmt.Sprintf("the file has %d bytes; at most %d are read", len(data), maxFileBytes))
	}
	if jsonnode.Is(data) { // YAML may begin so, too
		root, err := jsonnode.Parse(data)
		if err == nil {
			p.root = root
			return nil
		}
		var wrong *jsonnode.Error
		if errors.As(err, &wrong) && filepath.Ext(p.file) == ".json" {
			return &Error{File: p.file, Line: wrong.Line, Problem: wrong.Problem}
		}
	}
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return p.fail("", "the file is empty; "+hint)
	case err != nil:
		return p.yamlError(err)
	}
	switch err := dec.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return p.yamlError(err)
	default:
		return &Error{File: p.file, Line: second.Line, Problem: "the file holds more than one document; keep one " + kind + " per file"}
	}
	p.root = doc.Content[0]
	return nil
}

// fill decodes the document into the struct that v points to. What it lacks
// keeps its value.
func (p *parser) fill(v any) error {
	if err := p.shape(p.root, reflect.TypeOf(v).Elem(), ""); err != nil {
		return err
	}
	if err := p.root.Decode(v); err != nil {
		return p.yamlError(err)
	}
	return nil
}

type parser struct {
	file    string
	dir     fs.FS // nil: there is none
	root    *yaml.Node
	workers map[policy.ID]int // index by ID, as far as validated

	linksValid bool // they have been validated already
}

// fail makes an error about a field, with its line looked up in the file.
func (p *parser) fail(field, problem string) error {
	return &Error{File: p.file, Line: p.line(field), Field: field, Problem: problem}
}

var yamlLine = regexp.MustCompile(`(?s)^(?:yaml: )?(?:unmarshal errors:\s*)?line (\d+): (.*)$`)

// yamlError turns an error of the YAML library into one of ours.
func (p *parser) yamlError(err error) error {
	text := err.Error()
	var typeErr *yaml.TypeError
	if errors.As(err, &typeErr) {
		text = typeErr.Errors[0]
	}
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ := strconv.Atoi(m[1])
		return &Error{File: p.file, Line: line, Problem: m[2]}
	}
	return &Error{File: p.file, Problem: strings.TrimPrefix(text, "yaml: ")}
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// shape walks the document beside the Go type that it is to fill and reports
// the first unknown, repeated or missing field and the first value of the
// wrong kind.
func (p *parser) shape(n *yaml.Node, t reflect.Type, path string) error {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return p.at(n, path, "anchors and aliases are not read; write the value out")
	}
	if n.Style&yaml.TaggedStyle != 0 {
		return p.at(n, path, "tags such as "+n.Tag+" are not read; write the plain value")
	}
	if n.Tag == "!!null" && t.Kind() != reflect.Struct {
		return p.at(n, path, "has no value; give one or remove the field")
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(textUnmarshaler) {
		if n.Kind != yaml.ScalarNode {
			return p.at(n, path, "must be a single value such as \"10ms\" or \"100mbit\"")
		}
		v := reflect.New(t).Interface().(encoding.TextUnmarshaler)
		if err := v.UnmarshalText([]byte(n.Value)); err != nil {
			return p.at(n, path, err.Error())
		}
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		return p.object(n, t, path)
	case reflect.Slice:
		if t == idsType {
			if problem := expandRanges(n); problem != "" {
				return p.at(n, path, problem)
			}
		}
		if n.Kind != yaml.SequenceNode {
			return p.at(n, path, "must be a list")
		}
		for i, c := range n.Content {
			if err := p.shape(c, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		return p.table(n, t, path)
	default:
		if n.Kind != yaml.ScalarNode {
			return p.at(n, path, "must be a single "+fields.Kind(t))
		}
		if problem := scalar(n, t); problem != "" {
			return p.at(n, path, problem)
		}
	}
	return nil
}

// object is shape for a struct.
func (p *parser) object(n *yaml.Node, t reflect.Type, path string) error {
	if n.Tag == "!!null" && path != "" {
		return nil // an empty section is all defaults
	}
	if n.Kind != yaml.MappingNode {
		return p.at(n, path, "must be an object with the fields "+strings.Join(fields.Names(t), ", "))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !plainKey(key) {
			return p.at(key, path, "has a key that is no plain word; write the name of a field")
		}
		field := fields.Join(path, key.Value)
		ft, ok := fields.Type(t, key.Value)
		if !ok {
			return p.at(key, field, "unknown field; "+fields.Known(t, key.Value))
		}
		if seen[key.Value] {
			return p.at(key, field, "given twice; keep one")
		}
		seen[key.Value] = true
		if err := p.shape(value, ft, field); err != nil {
			return err
		}
	}
	for f := range t.Fields() {
		if name := fields.Name(f); f.Tag.Get("need") != "" && !seen[name] {
			return p.at(n, fields.Join(path, name), "is missing; add it")
		}
	}
	return nil
}

// table is shape for a map, whose keys are names.
func (p *parser) table(n *yaml.Node, t reflect.Type, path string) error {
	if n.Kind != yaml.MappingNode {
		return p.at(n, path, "must be an object")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		if !plainKey(n.Content[i]) {
			return p.at(n.Content[i], path, "has a key that is no plain word; write a name")
		}
		if seen[key] {
			return p.at(n.Content[i], fields.Join(path, key), "given twice; keep one")
		}
		seen[key] = true
		if err := p.shape(n.Content[i+1], t.Elem(), fields.Join(path, key)); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) at(n *yaml.Node, path, problem string) error {
	return &Error{File: p.file, Line: n.Line, Field: path, Problem: problem}
}

// plainKey says whether a key of an object is what it looks like.
func plainKey(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Anchor == "" && key.Style&yaml.TaggedStyle == 0 && key.Tag != "!!merge"
}

var digits = regexp.MustCompile(`^[-+]?[0-9]+$`)

// scalar says what is wrong with a single value of a basic type, if anything.
// It is stricter than the YAML library, which would cut 1.5 down to 1 and read
// 010 as eight, whole number or not.
func scalar(n *yaml.Node, t reflect.Type) string {
	whole := t.Kind() != reflect.Float64 && t.Kind() != reflect.String && t.Kind() != reflect.Bool
	switch {
	case t.Kind() == reflect.String:
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		return fmt.Sprintf("%q is text; write the %s without quotes", n.Value, fields.Kind(t))
	case digits.MatchString(n.Value) && len(strings.TrimLeft(n.Value, "+-")) > 1 && strings.TrimLeft(n.Value, "+-")[0] == '0':
		return fmt.Sprintf("%q begins with a zero; remove it", n.Value)
	case whole && n.Tag == "!!float" && !digits.MatchString(n.Value):
		return fmt.Sprintf("%q is not a %s; write it in digits alone", n.Value, fields.Kind(t))
	}
	// A pointer to a fresh value decides whether the scalar fits.
	err := n.Decode(reflect.New(t).Interface())
	switch {
	case err == nil && !(whole && n.Tag == "!!float"):
		return ""
	case whole && strings.HasPrefix(n.Value, "-") && digits.MatchString(n.Value):
		return fmt.Sprintf("is %s; it must not be negative", n.Value)
	case whole && digits.MatchString(n.Value):
		return fmt.Sprintf("is %s, too large to be meant", n.Value)
	}
	return fmt.Sprintf("%q is not a %s", n.Value, fields.Kind(t))
}

// line looks up the line of a field path such as injects[0].id. A field that
// is not in the file has the line of the closest one around it.
func (p *parser) line(path string) int {
	n := p.root
	if n == nil {
		return 0
	}
	line := n.Line
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		var next *yaml.Node
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == part {
					line, next = n.Content[i].Line, n.Content[i+1]
				}
			}
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(n.Content) {
				next = n.Content[i]
				line = next.Line
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return line
}
