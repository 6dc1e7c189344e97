package shaping

import "time"

// Allowances for the stall of a healthy exchange: as many round trips as QUIC
// needs for several losses in a row, and as many full queues as may form one
// after the other.
const (
	patientTrips  = 8
	patientQueues = 4
)

// Patience is how long a healthy exchange between any two nodes may stall:
// several of the slowest round trips, each with full queues all the way. It is
// real time, and zero if nothing is delayed or limited.
func (p *Plan) Patience() (longest time.Duration) {
	for i := range p.Nodes {
		for j := range i {
			there, back := p.way(i, j), p.way(j, i)
			longest = max(longest, there+back)
		}
	}
	return longest
}

// way is the part of Patience of one direction.
func (p *Plan) way(from, to int) time.Duration {
	path, a, b := p.Paths[from][to], p.Nodes[from], p.Nodes[to]
	if path.Cut || path.Refused {
		return 0
	}
	queues := a.drain(a.RateUp) + b.drain(b.RateDown)
	if path.Rate > 0 {
		queues += a.drain(path.Rate)
	}
	return patientTrips*time.Duration(path.Slowest()) + patientQueues*queues
}

// drain is how long a full queue takes to empty at a rate.
func (n NodePlan) drain(r Rate) time.Duration {
	if r <= 0 {
		return 0
	}
	return r.Sending(n.QueueBytes(r) + FrameSize)
}
