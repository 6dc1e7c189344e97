package record

import (
	"slices"

	"testbed/policy"
)

// Work is what became of the inner steps of a run, and how well those who were
// left out or evicted had been chosen. Who was slow is what the scenario made so
// (Setup.Slow); who was cut off, dead, joining or on a changed link is
// excused.
type Work struct {
	// StepsDone are the inner steps that workers completed. The result of StepsLost
	// is in no outer step and will not be, that of StepsOpen was still to come at
	// the end of the run; all others were contributed.
	StepsDone int `json:"steps_done"`
	StepsLost int `json:"steps_lost"`
	StepsOpen int `json:"steps_open"`
	// Lost is the share of the contributions that all workers of the scenario could
	// have made to the outer steps, and no outer step has: whether their steps were
	// thrown away, cut short, or never done because the worker had been evicted.
	Lost float64 `json:"lost"`
	// Contributions are the rounds that each worker contributed to, and Classes
	// what share that is of those of its class.
	Contributions map[policy.ID]int `json:"contributions"`
	Classes       []ClassWork       `json:"classes,omitempty"`
	// LeftOut is how often a worker was left out of a round as late:
	// FalseSidelined times one that was neither slow nor excused, Excused times one
	// that was excused and not slow.
	LeftOut        int `json:"left_out"`
	FalseSidelined int `json:"false_sidelined"`
	Excused        int `json:"excused"`
	// Slow is how often a slow worker could have been left out: at the close of a
	// round that had a deadline, or left somebody out. Missed times it was not.
	Slow   int `json:"slow"`
	Missed int `json:"missed"`
	// Precision is the share of the slow among those left out without an excuse,
	// Recall the share of those left out among the slow; nil where there was
	// nobody.
	Precision *float64 `json:"precision"`
	Recall    *float64 `json:"recall"`
	// FalseEvicted is how many were evicted that had not left and had been neither
	// slow nor excused since they last contributed.
	FalseEvicted int `json:"false_evicted"`
}

// ClassWork is how much of the work of a class was heard.
type ClassWork struct {
	Name string `json:"name"`
	// Rounds are the outer steps that were taken while a worker of the class was
	// there, evicted or not, summed over the workers; Heard those of them that have
	// its contribution.
	Rounds int     `json:"rounds"`
	Heard  int     `json:"heard"`
	Share  float64 `json:"share"`
}

// Judge has Precision and Recall follow from the counts.
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

// account keeps the books of a run's inner steps, event by event.
type account struct {
	setup   *Setup
	places  map[policy.ID]int // in Setup.Workers
	workers []books           // by their place
	round   int               // that is running
	began   bool
	first   policy.Time // of the joins
	zero    []policy.ID // participants of the reduction that contribute zeros
	heard   []heard     // in each outer step
	closed  verdict     // of the running round, which may close again
	done    int
	lost    int
	evicted int // healthy ones
	left    verdict
}

// books are those of one worker.
type books struct {
	gone    bool // evicted
	joining bool // has joined late and has not taken part yet
	// It has been there since the round since, and before for past rounds.
	there       bool
	since, past int
	// Inner steps done in a round, and those of whole rounds before that came too
	// late for them and wait for the next contribution.
	round, steps, carried int
	ahead                 int // where rounds overlap: steps done in the round after
	last, contributions   int // the last round that it contributed to; how many
	slow, excused         int // the last round in which it was
	begun                 int // the last round in which it began a step
	slowly                bool
	cause                 bool // was slow or excused when it was left out since its last contribution
	cut, dead             bool
	faults                int
	group                 []*books // of the other ranks of its replica group, whose fate it shares
}

// heard is who contributed to an outer step, and how many inner steps.
type heard struct {
	round, steps int
	ids          []policy.ID
}

// verdict counts the close of a round, or of several.
type verdict struct{ round, left, wrong, excused, slow, missed int }

func newAccount(s *Setup) account {
	a := account{setup: s, places: make(map[policy.ID]int, len(s.Workers)), workers: make([]books, len(s.Workers)), round: s.InitialStep + 1}
	for i, id := range s.Workers {
		a.places[id] = i
	}
	for i, id := range s.Workers {
		for _, id := range s.Grouping.Group(id) {
			if place, ok := a.places[id]; ok && place != i {
				a.workers[i].group = append(a.workers[i].group, &a.workers[place])
			}
		}
	}
	return a
}

// of returns the books of a worker; those of one that the run does not have
// are thrown away.
func (a *account) of(id policy.ID) (b *books, place int) {
	if i := int(id); i >= 0 && i < len(a.workers) && a.setup.Workers[i] == id { // the usual case, and quick
		return &a.workers[i], i
	}
	if place, ok := a.places[id]; ok {
		return &a.workers[place], place
	}
	return new(books), -1
}

func (a *account) named(name string) (b *books, place int) {
	if id, ok := workerID(name); ok {
		return a.of(id)
	}
	return new(books), -1
}

