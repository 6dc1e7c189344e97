//go:build linux

package monitor

import (
	"math"
	"slices"
	"time"

	"testbed/allreduce"
	"testbed/record"
	"testbed/shaping/fidelity"
	"testbed/shaping/userlink"
)

// Record is what was measured and judged of a run: the content of
// record.FidelityFile.
type Record struct {
	fidelity.Verdict
	Measured fidelity.Measurements `json:"measured"`
	Rounds   []*Round              `json:"rounds"`
	// Drops are what links dropped as planned, by node. They are no reason to doubt
	// anything, and the same on every backend.
	Drops []userlink.NodeDrops `json:"drops,omitempty"`
}

// Round is the emulation's fidelity during one round, from the end of the round
// before to its own.
type Round struct {
	Round int `json:"round"`
	fidelity.Verdict
	Measured          fidelity.Measurements `json:"measured"`
	RouterLatenessMax time.Duration         `json:"router_lateness_max_ns,omitempty"`
}

// Sample is the state of what is watched, at the end of a round or of the run.
type Sample struct {
	At      time.Duration // as steady.Now has it
	Machine Machine
	// Waits is how long each worker has waited for a processor so far.
	Waits map[string]time.Duration
	// Busy is what the links have shown since the round, or the run, began.
	Busy []BusyLink
	// Queues are what NewQueues has kept on another host since the sample before.
	Queues     []record.Queue
	QueuesLost int
}

// BusyLink is for how long a node's link was busy, and which share of its rate
// it carried meanwhile.
type BusyLink struct {
	Node  string
	Time  time.Duration
	Share float64
}

// Monitor gathers what the verdict on the emulation rests on.
type Monitor struct {
	steps     int // of a worker in a round
	algorithm allreduce.Algorithm

	whole    fidelity.Measurements
	lateness []time.Duration // of workers' timers
	shares   []float64       // of inner steps' time that computing took
	failures []string        // what went wrong that no scenario asked for
	rounds   []*Round
	started  Sample          // when the run began
	ends     []time.Duration // of the rounds, as steady.Now has them
	ended    time.Duration   // of the run; 0: not known
	stalls   []stall
	delays   map[delayed]*delay
	doubts   []doubt
	pauses   []stall // that the scenario asked for

	// The round under way.
	last   Sample          // when it began
	open   []time.Duration // lateness of timers
	shared []float64
	inject time.Duration // the slowest inject

	remote remoteHosts

	asked  []*Round       // that the router has yet to answer for
	router userlink.Stats // as of its last answer
}

// New returns a Monitor of a run in which a worker makes that many inner steps
// in a round.
func New(steps int, algorithm allreduce.Algorithm) *Monitor {
	return &Monitor{steps: steps, algorithm: algorithm, remote: remoteHosts{}, delays: map[delayed]*delay{}}
}

// Begin begins the run, and its first round.
func (m *Monitor) Begin(s Sample) { m.started, m.last = s, s }

// Pair takes a round trip that was checked before the run.
func (m *Monitor) Pair(p fidelity.PairRTT) { m.whole.Pairs = append(m.whole.Pairs, p) }

// Timer takes how late the timer of an inner step of a worker's round fired.
func (m *Monitor) Timer(worker string, round int, late time.Duration) {
	m.delay(worker, round).timers += max(late, 0)
	m.lateness, m.open = append(m.lateness, late), append(m.open, late)
}

// Computed takes how much of an inner step's time computing took.
func (m *Monitor) Computed(share float64) {
	m.shares, m.shared = append(m.shares, share), append(m.shared, share)
}

// Injected takes how late an inject of links was in place.
func (m *Monitor) Injected(late time.Duration) {
	m.inject, m.whole.InjectLateness = max(m.inject, late), max(m.whole.InjectLateness, late)
}

// Failed takes what a process did of itself that makes the run another one than
// the scenario's.
func (m *Monitor) Failed(reason string) { m.failures = append(m.failures, reason) }

