package program

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/policy"
)

// version is the version of the protocol.
const version = 1

// hello is a program's description of itself: its answer to the first question.
type hello struct {
	base
	Version    int         `json:"version"`
	Name       string      `json:"name"`
	Answers    []string    `json:"answers"`
	Parameters []parameter `json:"parameters"`
	TimeLimit  *float64    `json:"time_limit_s"`
}

// parameter is a parameter of a program.
type parameter struct {
	Name    string        `json:"name"`
	Type    string        `json:"type"`
	Default any           `json:"default"`
	Min     *float64      `json:"min"`
	Max     *float64      `json:"max"`
	Range   *policy.Range `json:"range"`
}

var parameterName = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

// maxTimeLimit is the most that a program may take for an answer, in seconds.
const maxTimeLimit = 3600

// check reports what is wrong with a program's description of itself.
func (h *hello) check() error {
	if h.Version != version {
		return fmt.Errorf("speaks version %d of the protocol, but this testbed speaks version %d; use a program and a testbed of the same version", h.Version, version)
	}
	for _, kind := range h.Answers {
		if !slices.Contains(kinds, kind) {
			return fmt.Errorf("says that it answers the unknown question %q; the known questions are %s", kind, strings.Join(kinds, ", "))
		}
	}
	if l := h.TimeLimit; l != nil && !(*l > 0 && *l <= maxTimeLimit) {
		return fmt.Errorf("says that time_limit_s is %v: it must lie in (0, %d]", *l, maxTimeLimit)
	}
	seen := map[string]bool{}
	for i := range h.Parameters {
		p := &h.Parameters[i]
		if !parameterName.MatchString(p.Name) {
			return fmt.Errorf("says that a parameter is called %q; a name has only letters, digits and _", p.Name)
		}
		if seen[p.Name] {
			return fmt.Errorf("says that two parameters are called %q; give each parameter a name of its own", p.Name)
		}
		seen[p.Name] = true
		if err := p.check(); err != nil {
			return err
		}
	}
	return nil
}

func (p *parameter) check() error {
	number := p.Type == "int" || p.Type == "float"
	switch {
	case !number && p.Type != "bool" && p.Type != "string":
		return fmt.Errorf("says that its parameter %s has the type %q; choose int, float, bool or string", p.Name, p.Type)
	case !number && (p.Min != nil || p.Max != nil):
		return fmt.Errorf("says that its parameter %s has a min or max; only parameters of the types int and float may have a min or max", p.Name)
	case p.Range != nil && p.Type == "string":
		return fmt.Errorf("says that its parameter %s has a range; parameters of the type string may not have a range", p.Name)
	}
	if r := p.Range; r != nil {
		switch {
		case !(r.High >= r.Low):
			return fmt.Errorf("says that its parameter %s has a range from %v to %v: low must not be above high", p.Name, r.Low, r.High)
		case r.Log && r.Low <= 0:
			return fmt.Errorf("says that its parameter %s has a range from %v to %v that is searched by its logarithm: low must be above 0", p.Name, r.Low, r.High)
		case r.Of != "" && r.Of != policy.OfRound && r.Of != policy.OfMembers:
			return fmt.Errorf("says that its parameter %s has a range in multiples of %q: the field \"of\" must be %q or %q, or absent", p.Name, r.Of, policy.OfRound, policy.OfMembers)
		}
	}
	if number { // JSON has one kind of numbers
		f, is := p.Default.(float64)
		if p.Default = any(f); p.Type == "int" {
			is = is && f == math.Trunc(f) && math.Abs(f) < 1<<53
			p.Default = int64(f)
		}
		if !is {
			return fmt.Errorf("has the parameter %s, whose default is missing or not of type %s: correct the default", p.Name, p.Type)
		}
		if problem := p.outside(f); problem != "" {
			return fmt.Errorf("says that the default of its parameter %s %s", p.Name, problem)
		}
		return nil
	}
	if _, is := p.Default.(bool); is != (p.Type == "bool") {
		return fmt.Errorf("has the parameter %s, whose default is missing or not of type %s: correct the default", p.Name, p.Type)
	}
	if _, is := p.Default.(string); is != (p.Type == "string") {
		return fmt.Errorf("has the parameter %s, whose default is missing or not of type %s: correct the default", p.Name, p.Type)
	}
	return nil
}

// outside says in words that a value is out of the parameter's limits; it is
// empty if not.
func (p *parameter) outside(v float64) string {
	switch {
	case p.Min != nil && v < *p.Min:
		return fmt.Sprintf("is %v: it must be at least %v", v, *p.Min)
	case p.Max != nil && v > *p.Max:
		return fmt.Sprintf("is %v: it must be at most %v", v, *p.Max)
	}
	return ""
}

// value reads a value of the parameter's type: an int64, float64, bool or string.
func (p *parameter) value(text Value) (any, error) {
	var v any
	var f float64
	var err error
	switch p.Type {
	case "int":
		var n int64
		n, err = strconv.ParseInt(string(text), 10, 64)
		v, f = n, float64(n)
	case "float":
		f, err = strconv.ParseFloat(string(text), 64)
		if v = f; math.IsInf(f, 0) || math.IsNaN(f) {
			err = strconv.ErrRange
		}
	case "bool":
		if v = text == "true"; text != "true" && text != "false" {
			err = strconv.ErrSyntax
		}
	default:
		return string(text), nil
	}
	if err != nil {
		return nil, fmt.Errorf("does not take %s=%s: the value must be of the type %s", p.Name, text, p.Type)
	}
	if problem := p.outside(f); problem != "" {
		return nil, fmt.Errorf("does not take %s=%s: the value %s", p.Name, text, problem)
	}
	return v, nil
}

// values are the values of all parameters, given or default.
func (h *hello) values(given map[string]Value) ([]any, error) {
	all := make([]any, len(h.Parameters))
	known := make([]string, len(h.Parameters))
	for i, p := range h.Parameters {
		all[i], known[i] = p.Default, p.Name
		text, ok := given[p.Name]
		if !ok {
			continue
		}
		var err error
		if all[i], err = p.value(text); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if slices.Contains(known, name) {
			continue
		}
		if len(known) == 0 {
			return nil, fmt.Errorf("has no parameters, but %s is given; leave it out", name)
		}
		return nil, fmt.Errorf("has no parameter %s: its parameters are %s", name, strings.Join(known, ", "))
	}
	return all, nil
}

// limit is how long an answer may take.
func (h *hello) limit() time.Duration {
	if h.TimeLimit == nil {
		return defaultLimit
	}
	return time.Duration(*h.TimeLimit * float64(time.Second))
}
