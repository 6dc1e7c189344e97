package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios/faults"
	"testbed/scenarios/resolved"
)

// Recording is everything in the record of a run except decisions: the
// durations of work, reductions and fetches, the joins and departures, the
// silences, and the lateness of timers.
type Recording struct {
	scenario *resolved.Scenario
	run      record.Run
	end      policy.Time

	joins   map[policy.ID]happened
	crashes map[policy.ID]happened
	leaves  map[policy.ID]happened
	losses  map[policy.ID]loss
	other   []happened // injects that only change recorded values
	factors map[policy.ID][]factorChange

	evicted map[policy.ID]policy.Time

	work      map[turn]*recordedWork
	steps     map[policy.ID][]record.Event // of all rounds
	overhead  map[policy.ID]policy.Time    // median time of a round besides its inner steps
	reduces   map[int][]recordedReduce     // attempts, by round
	reduction policy.Time                  // median of the successful ones
	fetches   map[turn][]recordedFetch
	fetching  policy.Time // median of the successful ones

	silent map[policy.ID]map[int]policy.Time // last sign of life, by the check that missed one
	gone   map[policy.ID]policy.Time         // evicted as silent: its last sign of life
	checks map[int]happened                  // checks that were seen to take place, by their number
	closes map[int]recordedClose
}

// happened is an event at a time. order is its place in the record, which
// breaks ties.
type happened struct {
	at    policy.Time
	order int
	event record.Event
}

// loss is a worker whose loss was noticed by signs other than its heartbeats.
type loss struct {
	happened
	rule policy.Rule
}

type factorChange struct {
	at     policy.Time
	factor float64
}

// turn is a worker's part in a round.
type turn struct {
	id    policy.ID
	round int
}

type recordedWork struct {
	begun   policy.Time
	known   bool           // the record shows when it began
	steps   []record.Event // completed inner steps, by number
	took    policy.Time    // from the order to begin until the arrival
	arrived bool
	at      policy.Time // of the arrival
	order   int
	// It had not arrived after this long or, if that is not known, by this time.
	atLeast, notUntil policy.Time
}

type recordedReduce struct {
	begun, took  policy.Time
	slowest      policy.Time // as the participants timed it
	participants []policy.ID
	done         bool
	failed, peer *policy.ID  // worker that gave up by itself, and its peer
	without      []policy.ID // participants that voted against the outer step
	order        int
}

type recordedFetch struct {
	begun, took policy.Time
	// How it ended. If all are false, it took longer than the record.
	done, stale, failed bool
	order               int
}

type recordedClose struct {
	rule  policy.Rule
	late  policy.Time // of the timer that closed the round
	order int
}

