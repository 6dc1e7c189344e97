// Package fidelity judges whether an emulated network was what it claimed to
// be: from what was measured before and during a run to a verdict with its
// reasons. It is pure, so that a recorded run can be judged again.
package fidelity

import (
	"fmt"
	"math"
	"strings"
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

// Severity orders levels: it is 0 for Valid or none, 1 for Suspect and 2 for others.
func (l Level) Severity() int {
	switch l {
	case Valid, "":
		return 0
	case Suspect:
		return 1
	default:
		return 2
	}
}

// Verdict is a level with the numbers that led to it; a valid one has no
// reasons.
type Verdict struct {
	Verdict Level    `json:"verdict"`
	Reasons []string `json:"reasons"`
}

// Measurements are what a run, or one of its rounds, knows about its
// emulation. Zero means that there was nothing to see.
type Measurements struct {
	Pairs []PairRTT `json:"pairs,omitempty"` // checked before the run
	// RoundTime is how long a round took, the median in a run. Lateness
	// matters as a share of it.
	RoundTime time.Duration `json:"round_time_ns"`
	// Hops is how many paths in a row a round's all-reduce takes, and Steps
	// how many timers in a row a worker's round waits for.
	Hops  int `json:"hops"`
	Steps int `json:"steps"`
	// Of the link router; zero with netem.
	RouterLatenessP50 time.Duration `json:"router_lateness_p50_ns"`
	RouterLatenessP99 time.Duration `json:"router_lateness_p99_ns"`
	RouterPackets     uint64        `json:"router_packets"`
	// RouterNoPriority says that the router had none over other programs.
	RouterNoPriority bool `json:"router_no_priority,omitempty"`
	// UnplannedDrops are packets that were lost for lack of room and not by
	// plan: overflows of the router, of its sockets, of a netem's limit.
	UnplannedDrops uint64 `json:"unplanned_drops"`
	// BusyShare is the share of its rate that a link passed on while packets
	// waited for it, which should be 1: the worst link, named by its sender,
	// and for how long it was busy.
	BusyLink  string        `json:"busy_link,omitempty"`
	BusyTime  time.Duration `json:"busy_time_ns"`
	BusyShare float64       `json:"busy_share"`
	// Processors are those of the hosts, where these have different ones.
	Processors []string `json:"processors,omitempty"`
	// InjectLateness is how long after its time the slowest inject of links
	// was in place.
	InjectLateness time.Duration `json:"inject_lateness_ns"`
	// By how much the timers of workers came late.
	TimerLatenessP50 time.Duration `json:"timer_lateness_p50_ns"`
	TimerLatenessP99 time.Duration `json:"timer_lateness_p99_ns"`
	// Computing is how much of an inner step's time computing took, where something
	// real is trained: the 90th percentile of the steps.
	Computing float64 `json:"computing,omitempty"`
	// ComputeWait is the share of a round by which measured inner steps took longer
	// because what computes them waited for a processor: of the worker that waited most.
	ComputeWait float64 `json:"compute_wait,omitempty"`
	// Doubts are workers that were left out or evicted as late in a round in which their
	// inner steps were late for want of a processor.
	Doubts []Doubt `json:"doubts,omitempty"`
	// CPUWait is how long the threads of the worker that waited most stood in
	// line for a CPU, as a share of the time. Above 1 several did at once. Threads
	// that train do not count.
	CPUWait float64 `json:"cpu_wait"`
	// CPUPressure is the share of the time, 0 to 1, in which some task of the
	// machine waited for a CPU (PSI, "some").
	CPUPressure float64 `json:"cpu_pressure"`
	// CPUQuota is how many processors the control group of the programs may use, and
	// Throttled is the share of time in which that quota was used up.
	CPUQuota  float64 `json:"cpu_quota,omitempty"`
	Throttled float64 `json:"throttled,omitempty"`
	// Steal and SoftIRQ are the shares of all CPU time that the machine's
	// host took away, and that went into passing packets on.
	Steal   float64 `json:"steal"`
	SoftIRQ float64 `json:"softirq"`
	// Stall is the longest stall of a process of the run without a
	// pause in the scenario, and StallOf is the process.
	Stall   time.Duration `json:"stall_ns,omitempty"`
	StallOf string        `json:"stall_of,omitempty"`
	// Underlay is what became of frames between hosts, where there are several. The
	// other measurements are then of the worst host.
	Underlay []Underlay `json:"underlay,omitempty"`
}

// Doubt is a decision that rests on a worker's inner steps, which were late by that much
// for want of a processor, in a round that had lasted so long.
type Doubt struct {
	Worker  string        `json:"worker"`
	Round   int           `json:"round"`
	Evicted bool          `json:"evicted,omitempty"`
	Late    time.Duration `json:"late_ns"`
	After   time.Duration `json:"after_ns"`
}

// Doubtful says whether the worker may have been late for want of a processor alone.
func (d Doubt) Doubtful() bool { return float64(d.Late) > shareSuspect*float64(d.After) }

// PairRTT is the round trip of one pair of nodes without load.
type PairRTT struct {
	From    string        `json:"from"`
	To      string        `json:"to"`
	Planned time.Duration `json:"planned_rtt_ns"`
	Jitter  time.Duration `json:"planned_jitter_ns"` // of both ways
	// Sending is what rates may add: the time that its frames take at them.
	Sending  time.Duration `json:"planned_sending_ns,omitempty"`
	Measured time.Duration `json:"measured_rtt_ns"` // the median
}

// Thresholds. Each is a pair: above the first a run is suspect, above the
// second invalid. docs/notes/fidelity.md has the experiments.
const (
	// An echo costs about 0.3 ms of wake-ups and system calls where CPUs are
	// free, and the machine's timers are good for half a millisecond: 1 ms
	// plus 5 % is beyond both. At five times that the path is another one.
	rttSlackSuspect, rttShareSuspect = 1 * time.Millisecond, 0.05
	rttSlackInvalid, rttShareInvalid = 5 * time.Millisecond, 0.25
	// Nothing may arrive before its time: 0.1 ms allows for the clocks'
	// grain. An RTT below that means that the delay is not installed.
	rttEarly = 100 * time.Microsecond
	// What lateness can have added to a round, as a share of it: the median at
	// each of its hops, or timers, and once the 99th percentile.
	shareSuspect, shareInvalid = 0.05, 0.20
	// Where no round is known lateness is judged by itself. A timerfd on a
	// locked thread is late by 0.5 ms in the 99th percentile on an unloaded
	// 2-core machine, a Go timer by 1 to 1.6 ms.
	routerLateSuspect, routerLateInvalid = 1 * time.Millisecond, 10 * time.Millisecond
	timerLateSuspect, timerLateInvalid   = 5 * time.Millisecond, 50 * time.Millisecond
	// Inner steps that compute for half of their time leave too little for what else
	// their processor has to do, and those that compute for longer than they last
	// make the pace.
	computingSuspect, computingInvalid = 0.5, 1
	// A link that is busy passes on its rate within 0.5 %, and within 2.5 %
	// where senders hand over whole batches and it was busy for 0.1 s only.
	leastBusy                = 100 * time.Millisecond
	busySuspect, busyInvalid = 0.05, 0.20
	// Where no round is known, an inject of links is judged by itself. A change
	// of a small network takes 1 to 5 ms.
	injectSuspect, injectInvalid = 20 * time.Millisecond, 200 * time.Millisecond
	// One drop that no plan asks for can cost a connection a round trip or
	// a timeout; one in a thousand weighs as much as the losses that
	// scenarios plan.
	dropShareInvalid = 0.001
	// Workers of comfortable runs wait for 0.3 to 0.5 of the time, those of
	// runs that the CPU sets the pace of for more than all of it.
	waitSuspect, waitInvalid = 0.7, 0.9
	// The pressure counts other programs' tasks too, and reaches 0.98 where
	// they do no harm. It is judged only where the kernel does not say how
	// long a thread waits.
	pressureSuspect, pressureInvalid = 0.6, 0.9
	// A group that has used its quota up stalls until the next period, for up to
	// 100 ms at a time.
	throttledSuspect, throttledInvalid = 0.01, 0.10
	// A host that takes a twentieth of the CPU takes all of it for a while. That
	// may have had no effect; where there is one it is the likely cause.
	stealNamed = 0.05
)

// Judge weighs every measurement; the verdict is the worst of them.
func Judge(m Measurements) Verdict {
	v := judge(m)
	v.stall(m, Invalid)
	v.cause(m)
	return v
}

func judge(m Measurements) Verdict {
	v := Verdict{Verdict: Valid, Reasons: []string{}}
	for _, p := range m.Pairs {
		v.judgePair(p)
	}
	v.late("packets left the router", m.RouterLatenessP50, m.RouterLatenessP99, m.Hops, m.RoundTime, routerLateSuspect, routerLateInvalid)
	v.late("timers of workers fired", m.TimerLatenessP50, m.TimerLatenessP99, m.Steps, m.RoundTime, timerLateSuspect, timerLateInvalid)
	v.share("computing took %.0f %% of the time that inner steps have (limit %.0f %%); give them more, or train a smaller model", m.Computing, computingSuspect, computingInvalid)
	v.share("inner steps took %.0f %% of a round longer because what computes them waited for a processor (limit %.0f %%); use fewer workers, or a larger real.dilation", m.ComputeWait, shareSuspect, math.Inf(1))
	v.doubt(m.Doubts)
	if m.BusyLink != "" {
		off := math.Abs(m.BusyShare - 1)
		v.share(fmt.Sprintf("%s sent at %.0f %%%% of its rate while packets waited (%v in all): %%.0f %%%% off (limit %%.0f %%%%)",
			m.BusyLink, 100*m.BusyShare, m.BusyTime.Round(time.Millisecond)), off, busySuspect, busyInvalid)
	}
	v.lateInject(m)
	if m.UnplannedDrops > 0 {
		share := 1.0
		if m.RouterPackets > 0 {
			share = float64(m.UnplannedDrops) / float64(m.RouterPackets+m.UnplannedDrops)
		}
		level := Suspect
		if share > dropShareInvalid {
			level = Invalid
		}
		v.add(level, "%d packets were dropped against the plan because a buffer was full (%.2g %% of the packets; limit %.2g %%)", m.UnplannedDrops, 100*share, 100*dropShareInvalid)
	}
	v.share("threads of a worker waited for a CPU for %.0f %% of the time (limit %.0f %%)", m.CPUWait, waitSuspect, waitInvalid)
	if m.CPUWait == 0 {
		v.share("tasks waited for a CPU in %.0f %% of the time (limit %.0f %%)", m.CPUPressure, pressureSuspect, pressureInvalid)
	}
	v.share(fmt.Sprintf("the quota of the control group, %.4g processors, was used up and its processes were stopped for %%.0f %%%% of the time (limit %%.0f %%%%); raise it (cpu.max, or the container's limit)", m.CPUQuota), m.Throttled, throttledSuspect, throttledInvalid)
	for _, u := range m.Underlay {
		v.judgeUnderlay(u)
	}
	return v
}

// doubt names the decisions that rest on a lack of processors. The others of the run do
// not, so that it is no worse than suspect.
func (v *Verdict) doubt(all []Doubt) {
	const shown = 3
	for _, d := range all[:min(len(all), shown)] {
		what := "left out as late"
		if d.Evicted {
			what = "evicted as a straggler"
		}
		v.add(Suspect, "%s was %s in round %d after CPU contention had delayed its inner steps by %v: %.0f %% of the round until then (limit %.0f %%)",
			d.Worker, what, d.Round, short(d.Late), 100*float64(d.Late)/float64(max(d.After, 1)), 100*shareSuspect)
	}
	if more := len(all) - shown; more > 0 {
		v.add(Suspect, "%d more decisions concern workers that were late because of CPU contention", more)
	}
}

// stall judges how long a process stalled. It makes a round bad, and a run no worse
// than suspect: the other rounds know nothing of it.
func (v *Verdict) stall(m Measurements, worst Level) {
	if m.Stall == 0 || m.RoundTime == 0 {
		return
	}
	share := float64(m.Stall) / float64(m.RoundTime)
	level, limit := Suspect, shareSuspect
	if share > shareInvalid && worst == Invalid {
		level, limit = Invalid, shareInvalid
	}
	if share > limit {
		v.add(level, "%s stalled for %v in one piece: %.0f %% of a round (limit %.0f %%)", m.StallOf, m.Stall.Round(time.Millisecond), 100*share, 100*limit)
	}
}

// cause names who is likely to have made what is wrong.
func (v *Verdict) cause(m Measurements) {
	if v.Verdict != Valid {
		v.Reasons = append(v.Reasons, Likely(m)...)
	}
}

// PriorityFix says how an ordinary user's router gets priority.
const PriorityFix = "run as root, or allow it to the program (sudo setcap cap_sys_nice+ep $(which testbed)) or to the user (two lines in /etc/security/limits.conf: «- rtprio 1» and «- nice -20»)"

// Likely says what is the likely cause if something is wrong.
func Likely(m Measurements) (causes []string) {
	if m.Steal > stealNamed {
		causes = append(causes, fmt.Sprintf("the likely cause: the host took %.0f %% of the CPU time away", 100*m.Steal))
	}
	if m.RouterNoPriority {
		causes = append(causes, "the router had no priority over other programs, because an ordinary user may give it none; "+PriorityFix)
	}
	if m.CPUQuota > 0 {
		causes = append(causes, fmt.Sprintf("the programs may use %.4g processors of the machine, by the quota of their control group", m.CPUQuota))
	}
	if len(m.Processors) > 0 {
		causes = append(causes, "the hosts have different processors: "+strings.Join(m.Processors, ", "))
	}
	return causes
}

// Run weighs a run's measurements and the levels of its rounds: a bad round
// makes a run suspect, and more than half of them invalid.
func Run(m Measurements, rounds []Level) Verdict {
	v := judge(m)
	v.stall(m, Suspect)
	bad := 0
	for _, l := range rounds {
		if l == Invalid {
			bad++
		}
	}
	level := Suspect
	if 2*bad > len(rounds) {
		level = Invalid
	}
	if bad > 0 {
		v.add(level, "%d of %d rounds are invalid", bad, len(rounds))
	}
	v.cause(m)
	return v
}

func (v *Verdict) judgePair(p PairRTT) {
	limit := func(slack time.Duration, share float64) time.Duration {
		return p.Planned + p.Jitter + p.Sending + slack + time.Duration(share*float64(p.Planned))
	}
	const late = "the round trip %s–%s took %v, planned %v (limit %v)"
	suspect, invalid := limit(rttSlackSuspect, rttShareSuspect), limit(rttSlackInvalid, rttShareInvalid)
	switch {
	case p.Measured <= 0:
		v.add(Invalid, "the round trip %s–%s was not measured: no echo came back", p.From, p.To)
	case p.Measured < p.Planned-p.Jitter-rttEarly:
		v.add(Invalid, "the round trip %s–%s took only %v, planned %v: the link is not as planned", p.From, p.To, short(p.Measured), short(p.Planned))
	case p.Measured > invalid:
		v.add(Invalid, late, p.From, p.To, short(p.Measured), short(p.Planned), short(invalid))
	case p.Measured > suspect:
		v.add(Suspect, late, p.From, p.To, short(p.Measured), short(p.Planned), short(suspect))
	}
}

// late judges a lateness by what it can have added to a round with count of
// it in a row, or by itself where no round is known. The median comes at each
// of them; what is rare meets all of them at once, so it comes once.
func (v *Verdict) late(what string, p50, p99 time.Duration, count int, round, suspect, invalid time.Duration) {
	if round > 0 && count > 0 {
		share := float64(time.Duration(count)*p50+p99) / float64(round)
		what += fmt.Sprintf(" late by %v (median) and %v (99th percentile): %d in a row can have made", short(p50), short(p99), count)
		v.share(what+" %.0f %% of a round (limit %.0f %%)", share, shareSuspect, shareInvalid)
		return
	}
	what += fmt.Sprintf(" late by %v in the 99th percentile", short(p99))
	switch {
	case p99 > invalid:
		v.add(Invalid, "%s (limit %v)", what, invalid)
	case p99 > suspect:
		v.add(Suspect, "%s (limit %v)", what, suspect)
	}
}

// lateInject judges the slowest inject of links.
func (v *Verdict) lateInject(m Measurements) {
	what := fmt.Sprintf("an inject of links was in place %v after its time", short(m.InjectLateness))
	switch round := m.RoundTime; {
	case round > 0:
		v.share(what+": %.0f %% of a round (limit %.0f %%)", float64(m.InjectLateness)/float64(round), shareSuspect, shareInvalid)
	case m.InjectLateness > injectInvalid:
		v.add(Invalid, "%s (limit %v)", what, injectInvalid)
	case m.InjectLateness > injectSuspect:
		v.add(Suspect, "%s (limit %v)", what, injectSuspect)
	}
}

// short is a duration with three significant digits.
func short(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// share adds a reason if a share exceeds a limit. The format takes both in
// percent.
func (v *Verdict) share(format string, share, suspect, invalid float64) {
	switch {
	case share > invalid:
		v.add(Invalid, format, 100*share, 100*invalid)
	case share > suspect:
		v.add(Suspect, format, 100*share, 100*suspect)
	}
}

func (v *Verdict) add(level Level, format string, args ...any) {
	if v.Verdict != Invalid {
		v.Verdict = level
	}
	v.Reasons = append(v.Reasons, fmt.Sprintf(format, args...))
}
