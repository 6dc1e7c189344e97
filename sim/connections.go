package sim

import (
	"time"

	"testbed/allreduce/tuner"
)

// steadyPath is a path between two nodes once the connections' congestion
// windows no longer grow.
type steadyPath struct {
	rate   byteRate // of the access links
	loss   float64
	window float64 // bytes, of each connection
	rtt    time.Duration
	minRTT time.Duration // with the luckiest jitter,
	maxRTT time.Duration // and the unluckiest
	enough int           // connections
}

// steady is the path between two nodes if each connection keeps a window of so
// many bytes in flight. Callers ask for at most enough connections.
func (n *links) steady(from, to int, window float64, enough int) steadyPath {
	there, back := n.plan.Paths[from][to], n.plan.Paths[to][from]
	return steadyPath{
		rate: n.access(from, to), loss: float64(there.MeanLoss()), window: window, enough: enough,
		rtt: n.rtt(from, to), minRTT: n.minRTT(from, to), maxRTT: time.Duration(there.Slowest() + back.Slowest()),
	}
}

// tuned is the number of connections that the tuner chooses for a path.
func (n *links) tuned(p steadyPath) int {
	known, ok := n.tunedCounts[p]
	if !ok {
		known = p.connections()
		n.tunedCounts[p] = known
	}
	return known
}

// tunedTrips is the number of round trips after which a link has all
// connections that it wants: the tuner takes at most five for each step.
const tunedTrips = 64

// connections is the number that the real tuner chooses, given the measurements
// of the path's connections.
func (p steadyPath) connections() int {
	var t tuner.Tuner
	s := tuner.Sample{Connections: 1}
	for range tunedTrips {
		s = p.sample(s)
		if s.Connections = t.Next(s); s.Connections >= p.enough {
			break
		}
	}
	return s.Connections
}

// sample is the tuner's measurement in the round trip after the last sample,
// for connections that always have something to send. Data beyond the path's
// capacity waits in its queue.
func (p steadyPath) sample(last tuner.Sample) tuner.Sample {
	s := last
	window := p.window * float64(s.Connections)
	queue := max(0, p.rate.serialisation(byteCount(window))-p.rtt)
	s.Elapsed = p.rtt + queue
	s.SmoothedRTT, s.LowestRTT, s.HighestRTT, s.MinRTT = p.rtt+queue, p.minRTT+queue, p.maxRTT+queue, p.minRTT
	s.CongestionWindow = uint64(window)
	s.BytesSent += s.CongestionWindow
	s.PacketsLost = uint64(float64(s.BytesSent) / streamData * p.loss)
	return s
}
