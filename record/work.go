package record

import (
	"fmt"
	"slices"

	"testbed/policy"
)

// Work reports what became of the inner steps of a run, and how well the policy
// chose the workers that it left out or evicted. Setup.Slow determines who was
// slow: the scenario made them slow. Workers that were cut off, dead, joining
// or on a changed link are excused.
type Work struct {
	// Inner steps that workers completed.
	StepsDone int `json:"steps_done"`
	// Completed inner steps that no outer step will contain: those of workers left out
	// or evicted, of undone rounds, and those dropped to catch up.
	StepsLost int `json:"steps_lost"`
	// Completed inner steps whose contribution was still due when the run ended.
	StepsOpen int `json:"steps_open"`
	// The share of possible contributions (of all workers to all outer steps) that no
	// outer step contains. They were discarded, cut short, or never made by evicted or
	// absent workers.
	Lost float64 `json:"lost"`
	// The number of outer steps that contain the worker's contribution, except zeros.
	Contributions map[policy.ID]int `json:"contributions"`
	// The share of possible contributions of each [class](scenarios.md#work).
	Classes []ClassWork `json:"classes,omitempty"`
	// How often a worker was left out as late, at most once a round.
	LeftOut int `json:"left_out"`
	// How many of `left_out` were neither [slow nor excused](results.md#work).
	FalseSidelined int `json:"false_sidelined"`
	// How many of `left_out` were excused and not slow.
	Excused int `json:"excused"`
	// How often a slow worker could have been left out: at the close of a round that
	// had a deadline, or that left a worker out.
	Slow int `json:"slow"`
	// How many of `slow` were not left out.
	Missed int `json:"missed"`
	// (`left_out` − `excused` − `false_sidelined`) / (`left_out` − `excused`). It is
	// `null` if that is 0 / 0.
	Precision *float64 `json:"precision"`
	// (`slow` − `missed`) / `slow`. It is `null` if that is 0 / 0.
	Recall *float64 `json:"recall"`
	// Evictions, except leaves, of workers that had been neither slow nor excused
	// since they last contributed.
	FalseEvicted int `json:"false_evicted"`
	// Unasked lists the FalseEvicted that were taken for dead, each with its rule.
	Unasked []string `json:"-"`
}

// ClassWork is how much of the work of a class was contributed.
type ClassWork struct {
	Name string `json:"name"` // The name of the class.
	// Outer steps taken while a worker of the class was present or evicted, summed over
	// the class's workers.
	Rounds int `json:"rounds"`
	// How many of `rounds` contain the worker's contribution.
	Heard int     `json:"heard"`
	Share float64 `json:"share"` // `heard` / `rounds`.
}

// Judge computes Precision and Recall from the counts.
func (w *Work) Judge() {
	share := func(part, of int) *float64 {
		if of == 0 {
			return nil
		}
		return new(float64(part) / float64(of))
	}
	accused := w.LeftOut - w.Excused
	w.Precision, w.Recall = share(accused-w.FalseSidelined, accused), share(w.Slow-w.Missed, w.Slow)
}

// accounting follows a run's inner steps to their outcome.
type accounting struct {
	setup    *Setup
	run      *Tracker
	places   map[policy.ID]int // in Setup.Workers
	workers  []workerAccount   // by their place in Setup.Workers
	round    int               // that is running
	outcomes []outcome
	closed   judgement // judgement of the running round, which may close again
	done     int
	lost     int
	evicted  int // healthy ones
	unasked  []string
	judged   judgement
}

// workerAccount is the account of one worker.
type workerAccount struct {
	joining bool // has joined late and has not taken part yet
	// It has been there since the round since; before counts its earlier rounds.
	there       bool
	since, past int
	// Inner steps done in a round. carried counts those of whole earlier rounds
	// that came too late and wait for the next contribution.
	round, steps, carried int
	ahead                 int // with overlapping rounds: steps done in the round after
	last, contributions   int // the last round that it contributed to; how many
	slow, excused         int // the last round in which it was slow, or excused
	begun                 int // the last round in which it began a step
	slowly                bool
	cause                 bool // since its last contribution it was slow or excused when it was left out
	links                 int  // number of its own links that have changed
	state                 *Worker
	group                 []*workerAccount // the other ranks of its replica group, which succeed or fail with it
}

// outcome is an outer step: its contributors, and their numbers of inner steps.
type outcome struct {
	round, steps int
	ids          []policy.ID
}

// judgement counts the workers at the close of a round, or of several.
type judgement struct{ round, left, wrong, excused, slow, missed int }

func newAccounting(s *Setup, run *Tracker) accounting {
	a := accounting{setup: s, run: run, places: make(map[policy.ID]int, len(s.Workers)), workers: make([]workerAccount, len(s.Workers)), round: s.InitialStep + 1}
	for i, id := range s.Workers {
		a.places[id], a.workers[i].state = i, run.Worker(id)
	}
	for i, id := range s.Workers {
		for _, mate := range s.Grouping.Group(id) {
			if place, ok := a.places[mate]; ok && place != i {
				a.workers[i].group = append(a.workers[i].group, &a.workers[place])
			}
		}
	}
	return a
}

