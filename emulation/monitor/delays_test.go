//go:build linux

package monitor

import (
	"strings"
	"testing"
	"time"

	"testbed/allreduce"
	"testbed/shaping/fidelity"
)

// TestDecisionsForWantOfAProcessor: a run is not valid that leaves a worker out whose inner
// steps were late because of the machine, in however few of its rounds.
func TestDecisionsForWantOfAProcessor(t *testing.T) {
	const rounds = 200 // so that no percentile shows it
	type late struct {
		round          int
		timers, waited time.Duration
	}
	for name, test := range map[string]struct {
		late    []late // of w3; of all others 1 ms in each round
		out     int    // the round in which w3 is left out; 0: never
		evicted bool
		verdict fidelity.Level
		says    string
	}{
		"a straggler by plan":                 {nil, 5, false, fidelity.Valid, ""},
		"one that waited":                     {[]late{{5, 0, 300 * ms}}, 5, false, fidelity.Suspect, "w3 was left out as late in round 5 after CPU contention had delayed its inner steps by 300ms"},
		"one whose timers fired late":         {[]late{{5, 300 * ms, 0}}, 5, false, fidelity.Suspect, "w3 was left out as late in round 5"},
		"one that was evicted":                {[]late{{5, 200 * ms, 100 * ms}}, 5, true, fidelity.Suspect, "w3 was evicted as a straggler in round 5"},
		"one still at an earlier round":       {[]late{{4, 0, 300 * ms}}, 5, false, fidelity.Suspect, "w3 was left out as late in round 5"},
		"one that waited in another round":    {[]late{{7, 0, 300 * ms}}, 5, false, fidelity.Valid, ""},
		"one that waited, and nobody decided": {[]late{{5, 0, 300 * ms}}, 0, false, fidelity.Valid, ""},
		"the half of a round, each time": {func() (all []late) {
			for round := range rounds {
				all = append(all, late{round + 1, 0, 500 * ms})
			}
			return all
		}(), 0, false, fidelity.Suspect, "waiting for a processor lengthened inner steps by 50 % of a round"},
	} {
		m := New(2, allreduce.Ring)
		at := 100 * time.Hour
		m.Begin(Sample{At: at})
		for round := 1; round <= rounds; round++ {
			m.Timer("w1", round, ms)
			if round == test.out {
				m.LeftOut("w3", round, test.evicted, at+time.Second) // before it tells
			}
			before := len(m.delays)
			for _, l := range test.late {
				if l.round == round {
					m.Timer("w3", round, l.timers/2)
					m.Timer("w3", round, l.timers/2)
					m.Waited("w3", round, l.waited)
				}
			}
			if len(m.delays) == before && round != test.out {
				m.Timer("w3", round, ms)
			}
			at += time.Second
			m.EndRound(round, 4, Sample{At: at})
		}
		r := m.Conclude(Sample{At: at}, nil, 0)
		if said := strings.Join(r.Reasons, "; "); r.Verdict.Verdict != test.verdict || !strings.Contains(said, test.says) {
			t.Errorf("%s: %s (%s), want %s with %q", name, r.Verdict.Verdict, said, test.verdict, test.says)
		}
		if round := r.Rounds[4]; test.out > 0 && (round.Verdict.Verdict != fidelity.Valid) != (test.verdict != fidelity.Valid) {
			t.Errorf("%s: the round itself: %+v", name, round)
		}
	}
}
