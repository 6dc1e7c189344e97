package fidelity_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
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
		{"few drops", fidelity.Measurements{RouterPackets: 100000, UnplannedDrops: 3}, fidelity.Verdict{Verdict: "suspect", Reasons: []string{"full buffers dropped packets against the plan: 3, or 0.003 % of the packets (invalid above 0.1 %)"}}},
		{"many drops", fidelity.Measurements{RouterPackets: 1000, UnplannedDrops: 30}, fidelity.Verdict{Verdict: "invalid", Reasons: []string{"full buffers dropped packets against the plan: 30, or 2.9 % of the packets (invalid above 0.1 %)"}}},
		{"jitter of both ways", fidelity.Measurements{Pairs: []fidelity.PairRTT{{From: "w0", To: "w1", Planned: 20 * ms, Jitter: 8 * ms, Measured: 14 * ms}}}, fidelity.Verdict{Verdict: "valid", Reasons: []string{}}},
		{"the worst counts", fidelity.Measurements{RouterLatenessP99: 20 * ms, TimerLatenessP99: 6 * ms, CPUWait: 0.8}, fidelity.Verdict{Verdict: "invalid", Reasons: []string{
			"packets left the router late by 20ms in the 99th percentile (limit 10ms)",
			"timers of workers fired late by 6ms in the 99th percentile (limit 5ms)",
			"threads of a worker waited for a CPU for 80 % of the time (limit 70 %)",
		}}},
		{"a rare lateness in a long round", fidelity.Measurements{RoundTime: 800 * ms, Hops: 6, Steps: 2, RouterLatenessP99: 20 * ms, TimerLatenessP99: 20 * ms}, fidelity.Verdict{Verdict: "valid", Reasons: []string{}}},
		{"a router that is always late", fidelity.Measurements{RoundTime: 800 * ms, Hops: 6, RouterLatenessP50: 30 * ms, RouterLatenessP99: 60 * ms}, fidelity.Verdict{Verdict: "invalid", Reasons: []string{
			"packets left the router late by 30ms (median) and 60ms (99th percentile), which may lengthen a round with 6 delays in a row by 30 % (limit 20 %)"}}},
		{"late timers", fidelity.Measurements{RoundTime: 200 * ms, Steps: 2, TimerLatenessP50: 2 * ms, TimerLatenessP99: 12 * ms}, fidelity.Verdict{Verdict: "suspect", Reasons: []string{
			"timers of workers fired late by 2ms (median) and 12ms (99th percentile), which may lengthen a round with 2 delays in a row by 8 % (limit 5 %)"}}},
		{"starved", fidelity.Measurements{CPUWait: 1.1}, fidelity.Verdict{Verdict: "invalid", Reasons: []string{"threads of a worker waited for a CPU for 110 % of the time (limit 90 %)"}}},
		{"others wait", fidelity.Measurements{CPUWait: 0.4, CPUPressure: 0.98}, fidelity.Verdict{Verdict: "valid", Reasons: []string{}}},
		{"only the pressure is known", fidelity.Measurements{CPUPressure: 0.95}, fidelity.Verdict{Verdict: "invalid", Reasons: []string{"tasks waited for a CPU in 95 % of the time (limit 90 %)"}}},
		{"a busy link at its rate", fidelity.Measurements{BusyLink: "w1", BusyTime: time.Second, BusyShare: 0.97}, fidelity.Verdict{Verdict: "valid", Reasons: []string{}}},
		{"a busy link that is too slow", fidelity.Measurements{BusyLink: "w1", BusyTime: time.Second, BusyShare: 0.9}, fidelity.Verdict{Verdict: "suspect", Reasons: []string{"w1 sent at 90 % of its rate while packets waited (1s in all): 10 % off (limit 5 %)"}}},
		{"a busy link that is too fast", fidelity.Measurements{BusyLink: "w1", BusyTime: time.Second, BusyShare: 1.5}, fidelity.Verdict{Verdict: "invalid", Reasons: []string{"w1 sent at 150 % of its rate while packets waited (1s in all): 50 % off (limit 20 %)"}}},
		{"a quota that suffices", fidelity.Measurements{CPUQuota: 1.5, Throttled: 0.001}, fidelity.Verdict{Verdict: "valid", Reasons: []string{}}},
		{"a quota that is used up", fidelity.Measurements{CPUQuota: 1.5, Throttled: 0.25}, fidelity.Verdict{Verdict: "invalid", Reasons: []string{
			"the control group used up its CPU quota (processors: 1.5), so its processes were stopped for 25 % of the time (limit 10 %); raise the quota (cpu.max, or the container's limit)",
			"the control group of the programs has a CPU quota (processors: 1.5)"}}},
		{"steps that leave time", fidelity.Measurements{Computing: 0.5}, fidelity.Verdict{Verdict: "valid", Reasons: []string{}}},
		{"steps that leave little", fidelity.Measurements{Computing: 0.6}, fidelity.Verdict{Verdict: "suspect", Reasons: []string{"computing took 60 % of the planned time of inner steps (limit 50 %); give inner steps more time, or train a smaller model"}}},
		{"steps that take longer", fidelity.Measurements{Computing: 1.2}, fidelity.Verdict{Verdict: "invalid", Reasons: []string{"computing took 120 % of the planned time of inner steps (limit 100 %); give inner steps more time, or train a smaller model"}}},
		{"computing that waits a little", fidelity.Measurements{ComputeWait: 0.04}, fidelity.Verdict{Verdict: "valid", Reasons: []string{}}},
		{"computing that waits", fidelity.Measurements{ComputeWait: 0.61}, fidelity.Verdict{Verdict: "suspect", Reasons: []string{"waiting for a processor lengthened inner steps by 61 % of a round (limit 5 %); use fewer workers, or a larger real.dilation"}}},
		{"decisions about workers that waited", fidelity.Measurements{Doubts: []fidelity.Doubt{
			{Worker: "w3", Round: 5, Late: 400 * ms, After: 800 * ms}, {Worker: "w3", Round: 6, Evicted: true, Late: 400 * ms, After: 1600 * ms}, {}, {}, {}}},
			fidelity.Verdict{Verdict: "suspect", Reasons: []string{
				"w3 was left out as late in round 5 after CPU contention had delayed its inner steps by 400ms: 50 % of the round until then (limit 5 %)",
				"w3 was evicted as a straggler in round 6 after CPU contention had delayed its inner steps by 400ms: 25 % of the round until then (limit 5 %)",
				" was left out as late in round 0 after CPU contention had delayed its inner steps by 0s: 0 % of the round until then (limit 5 %)",
				"further decisions about workers that were late because of CPU contention: 2"}}},
		{"an inject that is late for its round", fidelity.Measurements{RoundTime: 500 * ms, InjectLateness: 150 * ms}, fidelity.Verdict{Verdict: "invalid", Reasons: []string{"an inject of links took effect 150ms too late: 30 % of a round (limit 20 %)"}}},
		{"an inject outside of any round", fidelity.Measurements{InjectLateness: 25 * ms}, fidelity.Verdict{Verdict: "suspect", Reasons: []string{"an inject of links took effect 25ms too late (limit 20ms)"}}},
		{"a greedy host without an effect", fidelity.Measurements{Steal: 0.4, BusyLink: "w1", BusyTime: time.Second, BusyShare: 0.99}, fidelity.Verdict{Verdict: "valid", Reasons: []string{}}},
		{"unlike hosts with one", fidelity.Measurements{Processors: []string{"2 × A on a", "4 × A on b"}, BusyLink: "w1", BusyTime: time.Second, BusyShare: 0.9}, fidelity.Verdict{Verdict: "suspect", Reasons: []string{
			"w1 sent at 90 % of its rate while packets waited (1s in all): 10 % off (limit 5 %)", "the hosts have different processors: 2 × A on a, 4 × A on b"}}},
		{"a greedy host with one", fidelity.Measurements{Steal: 0.4, BusyLink: "w1", BusyTime: time.Second, BusyShare: 0.9}, fidelity.Verdict{Verdict: "suspect", Reasons: []string{
			"w1 sent at 90 % of its rate while packets waited (1s in all): 10 % off (limit 5 %)", "the likely cause: the hypervisor took 40 % of the CPU time away (steal)"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, fidelity.Judge(c.m)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		rounds []fidelity.Level
		want   fidelity.Level
	}{
		{nil, fidelity.Valid},
		{[]fidelity.Level{fidelity.Valid, fidelity.Suspect}, fidelity.Valid},
		{[]fidelity.Level{fidelity.Valid, fidelity.Invalid}, fidelity.Suspect},
		{[]fidelity.Level{fidelity.Valid, fidelity.Invalid, fidelity.Invalid}, fidelity.Invalid},
	} {
		if v := fidelity.Run(fidelity.Measurements{}, c.rounds); v.Verdict != c.want {
			t.Errorf("rounds %v make %v, want %v", c.rounds, v, c.want)
		}
	}
}

// TestWorseMeasurementsNeverImproveTheVerdict: Judge is monotone, except for
// round trips, which can also be too short.
func TestWorseMeasurementsNeverImproveTheVerdict(t *testing.T) {
	rank := map[fidelity.Level]int{fidelity.Valid: 0, fidelity.Suspect: 1, fidelity.Invalid: 2}
	rapidtest.Check(t, func(t *rapid.T) {
		late := func(name string) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(100*ms)).Draw(t, name))
		}
		m := fidelity.Measurements{
			RouterLatenessP99: late("router"), TimerLatenessP99: late("timer"), RouterPackets: 1e4,
			RoundTime: late("round"), Hops: 6, Steps: 2, RouterLatenessP50: late("router, median"), CPUWait: rapid.Float64Range(0.01, 2).Draw(t, "wait"),
			UnplannedDrops: rapid.Uint64Range(0, 100).Draw(t, "drops"), CPUPressure: rapid.Float64Range(0, 1).Draw(t, "cpu"),
		}
		worse := m
		worse.RouterLatenessP99 += late("more router")
		worse.RouterLatenessP50 += late("more router, median")
		worse.CPUWait += rapid.Float64Range(0, 2).Draw(t, "more wait")
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
