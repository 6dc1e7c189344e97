package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"testbed/policy"
	"testbed/shaping"
)

// The injects of links.
const (
	Link      Op = "Link"      // the access link of a worker, or a path, has other properties
	LinkTrace Op = "LinkTrace" // one direction of an access link has the rate of a trace
	Cut       Op = "Cut"       // a path carries nothing
	Refuse    Op = "Refuse"    // nodes cannot send to each other, and get an error at once
	Flap      Op = "Flap"      // a cut that comes and goes
)

// LinkOps lists the injects of links.
var LinkOps = []Op{Link, LinkTrace, Cut, Refuse, Flap}

// The directions of an access link.
const (
	Up   = "up"
	Down = "down"
)

// LinkInject is something that happens to a link for a while.
type LinkInject struct {
	Op Op          `yaml:"op" json:"op" need:"yes"`
	At policy.Time `yaml:"at" json:"at" need:"yes"`
	// Until is when it is over; nil: never.
	Until *policy.Time `yaml:"until" json:"until,omitempty"`
	// What it happens to: ID is a worker and its access link, From and To are
	// the nodes of a path, Between those of two paths, there and back.
	ID      *policy.ID `yaml:"id" json:"id,omitempty"`
	From    string     `yaml:"from" json:"from,omitempty"`
	To      string     `yaml:"to" json:"to,omitempty"`
	Between []string   `yaml:"between" json:"between,omitempty"`
	// Period is how often a Flap cuts, Down for how long each time.
	Period *policy.Time `yaml:"period" json:"period,omitempty"`
	Down   *policy.Time `yaml:"down" json:"down,omitempty"`
	// Direction is Up or Down, and File the file of a LinkTrace, relative to
	// that of the scenario. Pace is what it holds.
	Direction      string        `yaml:"direction" json:"direction,omitempty"`
	File           string        `yaml:"file" json:"file,omitempty"`
	Pace           *shaping.Pace `yaml:"-" json:"pace,omitempty"`
	shaping.Access `yaml:",inline"`
	shaping.Path   `yaml:",inline"`
}

// String says what happens to what: "LinkTrace w3 up".
func (in LinkInject) String() string {
	text := string(in.Op)
	switch {
	case in.ID != nil:
		text += " " + (*in.ID).Node()
	case in.Between != nil:
		text += " " + strings.Join(in.Between, "–")
	default:
		text += " " + in.From + "→" + in.To
	}
	if in.Direction != "" {
		text += " " + in.Direction
	}
	return text
}

// directions are the paths of an inject that names some.
func (in LinkInject) directions() []shaping.Direction {
	if in.Between != nil {
		a, b := in.Between[0], in.Between[1]
		return []shaping.Direction{{From: a, To: b}, {From: b, To: a}}
	}
	return []shaping.Direction{{From: in.From, To: in.To}}
}

// faults is the inject as shaping has it, that long after its beginning.
func (in LinkInject) faults(s *Scenario, since time.Duration) []shaping.Fault {
	switch {
	case in.Op == LinkTrace:
		return []shaping.Fault{shaping.Paced{Node: (*in.ID).Node(), Down: in.Direction == Down, Now: in.Pace.At(since), Peak: in.Pace.Peak()}}
	case in.Op == Refuse && in.ID != nil:
		var f shaping.Refusal
		for _, name := range s.Nodes() {
			if name != (*in.ID).Node() {
				f.Pairs = append(f.Pairs, [2]string{(*in.ID).Node(), name})
			}
		}
		return []shaping.Fault{f}
	case in.Op == Refuse:
		return []shaping.Fault{shaping.Refusal{Pairs: [][2]string{{in.Between[0], in.Between[1]}}}}
	case in.Op == Flap && since%s.RealDuration(*in.Period) >= s.RealDuration(*in.Down):
		return nil
	case in.Op == Flap && in.ID != nil:
		return []shaping.Fault{shaping.Partition{Nodes: []string{(*in.ID).Node()}}}
	case in.Op == Flap || in.Op == Cut:
		return []shaping.Fault{shaping.Cut{Paths: in.directions()}}
	case in.ID != nil:
		return []shaping.Fault{shaping.AccessChange{Node: (*in.ID).Node(), Access: in.Access}}
	}
	var all []shaping.Fault
	for _, d := range in.directions() {
		all = append(all, shaping.PathChange{From: d.From, To: d.To, Path: in.Path})
	}
	return all
}

