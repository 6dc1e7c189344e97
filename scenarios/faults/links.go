package faults

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testbed/policy"
	"testbed/policy/timescale"
	"testbed/shaping"
	"time"
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

// LinkInject is a fault or change of a link.
type LinkInject struct {
	// The kind of inject.
	Op Op `yaml:"op" json:"op" need:"yes"`
	// The time at which it begins, at most `horizon`.
	At policy.Time `yaml:"at" json:"at" need:"yes"`
	// The time at which it ends. If absent, it does not end.
	Until *policy.Time `yaml:"until" json:"until,omitempty"`
	// The worker whose access link changes. `Refuse` and `Flap` separate the worker from
	// all other nodes.
	ID *policy.ID `yaml:"id" json:"id,omitempty"`
	// The node at which the path begins. `from` and `to` mean one direction only.
	From string `yaml:"from" json:"from,omitempty"`
	// The node at which the path ends.
	To string `yaml:"to" json:"to,omitempty"`
	// Two nodes, for both directions between them.
	Between []string `yaml:"between" json:"between,omitempty"`
	// With `Flap`, which needs it: the time from one cut to the next. The times up and
	// down are each at least 20 ms of real time.
	Period *policy.Time `yaml:"period" json:"period,omitempty"`
	// With `Flap`, which needs it: the time down at the beginning of each period, less
	// than the period.
	Down *policy.Time `yaml:"down" json:"down,omitempty"`
	// With `LinkTrace`, which needs it: `up` for what the worker sends, `down` for what
	// it receives.
	Direction string `yaml:"direction" json:"direction,omitempty"`
	// With `LinkTrace`, which needs it: the trace's file, in the scenario's folder or
	// below.
	File string `yaml:"file" json:"file,omitempty"`
	// Pace is the content of File.
	Pace           *shaping.Pace `yaml:"-" json:"pace,omitempty"`
	shaping.Access `yaml:",inline"`
	shaping.Path   `yaml:",inline"`
}

// String describes the inject: "LinkTrace w3 up".
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

// Schedule lists what happens to the links of a run, by real time since
// scenario time zero.
type Schedule struct {
	timescale.Scale
	Nodes   []string     // of the plan
	Injects []Inject     // whose partitions and pauses with heartbeats cut links
	Links   []LinkInject `json:",omitempty"`
}

// directions are the paths of an inject that names paths.
func (in LinkInject) directions() []shaping.Direction {
	if in.Between != nil {
		a, b := in.Between[0], in.Between[1]
		return []shaping.Direction{{From: a, To: b}, {From: b, To: a}}
	}
	return []shaping.Direction{{From: in.From, To: in.To}}
}

// Faults converts the inject to shaping's faults, at a time since its
// beginning.
func (in LinkInject) Faults(s *Schedule, since time.Duration) []shaping.Fault {
	switch {
	case in.Op == LinkTrace:
		return []shaping.Fault{shaping.Paced{Node: (*in.ID).Node(), Down: in.Direction == Down, Now: in.Pace.At(since), Peak: in.Pace.Peak()}}
	case in.Op == Refuse && in.ID != nil:
		var f shaping.Refusal
		for _, name := range s.Nodes {
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

// At returns the faults of links at a time: partitions that are not cleared,
// and unfinished injects of links. The time is real, since scenario time zero.
func (s *Schedule) At(at time.Duration) []shaping.Fault {
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
		for _, other := range s.Nodes {
			if name := id.Node(); other != name && other != policy.CoordinatorNode {
				paths = append(paths, shaping.Direction{From: name, To: other}, shaping.Direction{From: other, To: name})
			}
		}
		if len(paths) > 0 {
			faults = append(faults, shaping.Cut{Paths: paths})
		}
	}
	for _, i := range s.Active(at) {
		in := s.Links[i]
		faults = append(faults, in.Faults(s, at-s.RealDuration(in.At))...)
	}
	return faults
}

// Next returns when At may change next after a time, if ever. Times are real,
// since scenario time zero. Earlier times are negative.
func (s *Schedule) Next(after time.Duration) (next time.Duration, ok bool) {
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
	for _, in := range s.Links {
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

// LinkActive reports whether an inject of links is under way at a time; for a
// flap, whether the path is cut. The time is as for At.
func (s *Schedule) LinkActive(i int, at time.Duration) bool {
	in := s.Links[i]
	begin := s.RealDuration(in.At)
	return at >= begin && (in.Until == nil || at < s.RealDuration(*in.Until)) && len(in.Faults(s, at-begin)) > 0
}

// partitions returns the workers that are cut off together at a time.
func (s *Schedule) partitions(at time.Duration) (parts [][]policy.ID) {
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

// hanging returns the workers that are paused at a time but send heartbeats.
func (s *Schedule) hanging(at time.Duration) (ids []policy.ID) {
	for _, i := range InTime(s.Injects) {
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

// Active returns the positions of the link injects under way at a time. The
// latest comes last, and takes precedence.
func (s *Schedule) Active(at time.Duration) (active []int) {
	for i := range s.Links {
		if s.LinkActive(i, at) {
			active = append(active, i)
		}
	}
	slices.SortStableFunc(active, func(a, b int) int { return cmp.Compare(s.Links[a].At, s.Links[b].At) })
	return active
}
