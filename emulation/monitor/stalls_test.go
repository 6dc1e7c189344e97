//go:build linux

package monitor

import (
	"strings"
	"testing"
	"time"

	"testbed/allreduce"
	"testbed/shaping/fidelity"
)

// TestStallsAreNamed: a process that stalls without a pause in the scenario is named, with
// its share of the round.
func TestStallsAreNamed(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		stall, pause [2]time.Duration // from and until, after the beginning
		round        int              // whose it is; 0: nobody's
		verdict      fidelity.Level
	}{
		"frozen for a second":          {[2]time.Duration{1500 * ms, 2500 * ms}, [2]time.Duration{}, 1, fidelity.Suspect},
		"a little":                     {[2]time.Duration{2500 * ms, 2530 * ms}, [2]time.Duration{}, 2, fidelity.Valid},
		"over the end of a round":      {[2]time.Duration{1900 * ms, 2900 * ms}, [2]time.Duration{}, 2, fidelity.Suspect},
		"paused by the scenario":       {[2]time.Duration{2100 * ms, 2910 * ms}, [2]time.Duration{2100 * ms, 2900 * ms}, 0, fidelity.Valid},
		"paused, and frozen besides":   {[2]time.Duration{2100 * ms, 3900 * ms}, [2]time.Duration{2100 * ms, 2900 * ms}, 2, fidelity.Suspect},
		"after the end":                {[2]time.Duration{9000 * ms, 9900 * ms}, [2]time.Duration{}, 0, fidelity.Valid},
		"frozen while it has to begin": {[2]time.Duration{-5000 * ms, 300 * ms}, [2]time.Duration{}, 1, fidelity.Suspect},
	} {
		m := New(2, allreduce.Ring)
		at := 100 * time.Hour
		m.Begin(Sample{At: at})
		for k, ends := range []time.Duration{2 * second, 4 * second, 6 * second, 8 * second} {
			m.EndRound(k+1, 2, Sample{At: at + ends})
		}
		m.Paused("w1", at+test.pause[0], at+test.pause[1])
		m.Stalled("w1", at+test.stall[1], test.stall[1]-test.stall[0])
		m.Ended(at + 8*second)
		r := m.Conclude(Sample{At: at + 10*second}, nil, 0)
		if r.Verdict.Verdict != test.verdict || (test.verdict != fidelity.Valid) != strings.Contains(strings.Join(r.Reasons, "; "), "w1 stalled for") {
			t.Errorf("%s: %+v, want %s", name, r.Verdict, test.verdict)
		}
		most, round := time.Duration(0), 0
		for _, of := range r.Rounds {
			if of.Measured.Stall > most {
				most, round = of.Measured.Stall, of.Round
			}
		}
		if round != test.round || (round > 0) != (r.Measured.StallOf == "w1") {
			t.Errorf("%s: it is in round %d, want %d; of the run: %v of %q", name, round, test.round, r.Measured.Stall, r.Measured.StallOf)
		}
	}
}

func TestQuantilesErrUpwards(t *testing.T) {
	for n, want := range map[int]time.Duration{1: 1, 2: 2, 10: 10, 99: 99, 100: 99, 101: 100, 1000: 990} {
		var d []time.Duration
		for k := range n {
			d = append(d, time.Duration(n-k))
		}
		if got := quantile(d, 0.99); got != want {
			t.Errorf("the 99th percentile of 1 to %d is %d, want %d", n, got, want)
		}
	}
	if quantile([]time.Duration{}, 0.99) != 0 {
		t.Error("nothing has a percentile")
	}
}