// LinkFaults returns what is wrong with links at a time: the partitions of
// Injects that are not cleared, and the Real.Injects that are not over. The
// time is real, since scenario time zero.
func (s *Scenario) LinkFaults(at time.Duration) []shaping.Fault {
	var faults []shaping.Fault
	for _, part := range s.partitions(at) {
		nodes := make([]string, len(part))
		for i, id := range part {
			nodes[i] = id.Node()
		}
		faults = append(faults, shaping.Partition{Nodes: nodes})
	}
	for _, id := range s.hanging(at) { // it can still reach the coordinator
		var paths []shaping.Direction
		for _, other := range s.Nodes() {
			if name := id.Node(); other != name && other != policy.CoordinatorNode {
				paths = append(paths, shaping.Direction{From: name, To: other}, shaping.Direction{From: other, To: name})
			}
		}
		if len(paths) > 0 {
			faults = append(faults, shaping.Cut{Paths: paths})
		}
	}
	for _, i := range s.activeLinks(at) {
		in := s.Real.Injects[i]
		faults = append(faults, in.faults(s, at-s.RealDuration(in.At))...)
	}
	return faults
}

// NextLinkFault returns when LinkFaults may change next after a time, if ever.
// Times are real, since scenario time zero; before it, they are negative.
func (s *Scenario) NextLinkFault(after time.Duration) (next time.Duration, ok bool) {
	consider := func(t time.Duration) {
		if t > after && (!ok || t < next) {
			next, ok = t, true
		}
	}
	hangs := slices.ContainsFunc(s.Injects, func(in Inject) bool { return in.Heartbeats })
	for _, in := range s.Injects {
		if in.Op == Partition || in.Op == ClearPartition || hangs && (in.Op == Pause || in.Op == Resume || in.Op == Restart) {
			consider(s.RealDuration(in.At))
		}
	}
	for _, in := range s.Real.Injects {
		begin, end := s.RealDuration(in.At), time.Duration(math.MaxInt64)
		consider(begin)
		if in.Until != nil {
			end = s.RealDuration(*in.Until)
			consider(end)
		}
		since := after - begin
		if since < 0 || after >= end {
			continue
		}
		turn := time.Duration(math.MaxInt64)
		switch in.Op {
		case Flap:
			period, down := s.RealDuration(*in.Period), s.RealDuration(*in.Down)
			turn = since - since%period + period
			if since%period < down {
				turn = since - since%period + down
			}
		case LinkTrace:
			turn = in.Pace.Next(since)
		}
		if turn < end-begin {
			consider(begin + turn)
		}
	}
	return next, ok
}

// LinkActive says whether an inject of links is under way at a time, and a flap
// at work. The time is as for LinkFaults.
func (s *Scenario) LinkActive(i int, at time.Duration) bool {
	in := s.Real.Injects[i]
	begin := s.RealDuration(in.At)
	return at >= begin && (in.Until == nil || at < s.RealDuration(*in.Until)) && len(in.faults(s, at-begin)) > 0
}

// partitions returns the workers that are cut off together at a time.
func (s *Scenario) partitions(at time.Duration) (parts [][]policy.ID) {
	injects := slices.Clone(s.Injects)
	slices.SortStableFunc(injects, func(a, b Inject) int { return cmp.Compare(a.At, b.At) })
	for _, in := range injects {
		switch {
		case s.RealDuration(in.At) > at:
		case in.Op == Partition:
			parts = append(parts, slices.Clone(in.IDs))
		case in.Op == ClearPartition && in.IDs == nil:
			parts = nil
		case in.Op == ClearPartition:
			for k := range parts {
				parts[k] = slices.DeleteFunc(parts[k], func(id policy.ID) bool { return slices.Contains(in.IDs, id) })
			}
			parts = slices.DeleteFunc(parts, func(part []policy.ID) bool { return len(part) == 0 })
		}
	}
	return parts
}

