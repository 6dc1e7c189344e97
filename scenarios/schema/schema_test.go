package schema

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"testbed/allreduce"
	"testbed/allreduce/entropy"
	"testbed/allreduce/reduction"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/scenarios/convert"
	"testbed/scenarios/faults"
	"testbed/shaping"
	"testbed/train"
	"testbed/train/charlm"
	"testbed/train/task"
	"testbed/train/work"
)

var update = flag.Bool("update", false, "write the schema anew")

const (
	file       = "scenario.json"
	fieldsFile = "../../docs/fields.md"
)

// TestFresh: the schema and the page of fields say what the structs and the loader say
// now.
func TestFresh(t *testing.T) {
	b := builder{defs: &object{}, comments: map[string]map[string]map[string]string{}, leaves: map[*object]*leaf{}}
	root := b.structure(reflect.TypeFor[scenarios.Scenario](), defaults(t))
	root.front("$schema", "https://json-schema.org/draft/2020-12/schema", "title", "Testbed scenario")
	root.add("$defs", b.defs)
	if b.err != nil {
		t.Fatal(b.err)
	}
	b.bounds(t, root)
	if *update {
		if err := os.WriteFile(fieldsFile, b.page(t, root), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(fieldsFile); err != nil || !bytes.Equal(got, b.page(t, root)) {
		t.Errorf("%s is not what the structs say (%v); go test ./scenarios/schema -update writes it anew", fieldsFile, err)
	}
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Fatalf("%s is not what the structs say (%v); go test ./scenarios/schema -update writes it anew", file, err)
	}
}

// TestLibraryFits: every scenario of the library, as convert writes it, has only
// fields that the schema knows, of the kinds that it names.
func TestLibraryFits(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(JSON, &root); err != nil {
		t.Fatal(err)
	}
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		text, _, err := convert.Text(s, convert.JSON)
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			t.Fatal(err)
		}
		if problem := misfit(root, root, value, s.Name); problem != "" {
			t.Error(problem)
		}
	}
	for _, wrong := range []string{`{"inner_steps": 0}`, `{"horizon": 1000000000001}`, `{"real": {"time_scale": 0}}`, `{"real": {"all_reduce": {"bits": 7}}}`,
		`{"real": {"all_reduce": {"block": 24}}}`, `{"policy": {"straggler": {"quorum": 2}}}`, `{"policy": {"join": "late"}}`, `{"train": {"outer": {"momentum": 1}}}`,
		`{"real": {"links": {"default": {"loss": 2}}}}`, `{"work": {"diurnal": {"amplitude": 1, "period": 1}}}`, `{"injects": [{"op": "Slow", "at": -1}]}`,
		`{"sed": 1}`, `{"seed": "1"}`, `{"injects": [{"op": "Crush", "at": 1}]}`, `{"real": {"links": {"default": {"rate_up": {}}}}}`} {
		var value any
		if err := json.Unmarshal([]byte(wrong), &value); err != nil {
			t.Fatal(err)
		}
		if misfit(root, root, value, "it") == "" {
			t.Errorf("%s fits", wrong)
		}
	}
}

