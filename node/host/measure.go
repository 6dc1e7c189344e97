//go:build linux

package host

import (
	"math"
	"slices"
	"time"

	"testbed/allreduce"
	"testbed/shaping"
	"testbed/shaping/fidelity"
	"testbed/shaping/kernel"
	"testbed/shaping/userlink"
	"testbed/stats"
)

// Files of the run directory about the emulation's fidelity.
const (
	// LinkCheckFile has what the links were found to be before the run.
	LinkCheckFile = "linkcheck.json"
)

// fidelityRecord is the content of runlog.FidelityFile.
type fidelityRecord struct {
	fidelity.Verdict
	Measured fidelity.Measurements `json:"measured"`
	Rounds   []*roundFidelity      `json:"rounds"`
}

// roundFidelity is the emulation's fidelity during one round, from the end of
// the round before to its own.
type roundFidelity struct {
	Round int `json:"round"`
	fidelity.Verdict
	Measured          fidelity.Measurements `json:"measured"`
	RouterLatenessMax time.Duration         `json:"router_lateness_max_ns,omitempty"`
}

// monitor gathers what the verdict on the emulation rests on.
type monitor struct {
	whole    fidelity.Measurements
	lateness []time.Duration // of workers' timers
	failures []string        // what went wrong that no scenario asked for

	steps     int    // of a worker in a round
	algorithm string // of the all-reduce
	// waits returns how long each worker has waited for a processor so far.
	waits  func() map[string]time.Duration
	waited map[string]time.Duration // when the round under way began
	began  time.Time
	start  machineTime // when the run began

	rounds []*roundFidelity
	mark   time.Time // when the round under way began
	last   machineTime
	open   []time.Duration // lateness in the round under way
	asked  []*roundFidelity
	router userlink.Stats // as of the last answer

	busy   *busyLinks    // nil where nobody looks
	inject time.Duration // the slowest inject of the round under way
}

func (m *monitor) begin(steps int, algorithm string, waits func() map[string]time.Duration) {
	m.steps, m.algorithm, m.waits, m.waited = steps, algorithm, waits, waits()
	m.began, m.start = time.Now(), readMachineTime()
	m.mark, m.last = m.began, m.start
}

func (m *monitor) timer(late time.Duration) {
	m.lateness, m.open = append(m.lateness, late), append(m.open, late)
}

// endRound closes a round of the participants. The router's part follows in
// routed.
func (m *monitor) endRound(round, participants int) {
	now, machine := time.Now(), readMachineTime()
	r := &roundFidelity{Round: round, Measured: fidelity.Measurements{
		RoundTime: now.Sub(m.mark), Hops: hops(m.algorithm, participants), Steps: m.steps,
		TimerLatenessP50: quantile(m.open, 50), TimerLatenessP99: quantile(m.open, 99),
	}}
	waited := m.waits()
	for name, d := range waited {
		r.Measured.CPUWait = max(r.Measured.CPUWait, float64(d-m.waited[name])/float64(r.Measured.RoundTime))
	}
	m.waited = waited
	machine.since(m.last, now.Sub(m.mark), &r.Measured)
	m.busy.endRound(&r.Measured)
	r.Measured.InjectLateness = m.inject
	m.rounds = append(m.rounds, r)
	m.asked = append(m.asked, r)
	m.mark, m.last, m.open, m.inject = now, machine, nil, 0
}

// injected hears how late an inject of links was in place.
func (m *monitor) injected(late time.Duration) {
	m.inject, m.whole.InjectLateness = max(m.inject, late), max(m.whole.InjectLateness, late)
}

// hops is allreduce.Algorithm.Hops by the algorithm's name.
func hops(algorithm string, participants int) int {
	a, _ := allreduce.ParseAlgorithm(algorithm) // the scenario is valid
	return a.Hops(participants)
}

func quantile(d []time.Duration, percent int) time.Duration {
	return stats.Quantile(slices.Sorted(slices.Values(d)), float64(percent)/100)
}