// NewRecording reads the events of a run of the scenario. The scenario is
// resolved under the policy that is to decide again, whose parameters may
// differ from the run's. A record of a real run needs a scenario with the time
// scale of that run.
func NewRecording(s *resolved.Scenario, events []record.Event) (*Recording, error) {
	fail := func(format string, a ...any) (*Recording, error) {
		return nil, fmt.Errorf("replaying %s: %w", s.Name, fmt.Errorf(format, a...))
	}
	if len(events) == 0 || events[0].Type != record.RunStart || events[0].Run == nil {
		return fail("the record does not begin with run_start")
	}
	r := &Recording{
		scenario: s, run: *events[0].Run,
		joins: map[policy.ID]happened{}, crashes: map[policy.ID]happened{}, leaves: map[policy.ID]happened{}, losses: map[policy.ID]loss{},
		factors: map[policy.ID][]factorChange{}, evicted: map[policy.ID]policy.Time{}, steps: map[policy.ID][]record.Event{}, work: map[turn]*recordedWork{}, overhead: map[policy.ID]policy.Time{},
		reduces: map[int][]recordedReduce{}, fetches: map[turn][]recordedFetch{},
		silent: map[policy.ID]map[int]policy.Time{}, gone: map[policy.ID]policy.Time{}, checks: map[int]happened{}, closes: map[int]recordedClose{},
	}
	switch {
	case r.run.Schema != record.Schema:
		return fail("the record has version %d of the format, but this testbed reads version %d; use a testbed of the record's version", r.run.Schema, record.Schema)
	case s.PolicyName == "":
		return fail("the scenario was resolved without a policy")
	case r.run.World == record.Real && r.run.TimeScale != s.TimeScale:
		return fail("the run has a time scale of %v, but the scenario has %v", r.run.TimeScale, s.TimeScale)
	case s.Exchange.Overlap > 0:
		return fail("the rounds of the run overlap (train.outer.overlap), but the record lacks the inner steps that workers took before the previous outer step, so the run cannot be replayed")
	case s.Grouping != nil:
		return fail("the regions or ranks of the run reduce separately (train.regions, train.group_world_size), but the record has only one duration for all reductions of a round, so the run cannot be replayed")
	}
	rd := reader{Recording: r, working: map[policy.ID]int{}, fetchOf: map[policy.ID]turn{}, watching: map[policy.ID]bool{}, arrivals: map[turn]policy.Time{}}
	for i, e := range events {
		if err := rd.read(i, e); err != nil {
			return fail("event %d (%s): %w", i+1, e.Type, err)
		}
	}
	for id := range rd.working {
		rd.drop(id, r.end)
	}
	for id := range rd.fetchOf {
		rd.endFetch(id, later, r.end, func(*recordedFetch) {})
	}
	r.conclude()
	return r, nil
}

// reader follows the record.
type reader struct {
	*Recording
	working  map[policy.ID]int // the round that a worker has begun and not ended
	fetchOf  map[policy.ID]turn
	arrivals map[turn]policy.Time // that counted
	removed  policy.Time          // time of the last eviction
	reducing bool
	watching map[policy.ID]bool // joiners whose first round is still to come
}

func (r *reader) read(i int, e record.Event) error {
	if e.T < 0 || e.T > maxTime || e.Duration < 0 || e.Duration > maxTime {
		return fmt.Errorf("the time is %d µs and the duration is %d µs, but both must lie between 0 and %d µs; restore an intact copy of the record", e.T, e.Duration, maxTime)
	}
	var id policy.ID
	if e.Node != "" {
		var ok bool
		if id, ok = policy.ParseNode(e.Node); !ok {
			return fmt.Errorf("%q is not a worker", e.Node)
		}
		if _, ok := r.scenario.Worker(id); !ok {
			return fmt.Errorf("%s is not in the scenario", e.Node)
		}
	}
	if e.Type != record.Step && e.Type != record.State { // timed by workers, or after the end
		r.end = max(r.end, e.T)
	}
	at := happened{at: e.T, order: i, event: e}
	var rule policy.Rule
	if e.Reason != nil {
		rule = e.Reason.Rule
	}
	switch e.Type {
	case record.Restart:
		return errors.New("the record lacks the events between two processes of a worker, so the run cannot be replayed")
	case record.Join:
		return r.join(id, at)
	case record.CoordinatorCrash, record.RunResume:
		return errors.New("the record lacks the workers' messages during an outage of the coordinator, so the run cannot be replayed")
	case record.Crash, record.Fail:
		if _, dead := r.crashes[id]; !dead {
			r.crashes[id] = at
		}
	case record.Leave:
		if _, told := r.leaves[id]; !told {
			r.leaves[id] = at
		}
	case record.Slow:
		r.factors[id] = append(r.factors[id], factorChange{e.T, e.Factor})
		r.other = append(r.other, at)
	case record.Restore:
		r.factors[id] = append(r.factors[id], factorChange{e.T, 1})
		r.other = append(r.other, at)
	case record.Diverged:
		return errors.New("two lineages of outer states existed at the same time, but a replay follows only one, so the run cannot be replayed")
	case record.FailReduce, record.Pause, record.Resume, record.Preempt, record.Partition, record.Heal, record.LinkFault, record.LinkRestored:
		r.other = append(r.other, at)
	case record.Step:
		w := r.at(turn{id, e.Round})
		if e.Step == len(w.steps)+1 {
			w.steps = append(w.steps, e)
			r.steps[id] = append(r.steps[id], e)
		}
	case record.Arrive:
		r.arrive(id, at)
	case record.RoundClose:
		r.closed(i, e, rule)
	case record.ReduceStart, record.ReduceAbort, record.ReduceDone, record.OuterStep:
		r.reduction(at, rule)
	case record.FetchStart:
		r.startFetch(id, at, rule)
	case record.FetchDone:
		r.endFetch(id, i, e.T, func(f *recordedFetch) { f.done = true })
		switch {
		case r.watching[id]: // its beginning is not in the record
			r.working[id] = e.Round
		case !r.reducing:
			r.begin(id, e.Round, e.T)
		}
	case record.HeartbeatMiss:
		if e.Reason == nil {
			return errors.New("the event has no reason; restore an intact copy of the record")
		}
		r.missed(id, at)
	case record.Evict:
		r.evict(id, at, rule)
	}
	return nil
}

