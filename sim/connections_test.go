package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/allreduce"
	"testbed/allreduce/tuner"
	"testbed/internal/rapidtest"
	"testbed/shaping"
)

// lossyPair is two workers with losses on the way from the first to the second.
func lossyPair(t testing.TB, rate shaping.Rate, oneWay time.Duration, loss float64) *links {
	n := alike(t, 2, rate, oneWay)
	n.plan.Paths[1][2].Loss = shaping.Probability(loss)
	return n
}

// link emulates a link round trip by round trip, as quicring drives the tuner:
// every connection is a sawtooth of Reno's with quic-go's backoff, packets are
// lost at random, and a connection that the tuner asks for is dialled for a round
// trip. It shares nothing with the model but the tuner.
type link struct {
	rate float64 // bytes per second; 0 is unlimited
	rtt  time.Duration
	loss float64
}

// play returns the number of connections, and the bytes per second of the second
// half of so many round trips.
func (l link) play(trips int, rng *rand.Rand) (connections int, rate float64) {
	var t tuner.Tuner
	windows := []float64{32} // packets
	wanted := 1
	var s tuner.Sample
	t.Resume(s)
	var sent, seconds float64
	for trip := range trips {
		total := 0.0
		for _, w := range windows {
			total += w
		}
		elapsed := l.rtt
		if l.rate > 0 {
			elapsed = max(elapsed, time.Duration(total*streamData/l.rate*1e9))
		}
		for k := range windows {
			lost := 0
			for range int(windows[k]) {
				if rng.Float64() < l.loss {
					lost++
				}
			}
			s.PacketsLost += uint64(lost)
			if windows[k]++; lost > 0 { // one backoff in a round trip
				windows[k] = max(2, 0.7*windows[k])
			}
		}
		if trip >= trips/2 {
			sent, seconds = sent+total*streamData, seconds+elapsed.Seconds()
		}
		s.Connections, s.Elapsed, s.BytesSent = len(windows), elapsed, s.BytesSent+uint64(total*streamData)
		s.CongestionWindow = uint64(total * streamData)
		s.SmoothedRTT, s.MinRTT, s.LowestRTT, s.HighestRTT = elapsed, l.rtt, elapsed, elapsed
		n := t.Next(s)
		if wanted <= len(windows) { // none is being dialled
			wanted = n
		} else {
			for len(windows) < wanted {
				windows = append(windows, 32)
			}
		}
	}
	return len(windows), sent / seconds
}

// TestTunedLinks compares the predicted rate of lossy paths with that of a link
// that the tuner tunes as it measures.
func TestTunedLinks(t *testing.T) {
	for _, c := range []struct {
		rate   shaping.Rate
		oneWay time.Duration
		loss   float64
	}{
		{100e6, 50 * ms, 0.01}, {100e6, 50 * ms, 0.001}, {100e6, 10 * ms, 0.01}, {1e9, 50 * ms, 0.01}, {1e9, 20 * ms, 0.003},
		{100e6, 100 * ms, 0.02}, {0, 30 * ms, 0.01}, {1e9, ms / 2, 0.02}, {20e6, 50 * ms, 0.01},
	} {
		n := lossyPair(t, c.rate, c.oneWay, c.loss)
		connections, want := link{float64(goodput(c.rate)), 2 * c.oneWay, c.loss}.play(1000, rand.New(rand.NewPCG(1, 2)))
		if got := float64(n.path(1, 2, 0)); got < 0.75*want || got > 1.25*want {
			t.Errorf("%v, %v one way, loss %v: %.0f bytes/s over %d connections, predicted %.0f", c.rate, c.oneWay, c.loss, want, connections, got)
		}
	}
}

// TestTunedDecisions: the model ends with what the tuner says of its samples when
// it is driven as quicring does it, where each connection is there a round trip
// after it was asked for.
func TestTunedDecisions(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		p := steadyPath{
			rate:   byteRate(rapid.Int64Range(0, 1e9).Draw(t, "rate")),
			loss:   math.Exp(rapid.Float64Range(math.Log(1e-4), math.Log(0.2)).Draw(t, "log loss")),
			rtt:    time.Duration(rapid.Int64Range(int64(ms)/10, int64(300*ms)).Draw(t, "rtt")),
			enough: tuner.MaxTuned,
		}
		p.window = windowPackets / math.Sqrt(p.loss) * streamData
		jitter := time.Duration(rapid.Float64Range(0, 0.5).Draw(t, "jitter") * float64(p.rtt))
		p.minRTT, p.maxRTT = p.rtt-jitter, p.rtt+jitter
		var tuned tuner.Tuner
		s, wanted := tuner.Sample{Connections: 1}, 1
		tuned.Resume(s)
		for range 2 * tunedTrips {
			before := s.Connections
			s = p.sample(s)
			n := tuned.Next(s)
			if n != before && n != tuner.FirstStep && n != 2*before && n != tuner.MaxTuned {
				t.Fatalf("from %d to %d connections", before, n)
			}
			if wanted == before {
				wanted = n
			} else {
				s.Connections = wanted
			}
		}
		if got := p.connections(); got != s.Connections {
			t.Fatalf("%+v: %d connections, the tuner ends with %d", p, got, s.Connections)
		}
	})
}

// TestTunedBounds: no lossy path is predicted faster than over as many
// connections as the tuner ever has, and a short one goes over a single one.
func TestTunedBounds(t *testing.T) {
	for _, oneWay := range []time.Duration{ms / 4, ms, 5 * ms, 50 * ms, 300 * ms} {
		for _, loss := range []float64{0.0005, 0.01, 0.1, 0.5} {
			t.Run(fmt.Sprint(oneWay, loss), func(t *testing.T) {
				n := lossyPair(t, 10e9, oneWay, loss)
				got := n.path(1, 2, 0)
				if most := n.path(1, 2, tuner.MaxTuned); got > most {
					t.Errorf("%d bytes/s, and %d over %d connections", got, most, tuner.MaxTuned)
				}
				if one := n.path(1, 2, 1); 2*oneWay < allreduce.ShortRTT && got != one {
					t.Errorf("%d bytes/s on a short path, and %d over one connection", got, one)
				}
			})
		}
	}
}
