package record

import (
	"slices"

	"testbed/policy"
)

// Tracker follows a run event by event: its round and its reduction, who is a
// member, and what each worker does and suffers. All readers of a record use
// it, so that each adds only its own rules. A reader that handles an event
// before it adds it to the Tracker finds the run as it was when the event
// happened. The Tracker does not separate lineages of outer states: a reader
// that follows one skips the rounds of the others.
type Tracker struct {
	// Round is the running round, and Start its beginning; 0: nobody has joined.
	Round     int
	Start     policy.Time
	First     policy.Time // when the first worker joined
	Reduction Event       // the last ReduceStart

	workers []*Worker // by ID; simulators look them up millions of times
	stepped bool      // an outer step was taken
	rounds  int       // rounds that have begun, including those that are undone later
	changes []Change
}

// Worker is the state of a worker. The zero value is a worker without events.
type Worker struct {
	// Joined is when it was last admitted, Left when it was last evicted, and Evicted
	// whether it ever was.
	Joined, Left    policy.Time
	Member, Evicted bool
	Incarnation     int // of its last admitted process
	// Fetch has the starts of the state fetch under way: another one for each
	// donor that had to be replaced.
	Fetch   []Event
	Stepped policy.Time // when it ended its last inner step
	roundWork
	holds [conditions]bool
}

// roundWork is what a worker has done in the running round.
type roundWork struct {
	round   int         // as counted in Tracker.rounds
	Busy    policy.Time // with inner steps
	Fetched policy.Time // time spent on fetching state
	Arrived bool
	Arrival policy.Time
	waited  policy.Time // time until which its waiting has been counted
}

// Condition is a fault that holds for a while; several may hold at once.
type Condition int

// The conditions.
const (
	Dead Condition = iota // from a crash, or from giving up, until the next process
	Paused
	CutOff
	Slowed
	conditions
)

// Change is the beginning or the end of a condition.
type Change struct {
	ID        policy.ID
	Condition Condition
	Begins    bool
}

// Worker returns the state of a worker. Callers must not change it.
func (t *Tracker) Worker(id policy.ID) *Worker {
	const most = 1 << 20 // the IDs of scenarios lie below
	if id < 0 || id >= most {
		return new(Worker)
	}
	if n := int(id) + 1; n > len(t.workers) {
		t.workers = append(t.workers, make([]*Worker, n-len(t.workers))...)
	}
	w := t.workers[id]
	if w == nil {
		w = new(Worker)
		t.workers[id] = w
	}
	if w.round != t.rounds {
		w.roundWork = roundWork{round: t.rounds}
	}
	return w
}

// Of returns the state of the worker of an event.
func (t *Tracker) Of(e *Event) *Worker {
	id, _ := e.Worker()
	return t.Worker(id)
}

// Holds reports whether a condition holds.
func (w *Worker) Holds(c Condition) bool { return w.holds[c] }

// Add takes the next event, and returns the conditions that begin and end with it, which
// are valid until the next call.
func (t *Tracker) Add(e *Event) []Change {
	t.changes = t.changes[:0]
	id, _ := e.Worker()
	w := t.Worker(id)
	switch e.Type {
	case Step:
		w.Stepped = e.T
		if e.Round == t.Round {
			w.Busy += e.Duration
		}
	case Arrive: // a late arrival counts too: the round may reopen and include it
		if e.Round == t.Round {
			w.Arrived, w.Arrival = true, e.T
		}
	case Join:
		if t.Round == 0 {
			t.First = e.T
		}
		if t.Round == 0 || !t.stepped && e.Round > t.Round { // some worker begins at a later outer step
			t.Round, t.Start = max(e.Round, 1), e.T
		}
		w.Joined, w.Member, w.Incarnation = e.T, true, e.Incarnation
		w.Busy, w.Arrived, w.waited = 0, false, 0 // its work before the eviction does not count
		t.set(id, Dead, false)
	case Evict:
		w.Left, w.Member, w.Evicted, w.Fetch = e.T, false, true, nil
	case FetchStart:
		w.Fetch = append(w.Fetch, *e)
	case FetchDone:
		if len(w.Fetch) > 0 {
			w.Fetched += e.T - max(w.Fetch[0].T, t.Start)
		}
		w.Fetch = nil
	case ReduceStart:
		t.Reduction = *e
	case OuterStep:
		t.stepped = true
		t.begin(e)
	case RunResume:
		for _, w := range t.workers {
			if w != nil {
				w.Fetch = nil
			}
		}
		t.begin(e)
	case Crash, Fail:
		t.set(id, Dead, true)
	case Restart:
		t.set(id, Dead, false)
	case Pause, Resume:
		t.set(id, Paused, e.Type == Pause)
	case Slow:
		t.set(id, Slowed, false) // by another factor
		t.set(id, Slowed, true)
	case Restore:
		t.set(id, Slowed, false)
	case Partition:
		for _, id := range e.IDs {
			t.set(id, CutOff, true)
		}
	case Heal:
		for id := range policy.ID(len(t.workers)) {
			if len(e.IDs) == 0 || slices.Contains(e.IDs, id) {
				t.set(id, CutOff, false)
			}
		}
	}
	return t.changes
}

// begin begins the round after an outer step.
func (t *Tracker) begin(e *Event) {
	t.Round, t.Start = e.Round+1, e.T
	t.rounds++
}

func (t *Tracker) set(id policy.ID, c Condition, holds bool) {
	if w := t.Worker(id); w.holds[c] != holds {
		w.holds[c] = holds
		t.changes = append(t.changes, Change{id, c, holds})
	}
}
