package userlink

import (
	"time"

	"testbed/shaping"
)

// Load is the state of one direction of an access link.
type Load struct {
	Bytes   uint64 // of Ethernet frames, passed on so far
	Waiting uint64 // bytes that wait for the rate
}

// packet is what travels through Links.
type packet[T any] struct {
	from, to, size int
	item           T
}

// line is one direction of a node's access link: a schedule, and not a bucket,
// which forfeits what it could not serve in time.
//
//	departure = max(arrival, departure before) + bytes ÷ rate
//
// whenever it is that somebody looks. Peers with packets waiting take turns, by
// deficit round robin (Shreedhar and Varghese 1995).
type line[T any] struct {
	rate  shaping.Rate // zero: unlimited
	limit int          // bytes that may wait for each peer

	busy    bool
	sending packet[T]
	due     time.Duration // when all of it is sent; if not busy, the last departure
	flows   []flow[T]     // by peer; made when the first packet waits
	turns   []int         // peers with packets waiting, whose turn is next first
	load    Load
}

// flow is what waits for a line from, or for, one peer.
type flow[T any] struct {
	packets []packet[T]
	first   int // of packets, that is still there
	bytes   int
	deficit int // bytes that it may send in this turn
}

// offer takes a packet in at a time, of or for a peer among that many nodes. It
// is refused if too much waits already.
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

// depart takes out the packet that has been sent, and begins with the next.
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

// next takes out the packet whose turn it is.
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
		clear(f.packets[n:]) // lets go of the items
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
