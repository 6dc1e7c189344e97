// Package measure computes from the record of a real run what can be compared among
// stacks and policies. All measures are functions of the record. What was not
// measured is nil, and never 0.
package measure

import (
	"maps"
	"slices"
	"time"

	"testbed/policy"
	"testbed/record"
	"testbed/shaping/fidelity"
)

// Measures are the measures of a run. Times are real seconds.
type Measures struct {
	Complete bool           `json:"complete"` // All outer steps were taken.
	Verdict  fidelity.Level `json:"verdict"`  // On the emulation.
	// The time of each committed round, from the commit before it to its own.
	Rounds []float64 `json:"rounds_s"`
	// From the start to the last commit.
	Length float64 `json:"length_s"`
	// Inner steps in committed averages, each counted once, divided by the workers' time.
	// A worker's time is the time for which its process is there, or is paused, until
	// the last commit; of an incomplete run, until its end.
	Useful *float64 `json:"useful_steps_per_worker_s,omitempty"`
	// Completed inner steps that no committed average has.
	Lost *int `json:"steps_lost,omitempty"`
	// What happened to workers, in order of time.
	Faults []Fault `json:"faults"`
	// Committed rounds whose participants ended with different states, of those with
	// known states.
	Differ   *int `json:"states_differ,omitempty"`
	Compared int  `json:"states_compared"`
	// Bytes of frames that the workers' nodes have sent until the last commit, divided
	// by those of ideal all-reduces of float32 in all committed rounds.
	Wire *float64 `json:"wire_over_ideal,omitempty"`
	// Processor time of the workers' nodes until the last commit, divided by the
	// number of committed rounds.
	Processor *float64 `json:"processor_s_per_round,omitempty"`
	// The workers whose own work is in the average of each round.
	Took [][]policy.ID `json:"took_part"`
	// Of a stack: contradictions in its marks, and failed attempts at reductions.
	Disputes *int `json:"disputes,omitempty"`
	Failed   *int `json:"failed_reductions,omitempty"`
}

// Fault is something that happened to a worker.
type Fault struct {
	Type record.Type `json:"type"` // Crash, Pause, Partition, Slow; Join for a worker that comes late
	Node string      `json:"node"`
	At   float64     `json:"at_s"` // since the start
	// The longest time between two commits that ended after the fault and began before
	// the next fault. It is nil if the last commit was before the fault.
	Gap *Gap `json:"gap,omitempty"`
	// From the fault to the first commit without the worker's work. It is nil if the
	// fault ended before such a commit.
	Without *float64 `json:"without_s,omitempty"`
	// From the end of the fault to the next commit with the worker's own work: of a
	// crash from its restart, of a worker that comes late from its coming.
	Back *float64 `json:"back_s,omitempty"`
}

// Gap is a time between two commits.
type Gap struct {
	Seconds float64 `json:"seconds"`
	Open    bool    `json:"open,omitempty"` // no further commit came before the end of the run
}

// commit is an outer step.
type commit struct {
	round        int
	at           float64
	participants []policy.ID
	own          []policy.ID // those whose own work the average has
}

// account has what the measures are made from.
type account struct {
	*Record
	first   policy.Time // when the first workers come
	commits []commit
	end     float64 // of the run
	clock   policy.Time
	ticks   bool // clock is known
}

// Of computes the measures of a run.
func Of(r *Record) Measures {
	a := newAccount(r)
	m := Measures{Complete: r.Summary.Complete, Verdict: r.Summary.Fidelity.Verdict, Rounds: []float64{}, Took: [][]policy.ID{}}
	before := 0.0
	for _, c := range a.commits {
		m.Rounds, m.Took = append(m.Rounds, c.at-before), append(m.Took, c.own)
		before = c.at
	}
	m.Length = before
	a.steps(&m)
	m.Faults = a.faults()
	a.states(&m)
	a.use(&m)
	if s := r.Summary.Stack; s != nil {
		m.Disputes, m.Failed = new(len(s.Disputes)), new(s.FailedReductions)
	}
	return m
}

func newAccount(r *Record) *account {
	a := &account{Record: r}
	for k, id := range slices.Sorted(maps.Keys(r.Joins)) {
		if at := r.Joins[id]; k == 0 || at < a.first {
			a.first = at
		}
	}
	zero := map[int][]policy.ID{}
	for _, e := range r.Events {
		a.end = max(a.end, a.seconds(e.T))
		switch e.Type {
		case record.ReduceStart:
			zero[e.Round] = e.Zero
		case record.OuterStep:
			c := commit{round: e.Round, at: a.seconds(e.T), participants: e.Participants, own: []policy.ID{}}
			for _, id := range e.Participants {
				if !slices.Contains(zero[e.Round], id) {
					c.own = append(c.own, id)
				}
			}
			a.commits = append(a.commits, c)
		}
	}
	for _, e := range r.Programs {
		if e.Type == record.ProgramClock {
			a.clock, a.ticks = e.T, true
		}
	}
	for _, e := range r.Programs {
		if e.Type == record.ProgramsFinish && a.ticks { // later than the last event
			a.end = max(a.end, a.machine(e.T))
		}
	}
	return a
}

