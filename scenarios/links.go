package scenarios

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"testbed/internal/errs"
	"testbed/policy"
	"testbed/scenarios/faults"
	"testbed/shaping"
)

// validateLinkInjects checks each inject by itself, and reads its trace.
func (p *parser) validateLinkInjects(s *Scenario) {
	for i := range s.Real.Injects {
		in := &s.Real.Injects[i]
		path := fmt.Sprintf("real.injects[%d]", i)
		if !p.sound(path) {
			continue
		}
		err := p.validateLinkInject(s, path, *in)
		if err == nil && in.Op == faults.LinkTrace {
			in.Pace, err = p.trace(s, path+".file", in.File)
		}
		p.note(err)
	}
}

// validateLinkFaults checks the plan as injects change it.
func (p *parser) validateLinkFaults(s *Scenario, plan *shaping.Plan) error {
	for i := range s.Real.Injects {
		if err := p.compose(s, plan, []int{i}, 0); err != nil {
			return err
		}
	}
	// Cuts, refusals and traces are valid in any combination, so checking the ends
	// of injects is enough.
	for _, in := range s.Real.Injects {
		for _, t := range append([]policy.Time{in.At}, deref(in.Until)...) {
			active := s.Faults().Active(s.RealDuration(t))
			if len(active) < 2 {
				continue // each by itself is valid
			}
			if err := p.compose(s, plan, active, s.RealDuration(t)); err != nil {
				return err
			}
		}
	}
	return nil
}

func deref(t *policy.Time) []policy.Time {
	if t == nil {
		return nil
	}
	return []policy.Time{*t}
}

// compose applies the injects that hold at a time to the plan, or each at its
// beginning.
func (p *parser) compose(s *Scenario, plan *shaping.Plan, injects []int, at time.Duration) error {
	var faults []shaping.Fault
	var owner []int // of each fault
	for _, i := range injects {
		in := s.Real.Injects[i]
		for _, f := range in.Faults(s.Faults(), max(at-s.RealDuration(in.At), 0)) {
			faults, owner = append(faults, f), append(owner, i)
		}
	}
	_, err := shaping.Compose(plan, faults)
	if err == nil {
		return nil
	}
	bad, ok := errors.AsType[*errs.FieldError](err)
	if !ok {
		return p.fail("real.injects", err.Error())
	}
	var k int
	_, _ = fmt.Sscanf(bad.Field, "faults[%d]", &k)
	_, field, _ := strings.Cut(bad.Field, "].")
	field = strings.TrimPrefix(strings.TrimPrefix(field, "paths[0]."), "pairs[0].")
	if s.Real.Injects[owner[k]].Between != nil {
		field = strings.NewReplacer("from", "between[0]", "to", "between[1]").Replace(field)
	}
	return p.fail(fmt.Sprintf("real.injects[%d].%s", owner[k], field), bad.Problem)
}

// leastFlap is the least time for which a flap keeps each state. Changing a
// network takes milliseconds.
const leastFlap = 20 * time.Millisecond

func (p *parser) validateLinkInject(s *Scenario, path string, in faults.LinkInject) error {
	if !slices.Contains(faults.LinkOps, in.Op) {
		return p.fail(path+".op", fmt.Sprintf("%q is not an inject of a link; choose one of %s", in.Op, errs.List(faults.LinkOps)))
	}
	if err := p.between(path+".at", int64(in.At), 0, int64(maxTime)); err != nil {
		return err
	}
	if in.Until != nil && *in.Until <= in.At {
		return p.fail(path+".until", fmt.Sprintf("is %d, but the inject begins at %d: make it end later, or remove until", *in.Until, in.At))
	}
	for _, f := range []struct {
		name  string
		given bool
		of    faults.Op
	}{
		{"period", in.Period != nil, faults.Flap}, {"down", in.Down != nil, faults.Flap},
		{"direction", in.Direction != "", faults.LinkTrace}, {"file", in.File != "", faults.LinkTrace},
	} {
		switch {
		case f.given && in.Op != f.of:
			return p.fail(path+"."+f.name, fmt.Sprintf("%s takes no %s (only %s does); remove it", in.Op, f.name, f.of))
		case !f.given && in.Op == f.of:
			return p.fail(path+"."+f.name, fmt.Sprintf("is missing: %s needs it", in.Op))
		}
	}
	if err := p.validateTarget(s, path, in); err != nil {
		return err
	}
	switch {
	case in.Direction != "" && in.Direction != faults.Up && in.Direction != faults.Down:
		return p.fail(path+".direction", fmt.Sprintf(`%q is not a direction; write "up" for the worker's sending direction, or "down" for receiving`, in.Direction))
	case in.Op == faults.Flap && (*in.Period < 2 || *in.Period > maxTime):
		return p.fail(path+".period", fmt.Sprintf("is %d: it must lie between 2 and %d", *in.Period, maxTime))
	case in.Op == faults.Flap && (*in.Down <= 0 || *in.Down >= *in.Period):
		return p.fail(path+".down", fmt.Sprintf("is %d: it must lie between 1 and %d, one less than the period", *in.Down, *in.Period-1))
	}
	if in.Op == faults.Flap {
		if problem := tooShort(s, in); problem != "" {
			return p.fail(path+".period", problem)
		}
	}
	return nil
}