// EndRound closes a round of the participants. The router's part follows in
// Routed.
func (m *Monitor) EndRound(round, participants int, s Sample) {
	took := s.At - m.last.At
	r := &Round{Round: round, Measured: fidelity.Measurements{
		RoundTime: took, Hops: m.algorithm.Hops(participants), Steps: m.steps,
		TimerLatenessP50: quantile(m.open, 0.5), TimerLatenessP99: quantile(m.open, 0.99),
		Computing: quantile(m.shared, 0.9), InjectLateness: m.inject,
	}}
	for name, d := range s.Waits {
		r.Measured.CPUWait = max(r.Measured.CPUWait, float64(d-m.last.Waits[name])/float64(took))
	}
	s.enter(m.last, &r.Measured)
	m.rounds, m.asked, m.ends = append(m.rounds, r), append(m.asked, r), append(m.ends, s.At)
	m.last, m.open, m.shared, m.inject = s, nil, nil, 0
}

// enter enters what the machine and the links have done since an earlier
// sample.
func (s Sample) enter(since Sample, to *fidelity.Measurements) {
	s.Machine.Since(since.Machine, s.At-since.At, to)
	for _, b := range s.Busy {
		to.Busy(b.Node, b.Time, b.Share)
	}
}

// Routed takes the router's count since its start, as of the end of the
// earliest round that waits for it. Further counts are of no round.
func (m *Monitor) Routed(s *userlink.Stats) {
	if len(m.asked) == 0 {
		return
	}
	r := m.asked[0]
	m.asked = m.asked[1:]
	m.enterRemote(r)
	r.Measured.RouterPackets = s.Packets - m.router.Packets
	r.Measured.UnplannedDrops = s.Unplanned() - m.router.Unplanned()
	r.Measured.RouterLatenessP50, r.Measured.RouterLatenessP99 = s.Recent.LatenessP50, s.Recent.LatenessP99
	r.RouterLatenessMax = s.Recent.LatenessMax
	m.router = *s
}

// Conclude judges the rounds and the run. The sample's Busy is of the whole run;
// router is the count of the router at its end, nil where there was none, and
// excess that of the kernel's queues (see NetemExcess).
func (m *Monitor) Conclude(s Sample, router *userlink.Stats, excess uint64) Record {
	w := &m.whole
	m.enterStalls()
	m.enterDelays()
	var times []time.Duration
	var waits []float64
	var levels []fidelity.Level
	for _, r := range m.rounds {
		r.Verdict = fidelity.Judge(r.Measured)
		levels = append(levels, r.Verdict.Verdict)
		times, waits = append(times, r.Measured.RoundTime), append(waits, r.Measured.CPUWait)
		w.Hops = max(w.Hops, r.Measured.Hops)
	}
	if len(times) > 0 {
		slices.Sort(times)
		slices.Sort(waits)
		w.RoundTime, w.CPUWait = times[len(times)/2], waits[len(waits)/2]
	}
	w.Steps, w.UnplannedDrops = m.steps, excess
	w.TimerLatenessP50, w.TimerLatenessP99 = quantile(m.lateness, 0.5), quantile(m.lateness, 0.99)
	w.Computing = quantile(m.shares, 0.9)
	EnterRouter(router, w)
	s.enter(m.started, w)
	m.remote.conclude(router, w)
	v := fidelity.Run(*w, levels)
	if len(m.failures) > 0 {
		v.Verdict, v.Reasons = fidelity.Invalid, append(slices.Clone(m.failures), v.Reasons...) // the cause first
	}
	return Record{Verdict: v, Measured: *w, Rounds: m.rounds}
}

// EnterRouter adds a router's count to measurements; nil is of none.
func EnterRouter(s *userlink.Stats, to *fidelity.Measurements) {
	if s == nil {
		return
	}
	to.RouterLatenessP50, to.RouterLatenessP99, to.RouterPackets = s.LatenessP50, s.LatenessP99, s.Packets
	to.UnplannedDrops += s.Unplanned()
	to.RouterNoPriority = s.NoPriority
}

// quantile errs upwards: of few values the 99th percentile is the largest.
func quantile[T time.Duration | float64](d []T, p float64) T {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	return sorted[max(int(math.Ceil(p*float64(len(d))-1e-9)), 1)-1]
}
