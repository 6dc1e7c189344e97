package scenarios

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"testbed/policy"
	"testbed/scenarios/internal/fields"
)

// Setting changes the value of a field of a scenario. NewSetting makes it.
type Setting struct {
	// Field is the path of the field as in the file, such as inner_steps,
	// policy.straggler.k, workers[3].inner_step_mean or
	// real.links.nodes.w1.rate_up. The index * means every entry of a list.
	// workers.count is the number of workers.
	Field string
	// Value is written as in the file.
	Value string

	steps []step
	value reflect.Value
}

// workersCount is a field that no file has: the number of workers.
const workersCount = "workers.count"

// step leads from a value to a part of it.
type step struct {
	field []int  // of a struct
	key   string // of a map, where field and list do not apply
	list  bool
	index int // of a list; every: all of them
}

const every = -1

// NewSetting checks the path and the kind of the value. The value's range, and
// whether the scenario has the entries of the path, are checked later, by With.
// Every error is an *Error.
func NewSetting(field, value string) (Setting, error) {
	s := Setting{Field: field, Value: value}
	var p parser
	var kind reflect.Type
	var unit string
	if field == workersCount {
		kind = reflect.TypeFor[int]()
	} else {
		steps, err := fields.Split(field)
		if err != nil {
			return Setting{}, p.fail(field, err.Error())
		}
		if s.steps, kind, unit, err = p.resolve(field, steps); err != nil {
			return Setting{}, err
		}
	}
	n, err := p.single(field, value, kind, unit)
	if err != nil {
		return Setting{}, err
	}
	v := reflect.New(kind)
	if err := n.Decode(v.Interface()); err != nil {
		return Setting{}, p.yamlError(err)
	}
	s.value = v.Elem()
	return s, nil
}

// single reads a single value of this kind, with a unit unless that is "".
func (p *parser) single(field, value string, kind reflect.Type, unit string) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(value), &doc); err != nil || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.ScalarNode {
		return nil, p.fail(field, fmt.Sprintf("%q is not a single value", value))
	}
	n := doc.Content[0]
	if unit != "" {
		p.quantity(n, unit, kind, field)
	}
	p.shape(n, kind, field)
	if len(p.problems) > 0 {
		e := p.problems[0]
		e.Line = 0
		return nil, e
	}
	return n, nil
}

