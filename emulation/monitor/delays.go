//go:build linux

package monitor

import (
	"time"

	"testbed/shaping/fidelity"
)

// delayed is a worker in a round. delay is the lateness of its inner steps in
// it.
type delayed struct {
	worker string
	round  int
}

type delay struct {
	timers time.Duration // fired late
	waited time.Duration // wait of its computing threads for a processor
}

func (m *Monitor) delay(worker string, round int) *delay {
	key := delayed{worker, round}
	if m.delays[key] == nil {
		m.delays[key] = new(delay)
	}
	return m.delays[key]
}

// Waited records the additional time of an inner step of a worker's round
// because its threads waited for a processor.
func (m *Monitor) Waited(worker string, round int, d time.Duration) {
	m.delay(worker, round).waited += d
}

// doubt is a decision in a round that had lasted for at.
type doubt struct {
	delayed
	evicted bool
	after   time.Duration
}

// LeftOut records that a worker was left out of a round as late, or evicted for
// that. Reports about its inner steps may come later.
func (m *Monitor) LeftOut(worker string, round int, evicted bool, at time.Duration) {
	m.doubts = append(m.doubts, doubt{delayed{worker, round}, evicted, at - m.last.At})
}

// lastDelay is the worker's delay in a round, or in the last earlier round that
// it has reported: it may still be at the inner steps of that.
func (m *Monitor) lastDelay(of delayed) *delay {
	for ; of.round > 0; of.round-- {
		if d := m.delays[of]; d != nil {
			return d
		}
	}
	return nil
}

// enterDelays adds the lateness of inner steps for lack of a processor, and the
// decisions that may follow from it, to the rounds and the run.
func (m *Monitor) enterDelays() {
	longest := map[int]time.Duration{}
	for of, d := range m.delays {
		longest[of.round] = max(longest[of.round], d.waited)
	}
	var waited, took time.Duration
	for _, r := range m.rounds {
		r.Measured.ComputeWait = float64(longest[r.Round]) / float64(max(r.Measured.RoundTime, 1))
		waited, took = waited+longest[r.Round], took+r.Measured.RoundTime
	}
	m.whole.ComputeWait = float64(waited) / float64(max(took, 1))
	for _, of := range m.doubts {
		d := fidelity.Doubt{Worker: of.worker, Round: of.round, Evicted: of.evicted, After: of.after}
		if late := m.lastDelay(of.delayed); late != nil {
			d.Late = late.timers + late.waited
		}
		if !d.Doubtful() {
			continue
		}
		m.whole.Doubts = append(m.whole.Doubts, d)
		for _, r := range m.rounds {
			if r.Round == d.Round {
				r.Measured.Doubts = append(r.Measured.Doubts, d)
			}
		}
	}
}
