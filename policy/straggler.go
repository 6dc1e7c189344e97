package policy

import (
	"fmt"
	"math"
	"slices"
)

// Straggler holds the parameters of the straggler strategy.
//
// The deadline of a round lies max(MinSlack, median + K·MAD) after its first
// arrival; median and MAD are taken over the arrival offsets in the window.
type Straggler struct {
	// Quorum is the fraction of the members, in (0, 1], that must have arrived
	// before a round may close without the others: ⌈Quorum × members⌉.
	Quorum float64 `yaml:"quorum" json:"quorum"`
	// K is the number of median absolute deviations of tolerance. Raising it
	// waits longer for workers whose times vary.
	K float64 `yaml:"k" json:"k"`
	// Window is the number of arrival offsets to look back on. Rounds are kept
	// or forgotten whole, because the last offsets of a round are its slowest.
	Window int `yaml:"window" json:"window"`
	// MinHistory is the number of closed rounds before the first deadline.
	MinHistory int `yaml:"min_history" json:"min_history"`
	// MinSlack is the least time between the first arrival and the deadline.
	MinSlack Time `yaml:"min_slack" json:"min_slack"`
	// SidelineLimit is the number of consecutive rounds a member may miss; the
	// next one evicts it.
	SidelineLimit int `yaml:"sideline_limit" json:"sideline_limit"`
	// FinishSteps lets a sidelined member finish the inner steps of the round
	// that went on without it before it catches up. Else it drops them when the
	// next round begins. That round gets nothing of them either way.
	FinishSteps bool `yaml:"finish_steps" json:"finish_steps,omitempty"`
}

// DefaultStraggler returns the parameters under which the published scenario
// comes out exactly as published.
func DefaultStraggler() Straggler {
	return Straggler{Quorum: 0.75, K: 3, Window: 32, MinHistory: 1, MinSlack: 1, SidelineLimit: 2}
}

// Limits keep the history in memory and every deadline inside 64 bits.
const (
	maxWindow = 1_000_000
	maxSlack  = Time(1e15)
)

// Validate reports the first parameter out of range as a *FieldError.
func (s Straggler) Validate() error {
	bad := func(field, mend string) error { return &FieldError{Field: field, Mend: mend} }
	switch {
	case !(s.Quorum > 0 && s.Quorum <= 1):
		return bad("quorum", fmt.Sprintf("is %v; it must lie in (0, 1]", s.Quorum))
	case !(s.K >= 0 && s.K <= 1000):
		return bad("k", fmt.Sprintf("is %v; it must lie in [0, 1000]", s.K))
	case s.Window < 1 || s.Window > maxWindow:
		return bad("window", fmt.Sprintf("is %d; it must lie between 1 and %d", s.Window, maxWindow))
	case s.MinHistory < 1:
		return bad("min_history", fmt.Sprintf("is %d; it must be at least 1", s.MinHistory))
	case s.MinSlack < 0 || s.MinSlack > maxSlack:
		return bad("min_slack", fmt.Sprintf("is %d; it must lie between 0 and %d", s.MinSlack, maxSlack))
	case s.SidelineLimit < 0:
		return bad("sideline_limit", fmt.Sprintf("is %d; it must not be negative", s.SidelineLimit))
	}
	return nil
}

// rejoin forgives a member whose contribution the round has.
func (m *Machine) rejoin(w *member) {
	if !w.sidelined {
		return
	}
	m.emit(&Rejoin{ID: w.id, Round: m.round, Reason: Reason{Rule: RuleOnTime, Misses: w.misses, Limit: m.cfg.Straggler.SidelineLimit}})
	w.misses, w.missed, w.sidelined = 0, false, false
}

// needed returns the quorum, ⌈quorum × members⌉ without spectators, and at least
// one: a round needs a contribution. The small term keeps a product such as
// 0.7 × 10 from being rounded up by its binary representation.
func (m *Machine) needed() int {
	return max(1, int(math.Ceil(float64(m.cfg.Straggler.Quorum*float64(m.actors()))-1e-9)))
}

// awaitEqual leaves the closing of an overdue round that has its quorum to a
// Timer at the same time, so that the arrivals of one instant are judged
// together and the order in which they are told does not matter.
func (m *Machine) awaitEqual(now Time) {
	had := m.quorate
	m.quorate = m.overdue && m.present >= m.needed()
	if m.quorate && !had {
		m.quorateAt = now
	}
}

// credit is by how much the deadline is put off for those that are catching
// up: a member that was sidelined begins the next round late by the time that
// its fetch took. Without credit for it, one missed deadline would always lead
// to the next, and every sidelined member to its eviction. Who has caught up
// later lags more, and so the last one counts that is still at work. It is
// asked for at every event: those at the end that are done with the round are
// forgotten.
func (m *Machine) credit() Time {
	for n := len(m.lagging); n > 0; n-- {
		if w := m.lagging[n-1]; !w.gone && w.work != arrived {
			break
		}
		m.lagging = m.lagging[:n-1]
	}
	for _, w := range slices.Backward(m.lagging) {
		if w.work == working && !w.gone {
			return w.lag
		}
	}
	return 0
}

// history is the arrival offsets of the last rounds.
type history struct {
	rounds  [][]Time
	total   int
	scratch []Time
}

// add appends a round's offsets and forgets the oldest rounds that the window
// does not need.
func (h *history) add(offsets []Time, window int) {
	h.rounds = append(h.rounds, offsets)
	h.total += len(offsets)
	for len(h.rounds) > 1 && h.total-len(h.rounds[0]) >= window {
		h.total -= len(h.rounds[0])
		h.rounds = h.rounds[1:]
	}
}

// deadline computes the offset of a deadline after the first arrival.
func (h *history) deadline(s *Straggler) Deadline {
	h.scratch = h.scratch[:0]
	for _, r := range h.rounds {
		h.scratch = append(h.scratch, r...)
	}
	d := Deadline{K: s.K, MinSlack: s.MinSlack, Samples: len(h.scratch)}
	d.Median = Median(h.scratch)
	d.MAD = MAD(h.scratch, d.Median)
	d.Offset = max(s.MinSlack, d.Median+Time(s.K*float64(d.MAD)))
	return d
}