// of returns the account of a worker. For a worker that the run does not have,
// it returns an account that is thrown away.
func (a *accounting) of(id policy.ID) (w *workerAccount, place int) {
	if i := int(id); i >= 0 && i < len(a.workers) && a.setup.Workers[i] == id { // the usual case, and quick
		return &a.workers[i], i
	}
	if place, ok := a.places[id]; ok {
		return &a.workers[place], place
	}
	return &workerAccount{state: new(Worker)}, -1
}

// add takes an event, other than inner steps and arrivals, before the Tracker
// does.
func (a *accounting) add(e *Event) {
	id, _ := e.Worker()
	w, place := a.of(id)
	switch e.Type {
	case Join:
		w.joining = a.run.Round > 0 && e.T > a.run.First
		a.stay(w, true)
		a.begin(w, place, e.T, a.round)
	case FetchDone:
		if a.setup.Overlap > 0 { // it begins from scratch
			a.settle(w)
			w.round = 0
		}
		a.begin(w, place, e.T, a.round)
	case OuterStep:
		a.outerStep(e)
	case RoundClose:
		a.close(e)
	case Evict:
		a.evict(e, w)
	case RunResume:
		a.resume(e)
	case Crash, Fail, Leave:
		a.stay(w, false)
	case LinkFault, LinkRestored:
		by := 1
		if e.Type == LinkRestored {
			by = -1
		}
		for _, node := range []string{e.Node, e.From, e.To} {
			id, _ := policy.ParseNode(node)
			w, _ := a.of(id)
			w.excused, w.links = a.round, w.links+by
		}
	}
}

// change takes the beginning or the end of a condition that excuses a worker,
// or stops it.
func (a *accounting) change(e *Event, c Change) {
	w, place := a.of(c.ID)
	switch c.Condition {
	case Dead, CutOff:
		w.excused = a.round
	case Paused:
		if a.isSlow(w) { // it stalled in this round too
			w.slow = a.round
		}
		a.begin(w, place, e.T, a.round)
	}
}

// step counts an inner step. The report of a worker may come after the outer
// step that includes the inner step.
func (a *accounting) step(id policy.ID, e *Event) {
	w, place := a.of(id)
	a.done++
	switch {
	case place < 0 || w.state.Evicted && !w.state.Member:
		a.lost++
	case a.setup.Overlap > 0 && e.Round == w.round+1 && w.round > w.last:
		w.ahead++
	case e.Round > w.last:
		if e.Round != w.round {
			a.settle(w)
			w.round = e.Round
		}
		w.steps++
	case e.Round < w.last || w.joining: // a process that came after the beginning of the round
		a.lost++
	case len(a.outcomes) > 0 && a.outcomes[len(a.outcomes)-1].round == e.Round:
		a.outcomes[len(a.outcomes)-1].steps++
	}
	if e.Step < a.setup.InnerSteps {
		a.begin(w, place, e.T, e.Round)
	}
}

// settle ends the account of a round that a worker has given up.
func (a *accounting) settle(w *workerAccount) {
	if a.late(w) {
		w.carried += w.steps
	} else {
		a.lost += w.steps
	}
	a.lost += w.ahead
	w.steps, w.ahead = 0, 0
}

// late reports whether the open steps are a late contribution that is added to
// the next one, with whatever weight.
func (a *accounting) late(w *workerAccount) bool {
	return a.setup.StalenessWeight > 0 && w.steps == a.setup.InnerSteps
}

// drop counts the open steps of a worker as lost.
func (a *accounting) drop(w *workerAccount) {
	a.lost += w.steps + w.carried + w.ahead
	w.steps, w.carried, w.ahead = 0, 0, 0
}

// begin notes that a worker begins an inner step, and whether it is slow then.
func (a *accounting) begin(w *workerAccount, place int, at policy.Time, round int) {
	w.begun, w.slowly = round, place >= 0 && a.setup.Slow != nil && a.setup.Slow(place, at)
	if w.slowly {
		w.slow = round
	}
}

// isSlow reports whether a worker, or one of its group, is slow in the running
// round: it began a step of the round while slow, or is still at such a step.
func (a *accounting) isSlow(w *workerAccount) bool {
	slow := func(w *workerAccount) bool { return w.slow == a.round || w.begun < a.round && w.slowly }
	return slow(w) || slices.ContainsFunc(w.group, slow)
}

func (a *accounting) isExcused(w *workerAccount) bool {
	excused := func(w *workerAccount) bool {
		return w.excused == a.round || w.state.Holds(CutOff) || w.state.Holds(Dead) || w.links > 0 || w.joining
	}
	return excused(w) || slices.ContainsFunc(w.group, excused)
}

// stay counts the rounds for which a worker is there.
func (a *accounting) stay(w *workerAccount, there bool) {
	switch {
	case there && !w.there:
		w.since = a.round
	case !there && w.there:
		w.past += max(0, a.round-w.since)
	}
	w.there = there
}