func (r *reader) join(id policy.ID, at happened) error {
	if _, again := r.evicted[id]; again {
		return errors.New("the record lacks the time until an evicted worker came back, so the run cannot be replayed")
	}
	r.joins[id] = at
	w, _ := r.scenario.Worker(id)
	first := w.InitialStep > 0 || w.JoinAt == r.scenario.FirstJoin() && at.event.Round == r.scenario.InitialStep()+1
	if !first && r.scenario.Policy.Join.Learns() {
		r.watching[id] = true
	}
	if first && !r.reducing {
		r.begin(id, w.InitialStep+1, at.at)
	}
	return nil
}

func (r *reader) arrive(id policy.ID, at happened) {
	e := at.event
	w := r.at(turn{id, e.Round})
	if r.working[id] == e.Round {
		delete(r.working, id)
	}
	w.arrived, w.took, w.at, w.order = true, e.T-w.begun, e.T, at.order
	if !e.Late {
		r.arrivals[turn{id, e.Round}] = e.T
	}
}

// reduction reads an event of the reduction under way.
func (r *reader) reduction(at happened, rule policy.Rule) {
	e := at.event
	r.reducing = e.Type == record.ReduceStart || r.reducing && e.Type == record.ReduceDone
	if e.Type == record.ReduceStart {
		r.reduces[e.Round] = append(r.reduces[e.Round], recordedReduce{begun: e.T, participants: e.Participants})
		return
	}
	if k := len(r.reduces[e.Round]) - 1; k >= 0 {
		last := &r.reduces[e.Round][k]
		switch e.Type {
		case record.ReduceAbort:
			if last.done { // for the others
				last.without = e.Participants
				return
			}
			last.took, last.order = e.T-last.begun, at.order
			if rule == policy.RuleReduceFailed || rule == policy.RuleProgress {
				last.failed, last.peer = e.Reason.Lost, e.Reason.Peer
			}
		case record.ReduceDone:
			last.slowest, last.order = e.Duration, at.order
		case record.OuterStep:
			last.done, last.took = true, e.T-last.begun
		}
	}
	if e.Type == record.OuterStep && e.Round < r.scenario.TargetOuterSteps {
		for _, id := range e.Participants {
			delete(r.watching, id)
			r.begin(id, e.Round+1, e.T)
		}
	}
}

func (r *reader) startFetch(id policy.ID, at happened, rule policy.Rule) {
	e := at.event
	if rule == policy.RuleResync {
		delete(r.watching, id)
	}
	r.drop(id, e.T)
	r.endFetch(id, at.order, e.T, func(f *recordedFetch) {
		f.stale, f.failed = rule == policy.RuleStaleFetch, rule == policy.RuleFetchFailed
	})
	t := turn{id, e.Round}
	r.fetchOf[id] = t
	r.fetches[t] = append(r.fetches[t], recordedFetch{begun: e.T})
}