// routed takes the router's count since its start, as of the end of the
// earliest round that waits for it.
func (m *monitor) routed(s *userlink.Stats) {
	if len(m.asked) == 0 {
		return
	}
	r := m.asked[0]
	m.asked = m.asked[1:]
	r.Measured.RouterPackets = s.Packets - m.router.Packets
	r.Measured.UnplannedDrops = unplanned(s) - unplanned(&m.router)
	r.Measured.RouterLatenessP50, r.Measured.RouterLatenessP99 = s.Recent.LatenessP50, s.Recent.LatenessP99
	r.RouterLatenessMax = s.Recent.LatenessMax
	m.router = *s
}

// unplanned counts the packets that the router lost against the plan.
func unplanned(s *userlink.Stats) uint64 { return s.Overflow + s.SocketDrops + s.SendDrops }

// netemExcess counts the packets that netem queues dropped beyond what the
// planned losses explain: their limit was too small, or the machine too slow.
// Losses are random, so five standard errors are allowed.
func netemExcess(plan *shaping.Plan, counts []kernel.QueueCount) uint64 {
	excess := 0.0
	for _, c := range counts {
		from, to := plan.Index(c.Peer), plan.Index(c.Node)
		if c.Kind != "netem" || to < 0 {
			continue
		}
		if from < 0 { // shared, because the paths to this node are all alike
			from = (to + 1) % len(plan.Nodes)
		}
		n, p := float64(c.Packets+c.Lost), float64(plan.Paths[from][to].MeanLoss())
		excess += max(float64(c.Lost)-n*p-5*math.Sqrt(n*p*(1-p)*plan.Paths[from][to].Clumping()), 0)
	}
	return uint64(excess)
}

// conclude computes what is known only at the end of a run.
func (m *monitor) conclude(router *userlink.Stats, excess uint64) measured {
	w := &m.whole
	var times []time.Duration
	var waits []float64
	for _, r := range m.rounds {
		r.Verdict = fidelity.Judge(r.Measured)
		times = append(times, r.Measured.RoundTime)
		waits = append(waits, r.Measured.CPUWait)
		w.Hops = max(w.Hops, r.Measured.Hops)
	}
	if len(times) > 0 {
		slices.Sort(times)
		slices.Sort(waits)
		w.RoundTime, w.CPUWait = times[len(times)/2], waits[len(waits)/2]
	}
	w.Steps, w.UnplannedDrops = m.steps, excess
	w.TimerLatenessP50, w.TimerLatenessP99 = quantile(m.lateness, 50), quantile(m.lateness, 99)
	if router != nil {
		w.RouterLatenessP50, w.RouterLatenessP99, w.RouterPackets = router.LatenessP50, router.LatenessP99, router.Packets
		w.UnplannedDrops += unplanned(router)
	}
	m.busy.end(w)
	readMachineTime().since(m.start, time.Since(m.began), w)
	var levels []fidelity.Level
	for _, r := range m.rounds {
		levels = append(levels, r.Verdict.Verdict)
	}
	return measured{*w, levels, m.failures}
}

// record is what the run directory keeps.
func (m *monitor) record(all measured) fidelityRecord {
	f := all.judge()
	r := fidelityRecord{Measured: all.Measurements, Rounds: m.rounds}
	r.Verdict = f
	return r
}

// measured is what the sandbox hands out for judgement.
type measured struct {
	fidelity.Measurements
	Rounds   []fidelity.Level `json:"rounds"`
	Failures []string         `json:"failures"`
}

// judge gives the verdict. A process that failed of itself makes the run
// another one than the scenario's.
func (m measured) judge() fidelity.Verdict {
	f := fidelity.Run(m.Measurements, m.Rounds)
	if len(m.Failures) > 0 {
		f.Verdict = fidelity.Invalid
		f.Reasons = append(f.Reasons, m.Failures...)
	}
	return f
}
