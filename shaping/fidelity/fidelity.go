// Package fidelity judges whether an emulated network was what it claimed to
// be. From measurements before and during a run it derives a verdict with its
// reasons. The package is pure, so that a recorded run can be judged again.
package fidelity

import (
	"fmt"
	"math"
	"strings"
	"time"

	"testbed/internal/errs"
)

// Level is the outcome of a judgement.
type Level string

// The levels, from good to bad.
const (
	Valid   Level = "valid"   // the figures may be used
	Suspect Level = "suspect" // they may be off by the amounts in the reasons
	Invalid Level = "invalid" // they describe this machine rather than the plan
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

// Measurements are measurements of the emulation, for a run or one of its
// rounds. Zero means that nothing was observed.
type Measurements struct {
	Pairs []PairRTT `json:"pairs,omitempty"` // checked before the run
	// RoundTime is the duration of a round; for a run, the median. Lateness
	// matters as a share of it.
	RoundTime time.Duration `json:"round_time_ns"`
	// Hops is the number of consecutive paths in a round's all-reduce, and Steps
	// the number of consecutive timers in a worker's round.
	Hops  int `json:"hops"`
	Steps int `json:"steps"`
	// Of the link router; zero with netem.
	RouterLatenessP50 time.Duration `json:"router_lateness_p50_ns"`
	RouterLatenessP99 time.Duration `json:"router_lateness_p99_ns"`
	RouterPackets     uint64        `json:"router_packets"`
	// RouterNoPriority reports that the router had no priority over other
	// programs.
	RouterNoPriority bool `json:"router_no_priority,omitempty"`
	// UnplannedDrops counts packets that were lost for lack of room rather than by
	// plan: overflows of the router, of its sockets, of a netem's limit.
	UnplannedDrops uint64 `json:"unplanned_drops"`
	// BusyShare is the share of its rate that a link passed on while packets
	// waited for it; it should be 1. It is that of the worst link, BusyLink, named
	// by its sender. BusyTime is how long that link was busy.
	BusyLink  string        `json:"busy_link,omitempty"`
	BusyTime  time.Duration `json:"busy_time_ns"`
	BusyShare float64       `json:"busy_share"`
	// Processors are the processor types of the hosts, if they differ.
	Processors []string `json:"processors,omitempty"`
	// InjectLateness is the delay with which the slowest inject of links was in
	// place.
	InjectLateness time.Duration `json:"inject_lateness_ns"`
	// Lateness of the workers' timers.
	TimerLatenessP50 time.Duration `json:"timer_lateness_p50_ns"`
	TimerLatenessP99 time.Duration `json:"timer_lateness_p99_ns"`
	// Computing is the share of an inner step's time spent on computing, if
	// something real is trained: the 90th percentile of the steps.
	Computing float64 `json:"computing,omitempty"`
	// ComputeWait is the share of a round by which measured inner steps took
	// longer because their threads waited for a processor. It is that of the
	// worker that waited most.
	ComputeWait float64 `json:"compute_wait,omitempty"`
	// Doubts are workers that were left out or evicted as late in a round in which
	// their inner steps were late for lack of a processor.
	Doubts []Doubt `json:"doubts,omitempty"`
	// CPUWait is the time for which the threads of a worker waited for a CPU, as a
	// share of the run's time, for the worker that waited most. Above 1, several
	// threads waited at once. Threads that train do not count.
	CPUWait float64 `json:"cpu_wait"`
	// CPUPressure is the share of the time, 0 to 1, in which at least one task of
	// the machine waited for a CPU (PSI, "some").
	CPUPressure float64 `json:"cpu_pressure"`
	// CPUQuota is the number of processors that the control group of the programs
	// may use. Throttled is the share of time in which that quota was used up.
	CPUQuota  float64 `json:"cpu_quota,omitempty"`
	Throttled float64 `json:"throttled,omitempty"`
	// Steal and SoftIRQ are the shares of all CPU time that the machine's host
	// took away, and that passing packets on took.
	Steal   float64 `json:"steal"`
	SoftIRQ float64 `json:"softirq"`
	// Stall is the longest stall of a process of the run without a
	// pause in the scenario, and StallOf is the process.
	Stall   time.Duration `json:"stall_ns,omitempty"`
	StallOf string        `json:"stall_of,omitempty"`
	// Underlay describes the frames between hosts, for a run over several. The
	// other measurements are then those of the worst host.
	Underlay []Underlay `json:"underlay,omitempty"`
}

// Doubt is a decision about a worker whose inner steps were late by that much
// for lack of a processor, in a round that had lasted that long.
type Doubt struct {
	Worker  string        `json:"worker"`
	Round   int           `json:"round"`
	Evicted bool          `json:"evicted,omitempty"`
	Late    time.Duration `json:"late_ns"`
	After   time.Duration `json:"after_ns"`
}

// Doubtful reports whether the worker may have been late for lack of a
// processor alone.
func (d Doubt) Doubtful() bool { return float64(d.Late) > shareSuspect*float64(d.After) }

// PairRTT is the round trip of one pair of nodes without load.
type PairRTT struct {
	From    string        `json:"from"`
	To      string        `json:"to"`
	Planned time.Duration `json:"planned_rtt_ns"`
	Jitter  time.Duration `json:"planned_jitter_ns"` // of both ways
	// Sending is the time that rates may add: that of the frames at these rates.
	Sending  time.Duration `json:"planned_sending_ns,omitempty"`
	Measured time.Duration `json:"measured_rtt_ns"` // the median
}

// Thresholds, in pairs. Above the first a run is suspect, above the second
// invalid. docs/notes/fidelity.md has the experiments.
const (
	// An echo costs about 0.3 ms of wake-ups and system calls if CPUs are free,
	// and the machine's timers are exact to half a millisecond. 1 ms plus 5 % is
	// beyond both. At five times that, the path is not the planned one.
	rttSlackSuspect, rttShareSuspect = 1 * time.Millisecond, 0.05
	rttSlackInvalid, rttShareInvalid = 5 * time.Millisecond, 0.25
	// Nothing may arrive before its time: 0.1 ms allows for the clocks'
	// resolution. An RTT below that means that the delay is not installed.
	rttEarly = 100 * time.Microsecond
	// The time that lateness may have added to a round, as a share of it: the
	// median at each of its hops, or timers, and the 99th percentile once.
	shareSuspect, shareInvalid = 0.05, 0.20
	// Without a known round, lateness is judged by itself. A timerfd on a locked
	// thread is late by 0.5 ms in the 99th percentile on an unloaded 2-core
	// machine, a Go timer by 1 to 1.6 ms.
	routerLateSuspect, routerLateInvalid = 1 * time.Millisecond, 10 * time.Millisecond
	timerLateSuspect, timerLateInvalid   = 5 * time.Millisecond, 50 * time.Millisecond
	// Inner steps that compute for half of their time leave too little for the
	// other work of their processor. Steps that compute for longer than they
	// should last set the pace.
	computingSuspect, computingInvalid = 0.5, 1
	// A link that is busy passes on its rate within 0.5 %, or within 2.5 % if
	// senders hand over whole batches and it was busy for only 0.1 s.
	leastBusy                = 100 * time.Millisecond
	busySuspect, busyInvalid = 0.05, 0.20
	// Without a known round, an inject of links is judged by itself. A change of a
	// small network takes 1 to 5 ms.
	injectSuspect, injectInvalid = 20 * time.Millisecond, 200 * time.Millisecond
	// One unplanned drop can cost a connection a round trip or a timeout. One in a
	// thousand weighs as much as the losses that scenarios plan.
	dropShareInvalid = 0.001
	// Workers of comfortable runs wait for 0.3 to 0.5 of the time. In runs whose
	// pace the CPU sets, they wait for more than all of it.
	waitSuspect, waitInvalid = 0.7, 0.9
	// The pressure counts other programs' tasks too, and reaches 0.98 where they
	// do no harm. It is judged only if the kernel does not report how long a
	// thread waits.
	pressureSuspect, pressureInvalid = 0.6, 0.9
	// A group that has used up its quota stalls until the next period, for up to
	// 100 ms at a time.
	throttledSuspect, throttledInvalid = 0.01, 0.10
	// A host that takes a twentieth of the CPU takes all of it at times. That may
	// have no effect; if there is an effect, it is the likely cause.
	stealNamed = 0.05
)

// Judge judges every measurement; the verdict is the worst.
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
	v.share("computing took %.0f %% of the planned time of inner steps (limit %.0f %%); give inner steps more time, or train a smaller model", m.Computing, computingSuspect, computingInvalid)
	v.share("waiting for a processor lengthened inner steps by %.0f %% of a round (limit %.0f %%); use fewer workers, or a larger real.dilation", m.ComputeWait, shareSuspect, math.Inf(1))
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
		v.add(level, "full buffers dropped packets against the plan: %d, or %.2g %% of the packets (invalid above %.2g %%)", m.UnplannedDrops, 100*share, 100*dropShareInvalid)
	}
	v.share("threads of a worker waited for a CPU for %.0f %% of the time (limit %.0f %%)", m.CPUWait, waitSuspect, waitInvalid)
	if m.CPUWait == 0 {
		v.share("tasks waited for a CPU in %.0f %% of the time (limit %.0f %%)", m.CPUPressure, pressureSuspect, pressureInvalid)
	}
	v.share(fmt.Sprintf("the control group used up its CPU quota (processors: %.4g), so its processes were stopped for %%.0f %%%% of the time (limit %%.0f %%%%); raise the quota (cpu.max, or the container's limit)", m.CPUQuota), m.Throttled, throttledSuspect, throttledInvalid)
	for _, u := range m.Underlay {
		v.judgeUnderlay(u)
	}
	return v
}

