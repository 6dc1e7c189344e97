package policy

import (
	"fmt"
	"slices"
)

// Consistent compares what the machine keeps by the way with what it could
// count.
func (m *Machine) Consistent() error {
	arrived, learners, pending := 0, 0, 0
	var lag Time
	for _, w := range m.members {
		if w.counted() {
			arrived++
		}
		if w.learner {
			learners++
		}
		if w.work == working {
			lag = max(lag, w.round.lag)
		}
		if w.gone {
			return fmt.Errorf("member %d is gone", w.id)
		}
	}
	for _, w := range m.reduction.participants {
		if !w.reduction.done {
			pending++
		}
	}
	for i, pair := range m.apart {
		if slices.Contains(m.apart[:i], pair) {
			return fmt.Errorf("the pair %v is kept apart twice", pair)
		}
	}
	switch {
	case m.phase == finished:
		return nil
	case arrived != m.round.arrived:
		return fmt.Errorf("%d members have arrived in time, %d counted", arrived, m.round.arrived)
	case learners != m.learners:
		return fmt.Errorf("%d members are learners, %d counted", learners, m.learners)
	case lag != m.credit():
		return fmt.Errorf("the credit is %d, kept as %d", lag, m.credit())
	case pending != m.reduction.pending:
		return fmt.Errorf("%d participants reduce, %d counted", pending, m.reduction.pending)
	case len(m.reduction.participants) > 0 != (m.phase == reducing):
		return fmt.Errorf("%d participants while %v", len(m.reduction.participants), m.phase)
	case len(m.reduction.lost) > 0:
		return fmt.Errorf("participant %d was lost without a consequence", m.reduction.lost[0].id)
	}
	return nil
}
