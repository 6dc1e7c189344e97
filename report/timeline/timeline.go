// Package timeline derives from the record of a run each worker's activities
// with their times, the results of its rounds and the traffic of its links, and
// writes it as a trace.
package timeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"testbed/allreduce"
	"testbed/policy"
	"testbed/record"
	"testbed/report/words"
	"testbed/scenarios"
)

// Kind is an activity or a condition of a worker, during a span.
type Kind string

// Activities of workers. A worker has one activity at a time.
const (
	InnerStep     Kind = "inner step"
	Dropped       Kind = "inner step, dropped" // begun, and never finished
	Waiting       Kind = "waiting"             // for the others, or for a message under way
	ReduceScatter Kind = "reduce-scatter"
	AllGather     Kind = "all-gather"
	AllReduce     Kind = "all-reduce" // aborted, or in a record without details
	Fetch         Kind = "state fetch"
)

// Conditions of workers: several may hold at once, in addition to the activity.
const (
	Slowed    Kind = "slowed down"
	CutOff    Kind = "cut off"
	Paused    Kind = "paused"
	Relinked  Kind = "link changed"
	Sidelined Kind = "sidelined"
	Dead      Kind = "dead"
	Removed   Kind = "evicted"
)

// Span is something with a duration, in scenario time.
type Span struct {
	Node  string      `json:"node"`
	Kind  Kind        `json:"kind"`
	Start policy.Time `json:"start_us"`
	End   policy.Time `json:"end_us"`
	Round int         `json:"round,omitempty"`
	Note  string      `json:"note,omitempty"`
}

// Mark is something that happened at one time: a fault or a decision.
type Mark struct {
	Node  string      `json:"node,omitempty"` // none: the run as a whole
	Type  record.Type `json:"type"`
	T     policy.Time `json:"t_us"`
	Round int         `json:"round,omitempty"`
	Text  string      `json:"text"`
}

// Injected reports whether the scenario, not the policy, caused the mark.
func (m Mark) Injected() bool { return injected[m.Type] }

var injected = map[record.Type]bool{
	record.Join: true, record.Crash: true, record.Restart: true, record.Fail: true, record.FailReduce: true, record.Preempt: true, record.Leave: true, record.Slow: true, record.Restore: true, record.Pause: true, record.Resume: true,
	record.CoordinatorCrash: true, record.Partition: true, record.Heal: true, record.LinkFault: true, record.LinkRestored: true,
}

// Timeline is a run as pictures show it.
type Timeline struct {
	Nodes []string `json:"nodes"`
	// Hosts are the hosts of a run over several. The nodes of a host are shown
	// together.
	Hosts    []record.Host `json:"hosts,omitempty"`
	End      policy.Time   `json:"end_us"`
	Doing    []Span        `json:"doing"`
	Standing []Span        `json:"standing"`
	Marks    []Mark        `json:"marks"`
}

// doing is a worker's present activity.
type doing struct {
	what  Kind // "" before it joined and after its end
	since policy.Time
	round int
	epoch policy.Epoch
	note  string
	gone  bool // crashed or evicted
}

// stance is a condition of a worker. Link has the other end of a changed path:
// a worker may have several.
type stance struct {
	id   policy.ID
	kind Kind
	link string
}

// conditions are the stances that the record's Tracker follows.
var conditions = map[record.Condition]Kind{record.Dead: Dead, record.Paused: Paused, record.CutOff: CutOff, record.Slowed: Slowed}

// innerSteps stands for the time between finished steps. Its final kind depends
// on the next event.
const innerSteps Kind = "inner steps"

type timeliner struct {
	scenario *scenarios.Scenario
	grouping *policy.Grouping
	run      record.Tracker
	out      Timeline
	reducing bool               // between the close of a round and its outer step
	learners map[policy.ID]bool // joiners that do not work on the running round
	workers  map[policy.ID]*doing
	standing map[stance]Span
	reduced  map[participant]record.Event
}

// participant is a worker in a reduction.
type participant struct {
	epoch policy.Epoch
	id    policy.ID
}