// doubt names the decisions that may follow from a lack of processors. The
// run's other decisions do not, so the run is at worst suspect.
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
		v.add(Suspect, "further decisions about workers that were late because of CPU contention: %d", more)
	}
}

// stall judges how long a process stalled. It makes a round bad, and a run at
// worst suspect: the stall does not affect the other rounds.
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
		v.add(level, "%s stalled for %v without interruption: %.0f %% of a round (limit %.0f %%)", m.StallOf, m.Stall.Round(time.Millisecond), 100*share, 100*limit)
	}
}

// cause names the likely causes of a problem.
func (v *Verdict) cause(m Measurements) {
	if v.Verdict != Valid {
		v.Reasons = append(v.Reasons, Likely(m)...)
	}
}

// PriorityFix says how an ordinary user's router gets priority.
const PriorityFix = "run as root, or allow real-time priority for the program (sudo setcap cap_sys_nice+ep $(which testbed)) or for the user (two lines in /etc/security/limits.conf: «- rtprio 1» and «- nice -20»)"

// Likely returns the likely causes if something is wrong.
func Likely(m Measurements) (causes []string) {
	if m.Steal > stealNamed {
		causes = append(causes, fmt.Sprintf("the likely cause: the hypervisor took %.0f %% of the CPU time away (steal)", 100*m.Steal))
	}
	if m.RouterNoPriority {
		causes = append(causes, "the router had no priority over other programs, because an ordinary user may not raise priorities; "+PriorityFix)
	}
	if m.CPUQuota > 0 {
		causes = append(causes, fmt.Sprintf("the control group of the programs has a CPU quota (processors: %.4g)", m.CPUQuota))
	}
	if len(m.Processors) > 0 {
		causes = append(causes, "the hosts have different processors: "+strings.Join(m.Processors, ", "))
	}
	return causes
}

// Run judges a run's measurements and the levels of its rounds: a bad round
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
		v.add(level, "invalid rounds: %d of %d", bad, len(rounds))
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

// late judges a lateness by what it can have added to a round with count of it
// in a row, or by itself if no round is known. The median applies to each of
// them. Rare lateness hits all of them at once, so it applies once.
func (v *Verdict) late(what string, p50, p99 time.Duration, count int, round, suspect, invalid time.Duration) {
	if round > 0 && count > 0 {
		share := float64(time.Duration(count)*p50+p99) / float64(round)
		what += fmt.Sprintf(" late by %v (median) and %v (99th percentile), which may lengthen a round with %s in a row by", short(p50), short(p99), errs.Count(count, "delay"))
		v.share(what+" %.0f %% (limit %.0f %%)", share, shareSuspect, shareInvalid)
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
	what := fmt.Sprintf("an inject of links took effect %v too late", short(m.InjectLateness))
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
