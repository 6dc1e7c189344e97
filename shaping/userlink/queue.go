// Package userlink makes the links of a shaping.Plan in user space: rates and
// queues of every access link, and one-way delay, jitter, loss, duplicates,
// overtaking, corruption and cuts of every ordered pair of nodes. Links are the
// links, pure, with time as an argument. Queue is their paths. Router drives
// them with packet sockets between the hub's ends of the nodes' interfaces.
package userlink

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"testbed/shaping"
)

// Fate is the fate of a packet that enters a Queue.
type Fate int

// The fates of a packet.
const (
	Queued    Fate = iota // it comes out at its due time
	Lost                  // lost as planned
	Overflow              // the queue was full; never part of a plan
	QueueFull             // more waited for an access link than its queue holds
)

// Queue holds packets of type T on their way between the nodes of a plan. Times
// are durations since an epoch of the caller's choice. A packet's fate depends
// on the plan's seed, the names of its two nodes, its number on that path and
// the path's properties at that moment, and on nothing else. Traffic of other
// pairs does not change the pattern of this one. The zero Queue is not usable.
type Queue[T any] struct {
	// Corrupt, if set, flips one bit of a packet that its path corrupts, chosen by
	// the seed. Clone, if set, makes the item of a duplicate; otherwise both
	// packets share the item.
	Corrupt func(item T, seed uint64)
	Clone   func(item T) T
	// Leave, if set, may take over a packet whose due time is decided, and reports
	// whether it does. The packet then comes out at another host, whose queue it
	// enters by Arrive.
	Leave func(due time.Duration, from, to int, item T) bool

	plan  *shaping.Plan
	limit int
	paths [][]*path
	heap  heap[entry[T]]
	seq   uint64
}

// path is the state of one ordered pair, made with its first packet.
type path struct {
	random, copies *rand.Rand    // of packets, and of their duplicates
	burst          bool          // inside a burst of losses
	last           time.Duration // due time of the packet before
}

type entry[T any] struct {
	due      time.Duration
	seq      uint64 // keeps the order of one node's packets that are due together
	from, to int    // from orders the packets of several nodes, in whatever order hosts report them
	item     T
}

// NewQueue returns a queue for at most limit packets at a time.
func NewQueue[T any](plan *shaping.Plan, limit int) *Queue[T] {
	paths := make([][]*path, len(plan.Nodes))
	for i := range paths {
		paths[i] = make([]*path, len(plan.Nodes))
	}
	return &Queue[T]{plan: plan, limit: limit, paths: paths}
}

// chances are the random numbers that decide about a packet. All of them are
// drawn for every packet, so that a change of one property does not shift
// another's pattern.
type chances struct {
	duplicate, lost, turn, corrupt, reorder float64
	bit                                     uint64
	jitter                                  uint64
}

func draw(r *rand.Rand) chances {
	return chances{
		lost: r.Float64(), jitter: r.Uint64(), duplicate: r.Float64(), turn: r.Float64(),
		corrupt: r.Float64(), reorder: r.Float64(), bit: r.Uint64(),
	}
}

// Push adds a packet from node from to node to (indexes in the plan) that
// reached the path at the given time, in a frame of size bytes. A duplicate, if
// there is one, shares the packet's fate.
func (q *Queue[T]) Push(at time.Duration, from, to, size int, item T) Fate {
	p, plan := q.path(from, to), &q.plan.Paths[from][to]
	chance := draw(p.random)
	copies := 1
	if chance.duplicate < float64(plan.Duplicate) {
		copies++
	}
	if p.lose(plan, chance) {
		copies--
	}
	// As in netem a duplicate makes up for a loss, and a second packet may
	// be lost or corrupted in its turn.
	var second chances
	if copies == 2 {
		if second = draw(p.copies); p.lose(plan, second) {
			copies--
		}
	}
	switch {
	case copies == 0 || plan.Cut:
		return Lost
	case len(q.heap)+copies > q.limit:
		return Overflow
	case p.waiting(plan, at) > q.plan.Nodes[from].QueueBytes(plan.Rate):
		return QueueFull
	}
	if copies == 2 {
		twin := item
		if q.Clone != nil {
			twin = q.Clone(item)
		}
		q.enter(at, from, to, size, twin, second)
	}
	q.enter(at, from, to, size, item, chance)
	return Queued
}

