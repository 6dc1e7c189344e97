package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"testbed/internal/errs"
)

// mostProblems is the number of problems of a file that an error lists.
const mostProblems = 20

// note keeps a problem, unless a problem of the same field, of a part of it, or
// of a field around it is known already: that may be the cause.
func (p *parser) note(err error) {
	if err == nil || len(p.problems) > mostProblems {
		return
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = &Error{File: p.file, Problem: err.Error()}
	}
	if e.spoils == "" {
		e.spoils = p.original(e.Field)
	}
	if e.spoils == "" || p.sound(e.spoils) {
		p.problems = append(p.problems, e)
	}
}

// sound reports whether no problem is known of fields, of their parts, or of
// fields around them.
func (p *parser) sound(fields ...string) bool {
	return !slices.ContainsFunc(p.problems, func(e *Error) bool {
		if e.spoils == "" { // the file as a whole
			return false
		}
		return slices.ContainsFunc(fields, func(field string) bool { return within(e.spoils, field) || within(field, e.spoils) })
	})
}

// within says whether a field is another one or part of it.
func within(field, whole string) bool {
	rest, ok := strings.CutPrefix(field, whole)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// original returns the field of workers that the file has, for a field of an
// entry made of a range.
func (p *parser) original(field string) string {
	var i int
	if n, _ := fmt.Sscanf(field, "workers[%d]", &i); n == 1 {
		if first, ok := p.copyOf[i]; ok {
			_, rest, _ := strings.Cut(field, "]")
			return fmt.Sprintf("workers[%d]%s", first, rest)
		}
	}
	return field
}

// problem returns the error of all noted problems, in the order of the lines,
// or nil.
func (p *parser) problem() error {
	if len(p.problems) == 0 {
		return nil
	}
	all := slices.Clone(p.problems)
	slices.SortStableFunc(all, func(a, b *Error) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	if len(all) > mostProblems {
		all[mostProblems] = &Error{File: p.file, Problem: fmt.Sprintf("there are more problems than the %d listed ones", mostProblems)}
		all = all[:mostProblems+1]
	}
	first := *all[0]
	first.More = all[1:]
	return &first
}

// noteFields notes every *errs.FieldError that an error joins.
func (p *parser) noteFields(prefix string, err error) {
	if err == nil {
		return
	}
	all := errs.Fields(err)
	for _, bad := range all {
		p.note(p.fail(prefix+bad.Field, bad.Problem))
	}
	if len(all) == 0 {
		p.note(p.fail(strings.TrimSuffix(prefix, "."), err.Error()))
	}
}

// without returns a document without the values that have problems. Entries of
// lists keep their places.
func (p *parser) without(n *yaml.Node) *yaml.Node {
	c := *n
	c.Content = nil
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key, value := n.Content[i], n.Content[i+1]; !p.wrong[key] && !p.wrong[value] {
				c.Content = append(c.Content, key, p.without(value))
			}
		}
	case yaml.SequenceNode:
		for _, entry := range n.Content {
			if p.wrong[entry] {
				entry = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null", Line: entry.Line}
			}
			c.Content = append(c.Content, p.without(entry))
		}
	default:
		return n
	}
	return &c
}
