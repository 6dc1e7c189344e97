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
	"testbed/internal/units"
	"testbed/policy"
	"testbed/scenarios/faults"
	"testbed/scenarios/internal/fields"
	"testbed/scenarios/internal/jsonnode"
)

// maxFileBytes bounds a scenario file.
const maxFileBytes = 4 << 20

// Parse reads and validates a scenario. The file name is used in errors and for
// the scenario's name. Every error is an *Error. The scenario may not name
// other files; Load reads those too.
func Parse(file string, data []byte) (*Scenario, error) { return parse(file, data, nil) }

// parse reads a scenario, and the files that it names from dir.
func parse(file string, data []byte, dir fs.FS) (*Scenario, error) {
	p := parser{file: file, dir: dir}
	if err := p.document(data, "scenario", "`testbed list` names scenarios to start from"); err != nil {
		return nil, err
	}
	p.expandWorkers()
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
	p.note(p.fillParameters(s))
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

// document reads the single document of a file of this kind. The hint says what
// to do if the file is empty.
func (p *parser) document(data []byte, kind, hint string) error {
	if len(data) > maxFileBytes {
		return p.fail("", fmt.Sprintf("the file has %d bytes, above the limit of %d", len(data), maxFileBytes))
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

// fill decodes the document into the struct that v points to. Fields that are
// missing, or noted as wrong, keep their values.
func (p *parser) fill(v any) error {
	p.shape(p.root, reflect.TypeOf(v).Elem(), "")
	if p.wrong[p.root] { // nothing is left
		return p.problem()
	}
	root := p.root
	if len(p.problems) > 0 {
		root = p.without(root)
	}
	if err := root.Decode(v); err != nil {
		if len(p.problems) > 0 { // the error may follow from them
			return p.problem()
		}
		return p.yamlError(err)
	}
	return nil
}

type parser struct {
	file    string
	dir     fs.FS // nil: there is none
	root    *yaml.Node
	workers map[policy.ID]int // index by ID, as far as validated

	problems []*Error
	wrong    map[*yaml.Node]bool // nodes with a noted problem
	copyOf   map[int]int         // the entry of workers that an entry made of a range repeats

	linksValid bool // they have been validated already
}

// fail returns an error about a field, with its line looked up in the file.
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

var (
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	timeType        = reflect.TypeFor[policy.Time]()
)

// shape walks the document along the Go type that it is to fill and notes
// unknown, repeated and missing fields and values of the wrong kind. Numbers
// with a unit are converted to the field's unit.
func (p *parser) shape(n *yaml.Node, t reflect.Type, path string) {
	if p.wrong[n] || len(p.problems) > mostProblems {
		return
	}
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		p.at(n, path, "anchors and aliases are not supported; write the value itself")
		return
	}
	if n.Style&yaml.TaggedStyle != 0 {
		p.at(n, path, "tags such as "+n.Tag+" are not supported; write the plain value")
		return
	}
	if n.Tag == "!!null" && t.Kind() != reflect.Struct {
		p.at(n, path, "has no value: give one or remove the field")
		return
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(textUnmarshaler) {
		if n.Kind != yaml.ScalarNode {
			p.at(n, path, "must be a single value such as \"10ms\" or \"100mbit\"")
			return
		}
		v := reflect.New(t).Interface().(encoding.TextUnmarshaler)
		if err := v.UnmarshalText([]byte(n.Value)); err != nil {
			p.at(n, path, err.Error())
		}
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		p.object(n, t, path)
	case reflect.Slice:
		if t == idsType {
			if problem := expandRanges(n); problem != "" {
				p.at(n, path, problem)
				return
			}
		}
		if n.Kind != yaml.SequenceNode {
			p.at(n, path, "must be a list")
			return
		}
		for i, c := range n.Content {
			p.shape(c, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Map:
		p.table(n, t, path)
	default:
		if n.Kind != yaml.ScalarNode {
			p.at(n, path, "must be a single "+fields.Kind(t))
			return
		}
		if t == timeType {
			p.quantity(n, string(units.Microsecond), t, path)
		}
		if p.wrong[n] {
			return
		}
		if problem := scalar(n, t); problem != "" {
			p.at(n, path, problem)
		}
	}
}

// object is shape for a struct.
func (p *parser) object(n *yaml.Node, t reflect.Type, path string) {
	if n.Tag == "!!null" && path != "" {
		return // an empty section is all defaults
	}
	if n.Kind != yaml.MappingNode {
		p.at(n, path, "must be an object with the fields "+strings.Join(fields.Names(t), ", "))
		return
	}
	seen := map[string]bool{}
	plain := true
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		field := fields.Join(path, key.Value)
		if !plainKey(key) {
			p.spoil(key, &Error{File: p.file, Line: key.Line, Field: path, Problem: "has a key that is not a plain word: write the name of a field", spoils: field})
			plain = false
			continue
		}
		ft, ok := fields.Type(t, key.Value)
		if !ok {
			meant := fields.Meant(t, key.Value)
			unknown := &Error{File: p.file, Line: key.Line, Field: field, Problem: "unknown field; " + fields.Known(t, key.Value)}
			if meant != "" && !hasKey(n, meant) {
				unknown.spoils = p.original(fields.Join(path, meant))
				seen[meant] = true
			}
			p.spoil(key, unknown)
			continue
		}
		if seen[key.Value] {
			p.at(key, field, "is given twice: keep one")
			continue
		}
		seen[key.Value] = true
		if unit := fields.Unit(t, key.Value); unit != "" {
			p.quantity(value, unit, ft, field)
		}
		p.shape(value, ft, field)
	}
	for f := range t.Fields() {
		need := f.Tag.Get("need")
		if other, ok := strings.CutPrefix(need, "or "); ok && seen[other] {
			continue
		}
		if name := fields.Name(f); need != "" && !seen[name] && plain {
			p.note(&Error{File: p.file, Line: n.Line, Field: fields.Join(path, name), Problem: "is missing: add it"})
		}
	}
}

// table is shape for a map, whose keys are names.
func (p *parser) table(n *yaml.Node, t reflect.Type, path string) {
	if n.Kind != yaml.MappingNode {
		p.at(n, path, "must be an object")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		if !plainKey(n.Content[i]) {
			p.at(n.Content[i], path, "has a key that is not a plain word: write a name")
			continue
		}
		if seen[key] {
			p.at(n.Content[i], fields.Join(path, key), "is given twice: keep one")
			continue
		}
		seen[key] = true
		p.shape(n.Content[i+1], t.Elem(), fields.Join(path, key))
	}
}

// at notes a problem of a node, which is then not read.
func (p *parser) at(n *yaml.Node, path, problem string) {
	p.spoil(n, &Error{File: p.file, Line: n.Line, Field: path, Problem: problem})
}

func (p *parser) spoil(n *yaml.Node, problem *Error) {
	if p.wrong == nil {
		p.wrong = map[*yaml.Node]bool{}
	}
	p.wrong[n] = true
	p.note(problem)
}

// plainKey reports whether a key of an object is a plain string.
func plainKey(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Anchor == "" && key.Style&yaml.TaggedStyle == 0 && key.Tag != "!!merge"
}

var digits = regexp.MustCompile(`^[-+]?[0-9]+$`)

// scalar says what is wrong with a single value of a basic type, if anything.
// It is stricter than the YAML library, which would cut 1.5 down to 1 and read
// 010 as eight.
func scalar(n *yaml.Node, t reflect.Type) string {
	whole := t.Kind() != reflect.Float64 && t.Kind() != reflect.String && t.Kind() != reflect.Bool
	switch {
	case t.Kind() == reflect.String:
	case n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		return fmt.Sprintf("%q is text; write the %s without quotes", n.Value, fields.Kind(t))
	case digits.MatchString(n.Value) && len(strings.TrimLeft(n.Value, "+-")) > 1 && strings.TrimLeft(n.Value, "+-")[0] == '0':
		return fmt.Sprintf("%q begins with a zero; remove the zero", n.Value)
	case whole && n.Tag == "!!float" && !digits.MatchString(n.Value):
		return fmt.Sprintf("%q is not a %s; write only digits", n.Value, fields.Kind(t))
	}
	// A pointer to a fresh value decides whether the scalar fits.
	err := n.Decode(reflect.New(t).Interface())
	switch {
	case err == nil && !(whole && n.Tag == "!!float"):
		return ""
	case whole && strings.HasPrefix(n.Value, "-") && digits.MatchString(n.Value):
		return fmt.Sprintf("is %s: it must not be negative", n.Value)
	case whole && digits.MatchString(n.Value):
		return fmt.Sprintf("is %s, which is too large for this field", n.Value)
	}
	return fmt.Sprintf("%q is not a %s", n.Value, fields.Kind(t))
}

// line looks up the line of a field path such as injects[0].id. A field that is
// not in the file has the line of the closest field around it.
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
