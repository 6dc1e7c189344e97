package schema

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"testbed/policy"
	"testbed/shaping"
)

// explained are the pages on sections, by the path of the section.
var explained = map[string]string{
	"":                "[Scenario files](scenarios.md) explains the sections and how they work together.",
	"injects[]":       "[Injects](scenarios.md#injects) explains their effects.",
	"policy":          "[Policies](policies.md) explains the policies, and [Scenario files](scenarios.md#policy) the fields that apply under any policy.",
	"policy.torchft":  "[torchft](torchft.md#as-a-policy) explains the policy.",
	"real.upload":     "[Uploads](scenarios.md#uploads) explains the fields.",
	"real.links":      "[Links](links.md) explains networks. The most specific level sets a property: a node or pair, otherwise a group, otherwise `default`.",
	"real.all_reduce": "[The ring](ring.md#algorithms) explains algorithms and orders.",
	"real.injects[]":  "[Faults](links.md#faults) explains their effects and targets.",
	"work":            "[Work](scenarios.md#work) explains how the parts work together.",
	"work.steps":      "[Work](scenarios.md#work) has the largest `sigma` of each distribution.",
	"train":           "[Learning](learning.md) explains the tasks, and [the trainer](trainer.md) explains programs of your own.",
	"train.outer":     "[Published outer steps](learning.md#published-outer-steps) explains the fields.",
	"train.regions":   "[Hierarchical outer steps](learning.md#hierarchical-outer-steps) explains the fields.",
	"loss_burst":      "[Path](links.md#path) explains this Gilbert-Elliott model.",
}

const opening = `# Scenario fields

Reference: every field of a scenario file.
%[1]sgo test ./scenarios/schema -update%[1]s makes this page from the program. The
test finds ranges by trying values. Where a range depends on other fields, the
page gives the widest. %[1]stestbed schema%[1]s prints the fields as a JSON schema.

- A **time** is scenario time in whole microseconds, or text with a unit:
  %[1]s30ms%[1]s, %[1]s1.5s%[1]s.
- A **real time** is text with a unit, and does not depend on
  %[1]sreal.time_scale%[1]s. A **rate** is text such as %[1]s100mbit%[1]s. A
  **share** is %[1]s0.1%%%[1]s or 0.001. [Links](links.md#units) has the units.
- **ids** are a list of worker numbers, or text such as %[1]s0-9,20-29%[1]s.
- %[1]s[]%[1]s stands for each entry of a list, and %[1]sNAME%[1]s for a name of your
  choice.
- An absent section has the defaults of its fields. If a section with required
  fields, such as %[1]swork.noise%[1]s, is absent, it has no effect.
`

// page is docs/fields.md.
func (b *builder) page(t *testing.T, root *object) []byte {
	w := writer{b: b, t: t, written: map[string]bool{}}
	fmt.Fprintf(&w.out, opening, "`")
	w.section(root, "", "The file")
	return w.out.Bytes()
}

type writer struct {
	b       *builder
	t       *testing.T
	out     bytes.Buffer
	written map[string]bool // headings
}

// shared are the structs that several sections have in them.
var shared = map[string]string{"Access": "Access links", "Path": "Paths"}

// section writes a table of the fields of an object, and the sections in it.
func (w *writer) section(o *object, path, title string) {
	if w.written[title] {
		return
	}
	w.written[title] = true
	properties := o.get("properties").(*object)
	required, _ := o.get("required").([]string)
	fmt.Fprintf(&w.out, "\n## %s\n", title)
	shares := title == shared["Access"] || title == shared["Path"] // has only what several sections have
	if text, ok := explained[path]; ok && !shares {
		fmt.Fprintf(&w.out, "\n%s\n", wrapped(text))
	}
	var rows bytes.Buffer
	var also []string
	for i, name := range properties.names {
		p := properties.values[i].(*object)
		l := w.b.leaves[p]
		if heading, ok := shared[l.owner]; ok && title != heading && path != "real.links.groups" {
			if link := fmt.Sprintf("[%s](#%s)", strings.ToLower(heading), anchor(heading)); !shares && !slices.Contains(also, link) {
				also = append(also, link)
			}
			if title != heading {
				continue
			}
		}
		if title == shared["Access"] && l.owner != "Access" || title == shared["Path"] && l.owner != "Path" {
			continue
		}
		w.row(&rows, p, field(path, name), slices.Contains(required, name))
	}
	if also != nil {
		fmt.Fprintf(&w.out, "\n%s\n", wrapped("This section has all fields of "+strings.Join(also, " and of ")+"."))
	}
	if rows.Len() > 0 {
		fmt.Fprintf(&w.out, "\n| field | type | default | range | meaning |\n|---|---|---|---|---|\n%s", rows.Bytes())
	} else if also == nil {
		fmt.Fprint(&w.out, "\nThis section has no fields.\n")
	}
	for i, name := range properties.names {
		p := properties.values[i].(*object)
		if _, ok := shared[w.b.leaves[p].owner]; ok && shared[w.b.leaves[p].owner] != title {
			continue
		}
		if inner, suffix := w.inner(p); inner != nil {
			at := field(path, name) + suffix
			w.section(inner, at, "`"+at+"`")
		}
	}
	if path == "real.links" { // once for all that have them
		of := w.b.defs.get("Properties").(*object)
		for _, name := range []string{"Access", "Path"} {
			w.section(of, "", shared[name])
		}
	}
}