// New derives each worker's activities from the events of a run. Events of
// workers have the workers' clocks, so a span may be shortened to begin at the
// end of the one before.
func New(s *scenarios.Scenario, events []record.Event) Timeline {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b record.Event) int { return cmp.Compare(a.T, b.T) })
	t := timeliner{
		out:      Timeline{Doing: []Span{}, Standing: []Span{}, Marks: []Mark{}},
		scenario: s, grouping: s.Grouping(), workers: map[policy.ID]*doing{}, learners: map[policy.ID]bool{}, standing: map[stance]Span{},
		reduced: map[participant]record.Event{},
	}
	for _, w := range s.Workers {
		t.out.Nodes = append(t.out.Nodes, w.ID.Node())
		t.workers[w.ID] = &doing{}
	}
	for _, e := range events {
		if e.Type == record.Reduced {
			id, _ := e.Worker()
			t.reduced[participant{e.Epoch, id}] = e
		}
	}
	for _, e := range events {
		t.add(e)
		t.out.End = max(t.out.End, e.T)
		if e.Type == record.RunEnd {
			break // the coordinator still compares the workers' final states
		}
	}
	for _, w := range s.Workers {
		t.enter(w.ID, t.out.End, "", 0)
	}
	for s := range t.standing {
		t.stop(s, t.out.End)
	}
	slices.SortFunc(t.out.Standing, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Note, b.Note))
	})
	return t.out
}

// Group puts the nodes of each host together.
func (t *Timeline) Group(hosts []record.Host) {
	t.Hosts = hosts
	host := func(node string) int {
		return slices.IndexFunc(hosts, func(h record.Host) bool { return slices.Contains(h.Nodes, node) })
	}
	slices.SortStableFunc(t.Nodes, func(a, b string) int { return host(a) - host(b) })
}

// enter ends a worker's activity and begins another.
func (t *timeliner) enter(id policy.ID, at policy.Time, what Kind, round int) {
	w := t.workers[id]
	if w == nil || w.gone {
		return // the coordinator's requests to a crashed worker have no effect
	}
	kind := w.what
	if kind == innerSteps {
		kind = Dropped
	}
	if kind != "" && at > w.since {
		t.out.Doing = append(t.out.Doing, Span{Node: id.Node(), Kind: kind, Start: w.since, End: at, Round: w.round, Note: w.note})
	}
	*w = doing{what: what, since: max(at, w.since), round: round}
}

// end ends a worker's activity.
func (t *timeliner) end(id policy.ID, at policy.Time) {
	t.enter(id, at, "", 0)
	if w := t.workers[id]; w != nil {
		w.gone = true
	}
}

// back is the return of a worker that was gone: as a new process, or as a
// member.
func (t *timeliner) back(id policy.ID, at policy.Time) {
	if w := t.workers[id]; w != nil && w.gone {
		*w = doing{since: at}
	}
}

// start begins a condition, unless it holds already.
func (t *timeliner) start(s stance, e record.Event, note string) {
	if _, holds := t.standing[s]; !holds && t.workers[s.id] != nil {
		t.standing[s] = Span{Node: s.id.Node(), Kind: s.kind, Start: e.T, Round: e.Round, Note: note}
	}
}

func (t *timeliner) stop(s stance, at policy.Time) {
	if span, holds := t.standing[s]; holds {
		delete(t.standing, s)
		if span.End = at; at > span.Start {
			t.out.Standing = append(t.out.Standing, span)
		}
	}
}

