package program

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"testbed/policy"
)

// Name is the beginning of a program's specification, and the name of the
// section of its parameters.
const Name = "program"

func init() { policy.RegisterUnlisted(Name, &Policy{}) }

// Value is the value of a parameter as the user writes it. Its meaning depends
// on the type that the program declares.
type Value string

// UnmarshalText takes any text.
func (v *Value) UnmarshalText(text []byte) error {
	*v = Value(text)
	return nil
}

// Policy is a program that decides. It is made by Parse. A process of the program is
// started when it is first needed, and asked by one Machine at a time.
type Policy struct {
	spec  spec
	given map[string]Value
	pool  *pool
	run   *run // of the Machine that asks; nil before its first question
}

// spec locates a program: plain values, which can be sent to other processes.
type spec struct {
	Path string // as the user wrote it
	File string // absolute
	Dir  string // in which it runs
	// Log is the file that its standard error is appended to. Empty: it goes to that
	// of this process.
	Log string `json:",omitempty"`
}

// encoded is a Policy as it is sent to another process.
type encoded struct {
	spec
	Given map[string]Value `json:",omitempty"`
}

// Is reports whether a specification is that of a program rather than of a
// registered policy.
func Is(spec string) bool { return spec == Name || strings.HasPrefix(spec, Name+":") }

// Parse reads program:PATH[:parameter=value]…, with the percent-encoding of
// docs/policies.md. Parameters that are missing there have the values in
// defaults, or else the program's own. Parse does not start the program;
// Validate does.
func Parse(text string, defaults map[string]Value) (*Policy, error) {
	parts := strings.Split(text, ":")
	for i, part := range parts {
		var err error
		if parts[i], err = url.PathUnescape(part); err != nil {
			return nil, fmt.Errorf("%q contains a %% that does not begin a code such as %%3A; write %% as %%25", text)
		}
	}
	if len(parts) < 2 || parts[1] == "" {
		return nil, fmt.Errorf("%q names no program; write program:PATH, such as program:./mine.py", text)
	}
	dir, err := filepath.Abs(".")
	if err != nil {
		return nil, fmt.Errorf("finding the program %s: %w", parts[1], err)
	}
	p := &Policy{spec: spec{Path: parts[1], File: parts[1], Dir: dir}, given: maps.Clone(defaults)}
	if !filepath.IsAbs(p.spec.File) {
		p.spec.File = filepath.Join(dir, p.spec.File)
	}
	seen := map[string]bool{}
	for _, setting := range parts[2:] {
		name, value, found := strings.Cut(setting, "=")
		switch {
		case !found:
			return nil, fmt.Errorf("%q has no value in %q; write program:PATH:parameter=value, and a : in the path as %%3A", setting, text)
		case seen[name]:
			return nil, fmt.Errorf("%s is given twice in %q; keep one", name, text)
		}
		seen[name] = true
		if p.given == nil {
			p.given = map[string]Value{}
		}
		p.given[name] = Value(value)
	}
	p.pool = warm(p.spec)
	return p, nil
}

var escaped = strings.NewReplacer("%", "%25", ":", "%3A", ",", "%2C")

// Absolute returns a specification that locates the same program from any
// folder. That of a registered policy stays as it is.
func Absolute(text string) (string, error) {
	parts := strings.Split(text, ":")
	if !Is(text) || len(parts) < 2 {
		return text, nil
	}
	path, err := url.PathUnescape(parts[1])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("finding the program of %s: %w", text, err)
	}
	parts[1] = escaped.Replace(path)
	return strings.Join(parts, ":"), nil
}

// Logged returns the policy for another process, in which its standard error is
// appended to a file.
func (p *Policy) Logged(file string) *Policy {
	logged := *p
	logged.spec.Log = file
	return &logged
}

// MarshalJSON encodes the location of the program, and the given parameters.
func (p *Policy) MarshalJSON() ([]byte, error) { return json.Marshal(encoded{p.spec, p.given}) }

