package record

import (
	"testbed/policy"
)

// turn is what a worker has done in the running round.
type turn struct {
	round   int         // as turns counts them
	busy    policy.Time // with inner steps
	arrived bool
	arrival policy.Time
	waited  policy.Time // until when its wait has been counted
}

// turns are those of all workers. A simulator asks for them millions of times,
// so they lie in a table by ID and not in a map.
type turns struct {
	table []turn
	round int // counts the rounds, also those that are undone later
}

// of returns the turn of a worker, or that of nobody if there can be no such
// worker.
func (t *turns) of(id policy.ID) *turn {
	const most = 1 << 20 // the IDs of scenarios lie below
	if id < 0 || id >= most {
		return new(turn)
	}
	if n := int(id) + 1; n > len(t.table) {
		t.table = append(t.table, make([]turn, n-len(t.table))...)
	}
	w := &t.table[id]
	if w.round != t.round {
		*w = turn{round: t.round}
	}
	return w
}

// named returns the turn of the worker of that name.
func (t *turns) named(name string) *turn {
	if id, ok := workerID(name); ok {
		return t.of(id)
	}
	return new(turn)
}

// anew forgets what a worker did in the running round before it was evicted.
func (t *turns) anew(name string) { *t.named(name) = turn{round: t.round} }

// next begins a round, in which nobody has done anything yet.
func (t *turns) next() { t.round++ }

// workerID is the reverse of node.
func workerID(name string) (policy.ID, bool) {
	if len(name) < 2 || len(name) > 10 || name[0] != 'w' {
		return 0, false
	}
	id := 0
	for i := 1; i < len(name); i++ { // strconv.Atoi takes three times as long, at every event
		c := name[i] - '0'
		if c > 9 {
			return 0, false
		}
		id = 10*id + int(c)
	}
	return policy.ID(id), true
}