// hanging returns who is paused at a time and gives heartbeats all the same.
func (s *Scenario) hanging(at time.Duration) (ids []policy.ID) {
	for _, i := range inTime(s.Injects) {
		in := s.Injects[i]
		switch {
		case s.RealDuration(in.At) > at:
		case in.Op == Pause && in.Heartbeats:
			ids = append(ids, *in.ID)
		case in.Op == Resume || in.Op == Restart:
			ids = slices.DeleteFunc(ids, func(id policy.ID) bool { return id == *in.ID })
		}
	}
	return ids
}

// activeLinks returns the positions of the link injects under way at a time,
// the latest last, so that it counts.
func (s *Scenario) activeLinks(at time.Duration) (active []int) {
	for i := range s.Real.Injects {
		if s.LinkActive(i, at) {
			active = append(active, i)
		}
	}
	slices.SortStableFunc(active, func(a, b int) int { return cmp.Compare(s.Real.Injects[a].At, s.Real.Injects[b].At) })
	return active
}

// validateLinkInjects looks at each inject by itself, and reads its trace.
func (p *parser) validateLinkInjects(s *Scenario) error {
	for i := range s.Real.Injects {
		in := &s.Real.Injects[i]
		path := fmt.Sprintf("real.injects[%d]", i)
		err := p.validateLinkInject(s, path, *in)
		if err == nil && in.Op == LinkTrace {
			in.Pace, err = p.trace(s, path+".file", in.File)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// validateLinkFaults looks at what injects make of the plan.
func (p *parser) validateLinkFaults(s *Scenario, plan *shaping.Plan) error {
	for i := range s.Real.Injects {
		if err := p.compose(s, plan, []int{i}, 0); err != nil {
			return err
		}
	}
	// Cuts, refusals and traces make sense beside anything, so that a look at
	// the ends of injects is enough.
	for _, in := range s.Real.Injects {
		for _, t := range append([]policy.Time{in.At}, deref(in.Until)...) {
			active := s.activeLinks(s.RealDuration(t))
			if len(active) < 2 {
				continue // each by itself makes sense
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

// compose lays injects over the plan at a time, or each at its beginning.
func (p *parser) compose(s *Scenario, plan *shaping.Plan, injects []int, at time.Duration) error {
	var faults []shaping.Fault
	var owner []int // of each fault
	for _, i := range injects {
		in := s.Real.Injects[i]
		for _, f := range in.faults(s, max(at-s.RealDuration(in.At), 0)) {
			faults, owner = append(faults, f), append(owner, i)
		}
	}
	_, err := shaping.Compose(plan, faults)
	if err == nil {
		return nil
	}
	bad, ok := errors.AsType[*shaping.FieldError](err)
	if !ok {
		return p.fail("real.injects", err.Error())
	}
	var k int
	_, _ = fmt.Sscanf(bad.Path, "faults[%d]", &k)
	_, field, _ := strings.Cut(bad.Path, "].")
	field = strings.TrimPrefix(strings.TrimPrefix(field, "paths[0]."), "pairs[0].")
	if s.Real.Injects[owner[k]].Between != nil {
		field = strings.NewReplacer("from", "between[0]", "to", "between[1]").Replace(field)
	}
	return p.fail(fmt.Sprintf("real.injects[%d].%s", owner[k], field), bad.Problem)
}

// leastFlap is the least time that a flap has each state. Changing a network
// takes milliseconds.
const leastFlap = 20 * time.Millisecond

func (p *parser) validateLinkInject(s *Scenario, path string, in LinkInject) error {
	if !slices.Contains(LinkOps, in.Op) {
		return p.fail(path+".op", fmt.Sprintf("%q is no inject of a link; choose one of %s", in.Op, quoted(LinkOps)))
	}
	if err := p.between(path+".at", int64(in.At), 0, int64(maxTime)); err != nil {
		return err
	}
	if in.Until != nil && *in.Until <= in.At {
		return p.fail(path+".until", fmt.Sprintf("is %d, but the inject begins at %d; let it end later, or leave until out", *in.Until, in.At))
	}
	for _, f := range []struct {
		name  string
		given bool
		of    Op
	}{
		{"period", in.Period != nil, Flap}, {"down", in.Down != nil, Flap},
		{"direction", in.Direction != "", LinkTrace}, {"file", in.File != "", LinkTrace},
	} {
		switch {
		case f.given && in.Op != f.of:
			return p.fail(path+"."+f.name, fmt.Sprintf("%s takes no %s, %s does; remove it", in.Op, f.name, f.of))
		case !f.given && in.Op == f.of:
			return p.fail(path+"."+f.name, fmt.Sprintf("is missing; %s needs it", in.Op))
		}
	}
	if err := p.validateTarget(s, path, in); err != nil {
		return err
	}
	switch {
	case in.Direction != "" && in.Direction != Up && in.Direction != Down:
		return p.fail(path+".direction", fmt.Sprintf("%q is no direction; write up for what the worker sends, or down for what it receives", in.Direction))
	case in.Op == Flap && (*in.Down <= 0 || *in.Down >= *in.Period):
		return p.fail(path+".down", fmt.Sprintf("is %d; it must lie between 1 and the period of %d, less 1", *in.Down, *in.Period))
	case in.Op == Flap && *in.Period > maxTime:
		return p.fail(path+".period", fmt.Sprintf("is %d; it must lie between 2 and %d", *in.Period, maxTime))
	}
	if in.Op == Flap {
		if problem := in.tooShort(s); problem != "" {
			return p.fail(path+".period", problem)
		}
	}
	return nil
}

// tooShort says whether a flap is too quick for the scenario's time scale.
func (in LinkInject) tooShort(s *Scenario) string {
	down, up := s.ClockDuration(*in.Down), s.ClockDuration(*in.Period-*in.Down)
	if down >= leastFlap && up >= leastFlap {
		return ""
	}
	return fmt.Sprintf("with a time_scale, times dilation, of %v the link is down for %v and up for %v, and less than %v cannot be carried out; make both longer", s.Real.TimeScale*s.Slowdown(), down, up, leastFlap)
}

// Rescale gives a scenario that has been read another time scale.
func (s *Scenario) Rescale(scale float64) error {
	scaled := *s
	scaled.Real.TimeScale = scale
	for i, in := range s.Real.Injects {
		if in.Op == Flap {
			if problem := in.tooShort(&scaled); problem != "" {
				return &Error{File: s.Name, Field: fmt.Sprintf("real.injects[%d].period", i), Problem: problem}
			}
		}
	}
	*s = scaled
	return nil
}

// validateTarget looks at what an inject happens to, and at its properties.
func (p *parser) validateTarget(s *Scenario, path string, in LinkInject) error {
	access, properties := !reflect.ValueOf(in.Access).IsZero(), !reflect.ValueOf(in.Path).IsZero()
	oneWay := in.From != "" || in.To != ""
	switch {
	case in.ID != nil && oneWay:
		return p.fail(path+".id", "there is from or to beside it; give id for an access link, or from and to for a path")
	case in.Between != nil && (in.ID != nil || oneWay):
		return p.fail(path+".between", "there is id, from or to beside it; give between for both ways of a pair, and nothing else")
	case in.Between != nil && len(in.Between) != 2:
		return p.fail(path+".between", fmt.Sprintf("names %d nodes; name two", len(in.Between)))
	case in.Op == LinkTrace && in.ID == nil:
		return p.fail(path+".id", "is missing; LinkTrace needs the worker whose access link it is")
	case in.Op == Cut && in.ID != nil:
		return p.fail(path+".id", "Cut takes a path: give from and to; Partition cuts a worker off")
	case in.Op == Refuse && oneWay:
		return p.fail(path, "Refuse holds both ways: give between instead of from and to, or id for a worker and all others")
	case in.Op != Link && (access || properties):
		return p.fail(path, fmt.Sprintf("%s takes no properties; remove them, or write Link", in.Op))
	case in.ID != nil && properties:
		return p.fail(path, "changes a path, but names an access link; give from and to instead of id")
	case in.ID == nil && access:
		return p.fail(path, "changes an access link, but names a path; give id instead of from and to")
	case in.Op == Link && !access && !properties:
		return p.fail(path, "changes nothing; give at least one property, for example rate_up")
	case in.ID == nil && in.Between == nil && !oneWay && in.Op == Refuse:
		return p.fail(path, "names no link; Refuse needs id, or between")
	case in.ID == nil && in.Between == nil && !oneWay:
		return p.fail(path, fmt.Sprintf("names no link; %s needs from and to, or between, or id where it is about a worker", in.Op))
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
		return nil, p.inNamed(name, bad.Line, bad.Problem)
	}
	return pace, err
}
