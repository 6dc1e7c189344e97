package userlink

import (
	"time"

	"testbed/shaping"
)

// Load is the state of one direction of an access link.
type Load struct {
	Bytes   uint64 // of Ethernet frames, passed on so far
	Waiting uint64 // bytes waiting for the rate
}

// packet is a packet in Links.
type packet[T any] struct {
	from, to, size int
	item           T
}

// line is one direction of a node's access link. It is a schedule; a bucket
// would forfeit rate that it could not serve in time.
//
//	departure = max(arrival, departure before) + bytes ÷ rate
//
// regardless of when the line is looked at. Peers with packets waiting take
// turns, by deficit round robin (Shreedhar and Varghese 1995).
type line[T any] struct {
	rate  shaping.Rate // zero: unlimited
	limit int          // bytes that may wait for each peer

	busy    bool
	sending packet[T]
	due     time.Duration // departure of the packet being sent; if not busy, the last departure
	flows   []flow[T]     // by peer; allocated with the first packet that waits
	turns   []int         // peers with packets waiting, in the order of their turns
	load    Load
}

// flow is the queue of a line for one peer.
type flow[T any] struct {
	packets []packet[T]
	first   int // index of the first packet that is still there
	bytes   int
	deficit int // bytes that it may send in this turn
}

// offer adds a packet at a time, from or to a peer among so many nodes. It
// refuses the packet if too much is waiting.
func (l *line[T]) offer(at time.Duration, peer, nodes int, p packet[T]) bool {
	if !l.busy {
		l.begin(at, p)
		return true
	}
	if l.flows == nil {
		l.flows = make([]flow[T], nodes)
	}
	f := &l.flows[peer]
	if f.bytes+p.size > l.limit {
		return false
	}
	if f.bytes == 0 {
		f.deficit = shaping.Quantum
		l.turns = append(l.turns, peer)
	}
	f.push(p)
	l.load.Waiting += uint64(p.size)
	return true
}

func (l *line[T]) begin(at time.Duration, p packet[T]) {
	l.busy, l.sending, l.due = true, p, max(at, l.due)+l.rate.Sending(p.size)
}

// depart removes the packet that has been sent, and begins with the next.
func (l *line[T]) depart() packet[T] {
	p := l.sending
	l.busy, l.sending = false, packet[T]{}
	l.load.Bytes += uint64(p.size)
	if len(l.turns) > 0 {
		next := l.next()
		l.load.Waiting -= uint64(next.size)
		l.begin(l.due, next)
	}
	return p
}

// next removes the packet whose turn it is.
func (l *line[T]) next() packet[T] {
	for {
		f := &l.flows[l.turns[0]]
		if size := f.packets[f.first].size; size <= f.deficit {
			f.deficit -= size
			p := f.pop()
			if f.bytes == 0 {
				l.turns = append(l.turns[:0], l.turns[1:]...)
			}
			return p
		}
		f.deficit += shaping.Quantum
		turn := l.turns[0]
		copy(l.turns, l.turns[1:])
		l.turns[len(l.turns)-1] = turn
	}
}

func (f *flow[T]) push(p packet[T]) {
	if f.first > len(f.packets)/2 {
		n := copy(f.packets, f.packets[f.first:])
		clear(f.packets[n:]) // releases the items
		f.packets, f.first = f.packets[:n], 0
	}
	f.packets = append(f.packets, p)
	f.bytes += p.size
}

func (f *flow[T]) pop() packet[T] {
	p := f.packets[f.first]
	f.packets[f.first] = packet[T]{}
	f.first++
	f.bytes -= p.size
	return p
}