func (a *accounting) outerStep(e *Event) {
	o := outcome{round: e.Round, ids: e.Participants}
	if zero := a.run.Reduction.Zero; len(zero) > 0 {
		o.ids = slices.DeleteFunc(slices.Clone(e.Participants), func(id policy.ID) bool { return slices.Contains(zero, id) })
	}
	a.round = e.Round + 1
	for _, id := range e.Participants {
		w, place := a.of(id)
		w.joining, w.cause = false, false
		a.begin(w, place, e.T, a.round)
	}
	for _, id := range o.ids {
		w, _ := a.of(id)
		if w.round == e.Round {
			o.steps += w.steps
		} else {
			a.settle(w)
		}
		o.steps += w.carried
		w.steps, w.carried, w.last = 0, 0, e.Round
		if w.ahead > 0 {
			w.round, w.steps, w.ahead = e.Round+1, w.ahead, 0
		}
		w.contributions++
	}
	a.outcomes = append(a.outcomes, o)
	a.judged.add(a.closed)
	a.closed = judgement{}
}

// close judges the workers left out of a round. A round that closes again is
// judged by its last close.
func (a *accounting) close(e *Event) {
	j := judgement{round: e.Round}
	decides := len(e.Missing) > 0 || e.Reason != nil && e.Reason.Deadline != nil
	for _, id := range e.Missing {
		w, _ := a.of(id)
		slow, excused := a.isSlow(w), a.isExcused(w)
		w.cause = w.cause || slow || excused
		j.left++
		switch {
		case slow:
			j.slow++
		case excused:
			j.excused++
		default:
			j.wrong++
		}
	}
	for _, id := range e.Participants {
		if w, _ := a.of(id); decides && a.isSlow(w) {
			j.slow++
			j.missed++
		}
	}
	if a.closed.round != e.Round {
		a.judged.add(a.closed)
	}
	a.closed = j
}

func (j *judgement) add(o judgement) {
	j.left += o.left
	j.wrong += o.wrong
	j.excused += o.excused
	j.slow += o.slow
	j.missed += o.missed
}

func (a *accounting) evict(e *Event, w *workerAccount) {
	why := rule(e)
	if why != policy.RuleLeave && !w.cause && !a.isSlow(w) && !a.isExcused(w) {
		a.evicted++
		switch why {
		case policy.RuleHeartbeat, policy.RuleProgress, policy.RuleConnection, policy.RuleGaveUp:
			a.unasked = append(a.unasked, fmt.Sprintf("%s (%s)", e.Node, why))
		}
	}
	if why == policy.RuleLeave || why == policy.RuleGaveUp || why == policy.RuleConnection {
		a.stay(w, false) // its process has ended
	}
	a.drop(w)
}

// resume takes back the outer steps after the one that the run goes on from.
func (a *accounting) resume(e *Event) {
	for n := len(a.outcomes); n > 0 && a.outcomes[n-1].round > e.Round; n-- {
		a.lost += a.outcomes[n-1].steps
		for _, id := range a.outcomes[n-1].ids {
			w, _ := a.of(id)
			w.contributions--
		}
		a.outcomes = a.outcomes[:n-1]
	}
	a.round = e.Round + 1
	for i := range a.workers {
		w := &a.workers[i]
		a.drop(w)
		w.round, w.last = 0, min(w.last, e.Round)
		w.slow, w.excused, w.begun = min(w.slow, e.Round), min(w.excused, e.Round), min(w.begun, e.Round)
	}
	for _, id := range e.IDs {
		w, place := a.of(id)
		a.begin(w, place, e.T, a.round)
	}
}

// work returns the account as of the last event.
func (a *accounting) work() *Work {
	work := &Work{StepsDone: a.done, StepsLost: a.lost, Contributions: make(map[policy.ID]int, len(a.workers)), FalseEvicted: a.evicted, Unasked: slices.Clone(a.unasked)}
	rounds := make([]int, len(a.workers))
	for i, id := range a.setup.Workers {
		w := &a.workers[i]
		work.Contributions[id] = w.contributions
		work.StepsOpen += w.carried + w.ahead
		if w.round >= a.round || a.late(w) {
			work.StepsOpen += w.steps
		} else {
			work.StepsLost += w.steps
		}
		if rounds[i] = w.past; w.there {
			rounds[i] += max(0, a.round-w.since)
		}
	}
	if could := (a.round - 1 - a.setup.InitialStep) * len(a.workers); could > 0 {
		contributed := 0
		for _, n := range work.Contributions {
			contributed += n
		}
		work.Lost = 1 - float64(contributed)/float64(could)
	}
	for _, c := range a.setup.Classes {
		of := ClassWork{Name: c.Name}
		for _, id := range c.IDs {
			if place, ok := a.places[id]; ok {
				of.Rounds += rounds[place]
				of.Heard += work.Contributions[id]
			}
		}
		of.Share = float64(of.Heard) / float64(max(of.Rounds, 1))
		work.Classes = append(work.Classes, of)
	}
	j := a.judged
	j.add(a.closed)
	work.LeftOut, work.FalseSidelined, work.Excused, work.Slow, work.Missed = j.left, j.wrong, j.excused, j.slow, j.missed
	work.Judge()
	return work
}