// resolve returns the steps to a field, the field's type, and the unit of its
// tag.
func (p *parser) resolve(path string, parts []string) (steps []step, kind reflect.Type, unit string, err error) {
	t := reflect.TypeFor[Scenario]()
	unknown := func(why string) error { return p.fail(path, why+"; did you mean "+fields.Nearest(Fields(), path)+"?") }
	for _, part := range parts {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		inside, isIndex := strings.CutPrefix(part, "[")
		switch {
		case fields.IsValue(t):
			return nil, nil, "", unknown("names a part of a single value")
		case t.Kind() == reflect.Slice && isIndex:
			s := step{list: true, index: every}
			if inside != "*]" {
				s.index = fields.Number(strings.TrimSuffix(inside, "]"))
			}
			steps, t = append(steps, s), t.Elem()
		case isIndex:
			return nil, nil, "", unknown("has an index where there is no list")
		case t.Kind() == reflect.Map:
			steps, t = append(steps, step{key: part}), t.Elem()
		case t.Kind() == reflect.Struct:
			if params, ok := parametersType(t, part); ok {
				steps, t = append(steps, step{field: parametersField}, step{key: part}), params
				break
			}
			index, ft := fields.Index(t, part)
			if index == nil {
				return nil, nil, "", unknown("is not a field")
			}
			unit = fields.Unit(t, part)
			steps, t = append(steps, step{field: index}), ft
		default:
			return nil, nil, "", unknown("names an entry of a list without its index")
		}
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !fields.IsValue(t) {
		return nil, nil, "", unknown("is not a single value")
	}
	return steps, t, unit, nil
}

// Fields lists the paths of all fields that can be set, with * for indices and
// NAME for names that a file chooses.
func Fields() []string {
	return append(fields.Paths(reflect.TypeFor[Scenario](), ""), workersCount)
}

// With returns a copy of the scenario with the settings applied. They apply in
// their order, except for workers.count, which comes first. The scenario itself
// stays as it is; the copy may share memory with it. Every error is an *Error.
func (s *Scenario) With(settings ...Setting) (*Scenario, error) {
	c := *s
	p := parser{file: s.Name}
	if len(settings) > 0 {
		names := make([]string, len(settings))
		for i, set := range settings {
			names[i] = set.Field + "=" + set.Value
		}
		p.file += " with " + strings.Join(names, " ")
	}
	for _, set := range settings {
		if set.Field != workersCount {
			continue
		}
		if err := p.between(workersCount, set.value.Int(), 1, maxWorkers); err != nil {
			return nil, err
		}
		c.Workers = crowd(s.Workers, int(set.value.Int()))
		c.Work = crowdClasses(s.Work, s.Workers, c.Workers)
		if s.Real.MinSlack == defaultMinSlack(len(s.Workers)) {
			c.Real.MinSlack = defaultMinSlack(len(c.Workers))
		}
	}
	for _, set := range settings {
		if set.Field == workersCount {
			continue
		}
		if problem := assign(reflect.ValueOf(&c).Elem(), set.steps, set.value); problem != "" {
			return nil, p.fail(set.Field, problem)
		}
	}
	// Checking a network takes long, and mostly it is the network that was checked
	// before.
	p.linksValid = c.BaseLatency == s.BaseLatency && reflect.DeepEqual(c.Real, s.Real) &&
		slices.EqualFunc(c.Workers, s.Workers, func(a, b Worker) bool { return a.ID == b.ID })
	if c.Work != nil { // checking it fills it in
		own := *c.Work
		c.Work = &own
	}
	if c.Train != nil { // likewise
		own := *c.Train
		c.Train = &own
		if own.Parameters() != 0 && c.Real.Parameters == s.Real.Parameters { // no new value given
			c.Real.Parameters = notGiven
		}
	}
	p.note(p.fillParameters(&c))
	if !p.linksValid { // checking traces fills them in
		c.Real.Injects, c.Traces = slices.Clone(c.Real.Injects), maps.Clone(c.Traces)
	}
	if err := p.validate(&c); err != nil {
		return nil, err
	}
	return &c, nil
}

// crowd returns the first n workers. If there are fewer, it adds copies of them
// in turn, with new IDs.
func crowd(workers []Worker, n int) []Worker {
	next := policy.ID(0)
	for _, w := range workers {
		next = max(next, w.ID+1)
	}
	all := make([]Worker, n)
	for i := range all {
		all[i] = workers[i%len(workers)]
		if i >= len(workers) {
			all[i].ID = next
			next++
		}
	}
	return all
}

// assign puts a value at the end of the steps. It copies the values along the
// path, because the scenario shares them with the scenario it was made from.
func assign(v reflect.Value, steps []step, value reflect.Value) (problem string) {
	if v.Kind() == reflect.Pointer {
		n := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			n.Elem().Set(v.Elem())
		}
		v.Set(n)
		return assign(n.Elem(), steps, value)
	}
	if v.Kind() == reflect.Interface { // the parameters of a policy
		n := reflect.New(v.Elem().Type()).Elem()
		n.Set(v.Elem())
		problem := assign(n, steps, value)
		v.Set(n)
		return problem
	}
	if len(steps) == 0 {
		v.Set(value)
		return ""
	}
	first, rest := steps[0], steps[1:]
	switch {
	case first.field != nil:
		return assign(v.FieldByIndex(first.field), rest, value)
	case first.list:
		if first.index >= v.Len() || v.Len() == 0 || first.index < every {
			return fmt.Sprintf("is not in the list (number of entries: %d)", v.Len())
		}
		n := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(n, v)
		v.Set(n)
		for i := range n.Len() {
			if first.index == every || first.index == i {
				if problem := assign(n.Index(i), rest, value); problem != "" {
					return problem
				}
			}
		}
		return ""
	default:
		n := reflect.MakeMapWithSize(v.Type(), v.Len()+1)
		for it := v.MapRange(); it.Next(); {
			n.SetMapIndex(it.Key(), it.Value())
		}
		entry := reflect.New(v.Type().Elem()).Elem()
		key := reflect.ValueOf(first.key)
		if old := n.MapIndex(key); old.IsValid() {
			entry.Set(old)
		} else if p, ok := policy.Named(first.key); ok && entry.Kind() == reflect.Interface {
			entry.Set(reflect.ValueOf(p))
		}
		problem := assign(entry, rest, value)
		n.SetMapIndex(key, entry)
		v.Set(n)
		return problem
	}
}

// Text returns the scenario as a file that parses to the same scenario, if the
// files of Traces are in its folder. The name is the file's and not in the
// text.
func (s *Scenario) Text() ([]byte, error) {
	plain := s.Plain()
	plain.Name = ""
	text, err := json.MarshalIndent(plain, "", "  ")
	if err == nil && len(text) > maxFileBytes/2 { // escaped, it may be longer
		text, err = json.MarshalIndent(struct {
			*Scenario
			Workers []any `json:"workers"`
		}{plain, inRanges(s.Workers)}, "", "  ")
	}
	if err != nil {
		return nil, fmt.Errorf("writing scenario %s: %w", s.Name, err)
	}
	return append(escaped(text), '\n'), nil
}

// escaped replaces control characters, which JSON allows in its strings and
// YAML refuses, by escapes.
func escaped(text []byte) []byte {
	var out []byte
	for _, r := range string(text) {
		if r == '\n' || r > 0xffff || unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
		} else {
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// Plain returns a copy whose JSON is a scenario file: without the content of
// Traces.
func (s *Scenario) Plain() *Scenario {
	plain := *s
	plain.Real.Injects = slices.Clone(s.Real.Injects)
	for i := range plain.Real.Injects {
		plain.Real.Injects[i].Pace = nil // its file stays next to the scenario's
	}
	if s.Work != nil {
		own := *s.Work
		own.Steps.Ratios = nil // as above
		plain.Work = &own
	}
	if s.Train != nil {
		own := *s.Train
		own.Corpus, own.Dir = nil, ""
		plain.Train = &own
	}
	return &plain
}
