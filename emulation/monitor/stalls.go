//go:build linux

package monitor

import (
	"time"

	"testbed/shaping/fidelity"
)

// span is a time from from until until, by steady.Now.
type span struct{ from, until time.Duration }

func (s span) and(o span) time.Duration { return max(min(s.until, o.until)-max(s.from, o.from), 0) }

// stall is a time in which a process did not run.
type stall struct {
	process string
	span
}

// Stalled records a stall of a process by its end and its length.
func (m *Monitor) Stalled(process string, until, length time.Duration) {
	m.stalls = append(m.stalls, stall{process, span{until - length, until}})
}

// Paused records a planned pause of a process.
func (m *Monitor) Paused(process string, from, until time.Duration) {
	m.pauses = append(m.pauses, stall{process, span{from, until}})
}

// Ended records the end of the run.
func (m *Monitor) Ended(at time.Duration) { m.ended = at }

// pauseGrace is how long a process may take to continue after a pause.
const pauseGrace = 50 * time.Millisecond

// in returns the part of a span that a stall covers, without planned pauses.
func (m *Monitor) in(of stall, during span) time.Duration {
	stood := of.and(during)
	for _, p := range m.pauses {
		if p.process == of.process {
			p.until += pauseGrace
			both := span{max(of.from, p.from), min(of.until, p.until)}
			stood -= both.and(during)
		}
	}
	return max(stood, 0)
}

// enterStalls adds the longest stall of each round to it, and that of the run
// to the run.
func (m *Monitor) enterStalls() {
	enter := func(to *fidelity.Measurements, during span) {
		for _, s := range m.stalls {
			if stood := m.in(s, during); stood > to.Stall {
				to.Stall, to.StallOf = stood, s.process
			}
		}
	}
	from := m.started.At
	for k, until := range m.ends {
		enter(&m.rounds[k].Measured, span{from, until})
		from = until
	}
	enter(&m.whole, span{m.started.At, max(m.ended, from)})
}
