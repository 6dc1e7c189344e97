//go:build linux

package monitor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/allreduce"
	"testbed/shaping/fidelity"
	"testbed/shaping/userlink"
)

const ms = time.Millisecond

// history is what is seen of a run of three rounds of 1 s, of a ring of four
// workers with two inner steps each. Its fields are what went wrong.
type history struct {
	timers  map[int]time.Duration // by round, how late every timer was
	router  []userlink.Stats      // counts at the ends of the rounds
	busy    map[int]BusyLink      // by round, the worst link
	wait    map[int]time.Duration // by round, that the slowest worker waited for a CPU
	steal   map[int]uint64        // by round, of 100 ticks
	inject  map[int]time.Duration // by round, how late an inject was
	pairs   []fidelity.PairRTT
	failed  []string
	excess  uint64
	overall []BusyLink
}

func (h history) play() Record {
	m := New(2, allreduce.Ring)
	at, machine, waited := 100*time.Hour, Machine{}, time.Duration(0)
	sample := func(round int) Sample {
		s := Sample{At: at, Machine: machine, Waits: map[string]time.Duration{"w0": waited, "w1": waited / 2}}
		if b, ok := h.busy[round]; ok {
			s.Busy = []BusyLink{{"w1", 200 * ms, 1}, b}
		}
		return s
	}
	for _, p := range h.pairs {
		m.Pair(p)
	}
	m.Begin(sample(0))
	for round := 1; round <= 3; round++ {
		for range 8 {
			m.Timer("w0", round, ms+h.timers[round])
		}
		if late, ok := h.inject[round]; ok {
			m.Injected(late)
			m.Injected(late / 2)
		}
		at, waited = at+time.Second, waited+100*ms+h.wait[round]
		machine.Total, machine.Steal = machine.Total+100, machine.Steal+h.steal[round]
		m.EndRound(round, 4, sample(round))
	}
	for _, reason := range h.failed {
		m.Failed(reason)
	}
	var last *userlink.Stats
	for k := range h.router { // its answers come late
		m.Routed(&h.router[k])
		last = &h.router[k]
	}
	s := sample(0)
	s.Busy = h.overall
	return m.Conclude(s, last, h.excess)
}

// counts are a router's at the ends of the rounds, where that many packets were
// lost for lack of room in each, and p99 is how late the slowest were.
func counts(lost [3]uint64, p99 [3]time.Duration) (all []userlink.Stats) {
	var total userlink.Stats
	for k := range lost {
		total.Packets, total.Overflow = total.Packets+10_000, total.Overflow+lost[k]
		total.Recent = userlink.Lateness{LatenessP50: p99[k] / 10, LatenessP99: p99[k], LatenessMax: 2 * p99[k]}
		total.Lateness = userlink.Lateness{LatenessP50: slices.Max(p99[:]) / 10, LatenessP99: slices.Max(p99[:])}
		all = append(all, total)
	}
	return all
}

func TestVerdicts(t *testing.T) {
	const valid, suspect, invalid = fidelity.Valid, fidelity.Suspect, fidelity.Invalid
	for name, test := range map[string]struct {
		history
		rounds [3]fidelity.Level
		run    fidelity.Level
		reason string // part of one of the run's
	}{
		"nothing": {history{}, [3]fidelity.Level{valid, valid, valid}, valid, ""},
		"late timers in one round": {
			history{timers: map[int]time.Duration{2: 100 * ms}},
			[3]fidelity.Level{valid, invalid, valid}, suspect, "invalid rounds: 1 of 3",
		},
		"late timers in most rounds": {
			history{timers: map[int]time.Duration{1: 20 * ms, 2: 100 * ms, 3: 100 * ms}},
			[3]fidelity.Level{suspect, invalid, invalid}, invalid, "timers of workers fired late by 101ms (median)",
		},
		"a late router": {
			history{router: counts([3]uint64{}, [3]time.Duration{ms, 50 * ms, 200 * ms})},
			[3]fidelity.Level{valid, suspect, invalid}, invalid, "packets left the router late by 20ms (median) and 200ms",
		},
		"a few drops": {
			history{router: counts([3]uint64{0, 5, 0}, [3]time.Duration{})},
			[3]fidelity.Level{valid, suspect, valid}, suspect, "full buffers dropped packets against the plan: 5",
		},
		"many drops in one round": {
			history{router: counts([3]uint64{0, 25, 0}, [3]time.Duration{})},
			[3]fidelity.Level{valid, invalid, valid}, suspect, "full buffers dropped packets against the plan: 25",
		},
		"drops of the kernel's queues are of no round": {
			history{excess: 7}, [3]fidelity.Level{valid, valid, valid}, invalid, "full buffers dropped packets against the plan: 7",
		},
		"the host takes the processor away, and timers are late": {
			history{steal: map[int]uint64{1: 10, 2: 30}, timers: map[int]time.Duration{1: 20 * ms, 2: 100 * ms, 3: 100 * ms}},
			[3]fidelity.Level{suspect, invalid, invalid}, invalid, "the hypervisor took 13 % of the CPU time away",
		},
		"the host takes the processor away, and all is right": {
			history{steal: map[int]uint64{1: 10, 2: 30}}, [3]fidelity.Level{valid, valid, valid}, valid, "",
		},
		"a worker waits for a processor": {
			history{wait: map[int]time.Duration{2: 650 * ms, 3: 900 * ms}},
			[3]fidelity.Level{valid, suspect, invalid}, suspect, "waited for a CPU for 75 % of the time",
		},
		"a busy link below its rate": {
			history{busy: map[int]BusyLink{1: {"w2", 300 * ms, 0.9}, 2: {"w2", 300 * ms, 0.5}}, overall: []BusyLink{{"w2", 600 * ms, 0.7}}},
			[3]fidelity.Level{suspect, invalid, valid}, invalid, "w2 sent at 70 % of its rate",
		},
		"a link that was hardly busy": {
			history{busy: map[int]BusyLink{1: {"w2", 50 * ms, 0.5}}}, [3]fidelity.Level{valid, valid, valid}, valid, "",
		},
		"a late inject": {
			history{inject: map[int]time.Duration{3: 100 * ms}},
			[3]fidelity.Level{valid, valid, suspect}, suspect, "an inject of links took effect 100ms too late",
		},
		"a wrong link": {
			history{pairs: []fidelity.PairRTT{{From: "w0", To: "w1", Planned: 20 * ms, Measured: 2 * ms}}},
			[3]fidelity.Level{valid, valid, valid}, invalid, "the round trip w0–w1 took only 2ms, planned 20ms",
		},
		"a process that failed unexpectedly": {
			history{failed: []string{"worker w2 died unexpectedly: exit status 2"}},
			[3]fidelity.Level{valid, valid, valid}, invalid, "worker w2 died unexpectedly: exit status 2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := test.play()
			for k, want := range test.rounds {
				if got := r.Rounds[k].Verdict; got.Verdict != want || (want == valid) != (len(got.Reasons) == 0) {
					t.Errorf("round %d is %s, want %s: %q", k+1, got.Verdict, want, got.Reasons)
				}
			}
			f := r.Verdict
			if f.Verdict != test.run || f.Reasons == nil {
				t.Errorf("the run is %s, want %s: %q", f.Verdict, test.run, f.Reasons)
			}
			if test.reason == "" && len(f.Reasons) > 0 || !strings.Contains(strings.Join(f.Reasons, "\n"), test.reason) {
				t.Errorf("the reasons are %q, want one with %q", f.Reasons, test.reason)
			}
		})
	}
}

