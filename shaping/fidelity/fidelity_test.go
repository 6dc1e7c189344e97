package fidelity_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/shaping/fidelity"
)

const ms = time.Millisecond

func pair(planned, measured time.Duration) fidelity.Measurements {
	return fidelity.Measurements{Pairs: []fidelity.PairRTT{{From: "w0", To: "w1", Planned: planned, Measured: measured}}}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name string
		m    fidelity.Measurements
		want fidelity.Verdict
	}{
		{"nothing to see", fidelity.Measurements{}, fidelity.Verdict{Verdict: "valid", Reasons: []string{}}},
		{"good link", pair(20*ms, 20*ms+300*time.Microsecond), fidelity.Verdict{Verdict: "valid", Reasons: []string{}}},
		{"slow link", pair(20*ms, 23*ms), fidelity.Verdict{Verdict: "suspect", Reasons: []string{"the round trip w0–w1 took 23ms, planned 20ms (limit 22ms)"}}},
		{"other link", pair(20*ms, 40*ms), fidelity.Verdict{Verdict: "invalid", Reasons: []string{"the round trip w0–w1 took 40ms, planned 20ms (limit 30ms)"}}},
		{"no delay", pair(20*ms, 2*ms), fidelity.Verdict{Verdict: "invalid", Reasons: []string{"the round trip w0–w1 took only 2ms, planned 20ms: the link is not as planned"}}},
		{"no echo", pair(20*ms, 0), fidelity.Verdict{Verdict: "invalid", Reasons: []string{"the round trip w0–w1 was not measured: no echo came back"}}},
		{"few drops", fidelity.Measurements{RouterPackets: 100000, UnplannedDrops: 3}, fidelity.Verdict{Verdict: "suspect", Reasons: []string{"3 packets were dropped for lack of room, which no plan asks for (0.003 % of those carried; limit 0.1 %)"}}},
		{"many drops", fidelity.Measurements{RouterPackets: 1000, UnplannedDrops: 30}, fidelity.Verdict{Verdict: "invalid", Reasons: []string{"30 packets were dropped for lack of room, which no plan asks for (2.9 % of those carried; limit 0.1 %)"}}},
		{"the worst counts", fidelity.Measurements{RouterLatenessP99: 20 * ms, TimerLatenessP99: 6 * ms, CPUPressure: 0.5}, fidelity.Verdict{Verdict: "invalid", Reasons: []string{
			"packets left the router late by 20ms in the 99th percentile (limit 10ms)",
			"timers of workers were late by 6ms in the 99th percentile (limit 5ms)",
			"tasks waited for a CPU in 50 % of the run (limit 40 %)",
		}}},
		{"starved", fidelity.Measurements{CPUPressure: 0.9}, fidelity.Verdict{Verdict: "invalid", Reasons: []string{"tasks waited for a CPU in 90 % of the run (limit 80 %)"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, fidelity.Judge(c.m)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWorseMeasurementsNeverImproveTheVerdict: Judge is monotone, except for
// round trips, which can also be too short.
func TestWorseMeasurementsNeverImproveTheVerdict(t *testing.T) {
	rank := map[fidelity.Level]int{fidelity.Valid: 0, fidelity.Suspect: 1, fidelity.Invalid: 2}
	rapid.Check(t, func(t *rapid.T) {
		late := func(name string) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(100*ms)).Draw(t, name))
		}
		m := fidelity.Measurements{
			RouterLatenessP99: late("router"), TimerLatenessP99: late("timer"), RouterPackets: 1e4,
			UnplannedDrops: rapid.Uint64Range(0, 100).Draw(t, "drops"), CPUPressure: rapid.Float64Range(0, 1).Draw(t, "cpu"),
		}
		worse := m
		worse.RouterLatenessP99 += late("more router")
		worse.TimerLatenessP99 += late("more timer")
		worse.UnplannedDrops += rapid.Uint64Range(0, 100).Draw(t, "more drops")
		worse.CPUPressure = rapid.Float64Range(m.CPUPressure, 1).Draw(t, "more cpu")
		before, after := fidelity.Judge(m), fidelity.Judge(worse)
		if rank[after.Verdict] < rank[before.Verdict] {
			t.Errorf("%+v is %v, but %+v is %v", m, before, worse, after)
		}
		if (before.Verdict == fidelity.Valid) != (len(before.Reasons) == 0) {
			t.Errorf("%v with %d reasons", before.Verdict, len(before.Reasons))
		}
	})
}