func (a *account) add(e *Event) {
	switch e.Type {
	case Join:
		b, place := a.named(e.Node)
		if !a.began {
			a.began, a.first = true, e.T
		}
		b.gone, b.joining = false, e.T > a.first
		a.stay(b, true)
		a.begin(b, place, e.T, a.round)
	case FetchDone:
		b, place := a.named(e.Node)
		if a.setup.Overlap > 0 { // it begins anew
			a.settle(b)
			b.round = 0
		}
		a.begin(b, place, e.T, a.round)
	case ReduceStart:
		a.zero = e.Zero
	case OuterStep:
		a.outerStep(e)
	case RoundClose:
		a.close(e)
	case Evict:
		a.evict(e)
	case RunResume:
		a.resume(e)
	case Crash, Fail, Restart, Leave, Pause, Resume, Partition, Heal, LinkFault, LinkRestored:
		a.fault(e)
	}
}

// step takes note of an inner step. The report of a worker may come after the
// outer step that has it.
func (a *account) step(id policy.ID, e *Event) {
	b, place := a.of(id)
	a.done++
	switch {
	case place < 0 || b.gone:
		a.lost++
	case a.setup.Overlap > 0 && e.Round == b.round+1 && b.round > b.last:
		b.ahead++
	case e.Round > b.last:
		if e.Round != b.round {
			a.settle(b)
			b.round = e.Round
		}
		b.steps++
	case e.Round < b.last || b.joining: // a process that came after that round began where all did
		a.lost++
	case len(a.heard) > 0 && a.heard[len(a.heard)-1].round == e.Round:
		a.heard[len(a.heard)-1].steps++
	}
	if e.Step < a.setup.InnerSteps {
		a.begin(b, place, e.T, e.Round)
	}
}

// settle closes the books of a round that a worker has given up.
func (a *account) settle(b *books) {
	if a.late(b) {
		b.carried += b.steps
	} else {
		a.lost += b.steps
	}
	a.lost += b.ahead
	b.steps, b.ahead = 0, 0
}

// late says whether the open steps are a contribution that came too late and is
// added to the next one, with whatever weight.
func (a *account) late(b *books) bool {
	return a.setup.StalenessWeight > 0 && b.steps == a.setup.InnerSteps
}

// drop closes the books of a worker that will contribute nothing of them.
func (a *account) drop(b *books) {
	a.lost += b.steps + b.carried + b.ahead
	b.steps, b.carried, b.ahead = 0, 0, 0
}

// begin takes note that a worker begins an inner step, and whether slowly.
func (a *account) begin(b *books, place int, at policy.Time, round int) {
	b.begun, b.slowly = round, place >= 0 && a.setup.Slow != nil && a.setup.Slow(place, at)
	if b.slowly {
		b.slow = round
	}
}

// isSlow says whether a worker, or one of its group, is slow in the running round: it
// began a step of it slowly, or is still at one that it began so.
func (a *account) isSlow(b *books) bool {
	slow := func(b *books) bool { return b.slow == a.round || b.begun < a.round && b.slowly }
	return slow(b) || slices.ContainsFunc(b.group, slow)
}

func (a *account) isExcused(b *books) bool {
	excused := func(b *books) bool { return b.excused == a.round || b.cut || b.faults > 0 || b.joining }
	return excused(b) || slices.ContainsFunc(b.group, excused)
}

// stay keeps for how long a worker is there.
func (a *account) stay(b *books, there bool) {
	switch {
	case there && !b.there:
		b.since = a.round
	case !there && b.there:
		b.past += max(0, a.round-b.since)
	}
	b.there = there
}

func (a *account) outerStep(e *Event) {
	h := heard{round: e.Round, ids: e.Participants}
	if len(a.zero) > 0 {
		h.ids = slices.DeleteFunc(slices.Clone(e.Participants), func(id policy.ID) bool { return slices.Contains(a.zero, id) })
	}
	a.round = e.Round + 1
	for _, id := range e.Participants {
		b, place := a.of(id)
		b.joining, b.cause = false, false
		a.begin(b, place, e.T, a.round)
	}
	for _, id := range h.ids {
		b, _ := a.of(id)
		if b.round == e.Round {
			h.steps += b.steps
		} else {
			a.settle(b)
		}
		h.steps += b.carried
		b.steps, b.carried, b.last = 0, 0, e.Round
		if b.ahead > 0 {
			b.round, b.steps, b.ahead = e.Round+1, b.ahead, 0
		}
		b.contributions++
	}
	a.heard = append(a.heard, h)
	a.left.add(a.closed)
	a.closed = verdict{}
}