// seconds converts scenario time to real seconds since the start.
func (a *account) seconds(t policy.Time) float64 {
	return float64(t-a.first) * a.Summary.TimeScale * 1e-6
}

// machine converts a time of the programs' record to seconds since the start.
func (a *account) machine(t policy.Time) float64 { return float64(t-a.clock) * 1e-6 }

// until is when the run is over for its measures: an incomplete run has spent all its
// time in vain after the last commit.
func (a *account) until() float64 {
	if n := len(a.commits); a.Summary.Complete && n > 0 {
		return a.commits[n-1].at
	}
	return a.end
}

// steps counts the inner steps.
func (a *account) steps(m *Measures) {
	work := a.Summary.Work
	if work == nil {
		return
	}
	useful := 0
	for _, c := range a.commits {
		useful += len(c.own) * a.InnerSteps
	}
	// An open step may still get into an average, unless the run has ended before.
	lost := work.StepsDone - useful
	if a.Summary.Complete {
		lost -= work.StepsOpen
	}
	m.Lost = new(max(0, lost))
	if there := a.there(); there > 0 {
		m.Useful = new(float64(useful) / there)
	}
}

// there is the sum of the workers' times.
func (a *account) there() (sum float64) {
	until := a.until()
	for _, id := range slices.Sorted(maps.Keys(a.Joins)) {
		since, lives := a.seconds(a.Joins[id]), true
		for _, e := range a.Events {
			if who, is := e.Worker(); !is || who != id {
				continue
			}
			switch at := min(a.seconds(e.T), until); {
			case lives && (e.Type == record.Crash || e.Type == record.Fail || e.Type == record.Leave):
				sum, lives = sum+max(0, at-since), false
			case !lives && e.Type == record.Restart:
				since, lives = at, true
			}
		}
		if lives {
			sum += max(0, until-since)
		}
	}
	return sum
}

// begins are the faults, each with the event that ends it.
var begins = map[record.Type]record.Type{
	record.Crash: record.Restart, record.Pause: record.Resume, record.Partition: record.Heal, record.Slow: record.Restore,
}

