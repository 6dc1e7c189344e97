package tuner

import (
	"testing"
	"time"

	"testbed/allreduce"
)

// path is a path that a link could find itself on, as the tuner sees it: all
// connections have ended their slow starts and their windows stay.
type path struct {
	rate   float64       // bytes per second
	rtt    time.Duration // of a packet alone, at the least
	jitter time.Duration // most of that comes to most round trips
	early  time.Duration // by which the shortest round trip ever was shorter
	window uint64        // bytes, of each connection
	loss   float64       // share of packets
	busy   time.Duration // round trips lengthened by a busy machine, some of them
	idle   bool
}

// connections plays n round trips and returns how many there are then.
func (p path) connections(n int) int {
	const packet = allreduce.PacketSize
	var t Tuner
	var bytes, lost float64
	connections := 1
	for i := range n {
		window := float64(p.window) * float64(connections)
		queue := max(0, time.Duration(window/p.rate*1e9)-p.rtt)
		rtt := p.rtt + queue + p.jitter*3/4 + p.busy*time.Duration(i%2)
		sent := min(window/rtt.Seconds(), p.rate) * rtt.Seconds()
		bytes += sent
		lost += sent / packet * p.loss
		// One in four times a short round trip is among those looked at.
		lowest := p.rtt + queue + p.jitter/2
		if i%4 == 0 {
			lowest = p.rtt + queue + p.jitter/8
		}
		connections = t.Next(Sample{
			Connections: connections, AppLimited: p.idle, Elapsed: rtt,
			BytesSent: uint64(bytes), PacketsLost: uint64(lost), CongestionWindow: uint64(window),
			SmoothedRTT: rtt, MinRTT: p.rtt - p.early, LowestRTT: lowest, HighestRTT: p.rtt + queue + p.jitter + p.busy*time.Duration(i%2),
		})
	}
	return connections
}

func TestTunerOnPaths(t *testing.T) {
	const ms = time.Millisecond
	const mbit100 = 100e6 / 8
	for _, test := range []struct {
		name     string
		path     path
		min, max int
	}{
		{"stuck", path{rate: mbit100, rtt: 100 * ms, window: 100_000}, 16, 16},
		{"stuck by jitter of 5 ms", path{rate: mbit100, rtt: 30 * ms, jitter: 20 * ms, window: 60_000}, 4, 16},
		{"stuck by jitter of 10 ms", path{rate: mbit100, rtt: 80 * ms, jitter: 40 * ms, window: 100_000}, 8, 16},
		{"stuck by jitter, with an early short round trip", path{rate: mbit100, rtt: 40 * ms, jitter: 12 * ms, early: 8 * ms, window: 200_000}, 4, 8},
		{"nearly full, with jitter", path{rate: mbit100, rtt: 80 * ms, jitter: 40 * ms, window: 1_000_000}, 1, 4},
		{"full", path{rate: mbit100, rtt: 100 * ms, window: 1_450_000}, 1, 1},
		{"full and short", path{rate: mbit100, rtt: ms, window: 300_000}, 1, 1},
		{"full, with jitter", path{rate: mbit100, rtt: 80 * ms, jitter: 20 * ms, window: 1_400_000}, 1, 1},
		{"full, on a busy machine", path{rate: mbit100, rtt: 40 * ms, busy: 20 * ms, window: 500_000}, 1, 4},
		{"lossy", path{rate: mbit100, rtt: 100 * ms, window: 77_000, loss: 0.001}, 16, 32},
		{"very lossy", path{rate: mbit100, rtt: 100 * ms, window: 24_000, loss: 0.01}, 32, 32},
		{"lossy, with jitter", path{rate: mbit100, rtt: 80 * ms, jitter: 40 * ms, window: 77_000, loss: 0.001}, 16, 32},
		{"idle", path{rate: mbit100, rtt: 100 * ms, window: 100_000, idle: true}, 1, 1},
	} {
		if got := test.path.connections(100); got < test.min || got > test.max {
			t.Errorf("%s: %d connections, want %d to %d", test.name, got, test.min, test.max)
		}
	}
}

