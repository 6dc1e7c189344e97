package userlink

import (
	"math"
	"time"

	"testbed/shaping"
)

// Links are all links of a plan: of every node an access link up and one down,
// each with its rate and its queue, and between them the paths of a Queue. The
// time at which a packet comes out follows from the times at which packets came
// in, not from when the caller looks. A caller that looks late finds all
// packets that were due meanwhile, and the next packet on time. The zero Links
// is not usable.
type Links[T any] struct {
	// Drop, if set, is called with each packet that does not come out.
	Drop func(item T, fate Fate)
	// Corrupt and Clone are those of Queue.
	Corrupt func(item T, seed uint64)
	Clone   func(item T) T

	paths    *Queue[packet[T]]
	up, down []line[T]
	sent     departures // of up
	received departures // of down
	dropped  []Dropped
}

// Dropped counts the packets that a node's links dropped as planned: Up and
// Down for lack of room in a queue of its access link, Path on its paths to
// others.
type Dropped struct{ Up, Down, Path uint64 }

// Dropped are the drops of a node so far.
func (l *Links[T]) Dropped(node int) Dropped { return l.dropped[node] }

// NewLinks returns links with room for limit packets at a time on their paths.
func NewLinks[T any](plan *shaping.Plan, limit int) *Links[T] {
	l := &Links[T]{
		paths: NewQueue[packet[T]](plan, limit),
		up:    make([]line[T], len(plan.Nodes)), down: make([]line[T], len(plan.Nodes)),
		dropped: make([]Dropped, len(plan.Nodes)),
	}
	l.paths.Corrupt = func(p packet[T], seed uint64) {
		if l.Corrupt != nil {
			l.Corrupt(p.item, seed)
		}
	}
	l.paths.Clone = func(p packet[T]) packet[T] {
		if l.Clone != nil {
			p.item = l.Clone(p.item)
		}
		return p
	}
	l.Change(plan, limit)
	return l
}

// Change gives the links another plan for the same nodes, and room for limit
// packets. Packets under way keep their due times, and a packet that a link is
// sending keeps the old rate. Packets under way on a path that is cut are lost.
func (l *Links[T]) Change(plan *shaping.Plan, limit int) {
	for _, p := range l.paths.Change(plan, limit) {
		l.lose(p, Lost)
	}
	for i, n := range plan.Nodes {
		l.Pace(i, n.Up(), n.Down())
		l.up[i].limit, l.down[i].limit = n.QueueBytes(n.RateUp), n.QueueBytes(n.RateDown)
	}
}

// Pace changes a node's rates; zero means unlimited.
func (l *Links[T]) Pace(node int, up, down shaping.Rate) {
	l.up[node].rate, l.down[node].rate = up, down
}

// Push adds a packet from node from to node to (indexes in the plan) at the
// given time, in a frame of size bytes.
func (l *Links[T]) Push(at time.Duration, from, to, size int, item T) {
	for due, some := l.sent.next(); some && due <= at; due, some = l.sent.next() {
		l.cross(due, l.depart(l.up, &l.sent))
	}
	p := packet[T]{from, to, size, item}
	if line := &l.up[from]; line.rate > 0 || line.busy {
		l.offer(line, &l.sent, from, at, to, p)
		return
	}
	l.up[from].load.Bytes += uint64(size)
	l.cross(at, p)
}

func (l *Links[T]) offer(line *line[T], to *departures, node int, at time.Duration, peer int, p packet[T]) {
	idle := !line.busy
	if !line.offer(at, peer, len(l.up), p) {
		if to == &l.sent {
			l.dropped[node].Up++
		} else {
			l.dropped[node].Down++
		}
		l.drop(p, QueueFull)
	} else if idle {
		to.push(departure{line.due, node})
	}
}

// cross sends a packet on its path.
func (l *Links[T]) cross(at time.Duration, p packet[T]) {
	if fate := l.paths.Push(at, p.from, p.to, p.size, p); fate != Queued {
		l.lose(p, fate)
	}
}

// Leave calls take with packets whose due time is decided. take reports whether
// it takes the packet over: then the packet comes out at another host, whose
// links it enters by Arrive.
func (l *Links[T]) Leave(take func(due time.Duration, from, to int, item T) bool) {
	l.paths.Leave = func(due time.Duration, from, to int, p packet[T]) bool { return take(due, from, to, p.item) }
}

// Arrive adds a packet that another host's links have sent on its path. It is
// on the path until due.
func (l *Links[T]) Arrive(due time.Duration, from, to, size int, item T) {
	p := packet[T]{from, to, size, item}
	if fate := l.paths.Arrive(due, from, to, p); fate != Queued {
		l.lose(p, fate)
	}
}

// lose drops a packet on a path.
func (l *Links[T]) lose(p packet[T], fate Fate) {
	if fate != Overflow { // never planned
		l.dropped[p.from].Path++
	}
	l.drop(p, fate)
}

func (l *Links[T]) drop(p packet[T], fate Fate) {
	if l.Drop != nil {
		l.Drop(p.item, fate)
	}
}

// Next returns the next time to look: when the next packet is due at its
// receiver's link, or has left its sender's link for as long as slack. ok is
// false if there is none.
func (l *Links[T]) Next(slack time.Duration) (due time.Duration, ok bool) {
	due = math.MaxInt64
	if at, some := l.sent.next(); some {
		due, ok = at+slack, true
	}
	if at, some := l.paths.Next(); some {
		due, ok = min(due, at), true
	}
	if at, some := l.received.next(); some {
		due, ok = min(due, at), true
	}
	return due, ok
}

// Pop removes the next packet if it is due by now, with its destination and its
// due time.
func (l *Links[T]) Pop(now time.Duration) (item T, to int, due time.Duration, ok bool) {
	for {
		due, some := l.Next(0)
		if !some || due > now {
			return item, 0, 0, false
		}
		if at, some := l.sent.next(); some && at == due {
			l.cross(due, l.depart(l.up, &l.sent))
			continue
		}
		if at, some := l.received.next(); some && at == due {
			p := l.depart(l.down, &l.received)
			return p.item, p.to, due, true
		}
		p, to, _, _ := l.paths.Pop(due)
		line := &l.down[to]
		if line.rate == 0 && !line.busy {
			line.load.Bytes += uint64(p.size)
			return p.item, to, due, true
		}
		l.offer(line, &l.received, to, due, p.from, p)
	}
}

// depart removes the next packet to leave any of the lines.
func (l *Links[T]) depart(lines []line[T], all *departures) packet[T] {
	node := all.pop().node
	p := lines[node].depart()
	if lines[node].busy {
		all.push(departure{lines[node].due, node})
	}
	return p
}

// Len returns the number of packets under way on paths.
func (l *Links[T]) Len() int { return l.paths.Len() }

// Load is the state of a node's access link.
func (l *Links[T]) Load(node int) (up, down Load) { return l.up[node].load, l.down[node].load }

// departure is the end of the transmission that is under way on a node's line.
type departure struct {
	due  time.Duration
	node int
}

func (d departure) before(o departure) bool {
	return d.due < o.due || d.due == o.due && d.node < o.node
}

// departures are the departures of lines, at most one for each node.
type departures struct{ heap[departure] }

// next is the due time of the first of them; ok is false if there is none.
func (d *departures) next() (due time.Duration, ok bool) {
	if len(d.heap) == 0 {
		return 0, false
	}
	return d.heap[0].due, true
}