func (t *timeliner) add(e record.Event) {
	if text := markText(e); text != "" {
		t.out.Marks = append(t.out.Marks, Mark{Node: e.Node, Type: e.Type, T: e.T, Round: e.Round, Text: text})
	}
	id, _ := e.Worker()
	is := func(kind Kind) stance { return stance{id: id, kind: kind} }
	switch e.Type {
	case record.Join:
		t.back(id, e.T)
		t.stop(is(Removed), e.T)
		if t.run.Round == 0 || e.T == t.run.First {
			t.enter(id, e.T, innerSteps, e.Round)
		} else {
			t.enter(id, e.T, Waiting, e.Round)
			t.learners[id] = t.scenario.Policy.Join.Learns()
		}
	case record.Step:
		t.step(id, e)
	case record.RoundClose:
		t.reducing = true
	case record.ReduceStart:
		t.reduceStart(e)
	case record.ReduceAbort, record.ReduceDone:
		for _, id := range e.Participants {
			w := t.workers[id]
			if w == nil || w.what != AllReduce || w.epoch != e.Epoch {
				continue
			}
			if e.Type == record.ReduceAbort {
				w.note = "aborted"
			}
			t.enter(id, e.T, Waiting, e.Round)
		}
	case record.OuterStep:
		t.reducing = false
		maps.DeleteFunc(t.learners, func(id policy.ID, _ bool) bool {
			return t.scenario.Policy.Join != policy.JoinBlocking || slices.Contains(e.Participants, id)
		})
		for _, id := range e.Participants {
			t.enter(id, e.T, innerSteps, e.Round+1)
		}
	case record.FetchStart:
		t.enter(id, e.T, Fetch, e.Round)
		if w := t.workers[id]; w != nil {
			w.note = "from " + e.From
		}
	case record.FetchDone:
		next := innerSteps
		if t.reducing || t.learners[id] {
			next = Waiting
		}
		t.enter(id, e.T, next, e.Round)
		t.stop(is(Sidelined), e.T)
	case record.Sideline:
		t.start(is(Sidelined), e, words.Because(e.Reason))
	case record.Rejoin:
		t.stop(is(Sidelined), e.T)
	case record.Crash, record.Fail:
		t.end(id, e.T)
		t.stop(is(Sidelined), e.T)
	case record.Restart:
		t.back(id, e.T)
		t.stop(is(Paused), e.T)
		t.enter(id, e.T, Waiting, e.Round)
	case record.Evict:
		t.end(id, e.T)
		for _, kind := range []Kind{Sidelined, Dead, Slowed, CutOff, Paused} {
			t.stop(is(kind), e.T)
		}
		t.start(is(Removed), e, words.Because(e.Reason))
	case record.LinkFault, record.LinkRestored:
		t.link(e)
	}
	for _, c := range t.run.Add(&e) {
		s := stance{id: c.ID, kind: conditions[c.Condition]}
		switch {
		case !c.Begins:
			t.stop(s, e.T)
		case e.Type == record.Crash:
			t.start(s, e, "crashed")
		case e.Type == record.Fail:
			t.start(s, e, "gave up")
		case e.Type == record.Slow:
			t.start(s, e, markText(e))
		default:
			t.start(s, e, "")
		}
	}
}

// link begins or ends a change of a link. It is drawn at the link's worker, or
// at the worker at which the path begins.
func (t *timeliner) link(e record.Event) {
	id, _ := policy.ParseNode(cmp.Or(e.Node, e.From))
	s := stance{id: id, kind: Relinked, link: e.To}
	if e.Type == record.LinkFault {
		t.start(s, e, markText(e))
	} else {
		t.stop(s, e.T)
	}
}

func (t *timeliner) step(id policy.ID, e record.Event) {
	w := t.workers[id]
	if w == nil || w.what == "" {
		return
	}
	w.what = Waiting // for the message to begin
	t.enter(id, e.T-e.Duration, innerSteps, e.Round)
	if start := w.since; e.T > start {
		t.out.Doing = append(t.out.Doing, Span{Node: e.Node, Kind: InnerStep, Start: start, End: e.T, Round: e.Round,
			Note: fmt.Sprintf("step %d of %d", e.Step, t.scenario.InnerSteps)})
	}
	w.since = max(w.since, e.T)
	if e.Step == t.scenario.InnerSteps {
		w.what = Waiting
	}
}

func (t *timeliner) reduceStart(e record.Event) {
	for _, id := range e.Participants {
		w := t.workers[id]
		if w == nil {
			continue
		}
		r, known := t.reduced[participant{e.Epoch, id}]
		if !known {
			t.enter(id, e.T, AllReduce, e.Round)
			w.epoch = e.Epoch
			continue
		}
		to := receiver(t.scenario, t.grouping.Ring(e.Round, e.Participants, id), id)
		t.enter(id, r.T-r.Duration, ReduceScatter, e.Round)
		w.note = "to " + to
		t.enter(id, r.T-r.Duration+r.ReduceScatter, AllGather, e.Round)
		w.note = "to " + to
		t.enter(id, r.T, Waiting, e.Round)
	}
}

// everybody stands for all other participants of a direct all-reduce.
const everybody = "all other participants"

// receiver is the worker that a participant of a reduction sends to.
func receiver(s *scenarios.Scenario, ring []policy.ID, id policy.ID) string {
	if s.Real.AllReduce.Algorithm == allreduce.Direct.String() {
		return everybody
	}
	return ring[(slices.Index(ring, id)+1)%len(ring)].Node()
}

