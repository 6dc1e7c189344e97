package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"testbed/shaping"
)

func nearly(got, want, within time.Duration) bool { return got >= want-within && got <= want+within }

// TestBurstDelay compares with bursts that are drawn, and with what is known of two
// packets.
func TestBurstDelay(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range []burst{
		{10_000_000, shaping.Uniform, 1, 0},
		{10_000_000, shaping.Uniform, 36, 120 * time.Microsecond},
		{10_000_000, shaping.Normal, 200, 60 * time.Microsecond},
		{10_000_000, shaping.Pareto, 12, time.Millisecond},
	} {
		table, sum := s.distribution.Table(), 0.0
		const bursts = 20_000
		for range bursts {
			last := math.Inf(-1)
			for k := range s.packets {
				drawn := float64(table[rng.IntN(len(table))]) / shaping.JitterScale * float64(s.jitter)
				last = max(last, drawn-float64(k)*float64(s.spacing))
			}
			sum += last
		}
		if got, want := s.meanDelay(), time.Duration(sum/bursts); !nearly(got, want, 300*time.Microsecond) {
			t.Errorf("%+v: %v, drawn %v", s, got, want)
		}
	}
	if got := (burst{10_000_000, shaping.Uniform, 2, 0}).meanDelay(); !nearly(got, 10*time.Millisecond/3, 50*time.Microsecond) {
		t.Errorf("the later of two packets of ±10 ms is %v late, want a third", got)
	}
}