// misfit says where a value does not fit a schema, as far as this one uses the
// language; what is missing aside, since the library leaves out what is 0.
func misfit(root, schema map[string]any, value any, path string) string {
	if ref, ok := schema["$ref"].(string); ok {
		schema = root["$defs"].(map[string]any)[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	kinds := fmt.Sprint(schema["type"])
	is := func(kind string) bool { return strings.Contains(kinds, kind) }
	fits := false
	switch v := value.(type) {
	case map[string]any:
		fits = is("object")
		properties, _ := schema["properties"].(map[string]any)
		for name, inner := range v {
			s, ok := properties[name].(map[string]any)
			if !ok {
				if s, ok = schema["additionalProperties"].(map[string]any); !ok {
					return path + "." + name + " is not known"
				}
			}
			if problem := misfit(root, s, inner, path+"."+name); problem != "" {
				return problem
			}
		}
	case []any:
		fits = is("array")
		for i, inner := range v {
			items, _ := schema["items"].(map[string]any)
			if problem := misfit(root, items, inner, fmt.Sprintf("%s[%d]", path, i)); problem != "" {
				return problem
			}
		}
	case string:
		fits = is("string")
		if all, ok := schema["enum"].([]any); ok && !slices.Contains(all, value) {
			return fmt.Sprintf("%s is %q, which is none of %v", path, v, all)
		}
	case float64:
		fits = is("number") || is("integer") && v == float64(int64(v))
		if all, ok := schema["enum"].([]any); ok && !slices.Contains(all, value) {
			return fmt.Sprintf("%s is %v, which is none of %v", path, v, all)
		}
		for name, beyond := range map[string]func(bound float64) bool{
			"minimum": func(b float64) bool { return v < b }, "exclusiveMinimum": func(b float64) bool { return v <= b },
			"maximum": func(b float64) bool { return v > b }, "exclusiveMaximum": func(b float64) bool { return v >= b },
			"multipleOf": func(b float64) bool { return math.Mod(v, b) != 0 },
		} {
			if bound, ok := schema[name].(float64); ok && beyond(bound) {
				return fmt.Sprintf("%s is %v, and %s is %v", path, v, name, bound)
			}
		}
	case bool:
		fits = is("boolean")
	}
	if !fits {
		return fmt.Sprintf("%s is %v, which is no %s", path, value, kinds)
	}
	return ""
}

// object is a JSON object whose fields keep their order.
type object struct {
	names  []string
	values []any
}

func (o *object) add(name string, value any) {
	o.names, o.values = append(o.names, name), append(o.values, value)
}

// set replaces a field, or adds it.
func (o *object) set(name string, value any) {
	if i := slices.Index(o.names, name); i >= 0 {
		o.values[i] = value
		return
	}
	o.add(name, value)
}

// get returns the value of a field, nil if there is none.
func (o *object) get(name string) any {
	if i := slices.Index(o.names, name); i >= 0 {
		return o.values[i]
	}
	return nil
}

func (o *object) front(pairs ...string) {
	var p object
	for i := 0; i < len(pairs); i += 2 {
		p.add(pairs[i], pairs[i+1])
	}
	o.names, o.values = append(p.names, o.names...), append(p.values, o.values...)
}

func (o *object) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for i, name := range o.names {
		if i > 0 {
			out.WriteByte(',')
		}
		var value bytes.Buffer
		enc := json.NewEncoder(&value)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(o.values[i]); err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%q:%s", name, value.Bytes())
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

var linkDefaults = linkStandards()

// defaults is a scenario that gives only what it must.
func defaults(t *testing.T) reflect.Value {
	s, err := scenarios.Parse("minimal.yaml", []byte(`{seed: 0, workers: [{id: 0, inner_step_mean: 1}], inner_steps: 1, target_outer_steps: 1,
horizon: 1, heartbeat_period: 1, heartbeat_miss_threshold: 1, base_latency: 0, bandwidth_bpus: 1, state_bytes: 1}`))
	if err != nil {
		t.Fatal(err)
	}
	return reflect.ValueOf(s).Elem()
}

// names are those of types whose own says little outside of their package.
var names = map[reflect.Type]string{
	reflect.TypeFor[shaping.Spec](): "Links",
	reflect.TypeFor[shaping.Pair](): "PairPath",
	reflect.TypeFor[work.Spec]():    "Work",
	reflect.TypeFor[task.Spec]():    "Train",
	reflect.TypeFor[task.Inner]():   "InnerOptimiser",
	reflect.TypeFor[task.Outer]():   "OuterOptimiser",
}

// enums are the values of types that have few.
var enums = map[reflect.Type][]string{
	reflect.TypeFor[work.Distribution]():          words(work.Distributions),
	reflect.TypeFor[shaping.JitterDistribution](): {"uniform", "normal", "pareto"},
	reflect.TypeFor[entropy.Mode]():               {"auto", "on", "off"},
	reflect.TypeFor[shaping.AccessPreset]():       shaping.AccessPresets(),
}

// fieldEnums are those of fields whose type has more.
var fieldEnums = map[string][]string{
	"Inject.op":     words(faults.Ops),
	"LinkInject.op": words(faults.LinkOps),
	"Train.task":    task.Tasks,

	"Policies.join":             words(policy.JoinModes),
	"Policies.rejoin":           words(policy.RejoinModes),
	"Real.compute":              {scenarios.ComputePlanned, scenarios.ComputeMeasured},
	"AllReduce.algorithm":       allreduce.AlgorithmNames(),
	"AllReduce.order":           reduction.Orders,
	"Train.split":               {string(charlm.IID), string(charlm.Contiguous)},
	"OuterOptimiser.correction": {task.Eager},
	"LinkInject.direction":      {faults.Up, faults.Down},
}

// standards are the defaults of fields whose absence the structs keep as absence, or 0,
// from what takes their place.
var standards = map[string]any{
	"Train.task":               task.Quadratic,
	"Train.split":              charlm.IID,
	"Train.time_limit":         shaping.Duration(task.DefaultTimeLimit),
	"Train.group_world_size":   (&task.Spec{}).Ranks(),
	"Model.layers":             charlm.Defaults().Layers,
	"Model.width":              charlm.Defaults().Width,
	"Model.heads":              charlm.Defaults().Heads,
	"Model.context":            charlm.Defaults().Context,
	"Model.batch":              charlm.Defaults().Batch,
	"InnerOptimiser.rate":      charlm.Defaults().Rate,
	"InnerOptimiser.decay":     charlm.Defaults().Decay,
	"InnerOptimiser.warmup":    charlm.Defaults().Warmup,
	"OuterOptimiser.rate":      train.DiLoCo.Rate,
	"OuterOptimiser.momentum":  train.DiLoCo.Momentum,
	"OuterOptimiser.fragments": len((&task.Spec{}).Exchange(1, 1).Fragments),
	"Policies.join":            policy.JoinRunning,
	"Policies.rejoin":          policy.RejoinNever,
	"Steps.distribution":       work.Uniform,
	"Real.tcp":                 shaping.DefaultTCP,
}

// linkStandards are the properties of links that no scenario gives.
func linkStandards() map[string]any {
	plan, err := shaping.NewPlan(shaping.Spec{}, []string{"a", "b"}, 0, 0)
	if err != nil {
		panic(err)
	}
	all := map[string]any{}
	for _, of := range []reflect.Value{reflect.ValueOf(plan.Nodes[0]), reflect.ValueOf(plan.Paths[0][1])} {
		for f, v := range of.Fields() {
			if f.Name != "OneWayDelay" && f.Name != "LossBurst" { // which follow from others
				all[f.Name] = v.Interface()
			}
		}
	}
	return all
}

func words[S ~string](values []S) (all []string) {
	for _, v := range values {
		all = append(all, string(v))
	}
	return all
}

// builder makes schemas of types.
type builder struct {
	defs     *object
	comments map[string]map[string]map[string]string // by package, type and field
	leaves   map[*object]*leaf
	err      error
}

// leaf is what is known of a property beside its schema.
type leaf struct {
	owner string // the struct that has the field, and the field's name in a file
	field string
	of    reflect.Type
	more  []string // the bounds of values with units, in words
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// value is the schema of a type. The default is not valid if there is none.
func (b *builder) value(t reflect.Type, standard reflect.Value) *object {
	o := &object{}
	if t.Kind() == reflect.Pointer {
		t, standard = t.Elem(), absent(t.Elem())
	}
	switch {
	case enums[t] != nil:
		o.add("type", "string")
		o.add("enum", enums[t])
	case t == reflect.TypeFor[shaping.Probability]():
		o.add("type", []string{"number", "string"})
		o.add("examples", []string{"0.1%"})
	case reflect.PointerTo(t).Implements(textUnmarshaler):
		o.add("type", "string")
		if example := examples[t]; example != "" {
			o.add("examples", []string{example})
		}
	case t.Kind() == reflect.Struct:
		name := b.define(t, standard)
		o.add("$ref", "#/$defs/"+name)
		return o
	case t == reflect.TypeFor[[]policy.ID]():
		o.add("type", []string{"array", "string"})
		o.add("items", &object{names: []string{"type"}, values: []any{[]string{"integer", "string"}}})
		o.add("examples", []string{"0-999"})
		return o
	case t.Kind() == reflect.Slice:
		o.add("type", "array")
		o.add("items", b.value(t.Elem(), absent(t.Elem())))
		return o
	case t.Kind() == reflect.Map:
		o.add("type", "object")
		o.add("additionalProperties", b.value(t.Elem(), absent(t.Elem())))
		return o
	case t.Kind() == reflect.String:
		o.add("type", "string")
	case t.Kind() == reflect.Bool:
		o.add("type", "boolean")
	case t.Kind() == reflect.Float64:
		o.add("type", "number")
	case t == reflect.TypeFor[policy.Time]():
		o.add("type", []string{"integer", "string"})
		o.add("examples", []string{"30ms"})
	default:
		o.add("type", "integer")
		if t.Kind() == reflect.Uint64 { // of which the largest is too large for JSON
			o.add("minimum", 0)
		}
	}
	if t == reflect.TypeFor[policy.Time]() {
		o.add("x-unit", "µs")
	}
	if standard.IsValid() && !(standard.Kind() == reflect.String && standard.String() == "") {
		o.add("default", standard.Interface())
	}
	return o
}

// absent is what the fields of a struct have that a file gives without them; other values
// have no default.
func absent(t reflect.Type) reflect.Value {
	if t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(textUnmarshaler) {
		return reflect.Zero(t)
	}
	return reflect.Value{}
}

var unitExamples = map[string]string{"B": "64MiB", "B/µs": "1gbit"}

var examples = map[reflect.Type]string{
	reflect.TypeFor[shaping.Rate]():         "100mbit",
	reflect.TypeFor[shaping.Duration]():     "25ms",
	reflect.TypeFor[shaping.Queue]():        "20ms",
	reflect.TypeFor[shaping.AccessPreset](): "cable",
	reflect.TypeFor[shaping.PathPreset]():   "dallas-tokyo",
}

// define puts a struct among the definitions, and returns its name.
func (b *builder) define(t reflect.Type, standard reflect.Value) string {
	name := nameOf(t)
	for _, n := range b.defs.names {
		if n == name {
			return name
		}
	}
	at := len(b.defs.names)
	b.defs.add(name, nil)
	b.defs.values[at] = b.structure(t, standard)
	return name
}

func nameOf(t reflect.Type) string {
	if name, ok := names[t]; ok {
		return name
	}
	if t.Name() == "Spec" || t.Name() == "UploadSpec" || t.Name() == "RegionsSpec" {
		if prefix := strings.TrimSuffix(t.Name(), "Spec"); prefix != "" {
			return prefix
		}
		return "AllReduce"
	}
	return t.Name()
}

func (b *builder) structure(t reflect.Type, standard reflect.Value) *object {
	o, properties := &object{}, &object{}
	if text := b.comment(t, ""); text != "" {
		o.add("description", text)
	}
	o.add("type", "object")
	required := []string{}
	b.fields(t, standard, nameOf(t), properties, &required)
	o.add("properties", properties)
	o.add("required", required)
	if t == reflect.TypeFor[scenarios.Worker]() {
		o.add("oneOf", []map[string][]string{{"required": {"id"}}, {"required": {"ids"}}})
	}
	o.add("additionalProperties", false)
	return o
}

// fields adds the properties of a struct, and of those that are inlined in it.
func (b *builder) fields(t reflect.Type, standard reflect.Value, owner string, properties *object, required *[]string) {
	if more, ok := reflect.Zero(t).Interface().(interface {
		MoreNames() []string
		MoreType(string) (reflect.Type, bool)
	}); ok {
		for _, name := range more.MoreNames() {
			p, _ := policy.Named(name)
			of, _ := more.MoreType(name)
			section := b.structure(of, reflect.ValueOf(p).Elem())
			b.leaves[section] = &leaf{owner: nameOf(t), field: name, of: of}
			properties.add(name, section)
		}
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		inner := reflect.Value{}
		if standard.IsValid() {
			inner = standard.FieldByIndex(f.Index)
		}
		switch {
		case f.Anonymous:
			b.fields(f.Type, inner, owner, properties, required)
			continue
		case !f.IsExported() || name == "-":
			continue
		}
		if need := f.Tag.Get("need"); need == "yes" {
			*required = append(*required, name)
			inner = reflect.Value{}
		} else if need != "" { // another one will do
			inner = reflect.Value{}
		}
		// Some defaults follow from other fields.
		if f.Type == reflect.TypeFor[shaping.Duration]() || owner == "Scenario" && inner.IsValid() && inner.Kind() != reflect.Struct {
			inner = reflect.Value{}
		}
		v := b.value(f.Type, inner)
		if unit := f.Tag.Get("unit"); unit != "" {
			v.set("type", []string{"integer", "string"})
			v.add("x-unit", unit)
			v.add("examples", []string{unitExamples[unit]})
		}
		key := owner + "." + name
		if all := fieldEnums[key]; all != nil {
			v.add("enum", all)
		}
		if key == "AllReduce.bits" {
			v.add("enum", allreduce.Bits)
		}
		if key == "AllReduce.block" {
			v.add("multipleOf", allreduce.MinBlock)
		}
		if standard, ok := standards[key]; ok {
			v.set("default", standard)
		}
		if standard, ok := linkDefaults[f.Name]; ok && owner == "Properties" {
			v.set("default", standard)
		}
		b.leaves[v] = &leaf{owner: nameOf(t), field: name, of: f.Type}
		text := b.comment(t, f.Name)
		if text == "" {
			b.err = fmt.Errorf("the field %s.%s has no comment, from which its description is made", t, f.Name)
		}
		v.add("description", text)
		properties.add(name, v)
	}
}

// identifiers are Go's names of fields, as comments use them.
var identifiers = regexp.MustCompile(`\b[A-Z][a-z]+[A-Za-z]*\b`)

// comment is the one on a type, or on a field of it, as one line, with the fields
// of the struct by their names in a file.
func (b *builder) comment(t reflect.Type, field string) string {
	types, ok := b.comments[t.PkgPath()]
	if !ok {
		types = map[string]map[string]string{}
		b.comments[t.PkgPath()] = types
		b.read(filepath.Join("..", "..", strings.TrimPrefix(t.PkgPath(), "testbed/")), types)
	}
	text := strings.Join(strings.Fields(types[t.Name()][field]), " ")
	if field != "" { // which names fields as a file does
		return text
	}
	return identifiers.ReplaceAllStringFunc(text, func(word string) string {
		if f, ok := t.FieldByName(word); ok {
			if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" && name != "-" {
				return name
			}
		}
		return word
	})
}

// read collects the comments of a package's structs.
func (b *builder) read(dir string, types map[string]map[string]string) {
	files, err := fs.Glob(os.DirFS(dir), "*.go")
	if err != nil {
		b.err = err
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.ParseComments)
		if err != nil {
			b.err = err
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok {
				return true
			}
			for _, spec := range decl.Specs {
				s, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				st, ok := s.Type.(*ast.StructType)
				if !ok {
					continue
				}
				of := map[string]string{"": decl.Doc.Text()}
				for _, field := range st.Fields.List {
					text := field.Doc.Text()
					if text == "" {
						text = field.Comment.Text()
					}
					for _, ident := range field.Names {
						of[ident.Name] = text
					}
				}
				types[s.Name.Name] = of
			}
			return true
		})
	}
}