// close judges who is left out of a round. A round that closes again is judged
// by its last close.
func (a *account) close(e *Event) {
	v := verdict{round: e.Round}
	decides := len(e.Missing) > 0 || e.Reason != nil && e.Reason.Deadline != nil
	for _, id := range e.Missing {
		b, _ := a.of(id)
		slow, excused := a.isSlow(b), a.isExcused(b)
		b.cause = b.cause || slow || excused
		v.left++
		switch {
		case slow:
			v.slow++
		case excused:
			v.excused++
		default:
			v.wrong++
		}
	}
	for _, id := range e.Participants {
		if b, _ := a.of(id); decides && a.isSlow(b) {
			v.slow++
			v.missed++
		}
	}
	if a.closed.round != e.Round {
		a.left.add(a.closed)
	}
	a.closed = v
}

func (v *verdict) add(o verdict) {
	v.left += o.left
	v.wrong += o.wrong
	v.excused += o.excused
	v.slow += o.slow
	v.missed += o.missed
}

func (a *account) evict(e *Event) {
	b, _ := a.named(e.Node)
	why := rule(e)
	if why != policy.RuleLeave && !b.cause && !a.isSlow(b) && !a.isExcused(b) {
		a.evicted++
	}
	if why == policy.RuleLeave || why == policy.RuleGaveUp || why == policy.RuleConnection {
		a.stay(b, false) // its process has ended
	}
	a.drop(b)
	b.gone = true
}

// resume takes back the outer steps after the one that the run goes on from.
func (a *account) resume(e *Event) {
	for n := len(a.heard); n > 0 && a.heard[n-1].round > e.Round; n-- {
		a.lost += a.heard[n-1].steps
		for _, id := range a.heard[n-1].ids {
			b, _ := a.of(id)
			b.contributions--
		}
		a.heard = a.heard[:n-1]
	}
	a.round = e.Round + 1
	for i := range a.workers {
		b := &a.workers[i]
		a.drop(b)
		b.round, b.last = 0, min(b.last, e.Round)
		b.slow, b.excused, b.begun = min(b.slow, e.Round), min(b.excused, e.Round), min(b.begun, e.Round)
	}
	for _, id := range e.IDs {
		b, place := a.of(id)
		b.gone = false
		a.begin(b, place, e.T, a.round)
	}
}

// fault keeps what excuses a worker.
func (a *account) fault(e *Event) {
	excuse := func(b *books, faults int) { b.excused, b.faults = a.round, b.faults+faults }
	b, place := a.named(e.Node)
	switch e.Type {
	case Crash, Fail:
		a.stay(b, false)
		if !b.dead {
			b.dead = true
			excuse(b, 1)
		}
	case Restart:
		if b.dead {
			b.dead = false
			excuse(b, -1)
		}
	case Leave:
		a.stay(b, false)
	case Pause, Resume:
		if a.isSlow(b) { // it stood still in this round too
			b.slow = a.round
		}
		a.begin(b, place, e.T, a.round)
	case Partition:
		for _, id := range e.IDs {
			b, _ := a.of(id)
			b.cut, b.excused = true, a.round
		}
	case Heal:
		for i, id := range a.setup.Workers {
			if b := &a.workers[i]; b.cut && (len(e.IDs) == 0 || slices.Contains(e.IDs, id)) {
				b.cut, b.excused = false, a.round
			}
		}
	case LinkFault, LinkRestored:
		by := 1
		if e.Type == LinkRestored {
			by = -1
		}
		for _, name := range []string{e.Node, e.From, e.To} {
			b, _ := a.named(name)
			excuse(b, by)
		}
	}
}

// work returns the account as of the last event.
func (a *account) work() *Work {
	w := &Work{StepsDone: a.done, StepsLost: a.lost, Contributions: make(map[policy.ID]int, len(a.workers)), FalseEvicted: a.evicted}
	rounds := make([]int, len(a.workers))
	for i, id := range a.setup.Workers {
		b := &a.workers[i]
		w.Contributions[id] = b.contributions
		w.StepsOpen += b.carried + b.ahead
		if b.round >= a.round || a.late(b) {
			w.StepsOpen += b.steps
		} else {
			w.StepsLost += b.steps
		}
		if rounds[i] = b.past; b.there {
			rounds[i] += max(0, a.round-b.since)
		}
	}
	if could := (a.round - 1 - a.setup.InitialStep) * len(a.workers); could > 0 {
		heard := 0
		for _, n := range w.Contributions {
			heard += n
		}
		w.Lost = 1 - float64(heard)/float64(could)
	}
	for _, c := range a.setup.Classes {
		of := ClassWork{Name: c.Name}
		for _, id := range c.IDs {
			if place, ok := a.places[id]; ok {
				of.Rounds += rounds[place]
				of.Heard += w.Contributions[id]
			}
		}
		of.Share = float64(of.Heard) / float64(max(of.Rounds, 1))
		w.Classes = append(w.Classes, of)
	}
	v := a.left
	v.add(a.closed)
	w.LeftOut, w.FalseSidelined, w.Excused, w.Slow, w.Missed = v.left, v.wrong, v.excused, v.slow, v.missed
	w.Judge()
	return w
}
