package probe

import (
	"slices"
	"testing"
	"time"
)

// TestMergeComparesClocks: of a pair between hosts its receiver's prober saw the probes
// and its sender's the echoes; what the clocks differ by is in no delay.
func TestMergeComparesClocks(t *testing.T) {
	const hour, delay = time.Hour, 7 * milli
	host := func(node int) int { return node } // each on its own
	// The wall clock of host 1 is a minute ahead, and its steady one an hour.
	seen := []Seen{
		{Wall: 5 * hour, Pairs: []Saw{{RTTs: []time.Duration{14 * milli}}, {Delays: []time.Duration{delay - time.Minute}, Rate: 3, Lost: 1}}},
		{Wall: 4*hour + time.Minute, Pairs: []Saw{{Delays: []time.Duration{delay + time.Minute}, Rate: 2}, {RTTs: []time.Duration{15 * milli}}}},
	}
	saw := Merge([]Pair{{0, 1}, {1, 0}}, seen, host, func(host, other int) (time.Duration, time.Duration) {
		return time.Duration(host-other) * hour, time.Duration(1+host) * time.Microsecond
	})
	for k, want := range []Saw{
		{Delays: []time.Duration{delay}, RTTs: []time.Duration{14 * milli}, Rate: 2, Clock: 2 * time.Microsecond},
		{Delays: []time.Duration{delay}, RTTs: []time.Duration{15 * milli}, Rate: 3, Lost: 1, Clock: time.Microsecond},
	} {
		got := saw[k]
		if !slices.Equal(got.Delays, want.Delays) || !slices.Equal(got.RTTs, want.RTTs) || got.Rate != want.Rate || got.Lost != want.Lost || got.Clock != want.Clock {
			t.Errorf("pair %d: %+v, want %+v", k, got, want)
		}
	}
}