func (r *reader) evict(id policy.ID, at happened, rule policy.Rule) {
	e := at.event
	r.drop(id, e.T)
	order := later
	if rule == policy.RuleFetchFailed {
		order = at.order
	}
	r.endFetch(id, order, e.T, func(f *recordedFetch) { f.failed = rule == policy.RuleFetchFailed })
	r.evicted[id], r.removed = e.T, e.T
	switch rule {
	case policy.RuleHeartbeat:
		r.missed(id, at)
		r.gone[id] = e.T - e.Reason.Silent
	case policy.RuleLeave:
		r.leaves[id] = at
	case policy.RuleGaveUp, policy.RuleConnection, policy.RuleProgress:
		r.losses[id] = loss{at, rule}
	}
}

func (r *reader) at(t turn) *recordedWork {
	if r.work[t] == nil {
		r.work[t] = &recordedWork{}
	}
	return r.work[t]
}

func (r *reader) begin(id policy.ID, round int, now policy.Time) {
	r.drop(id, now)
	w := r.at(turn{id, round})
	w.begun, w.known = now, true
	r.working[id] = round
}

// drop notes that a worker did not reach its arrival.
func (r *reader) drop(id policy.ID, now policy.Time) {
	if round, ok := r.working[id]; ok {
		w := r.at(turn{id, round})
		if w.known {
			w.atLeast = now - w.begun
		} else {
			w.notUntil = now
		}
		delete(r.working, id)
	}
}

func (r *reader) endFetch(id policy.ID, order int, now policy.Time, how func(*recordedFetch)) {
	t, ok := r.fetchOf[id]
	if !ok {
		return
	}
	delete(r.fetchOf, id)
	f := &r.fetches[t][len(r.fetches[t])-1]
	f.took, f.order = now-f.begun, order
	how(f)
}

func (r *reader) closed(order int, e record.Event, rule policy.Rule) {
	c := recordedClose{rule: rule, order: order}
	switch {
	case rule == policy.RuleDeadline && e.Reason.Deadline != nil:
		c.late = max(0, e.T-e.Reason.Deadline.At-e.Reason.Deadline.Credit)
	case rule == policy.RuleQuorum && (e.Duration > 0 || e.Held > 0):
		c.late = e.Duration
	case rule == policy.RuleQuorum && strings.HasPrefix(r.run.Policy, "straggler"): // older records do not have it
		var arrivals []policy.Time
		for _, id := range e.Participants {
			if at, ok := r.arrivals[turn{id, e.Round}]; ok { // an arrival with zeros has no turn
				arrivals = append(arrivals, at)
			}
		}
		slices.Sort(arrivals)
		// The quorum came with an arrival, or with an eviction that lowered it.
		if n := e.Reason.Needed; n > 0 && n <= len(arrivals) {
			c.late = e.T - max(arrivals[n-1], r.removed)
		}
	}
	r.closes[e.Round] = c
}

// missed notes a check that found a worker silent.
func (r *reader) missed(id policy.ID, at happened) {
	check := int(at.at / r.scenario.Policy.HeartbeatPeriod)
	if r.silent[id] == nil {
		r.silent[id] = map[int]policy.Time{}
	}
	r.silent[id][check] = at.at - at.event.Reason.Silent
	if _, seen := r.checks[check]; !seen {
		r.checks[check] = at
	}
}