// faults lists the faults, and what the others did about them.
func (a *account) faults() []Fault {
	all := []Fault{}
	for _, e := range a.Events {
		if _, is := begins[e.Type]; !is {
			continue
		}
		for _, id := range concerned(&e) {
			f := Fault{Type: e.Type, Node: id.Node(), At: a.seconds(e.T)}
			ended, over := a.ended(f, id)
			if c, is := a.after(f.At, func(c commit) bool { return !slices.Contains(c.own, id) }); is && (!over || c < ended) {
				f.Without = new(c - f.At)
			}
			if over {
				f.Back = a.back(ended, id)
			}
			all = append(all, f)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(a.Joins)) {
		if at := a.seconds(a.Joins[id]); at > 0 {
			all = append(all, Fault{Type: record.Join, Node: id.Node(), At: at, Back: a.back(at, id)})
		}
	}
	slices.SortStableFunc(all, func(x, y Fault) int {
		switch {
		case x.At < y.At:
			return -1
		case x.At > y.At:
			return 1
		}
		return 0
	})
	for k := range all {
		next, is := 0.0, false
		for _, f := range all[k+1:] {
			if f.At > all[k].At {
				next, is = f.At, true
				break
			}
		}
		all[k].Gap = a.gap(all[k].At, next, is)
	}
	return all
}

// concerned are the workers of an event.
func concerned(e *record.Event) []policy.ID {
	if id, is := e.Worker(); is {
		return []policy.ID{id}
	}
	return e.IDs
}

// ended is when a fault of a worker ended; over is false if it lasted.
func (a *account) ended(f Fault, id policy.ID) (at float64, over bool) {
	for _, e := range a.Events {
		if t := a.seconds(e.T); e.Type == begins[f.Type] && t >= f.At && slices.Contains(concerned(&e), id) {
			return t, true
		}
	}
	return 0, false
}

// back is the time from a moment to the first commit after it with a worker's own work,
// nil if there is none.
func (a *account) back(since float64, id policy.ID) *float64 {
	if c, is := a.after(since, func(c commit) bool { return slices.Contains(c.own, id) }); is {
		return new(c - since)
	}
	return nil
}

// after is the time of the first commit of a kind after a moment.
func (a *account) after(since float64, kind func(commit) bool) (at float64, is bool) {
	for _, c := range a.commits {
		if c.at > since && kind(c) {
			return c.at, true
		}
	}
	return 0, false
}

// gap is the longest time between commits after a fault and before the next one, if there
// is one.
func (a *account) gap(since, next float64, bounded bool) (longest *Gap) {
	consider := func(from, to float64, open bool) {
		if to <= since || bounded && from >= next || from >= to {
			return
		}
		if longest == nil || to-from > longest.Seconds {
			longest = &Gap{to - from, open}
		}
	}
	before := 0.0
	for _, c := range a.commits {
		consider(before, c.at, false)
		before = c.at
	}
	if !a.Summary.Complete {
		consider(before, a.end, true)
	}
	return longest
}

// states counts the rounds after which the participants' states differ.
func (a *account) states(m *Measures) {
	differ := map[int]bool{}
	if a.Summary.Stack == nil {
		for _, e := range a.Events {
			if e.Type == record.State && e.Identical != nil {
				differ[e.Round] = differ[e.Round] || !*e.Identical
			}
		}
	} else {
		hashes := map[int]string{}
		for _, e := range a.Programs {
			round, hash := int(number(&e, "round")), text(&e, "hash")
			if e.Type != record.ProgramMark || e.Mark != "commit" || hash == "" {
				continue
			}
			differ[round] = differ[round] || hashes[round] != "" && hashes[round] != hash
			hashes[round] = hash
		}
	}
	for _, c := range a.commits {
		different, known := differ[c.round]
		if !known {
			continue
		}
		if m.Differ == nil {
			m.Differ = new(int)
		}
		m.Compared++
		if different {
			*m.Differ++
		}
	}
}

func number(e *record.ProgramEvent, name string) float64 {
	x, _ := e.Fields[name].(float64)
	return x
}

func text(e *record.ProgramEvent, name string) string {
	x, _ := e.Fields[name].(string)
	return x
}

// use computes Wire and Processor.
func (a *account) use(m *Measures) {
	if len(a.commits) == 0 {
		return
	}
	sent, computed, known := a.ofRounds()
	if a.Summary.Stack != nil {
		sent, computed, known = a.ofSamples()
	}
	if !known {
		return
	}
	const bytesOfValue = 4
	ideal := 0.0
	for _, c := range a.commits { // 2(n−1)/n of the vector for each of n participants
		ideal += 2 * float64(max(0, len(c.participants)-1)) * bytesOfValue * float64(a.Values)
	}
	if ideal > 0 {
		m.Wire = new(sent / ideal)
	}
	m.Processor = new(computed.Seconds() / float64(len(a.commits)))
}

// ofRounds sums up what the nodes had sent and computed at the end of the last committed
// round.
func (a *account) ofRounds() (sent float64, computed time.Duration, known bool) {
	if len(a.Uses) < len(a.commits) {
		return 0, 0, false
	}
	for _, u := range a.Uses[len(a.commits)-1] {
		sent, computed, known = sent+float64(u.Sent), computed+u.Processor, true
	}
	return sent, computed, known
}

// sampled are a node's samples around the time that counts.
type sampled struct{ began, ended *record.ProgramEvent }

// ofSamples sums up what the nodes sent and computed from the start of the clock to the
// last commit, by the nearest samples after these.
func (a *account) ofSamples() (sent float64, computed time.Duration, known bool) {
	if !a.ticks {
		return 0, 0, false
	}
	last := a.commits[len(a.commits)-1].at
	nodes := map[string]*sampled{}
	for k := range a.Programs {
		e := &a.Programs[k]
		if _, worker := policy.ParseNode(e.Node); !worker || e.Type != record.ProgramSample || e.BytesSent == nil || e.Processor == nil {
			continue
		}
		n := nodes[e.Node]
		if n == nil {
			n = &sampled{}
			nodes[e.Node] = n
		}
		switch at := a.machine(e.T); {
		case at <= 0:
			n.began = e
		case n.ended == nil || a.machine(n.ended.T) < last:
			n.ended = e
		}
	}
	for _, n := range nodes {
		if n.ended == nil {
			continue
		}
		known = true
		sent, computed = sent+float64(*n.ended.BytesSent), computed+processor(n.ended)
		if n.began != nil {
			sent, computed = sent-float64(*n.began.BytesSent), computed-processor(n.began)
		}
	}
	return sent, computed, known
}

func processor(e *record.ProgramEvent) time.Duration {
	return time.Duration(*e.Processor) * time.Microsecond
}