func field(path, name string) string {
	return strings.TrimPrefix(path+"."+name, ".")
}

// inner is the object that a value is, or that its entries are.
func (w *writer) inner(p *object) (inner *object, suffix string) {
	if ref, ok := p.get("$ref").(string); ok {
		return w.b.defs.get(strings.TrimPrefix(ref, "#/$defs/")).(*object), ""
	}
	if items, ok := p.get("items").(*object); ok {
		inner, more := w.inner(items)
		return inner, "[]" + more
	}
	if each, ok := p.get("additionalProperties").(*object); ok {
		inner, more := w.inner(each)
		return inner, ".NAME" + more
	}
	if p.get("properties") != nil {
		return p, ""
	}
	return nil, ""
}

func (w *writer) row(out *bytes.Buffer, p *object, path string, required bool) {
	l := w.b.leaves[p]
	kind := kindOf(l.of)
	if unit, ok := p.get("x-unit").(string); ok && unit != "µs" {
		kind = map[string]string{"B": "size, or bytes", "B/µs": "rate, or B/µs"}[unit]
	}
	if inner, suffix := w.inner(p); inner != nil {
		at := "`" + path + suffix + "`"
		kind = fmt.Sprintf("[section](#%s)", anchor(at))
		switch {
		case strings.HasSuffix(suffix, "[]"):
			kind = fmt.Sprintf("[list](#%s)", anchor(at))
		case suffix != "":
			kind = fmt.Sprintf("[by name](#%s)", anchor(at))
		}
	}
	if p.get("enum") != nil && !strings.Contains(kind, "number") {
		kind = "choice"
	}
	standard := ""
	if value := p.get("default"); value != nil {
		standard = fmt.Sprint(value)
	}
	if required {
		standard = "required"
	}
	meaning, _ := p.get("description").(string)
	if strings.HasPrefix(path, "policy.") && p.get("properties") != nil {
		name := strings.TrimPrefix(path, "policy.")
		meaning = "Parameters of the policy `" + name + "`: " + policy.Summary(name) + "."
	}
	if meaning == "" {
		w.t.Errorf("%s has no meaning", path)
	}
	fmt.Fprintf(out, "| `%s` | %s | %s | %s | %s |\n", path, kind, standard, rangeOf(p, l), strings.ReplaceAll(meaning, "|", "\\|"))
}

func kindOf(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case enums[t] != nil:
		return "choice"
	case t == reflect.TypeFor[policy.Time]():
		return "time"
	case t == reflect.TypeFor[shaping.Duration]():
		return "real time"
	case t == reflect.TypeFor[shaping.Rate]():
		return "rate"
	case t == reflect.TypeFor[shaping.Queue]():
		return "real time or size"
	case t == reflect.TypeFor[shaping.Probability]():
		return "share"
	case t == reflect.TypeFor[[]policy.ID]():
		return "ids"
	case t == reflect.TypeFor[policy.ID](), t.Kind() == reflect.Int, t.Kind() == reflect.Int64, t.Kind() == reflect.Uint64:
		return "whole number"
	case t.Kind() == reflect.Float64:
		return "number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Slice:
		return "list of lists of a " + kindOf(t.Elem().Elem())
	case t.Kind() == reflect.Slice:
		return "list of " + kindOf(t.Elem())
	case t.Kind() == reflect.Map:
		return "by name: " + kindOf(t.Elem())
	}
	return "text"
}

// rangeOf says what a value may be.
func rangeOf(p *object, l *leaf) string {
	switch all := p.get("enum").(type) {
	case []string:
		return "`" + strings.Join(all, "`, `") + "`"
	case []int:
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ", "), "[]")
	}
	low, high := p.get("minimum"), p.get("maximum")
	above, below := p.get("exclusiveMinimum"), p.get("exclusiveMaximum")
	var text string
	switch {
	case low != nil && high != nil:
		text = fmt.Sprintf("%s to %s", number(low), number(high))
	case above != nil && high != nil:
		text = fmt.Sprintf("above 0, to %s", number(high))
	case low != nil && below != nil:
		text = fmt.Sprintf("%s to below %s", number(low), number(below))
	case low != nil:
		text = "at least " + number(low)
	case above != nil:
		text = "above " + number(above)
	case high != nil:
		text = "at most " + number(high)
	}
	if above != nil && high != nil {
		text = fmt.Sprintf("above %s, to %s", number(above), number(high))
	}
	if of := p.get("multipleOf"); of != nil {
		text += fmt.Sprintf(", a multiple of %v", of)
	}
	return strings.Join(append(slices.DeleteFunc([]string{text}, func(s string) bool { return s == "" }), l.more...), ", or ")
}

// number writes a bound with commas between thousands.
func number(bound any) string {
	digits := fmt.Sprint(bound)
	if x, ok := bound.(float64); ok && x >= 1e6 {
		digits = fmt.Sprintf("%.0f", x)
	}
	if strings.Contains(digits, ".") {
		return digits
	}
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// anchor is what leads to a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

// wrapped breaks prose into lines.
func wrapped(text string) string {
	var out strings.Builder
	n := 0
	for word := range strings.FieldsSeq(text) {
		switch width := len([]rune(word)); {
		case n == 0:
			n = width
		case n+1+width > 80:
			out.WriteByte('\n')
			n = width
		default:
			out.WriteByte(' ')
			n += 1 + width
		}
		out.WriteString(word)
	}
	return out.String()
}
