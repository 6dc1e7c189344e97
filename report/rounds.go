package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
)

// Round is a completed round as a report tells it.
type Round struct {
	Round        int              `json:"round"`
	Start        policy.Time      `json:"start_us"`
	Close        policy.Time      `json:"close_us"`
	End          policy.Time      `json:"end_us"`
	Participants string           `json:"-"`
	Left         string           `json:"-"`
	Absent       []string         `json:"left_out"`
	Arrivals     []Arrival        `json:"arrivals"`
	Median       *policy.Time     `json:"median_us"` // of the offsets of the arrivals in time
	Deadline     *policy.Deadline `json:"deadline"`  // nil: there was none
	Why          string           `json:"why"`
	Decisions    []string         `json:"decisions"`
	BytesSent    int64            `json:"-"`
	Verdict      string           `json:"-"`
}

// Collect is the time until the round closed, Reduce the rest.
func (r Round) Collect() policy.Time { return r.Close - r.Start }

// Reduce is the time from the close of the round to its outer step.
func (r Round) Reduce() policy.Time { return r.End - r.Close }

// Took is how long the round took.
func (r Round) Took() policy.Time { return r.End - r.Start }

// Arrival is when a worker's word came in that its inner steps are done.
type Arrival struct {
	Node   string      `json:"node"`
	Offset policy.Time `json:"offset_us"` // from the first arrival of the round
	Late   bool        `json:"late"`
}

// rounds gathers what the record tells of each completed round.
func rounds(run *Run) []Round {
	list := []Round{}
	at := map[int]int{}
	type fetcher struct {
		round int
		node  string
	}
	fetched := map[fetcher]bool{}
	for _, r := range run.Summary.Rounds {
		at[r.Round] = len(list)
		list = append(list, Round{Round: r.Round, Start: r.Start, Close: r.Close, End: r.End, BytesSent: r.BytesSent,
			Participants: Workers(r.Participants), Left: Workers(r.Late), Absent: names(r.Late), Arrivals: []Arrival{}, Decisions: []string{}})
	}
	for _, e := range run.Events {
		k, completed := at[e.Round]
		if !completed {
			continue
		}
		r := &list[k]
		switch e.Type {
		case runlog.Arrive:
			if e.Offset != nil {
				r.Arrivals = append(r.Arrivals, Arrival{e.Node, *e.Offset, e.Late})
			}
		case runlog.RoundClose: // a round that opened again closes twice; the last time counts
			r.Why = closing(e.Reason)
			if e.Reason != nil && e.Reason.Deadline != nil {
				r.Deadline = e.Reason.Deadline
			}
		case runlog.FetchDone:
			fetched[fetcher{e.Round, e.Node}] = true
		case runlog.Sideline, runlog.Evict, runlog.Rejoin, runlog.ReduceAbort:
			r.Decisions = append(r.Decisions, markText(e))
		}
	}
	for k := range list {
		r := &list[k]
		var offsets []policy.Time
		for _, a := range r.Arrivals {
			if a.Late {
				continue
			}
			offsets = append(offsets, a.Offset)
			// The credit of a worker that has arrived is not recorded.
			if r.Deadline != nil && a.Offset > r.Deadline.Offset+r.Deadline.Credit && fetched[fetcher{r.Round, a.Node}] {
				r.Why += fmt.Sprintf("; %s came after that, with credit for catching up", a.Node)
			}
		}
		if len(offsets) > 0 {
			median := policy.Median(offsets)
			r.Median = &median
		}
	}
	for _, v := range run.Rounds {
		if k, ok := at[v.Round]; ok {
			list[k].Verdict = v.Verdict
		}
	}
	return list
}

func names(ids []policy.ID) []string {
	list := []string{}
	for _, id := range ids {
		list = append(list, scenarios.NodeName(id))
	}
	return list
}