// markText describes an event that a picture marks in words; "" for all others.
func markText(e record.Event) string {
	switch e.Type {
	case record.Join:
		switch {
		case e.T == 0 || e.Reason == nil:
		case e.Reason.Rule == policy.RuleRejoin:
			return e.Node + " is admitted again: " + words.Because(e.Reason)
		case e.Reason.Rule == policy.RuleJoin:
			return e.Node + " joins"
		}
	case record.Crash:
		return e.Node + " crashes"
	case record.Restart:
		return fmt.Sprintf("process %d of %s begins", e.Incarnation, e.Node)
	case record.Fail:
		return e.Node + " tells the coordinator that it gives up"
	case record.Preempt:
		if e.Duration == 0 {
			return e.Node + " is preempted without notice"
		}
		return fmt.Sprintf("%s is given notice: it will be preempted in %s", e.Node, words.Micros(e.Duration))
	case record.CoordinatorCrash:
		if e.Cause != "" {
			return "the coordinator dies unexpectedly (" + e.Cause + ")"
		}
		return "the coordinator crashes"
	case record.CoordinatorBack:
		return "the coordinator is back"
	case record.RunResume:
		return fmt.Sprintf("all processes had died, and the run continues from outer step %d", e.Round)
	case record.UploadStart:
		return fmt.Sprintf("%s begins to upload outer state %d", e.Node, e.Round)
	case record.UploadDone:
		if e.Cause != "" {
			return fmt.Sprintf("the upload of outer state %d by %s has failed: %s", e.Round, e.Node, e.Cause)
		}
		return fmt.Sprintf("the upload of outer state %d by %s has ended, after %s", e.Round, e.Node, words.Micros(e.Duration))
	case record.Leave:
		return e.Node + " leaves"
	case record.Slow:
		return fmt.Sprintf("%s’s inner steps take %g times as long", e.Node, e.Factor)
	case record.Restore:
		return e.Node + " is as fast as before"
	case record.Pause:
		return e.Node + " is paused"
	case record.Resume:
		return e.Node + " continues"
	case record.Partition:
		return "a partition cuts off " + words.Named(e.IDs)
	case record.Heal:
		if len(e.IDs) == 0 {
			return "all partitions end"
		}
		return "the partition ends for " + words.Named(e.IDs)
	case record.LinkFault:
		if e.Op == "" { // in older records
			return linkText(e) + " changes"
		}
		return linkText(e) + ": " + e.Op
	case record.LinkRestored:
		return linkText(e) + " is as before"
	case record.Sideline:
		return fmt.Sprintf("%s is sidelined in round %d: %s", e.Node, e.Round, words.Because(e.Reason))
	case record.Rejoin:
		return fmt.Sprintf("%s arrives in time again in round %d", e.Node, e.Round)
	case record.Evict:
		return fmt.Sprintf("%s is evicted in round %d (%s): %s", e.Node, e.Round, ruleOf(e.Reason), words.Because(e.Reason))
	case record.Reject:
		return e.Node + " is refused membership"
	case record.ReduceAbort:
		return fmt.Sprintf("the all-reduce of round %d is aborted (%s)", e.Round, ruleOf(e.Reason))
	case record.Horizon:
		return "the run reaches its horizon"
	}
	return voteText(e)
}

// voteText describes votes, and the events of split lineages.
func voteText(e record.Event) string {
	switch e.Type {
	case record.FailReduce:
		return "the scenario makes a reduction fail at " + e.Node
	case record.Diverged:
		return fmt.Sprintf("outer step %d is repeated by %s, as lineage %d", e.Round, words.Named(e.Participants), e.Lineage)
	case record.Undone:
		return fmt.Sprintf("lineage %d loses its last %s: %s was the last worker of the lineage", e.Lineage, words.Count(e.Step, "outer step"), e.Node)
	}
	return ""
}

func linkText(e record.Event) string {
	if e.Node != "" {
		return "access link of " + e.Node
	}
	return fmt.Sprintf("path %s → %s", e.From, e.To)
}

func ruleOf(r *policy.Reason) policy.Rule {
	if r == nil {
		return "no reason recorded"
	}
	return r.Rule
}