// TestTunerAfterAPause: what was sent while nobody looked is no rate.
func TestTunerAfterAPause(t *testing.T) {
	const rtt = 50 * time.Millisecond
	s := Sample{Connections: 1, Elapsed: rtt, CongestionWindow: 80_000, SmoothedRTT: rtt, MinRTT: rtt, LowestRTT: rtt, HighestRTT: rtt}
	var tuner Tuner
	for range 10 {
		s.BytesSent += 1_000_000 // between two reductions
		tuner.Resume(s)
		s.BytesSent += 10_000 // the source is slow
		if n := tuner.Next(s); n != 1 {
			t.Fatalf("%d connections", n)
		}
	}
}

func TestTuner(t *testing.T) {
	const far = 100 * time.Millisecond
	stuck := Sample{Connections: 1, Elapsed: far, CongestionWindow: 77_000, SmoothedRTT: far + far/20, MinRTT: far, LowestRTT: far + far/50, HighestRTT: far + far*3/100}
	for name, test := range map[string]struct {
		edit func(s *Sample, i uint64)
		want int
	}{
		"stuck":               {func(s *Sample, i uint64) {}, 4},
		"many already":        {func(s *Sample, i uint64) { s.Connections = MaxTuned - 1 }, MaxTuned},
		"enough":              {func(s *Sample, i uint64) { s.Connections = MaxTuned + 1 }, MaxTuned + 1},
		"application-limited": {func(s *Sample, i uint64) { s.AppLimited = true }, 1},
		"no news":             {func(s *Sample, i uint64) { s.LowestRTT = 0 }, 1},
		"a queue":             {func(s *Sample, i uint64) { s.SmoothedRTT, s.LowestRTT, s.HighestRTT = far*5/4, far*6/5, far*13/10 }, 1},
		"jitter":              {func(s *Sample, i uint64) { s.SmoothedRTT = far * 5 / 4 }, 4},
		"rare dips": {func(s *Sample, i uint64) {
			s.SmoothedRTT, s.LowestRTT, s.HighestRTT = far*5/4, far+far/4*time.Duration((i+1)%2), far*13/10
		}, 4},
		"mostly queue": {func(s *Sample, i uint64) { s.SmoothedRTT, s.BytesSent = far*2, s.BytesSent*3/5 }, 1},
		"short": {func(s *Sample, i uint64) {
			s.SmoothedRTT, s.MinRTT, s.LowestRTT, s.Elapsed = far/100, far/100, far/100, far/100
		}, 1},
		"doubling":    {func(s *Sample, i uint64) { s.CongestionWindow, s.BytesSent = 50_000<<i, 50_000<<i }, 1},
		"rather slow": {func(s *Sample, i uint64) { s.BytesSent = s.BytesSent * 66 / 100 }, 1},
		"a moment's jitter": {func(s *Sample, i uint64) {
			s.SmoothedRTT, s.AppLimited = far*5/4, i <= 1
		}, 1},
		"slow source": {func(s *Sample, i uint64) { s.BytesSent /= 2 }, 1},
	} {
		var tuner Tuner
		got := 0
		for i := range uint64(minJitterySamples + 1) {
			s := stuck
			s.BytesSent = 75_000 * (i + 1)
			test.edit(&s, i)
			got = max(got, tuner.Next(s))
		}
		if got != test.want {
			t.Errorf("%s: %d connections, want %d", name, got, test.want)
		}
	}
}

// TestTunerEndsWhereNothingIsGained: more connections, the same rate, and no
// losses that would explain it, or losses and round trips of a full path.
func TestTunerEndsWhereNothingIsGained(t *testing.T) {
	const rtt = 50 * time.Millisecond
	for _, test := range []struct {
		gain, loss uint64
		mean       time.Duration
		want       int
	}{{1, 0, rtt, 4}, {1, 1, rtt, MaxTuned}, {2, 0, rtt, MaxTuned}, {1, 1, rtt * 5 / 4, 4}, {2, 1, rtt * 5 / 4, MaxTuned}} {
		var tuner Tuner
		bytes, rate, n := uint64(0), uint64(40_000), 1
		for i := range uint64(40) {
			bytes += rate
			was := n
			n = tuner.Next(Sample{
				Connections: n, Elapsed: rtt, BytesSent: bytes, PacketsLost: test.loss * i, CongestionWindow: rate,
				SmoothedRTT: test.mean, MinRTT: rtt, LowestRTT: rtt, HighestRTT: rtt,
			})
			if n > was {
				rate *= test.gain
			}
		}
		if n != test.want {
			t.Errorf("%+v: %d connections", test, n)
		}
	}
}