// conclude computes substitutes for values that were not recorded, and adds the
// scenario's happenings for the time after the record.
func (r *Recording) conclude() {
	overheads := map[policy.ID][]policy.Time{}
	for t, w := range r.work {
		if w.arrived && w.known && len(w.steps) == r.scenario.InnerSteps {
			rest := w.took
			for _, e := range w.steps {
				rest -= e.Duration
			}
			overheads[t.id] = append(overheads[t.id], max(0, rest))
		}
	}
	for _, w := range r.scenario.Workers {
		r.overhead[w.ID] = r.scenario.Churn.BaseLatency
		if all := overheads[w.ID]; len(all) > 0 {
			r.overhead[w.ID] = policy.Median(all)
		}
	}
	model := transfer(r.scenario)
	var reductions, fetches []policy.Time
	for _, attempts := range r.reduces {
		for _, a := range attempts {
			if a.done {
				reductions = append(reductions, a.took)
			}
		}
	}
	for _, attempts := range r.fetches {
		for _, f := range attempts {
			if f.done {
				fetches = append(fetches, f.took)
			}
		}
	}
	r.reduction, r.fetching = median(reductions, model), median(fetches, model)
	for _, w := range r.scenario.Workers {
		if _, joined := r.joins[w.ID]; !joined && w.JoinAt > r.end {
			r.joins[w.ID] = happened{at: w.JoinAt, order: later}
		}
	}
	for _, in := range r.scenario.Injects {
		if in.ID == nil {
			continue
		}
		id := *in.ID
		at := happened{at: in.At, order: later, event: record.Event{T: in.At, Node: id.Node()}}
		evicted, out := r.evicted[id]
		unseen := in.At > r.end || out && in.At > evicted // no worker was there any more
		_, crashed := r.crashes[id]
		_, left := r.leaves[id]
		switch {
		case !unseen:
		case in.Op == faults.Crash && !crashed && !left:
			at.event.Type = record.Crash
			r.crashes[id] = at
		case in.Op == faults.Leave && !crashed && !left:
			r.leaves[id] = at
		case in.Op == faults.Slow:
			at.event.Type, at.event.Factor = record.Slow, *in.Factor
			r.factors[id] = append(r.factors[id], factorChange{in.At, *in.Factor})
			r.other = append(r.other, at)
		case in.Op == faults.Restore:
			at.event.Type = record.Restore
			r.factors[id] = append(r.factors[id], factorChange{in.At, 1})
			r.other = append(r.other, at)
		}
	}
	for id := range r.factors {
		slices.SortStableFunc(r.factors[id], func(a, b factorChange) int { return cmp.Compare(a.at, b.at) })
	}
}

// maxTime limits the times of a record, like those of a scenario.
const maxTime = policy.Time(1e12)

// later is the order of calls without a place in the record.
const later = 1 << 50

func median(all []policy.Time, none policy.Time) policy.Time {
	if len(all) == 0 {
		return none
	}
	return policy.Median(all)
}

// factor is the slowness of a worker at a time.
func (r *Recording) factor(id policy.ID, at policy.Time) float64 {
	f := 1.0
	for _, c := range r.factors[id] {
		if c.at <= at {
			f = c.factor
		}
	}
	return f
}

// estimate is the duration of an inner step that the record does not have: of
// the last one that the worker began with the same slowness, or else the
// scenario's mean.
func (r *Recording) estimate(id policy.ID, factor float64) policy.Time {
	w, _ := r.scenario.Worker(id)
	if c := r.scenario.Work.Of(id); c != nil {
		w.Mean = policy.Time(float64(w.Mean) * c.Factor)
	}
	best, found := policy.Time(float64(w.Mean)*factor), policy.Time(-1)
	for _, e := range r.steps[id] {
		if e.T > found && r.factor(id, e.T-e.Duration) == factor {
			best, found = e.Duration, e.T
		}
	}
	return best
}

// round returns a worker's part in a round that it begins at a time: the
// lengths of its inner steps and the time to its arrival.
func (r *Recording) round(t turn, begin policy.Time) (steps []policy.Time, took policy.Time, order int) {
	w := r.work[t]
	if w == nil {
		w = &recordedWork{}
	}
	now := begin
	for i := range r.scenario.InnerSteps {
		var d policy.Time
		if i < len(w.steps) {
			d = w.steps[i].Duration
		} else {
			d = r.estimate(t.id, r.factor(t.id, now))
		}
		steps = append(steps, d)
		now += d
	}
	switch {
	case w.arrived && w.known:
		return steps, w.took, w.order
	case w.arrived && w.at >= now:
		return steps, w.at - begin, w.order
	}
	return steps, max(now-begin+r.overhead[t.id], w.atLeast+1, w.notUntil+1-begin), later
}