// UnmarshalJSON decodes the encoding of MarshalJSON. The program gets a process
// that ends with the run.
func (p *Policy) UnmarshalJSON(text []byte) error {
	var e encoded
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	*p = Policy{spec: e.spec, given: e.Given, pool: &pool{spec: e.spec, once: true}}
	return nil
}

// Validate starts the program, if no process of it waits, and asks it once
// whether the given parameters are valid.
func (p *Policy) Validate() error {
	if p.pool.accepted(p.given) {
		return nil
	}
	q, err := p.pool.take()
	if err != nil {
		return err
	}
	if err = q.reset(p.given, 0, 0); err == nil {
		p.pool.accept(p.given)
	}
	p.pool.give(q, false)
	return err
}

// Parameters are the program's parameters, with their values here. They are
// known only after Validate; before, there are none.
func (p *Policy) Parameters() []policy.Parameter {
	h := p.pool.known()
	if h == nil {
		return nil
	}
	values, err := h.values(p.given)
	if err != nil {
		return nil
	}
	all := []policy.Parameter{}
	for i, param := range h.Parameters {
		all = append(all, policy.Parameter{Name: param.Name, Default: values[i], Range: param.Range})
	}
	return all
}

// run is the state of a Machine's questions.
type run struct {
	process *process // nil: it has ended
	err     error
}

// ask returns the process to ask in a round, after a reset if nothing was asked
// before. It is nil if the program has failed.
func (p *Policy) ask(r *policy.Round) *process {
	if p.run == nil {
		p.run = &run{}
		q, err := p.pool.take()
		if err == nil {
			p.run.process = q
			err = q.reset(p.given, r.Seed, r.MinSlack)
		}
		p.run.err = err
	}
	if p.run.err != nil {
		return nil
	}
	return p.run.process
}

// Deadline implements policy.Policy.
func (p *Policy) Deadline(r *policy.Round) *policy.Deadline {
	q := p.ask(r)
	if q == nil || !q.hello.wants(asksDeadline) {
		return nil
	}
	var d *policy.Deadline
	d, p.run.err = q.deadline(r)
	return d
}

// Enough implements policy.Policy.
func (p *Policy) Enough(r *policy.Round) (needed int, enough bool) {
	q := p.ask(r)
	if q == nil || !q.hello.wants(asksEnough) {
		return 0, false
	}
	needed, enough, p.run.err = q.enough(r)
	return needed, enough
}

// Late implements policy.Policy.
func (p *Policy) Late(r *policy.Round, w policy.Member) (limit int, evict bool) {
	q := p.ask(r)
	if q == nil || !q.hello.wants(asksLate) {
		return 0, false
	}
	limit, evict, p.run.err = q.late(r, w)
	return limit, evict
}

// Closed implements policy.Policy.
func (p *Policy) Closed(r *policy.Round) {
	if q := p.ask(r); q != nil && q.hello.wants(asksClosed) {
		p.run.err = q.closed(r)
	}
}

// FinishesSteps implements policy.Finisher. It is asked after a round has closed.
func (p *Policy) FinishesSteps() (finishes bool) {
	if p.run == nil || p.run.err != nil || !p.run.process.hello.wants(asksFinishes) {
		return false
	}
	finishes, p.run.err = p.run.process.finishes()
	return finishes
}

// Err implements policy.External.
func (p *Policy) Err() error {
	if p.run == nil {
		return nil
	}
	return p.run.err
}

// Close implements policy.External: the process waits for another run, or ends.
func (p *Policy) Close() {
	if p.run != nil && p.run.process != nil {
		p.pool.give(p.run.process, true)
		p.run.process = nil
		return
	}
	p.pool.close()
}

// The kinds of questions after a reset.
const (
	asksDeadline = "deadline"
	asksEnough   = "enough"
	asksLate     = "late"
	asksClosed   = "closed"
	asksFinishes = "finishes_steps"
)

var kinds = []string{asksDeadline, asksEnough, asksLate, asksClosed, asksFinishes}

// wants reports whether the program is asked a kind of question.
func (h *hello) wants(kind string) bool { return slices.Contains(h.Answers, kind) }
