// Package fidelity judges whether an emulated network was what it claimed to
// be: from what was measured before and during a run to a verdict with its
// reasons. It is pure, so that a recorded run can be judged again.
package fidelity

import (
	"fmt"
	"time"
)

// Level is the outcome of a judgement.
type Level string

// The levels, from good to bad.
const (
	Valid   Level = "valid"   // the figures may be used
	Suspect Level = "suspect" // they may be off by the amounts in the reasons
	Invalid Level = "invalid" // they say more about this machine than about the plan
)

// Verdict is a level with the numbers that led to it; a valid one has no
// reasons.
type Verdict struct {
	Verdict Level    `json:"verdict"`
	Reasons []string `json:"reasons"`
}

// Measurements are what a run knows about its emulation. Zero means that
// there was nothing to see.
type Measurements struct {
	Pairs []PairRTT `json:"pairs"` // checked before the run

	// Of the link router; zero with netem.
	RouterLatenessP99 time.Duration `json:"router_lateness_p99_ns"`
	RouterPackets     uint64        `json:"router_packets"`
	// UnplannedDrops are packets that were lost for lack of room and not by
	// plan: overflows of the router, of its sockets, of a netem's limit.
	UnplannedDrops uint64 `json:"unplanned_drops"`

	// TimerLatenessP99 is by how much the timers of workers came late.
	TimerLatenessP99 time.Duration `json:"timer_lateness_p99_ns"`
	// CPUPressure is the share of the run, 0 to 1, in which some task waited
	// for a CPU (PSI, "some").
	CPUPressure float64 `json:"cpu_pressure"`
}

// PairRTT is the round trip of one pair of nodes without load.
type PairRTT struct {
	From     string        `json:"from"`
	To       string        `json:"to"`
	Planned  time.Duration `json:"planned_rtt_ns"`
	Measured time.Duration `json:"measured_rtt_ns"` // the median
}

// Thresholds. Each is a pair: above the first a run is suspect, above the
// second invalid.
const (
	// An echo costs about 0.3 ms of wake-ups and system calls where CPUs are
	// free, and the machine's timers are good for half a millisecond: 1 ms
	// plus 5 % is beyond both. At five times that the path is another one.
	rttSlackSuspect, rttShareSuspect = 1 * time.Millisecond, 0.05
	rttSlackInvalid, rttShareInvalid = 5 * time.Millisecond, 0.25
	// Nothing may arrive before its time: 0.1 ms allows for the clocks'
	// grain. An RTT below that means that the delay is not installed.
	rttEarly = 100 * time.Microsecond

	// A timerfd on a locked thread is late by 0.5 ms in the 99th percentile
	// on an unloaded 2-core machine. At 1 ms the machine was busy; 10 ms
	// rivals the wide-area delays that are emulated.
	routerLateSuspect, routerLateInvalid = 1 * time.Millisecond, 10 * time.Millisecond

	// Go timers are late by 1 to 1.6 ms in the 99th percentile without
	// load. Workers model computing with them, so 5 ms shows in a step of
	// 50 ms as 10 %, and 50 ms make stragglers of healthy workers.
	timerLateSuspect, timerLateInvalid = 5 * time.Millisecond, 50 * time.Millisecond

	// One drop that no plan asks for can cost a connection a round trip or
	// a timeout; one in a thousand weighs as much as the losses that
	// scenarios plan.
	dropShareInvalid = 0.001

	// Real computing (quantisation, encryption) makes tasks wait at times,
	// the more so on few cores. Above 0.8 the CPU, and not the network, sets
	// the pace. Both are first estimates, not measured.
	pressureSuspect, pressureInvalid = 0.4, 0.8
)

// Judge weighs every measurement; the verdict is the worst of them.
func Judge(m Measurements) Verdict {
	v := Verdict{Verdict: Valid, Reasons: []string{}}
	for _, p := range m.Pairs {
		v.judgePair(p)
	}
	v.above("packets left the router late by %v in the 99th percentile", m.RouterLatenessP99, routerLateSuspect, routerLateInvalid)
	v.above("timers of workers were late by %v in the 99th percentile", m.TimerLatenessP99, timerLateSuspect, timerLateInvalid)
	if m.UnplannedDrops > 0 {
		share := 1.0
		if m.RouterPackets > 0 {
			share = float64(m.UnplannedDrops) / float64(m.RouterPackets+m.UnplannedDrops)
		}
		level := Suspect
		if share > dropShareInvalid {
			level = Invalid
		}
		v.add(level, "%d packets were dropped for lack of room, which no plan asks for (%.2g %% of those carried; limit %.2g %%)", m.UnplannedDrops, 100*share, 100*dropShareInvalid)
	}
	switch {
	case m.CPUPressure > pressureInvalid:
		v.add(Invalid, "tasks waited for a CPU in %.0f %% of the run (limit %.0f %%)", 100*m.CPUPressure, 100*pressureInvalid)
	case m.CPUPressure > pressureSuspect:
		v.add(Suspect, "tasks waited for a CPU in %.0f %% of the run (limit %.0f %%)", 100*m.CPUPressure, 100*pressureSuspect)
	}
	return v
}

func (v *Verdict) judgePair(p PairRTT) {
	limit := func(slack time.Duration, share float64) time.Duration {
		return p.Planned + slack + time.Duration(share*float64(p.Planned))
	}
	const late = "the round trip %s–%s took %v, planned %v (limit %v)"
	suspect, invalid := limit(rttSlackSuspect, rttShareSuspect), limit(rttSlackInvalid, rttShareInvalid)
	switch {
	case p.Measured <= 0:
		v.add(Invalid, "the round trip %s–%s was not measured: no echo came back", p.From, p.To)
	case p.Measured < p.Planned-rttEarly:
		v.add(Invalid, "the round trip %s–%s took only %v, planned %v: the link is not as planned", p.From, p.To, p.Measured, p.Planned)
	case p.Measured > invalid:
		v.add(Invalid, late, p.From, p.To, p.Measured, p.Planned, invalid)
	case p.Measured > suspect:
		v.add(Suspect, late, p.From, p.To, p.Measured, p.Planned, suspect)
	}
}

// above adds a reason if d exceeds a limit.
func (v *Verdict) above(format string, d, suspect, invalid time.Duration) {
	switch {
	case d > invalid:
		v.add(Invalid, format+" (limit %v)", d, invalid)
	case d > suspect:
		v.add(Suspect, format+" (limit %v)", d, suspect)
	}
}

func (v *Verdict) add(level Level, format string, args ...any) {
	if v.Verdict != Invalid {
		v.Verdict = level
	}
	v.Reasons = append(v.Reasons, fmt.Sprintf(format, args...))
}