// TestRoutedSplitsTheRouterByRounds: each round has what the router did since
// the one before, although answers come late.
func TestRoutedSplitsTheRouterByRounds(t *testing.T) {
	m := New(2, allreduce.Ring)
	at := 100 * time.Hour
	m.Begin(Sample{At: at})
	m.EndRound(1, 4, Sample{At: at + time.Second})
	m.EndRound(2, 3, Sample{At: at + 3*time.Second})
	m.Routed(&userlink.Stats{Packets: 100, Overflow: 2, Recent: userlink.Lateness{LatenessP50: 1 * ms, LatenessP99: 4 * ms, LatenessMax: 5 * ms}})
	m.Routed(&userlink.Stats{Packets: 150, Overflow: 2, SendDrops: 1, Recent: userlink.Lateness{LatenessP99: 2 * ms, LatenessMax: 3 * ms}})
	m.Routed(&userlink.Stats{Packets: 999}) // the last count is of no round
	r := m.Conclude(Sample{At: at + 3*time.Second}, &userlink.Stats{Packets: 160, Overflow: 3, Lateness: userlink.Lateness{LatenessP99: ms}}, 4)
	one, two := r.Rounds[0], r.Rounds[1]
	if one.Measured.RouterPackets != 100 || one.Measured.UnplannedDrops != 2 || one.Measured.Hops != 6 || one.Measured.RoundTime != time.Second ||
		one.Measured.RouterLatenessP50 != 1*ms || one.Measured.RouterLatenessP99 != 4*ms || one.RouterLatenessMax != 5*ms {
		t.Errorf("round 1: %+v", one)
	}
	if two.Measured.RouterPackets != 50 || two.Measured.UnplannedDrops != 1 || two.Measured.Hops != 4 || two.Measured.RoundTime != 2*time.Second ||
		two.Measured.RouterLatenessP99 != 2*ms || two.RouterLatenessMax != 3*ms {
		t.Errorf("round 2: %+v", two)
	}
	if all := r.Measured; all.UnplannedDrops != 7 || all.RouterPackets != 160 || all.Hops != 6 || all.RoundTime != 2*time.Second {
		t.Errorf("run: %+v", all)
	}
}

// TestTheCauseComesFirst: the failure of a process is the first reason, before what
// was measured.
func TestTheCauseComesFirst(t *testing.T) {
	m := New(2, allreduce.Ring)
	m.Begin(Sample{})
	m.Timer("w1", 1, time.Hour) // late
	m.Failed("w1 died unexpectedly")
	if v := m.Conclude(Sample{At: time.Second}, nil, 0).Verdict; len(v.Reasons) < 2 || v.Reasons[0] != "w1 died unexpectedly" {
		t.Errorf("%q", v.Reasons)
	}
}

// TestNodesOfRounds: the use of a node counts from the beginning of the run.
func TestNodesOfRounds(t *testing.T) {
	m := New(2, allreduce.Ring)
	use := func(sent uint64, cpu time.Duration) Sample {
		return Sample{Nodes: map[string]NodeUse{"w0": {sent, cpu}}}
	}
	m.Begin(use(1000, 100*ms))
	m.EndRound(1, 1, use(1500, 150*ms))
	m.EndRound(2, 1, use(2500, 400*ms))
	r := m.Conclude(Sample{}, nil, 0)
	if got := r.Rounds[0].Nodes["w0"]; got != (NodeUse{500, 50 * ms}) {
		t.Errorf("round 1: %+v", got)
	}
	if got := r.Rounds[1].Nodes["w0"]; got != (NodeUse{1500, 300 * ms}) {
		t.Errorf("round 2: %+v", got)
	}
}