// lose updates the path's state and reports whether the packet is lost.
func (p *path) lose(plan *shaping.PathPlan, chance chances) bool {
	b := &plan.LossBurst
	if *b == (shaping.LossBurst{}) {
		p.burst = false
		return chance.lost < float64(plan.Loss)
	}
	if p.burst {
		p.burst = chance.turn >= float64(b.Leave)
		return chance.lost < float64(b.LossInside)
	}
	p.burst = chance.turn < float64(b.Enter)
	return chance.lost < float64(b.LossOutside)
}

// waiting is the number of bytes in front of a packet that comes now, waiting
// for the path's rate when its delay is over.
func (p *path) waiting(plan *shaping.PathPlan, at time.Duration) int {
	behind := p.last - at - time.Duration(plan.OneWayDelay)
	return int(behind.Seconds() * float64(plan.Rate) / 8)
}

// enter queues a packet that is not lost.
func (q *Queue[T]) enter(at time.Duration, from, to, size int, item T, chance chances) {
	p, plan := q.path(from, to), &q.plan.Paths[from][to]
	if q.Corrupt != nil && chance.corrupt < float64(plan.Corrupt) {
		q.Corrupt(item, chance.bit)
	}
	due := at
	if chance.reorder >= float64(plan.Reorder) {
		table := plan.JitterDistribution.Table()
		due += time.Duration(plan.OneWayDelay + plan.Jitter.Deviation(table[chance.jitter%uint64(len(table))]))
		// A packet overtakes by Reorder only. As in netem, the rate applies after the
		// delay.
		p.last = max(p.last, due) + plan.Rate.Sending(size)
		due = p.last
	}
	if q.Leave == nil || !q.Leave(due, from, to, item) {
		q.push(due, from, to, item)
	}
}

func (q *Queue[T]) push(due time.Duration, from, to int, item T) {
	q.heap.push(entry[T]{due: due, seq: q.seq, from: from, to: to, item: item})
	q.seq++
}

// Arrive adds a packet whose fate another host's queue has decided. If its path
// has been cut meanwhile, it is lost.
func (q *Queue[T]) Arrive(due time.Duration, from, to int, item T) Fate {
	switch {
	case q.plan.Paths[from][to].Cut:
		return Lost
	case len(q.heap) >= q.limit:
		return Overflow
	}
	q.push(due, from, to, item)
	return Queued
}

// Change gives the queue another plan for the same nodes, and room for limit
// packets. Packets under way keep their due times, except on a path that is
// cut: those packets are returned as lost.
func (q *Queue[T]) Change(plan *shaping.Plan, limit int) (lost []T) {
	q.plan, q.limit = plan, limit
	old := q.heap
	q.heap = make(heap[entry[T]], 0, len(old))
	for _, e := range old {
		if plan.Paths[e.from][e.to].Cut {
			lost = append(lost, e.item)
		} else {
			q.heap.push(e)
		}
	}
	return lost
}

// Next returns when the next packet is due; ok is false if there is none.
func (q *Queue[T]) Next() (due time.Duration, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].due, true
}

// Pop removes the next packet if it is due by now, with its destination and its
// due time.
func (q *Queue[T]) Pop(now time.Duration) (item T, to int, due time.Duration, ok bool) {
	if len(q.heap) == 0 || q.heap[0].due > now {
		return item, 0, 0, false
	}
	e := q.heap.pop()
	return e.item, e.to, e.due, true
}

// Len returns the number of packets in the queue.
func (q *Queue[T]) Len() int { return len(q.heap) }

func (q *Queue[T]) path(from, to int) *path {
	p := q.paths[from][to]
	if p == nil {
		seed := pathSeed(q.plan.Seed, q.plan.Nodes[from].Name, q.plan.Nodes[to].Name)
		p = &path{random: rand.New(rand.NewChaCha8(seed))}
		seed[len(seed)-1] = 1
		p.copies = rand.New(rand.NewChaCha8(seed))
		q.paths[from][to] = p
	}
	return p
}

// pathSeed depends on names and not on positions, so that a pair keeps its
// pattern when other nodes join the scenario.
func pathSeed(seed uint64, from, to string) (key [32]byte) {
	for i, s := range []string{from, to} {
		h := fnv.New64a()
		h.Write([]byte(s))
		binary.LittleEndian.PutUint64(key[8*(i+1):], h.Sum64())
	}
	binary.LittleEndian.PutUint64(key[:], seed)
	return key
}

func (e entry[T]) before(o entry[T]) bool {
	if e.due != o.due {
		return e.due < o.due
	}
	return cmp.Or(cmp.Compare(e.from, o.from), cmp.Compare(e.seq, o.seq)) < 0
}