// tooShort says whether a flap is too quick for the scenario's time scale.
func tooShort(s *Scenario, in faults.LinkInject) string {
	down, up := s.Scale().ClockDuration(*in.Down), s.Scale().ClockDuration(*in.Period-*in.Down)
	if down >= leastFlap && up >= leastFlap {
		return ""
	}
	return fmt.Sprintf("with a time_scale × dilation of %.6g the link is down for %v and up for %v, but each phase must last at least %v; lengthen down and period, or raise real.time_scale", s.Real.TimeScale*s.Slowdown(), down, up, leastFlap)
}

// Rescale gives a scenario that has been read another time scale.
func (s *Scenario) Rescale(scale float64) error {
	scaled := *s
	scaled.Real.TimeScale = scale
	for i, in := range s.Real.Injects {
		if in.Op == faults.Flap {
			if problem := tooShort(&scaled, in); problem != "" {
				return &Error{File: s.Name, Field: fmt.Sprintf("real.injects[%d].period", i), Problem: problem}
			}
		}
	}
	*s = scaled
	return nil
}

// validateTarget checks the target of an inject, and its properties.
func (p *parser) validateTarget(s *Scenario, path string, in faults.LinkInject) error {
	access, properties := !reflect.ValueOf(in.Access).IsZero(), !reflect.ValueOf(in.Path).IsZero()
	oneWay := in.From != "" || in.To != ""
	switch {
	case in.ID != nil && oneWay:
		return p.fail(path+".id", "cannot be combined with from or to: give id for an access link, or from and to for a path")
	case in.Between != nil && (in.ID != nil || oneWay):
		return p.fail(path+".between", "cannot be combined with id, from or to: give between alone for both ways of a pair")
	case in.Between != nil && len(in.Between) != 2:
		return p.fail(path+".between", fmt.Sprintf("must name two nodes, not %d", len(in.Between)))
	case in.Op == faults.LinkTrace && in.ID == nil:
		return p.fail(path+".id", "is missing: LinkTrace needs the id of the worker whose access link changes")
	case in.Op == faults.Cut && in.ID != nil:
		return p.fail(path+".id", "Cut takes a path: give from and to, or use Partition to cut off a worker")
	case in.Op == faults.Refuse && oneWay:
		return p.fail(path, "Refuse applies to both directions: give between instead of from and to, or id for all paths of a worker")
	case in.Op != faults.Link && (access || properties):
		return p.fail(path, fmt.Sprintf("%s takes no properties of links; remove them, or use Link", in.Op))
	case in.ID != nil && properties:
		return p.fail(path, "has properties of a path, but names an access link; give from and to instead of id")
	case in.ID == nil && access && (oneWay || in.Between != nil):
		return p.fail(path, "has properties of an access link, but names a path; give id instead of from and to, or between")
	case in.Op == faults.Link && !access && !properties:
		return p.fail(path, "has no property of a link; give at least one, for example rate_up")
	case in.ID == nil && in.Between == nil && !oneWay && in.Op == faults.Refuse:
		return p.fail(path, "names no link: Refuse needs id or between")
	case in.ID == nil && in.Between == nil && !oneWay:
		needed := "id, or from and to, or between"
		switch {
		case access:
			needed = "id, because it has properties of an access link"
		case properties || in.Op == faults.Cut:
			needed = "from and to, or between"
		}
		return p.fail(path, fmt.Sprintf("names no link: %s needs %s", in.Op, needed))
	case in.ID != nil:
		return p.worker(s, path+".id", *in.ID)
	}
	return nil
}

// trace reads the trace of an inject.
func (p *parser) trace(s *Scenario, field, name string) (*shaping.Pace, error) {
	text, err := p.named(s, field, "trace", name)
	if err != nil {
		return nil, err
	}
	pace, err := shaping.ParseTrace(text)
	if bad, ok := errors.AsType[*shaping.TraceError](err); ok {
		return nil, p.inNamed(field, name, bad.Line, bad.Problem)
	}
	return pace, err
}