// Worker sums up what one worker did in a run. Times are scenario time.
type Worker struct {
	Node  string `json:"node"`
	Steps int    `json:"steps"`
	// MeanStep is the mean duration of its completed inner steps.
	MeanStep  policy.Time          `json:"mean_step_us"`
	Time      map[Kind]policy.Time `json:"time_us"`
	Rounds    int                  `json:"rounds"` // in which it took part
	Sidelined int                  `json:"sidelined"`
	Evicted   string               `json:"evicted,omitempty"`
}

func workers(run *Run, t Timeline) []Worker {
	list := make([]Worker, len(t.Nodes))
	at := map[string]int{}
	for k, name := range t.Nodes {
		at[name], list[k] = k, Worker{Node: name, Time: map[Kind]policy.Time{}}
	}
	for _, s := range t.Doing {
		w := &list[at[s.Node]]
		w.Time[s.Kind] += s.End - s.Start
		if s.Kind == InnerStep {
			w.Steps++
		}
	}
	each := func(id policy.ID, do func(*Worker)) {
		if k, ok := at[scenarios.NodeName(id)]; ok {
			do(&list[k])
		}
	}
	for _, r := range run.Summary.Rounds {
		for _, id := range r.Participants {
			each(id, func(w *Worker) { w.Rounds++ })
		}
	}
	for _, m := range run.Sidelined {
		each(m.ID, func(w *Worker) { w.Sidelined++ })
	}
	for _, m := range run.Evicted {
		each(m.ID, func(w *Worker) { w.Evicted = string(m.Reason) })
	}
	for k := range list {
		if w := &list[k]; w.Steps > 0 {
			w.MeanStep = w.Time[InnerStep] / policy.Time(w.Steps)
		}
	}
	return list
}

// Link sums up what a worker sent to another in all-reduces, or to all others.
type Link struct {
	From       string  `json:"from"`
	To         string  `json:"to"`
	Reductions int     `json:"reductions"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"` // of real time, in reductions
	// Goodput is Bytes by Seconds, in bit/s, and Rate what the narrower of
	// the access links at both ends allows, or the sender's where it sends to
	// all the others; 0 is unlimited.
	Goodput float64 `json:"goodput_bps"`
	Rate    float64 `json:"rate_bps"`
}

// Share is the goodput as a share of the rate, 0 where that is unlimited.
func (l Link) Share() float64 {
	if l.Rate == 0 {
		return 0
	}
	return l.Goodput / l.Rate
}

// links sums up the traffic of the ring, for records that have it.
func links(s *scenarios.Scenario, events []runlog.Event) ([]Link, error) {
	plan, err := s.Plan()
	if err != nil {
		return nil, err
	}
	rate := func(from, to string) float64 {
		up := plan.Nodes[plan.Index(from)].RateUp
		if to == everybody {
			return float64(up)
		}
		down := plan.Nodes[plan.Index(to)].RateDown
		if up == 0 || down > 0 && down < up {
			return float64(down)
		}
		return float64(up)
	}
	type direction struct{ from, to string }
	sums := map[direction]*Link{}
	rings := map[int][]policy.ID{}
	for _, e := range events {
		if e.Type == runlog.ReduceStart {
			rings[e.Epoch] = e.Participants
		}
	}
	for _, e := range events {
		ring := rings[e.Epoch]
		k := slices.IndexFunc(ring, func(id policy.ID) bool { return scenarios.NodeName(id) == e.Node })
		if e.Type != runlog.Reduced || k < 0 || len(ring) < 2 {
			continue
		}
		d := direction{e.Node, receiver(s, ring, k)}
		if sums[d] == nil {
			sums[d] = &Link{From: d.from, To: d.to, Rate: rate(d.from, d.to)}
		}
		l := sums[d]
		l.Reductions++
		l.Bytes += e.BytesSent
		l.Seconds += s.RealDuration(e.Duration).Seconds()
	}
	list := []Link{}
	for _, name := range s.Nodes() {
		for _, to := range append(s.Nodes(), everybody) {
			if l := sums[direction{name, to}]; l != nil {
				if l.Seconds > 0 {
					l.Goodput = 8 * float64(l.Bytes) / l.Seconds
				}
				list = append(list, *l)
			}
		}
	}
	return list, nil
}

