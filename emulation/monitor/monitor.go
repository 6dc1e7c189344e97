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

// Record has a run's measurements and verdicts: the content of
// record.FidelityFile.
type Record struct {
	fidelity.Verdict
	Measured fidelity.Measurements `json:"measured"`
	Rounds   []*Round              `json:"rounds"`
	// Drops are planned drops of links, by node. They are no reason for doubt, and
	// the same on every backend.
	Drops []userlink.NodeDrops `json:"drops,omitempty"`
}

// Round is the emulation's fidelity during one round, from the end of the round
// before to its own.
type Round struct {
	Round int `json:"round"`
	fidelity.Verdict
	Measured          fidelity.Measurements `json:"measured"`
	RouterLatenessMax time.Duration         `json:"router_lateness_max_ns,omitempty"`
	// Nodes have what each worker's node has sent and computed since the run began.
	// Nodes on other hosts are absent.
	Nodes map[string]NodeUse `json:"nodes,omitempty"`
}

// NodeUse is what a worker's node has sent, and what its processes have computed.
type NodeUse struct {
	Sent      uint64        `json:"sent_bytes"` // of Ethernet frames
	Processor time.Duration `json:"cpu_ns"`
}

// Sample is the state of everything observed, at the end of a round or of the
// run.
type Sample struct {
	At      time.Duration // by steady.Now
	Machine Machine
	// Waits is how long each worker has waited for a processor so far.
	Waits map[string]time.Duration
	// Nodes is the use of each worker's node on this host so far.
	Nodes map[string]NodeUse
	// Busy is the links' observations since the beginning of the round, or of the
	// run.
	Busy []BusyLink
	// Queues are the entries of NewQueues on another host since the sample before.
	Queues     []record.Queue
	QueuesLost int
}

// BusyLink is how long a node's link was busy, and the share of its rate that
// it carried meanwhile.
type BusyLink struct {
	Node  string
	Time  time.Duration
	Share float64
}

// Monitor collects the measurements for the verdict on the emulation.
type Monitor struct {
	steps     int // of a worker in a round
	algorithm allreduce.Algorithm

	whole    fidelity.Measurements
	lateness []time.Duration // of workers' timers
	shares   []float64       // shares of inner steps' time spent on computing
	failures []string        // unplanned failures
	rounds   []*Round
	started  Sample          // when the run began
	ends     []time.Duration // ends of the rounds, by steady.Now
	ended    time.Duration   // of the run; 0: unknown
	stalls   []stall
	delays   map[delayed]*delay
	doubts   []doubt
	pauses   []stall // planned pauses

	// The round under way.
	last   Sample          // when it began
	open   []time.Duration // lateness of timers
	shared []float64
	inject time.Duration // the slowest inject

	remote remoteHosts

	asked  []*Round       // rounds whose count the router has still to send
	router userlink.Stats // last count of the router
}

// New returns a Monitor of a run with so many inner steps per round.
func New(steps int, algorithm allreduce.Algorithm) *Monitor {
	return &Monitor{steps: steps, algorithm: algorithm, remote: remoteHosts{}, delays: map[delayed]*delay{}}
}

// Begin begins the run, and its first round.
func (m *Monitor) Begin(s Sample) { m.started, m.last = s, s }

// Pair records a round trip that was checked before the run.
func (m *Monitor) Pair(p fidelity.PairRTT) { m.whole.Pairs = append(m.whole.Pairs, p) }

// Timer records the lateness of the timer of an inner step of a worker's round.
func (m *Monitor) Timer(worker string, round int, late time.Duration) {
	m.delay(worker, round).timers += max(late, 0)
	m.lateness, m.open = append(m.lateness, late), append(m.open, late)
}

// Computed records the share of an inner step's time spent on computing.
func (m *Monitor) Computed(share float64) {
	m.shares, m.shared = append(m.shares, share), append(m.shared, share)
}

// Injected records the delay of an inject of links.
func (m *Monitor) Injected(late time.Duration) {
	m.inject, m.whole.InjectLateness = max(m.inject, late), max(m.whole.InjectLateness, late)
}

// Failed records a failure of a process that makes the run differ from the
// scenario's.
func (m *Monitor) Failed(reason string) { m.failures = append(m.failures, reason) }

// EndRound closes a round of so many participants. The router's part follows in
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
	for name, now := range s.Nodes {
		if r.Nodes == nil {
			r.Nodes = map[string]NodeUse{}
		}
		before := m.started.Nodes[name]
		r.Nodes[name] = NodeUse{Sent: now.Sent - before.Sent, Processor: now.Processor - before.Processor}
	}
	m.rounds, m.asked, m.ends = append(m.rounds, r), append(m.asked, r), append(m.ends, s.At)
	m.last, m.open, m.shared, m.inject = s, nil, nil, 0
}

// enter adds the changes of the machine and the links since an earlier sample.
func (s Sample) enter(since Sample, to *fidelity.Measurements) {
	s.Machine.Since(since.Machine, s.At-since.At, to)
	for _, b := range s.Busy {
		to.Busy(b.Node, b.Time, b.Share)
	}
}

// Routed records the router's count since its start, as of the end of the
// earliest round that waits for it. Further counts belong to no round.
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

// Conclude judges the rounds and the run. The sample's Busy must cover the
// whole run. router is the router's final count, nil without a router. excess
// is the excess of the kernel's queues (see NetemExcess).
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

// EnterRouter adds a router's count to measurements; a nil count adds nothing.
func EnterRouter(s *userlink.Stats, to *fidelity.Measurements) {
	if s == nil {
		return
	}
	to.RouterLatenessP50, to.RouterLatenessP99, to.RouterPackets = s.LatenessP50, s.LatenessP99, s.Packets
	to.UnplannedDrops += s.Unplanned()
	to.RouterNoPriority = s.NoPriority
}

// quantile errs upwards: for few values the 99th percentile is the largest.
func quantile[T time.Duration | float64](d []T, p float64) T {
	if len(d) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(d))
	return sorted[max(int(math.Ceil(p*float64(len(d))-1e-9)), 1)-1]
}
