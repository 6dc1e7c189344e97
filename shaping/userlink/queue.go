// Package userlink makes the paths of a shaping.Plan in user space: delay,
// jitter and loss of every ordered pair of nodes. Queue is the link itself,
// pure, with time as an argument; Router drives it with packet sockets
// between the hub's ends of the nodes' links. Rates are not its business:
// those are the kernel's (package shaping/kernel) with every backend.
package userlink

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"testbed/shaping"
)

// Fate is what becomes of a packet that enters a Queue.
type Fate int

// The fates of a packet.
const (
	Queued   Fate = iota // it comes out at its due time
	Lost                 // lost by plan
	Overflow             // the queue was full; never part of a plan
)

// Queue holds packets of type T on their way between the nodes of a plan.
// Times are durations since an epoch of the caller's choice. A packet's fate
// depends on the plan's seed, the names of its two nodes and its number on
// that path, and on nothing else: what other pairs do, or when, does not
// change the pattern of this one. The zero Queue is not usable.
type Queue[T any] struct {
	plan  *shaping.Plan
	limit int
	paths [][]*path
	heap  []entry[T]
	seq   uint64
}

// path is the state of one ordered pair, made when its first packet comes.
type path struct {
	random *rand.Rand
	last   time.Duration // due time of the packet before
}

type entry[T any] struct {
	due  time.Duration
	seq  uint64 // keeps the order of packets that are due together
	to   int
	item T
}

// NewQueue returns a queue for at most limit packets at a time.
func NewQueue[T any](plan *shaping.Plan, limit int) *Queue[T] {
	paths := make([][]*path, len(plan.Nodes))
	for i := range paths {
		paths[i] = make([]*path, len(plan.Nodes))
	}
	return &Queue[T]{plan: plan, limit: limit, paths: paths}
}

// Push takes in a packet that node from sent to node to (indexes in the
// plan) and that reached the link at the given time.
func (q *Queue[T]) Push(at time.Duration, from, to int, item T) Fate {
	p := q.path(from, to)
	plan := q.plan.Paths[from][to]
	// Both are drawn for every packet, so that a change of the loss does
	// not shift the pattern of the jitter.
	luck, sway := p.random.Float64(), p.random.Float64()
	if luck < float64(plan.Loss) {
		return Lost
	}
	if len(q.heap) >= q.limit {
		return Overflow
	}
	oneWay := time.Duration(plan.OneWayDelay) + time.Duration((2*sway-1)*float64(plan.Jitter))
	p.last = max(p.last, at+oneWay) // a packet never overtakes the one before
	q.push(entry[T]{due: p.last, seq: q.seq, to: to, item: item})
	q.seq++
	return Queued
}

// Next returns when the next packet is due; ok is false if there is none.
func (q *Queue[T]) Next() (due time.Duration, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].due, true
}

// Pop takes out the next packet if it is due by now, with the node it goes
// to and the time at which it was due.
func (q *Queue[T]) Pop(now time.Duration) (item T, to int, due time.Duration, ok bool) {
	if len(q.heap) == 0 || q.heap[0].due > now {
		return item, 0, 0, false
	}
	e := q.pop()
	return e.item, e.to, e.due, true
}

// Len returns the number of packets in the queue.
func (q *Queue[T]) Len() int { return len(q.heap) }

func (q *Queue[T]) path(from, to int) *path {
	p := q.paths[from][to]
	if p == nil {
		seed := pathSeed(q.plan.Seed, q.plan.Nodes[from].Name, q.plan.Nodes[to].Name)
		p = &path{random: rand.New(rand.NewChaCha8(seed))}
		q.paths[from][to] = p
	}
	return p
}

// pathSeed takes names and not positions, so that a pair keeps its pattern
// when other nodes join the scenario.
func pathSeed(seed uint64, from, to string) (key [32]byte) {
	for i, s := range []string{from, to} {
		h := fnv.New64a()
		h.Write([]byte(s))
		binary.LittleEndian.PutUint64(key[8*(i+1):], h.Sum64())
	}
	binary.LittleEndian.PutUint64(key[:], seed)
	return key
}

// A binary heap by due time; container/heap would allocate for every packet.

func (e entry[T]) before(o entry[T]) bool {
	return e.due < o.due || e.due == o.due && e.seq < o.seq
}

func (q *Queue[T]) push(e entry[T]) {
	q.heap = append(q.heap, e)
	for i := len(q.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.heap[i].before(q.heap[parent]) {
			break
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

func (q *Queue[T]) pop() entry[T] {
	top, end := q.heap[0], len(q.heap)-1
	q.heap[0] = q.heap[end]
	q.heap[end] = entry[T]{} // lets go of the item
	q.heap = q.heap[:end]
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < end && q.heap[child].before(q.heap[least]) {
				least = child
			}
		}
		if least == i {
			return top
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}