// Sidelining compares who was left out of rounds with whom the scenario had
// slowed down. It counts a worker once for every round.
type Sidelining struct {
	Left    int `json:"left_out"` // left out as late
	Right   int `json:"right"`    // of these, slowed down by the scenario
	Excused int `json:"excused"`  // of these, not slow, but cut off, crashed, on a changed link, or joining
	// Slow counts slowed-down workers at the close of a round that had a
	// deadline, and Caught those of them that were left out.
	Slow   int `json:"slow"`
	Caught int `json:"caught"`
}

// Precision is the share of those left out that were slow, of those that
// nothing else excuses; ok is false where there was none.
func (s Sidelining) Precision() (share float64, ok bool) {
	n := s.Left - s.Excused
	return float64(s.Right) / float64(max(n, 1)), n > 0
}

// Recall is the share of the slow that were left out.
func (s Sidelining) Recall() (share float64, ok bool) {
	return float64(s.Caught) / float64(max(s.Slow, 1)), s.Slow > 0
}

// sidelining counts over a run. A worker is slow in a round if it began a step
// of the round while slowed down: a step under way is not changed by an
// inject.
func sidelining(s *scenarios.Scenario, events []runlog.Event) Sidelining {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b runlog.Event) int { return cmp.Compare(a.T, b.T) })
	var sum Sidelining
	slowed := map[string]bool{}  // now
	slow := map[string]bool{}    // in the round under way
	cut := map[string]bool{}     // now
	faults := map[string]int{}   // upon it now, other than cuts
	excused := map[string]bool{} // in the round under way
	joining := map[string]bool{} // has not taken part yet
	var first *policy.Time       // time of the first join
	begin := func(name string) { // a step
		slow[name] = slow[name] || slowed[name]
	}
	for _, e := range events {
		switch e.Type {
		case runlog.Join:
			if first == nil {
				first = &e.T
			}
			joining[e.Node] = e.T > *first
			begin(e.Node)
		case runlog.Slow:
			slowed[e.Node] = e.Factor > 1
		case runlog.Restore:
			slowed[e.Node] = false
		case runlog.Step:
			if e.Step < s.InnerSteps {
				begin(e.Node)
			}
		case runlog.FetchDone:
			begin(e.Node)
		case runlog.Crash:
			faults[e.Node]++
			excused[e.Node] = true
		case runlog.Partition:
			for _, id := range e.IDs {
				cut[scenarios.NodeName(id)], excused[scenarios.NodeName(id)] = true, true
			}
		case runlog.Heal:
			for _, id := range e.IDs {
				cut[scenarios.NodeName(id)] = false
			}
			if len(e.IDs) == 0 {
				clear(cut)
			}
		case runlog.LinkFault, runlog.LinkRestored:
			by := 1
			if e.Type == runlog.LinkRestored {
				by = -1
			}
			for _, name := range []string{e.Node, e.From, e.To} {
				if name != "" {
					faults[name] += by
					excused[name] = true
				}
			}
		case runlog.RoundClose:
			sum.close(e, slow, excused, joining)
		case runlog.OuterStep:
			clear(slow)
			clear(excused)
			maps.Copy(excused, cut)
			for name, n := range faults {
				excused[name] = excused[name] || n > 0
			}
			for _, id := range e.Participants {
				joining[scenarios.NodeName(id)] = false
				begin(scenarios.NodeName(id))
			}
		}
	}
	return sum
}

func (s *Sidelining) close(e runlog.Event, slow, excused, joining map[string]bool) {
	deadline := e.Reason != nil && e.Reason.Deadline != nil
	for _, id := range e.Missing {
		name := scenarios.NodeName(id)
		s.Left++
		switch {
		case slow[name]:
			s.Right++
		case excused[name] || joining[name]:
			s.Excused++
		}
		if slow[name] && deadline {
			s.Slow++
			s.Caught++
		}
	}
	for _, id := range e.Participants {
		if slow[scenarios.NodeName(id)] && deadline {
			s.Slow++
		}
	}
}
