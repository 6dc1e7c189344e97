package policy

import (
	"fmt"
	"slices"
)

// Consistent compares what the machine keeps by the way with what it could
// count.
func (m *Machine) Consistent() error {
	present, unreduced := 0, 0
	var lag Time
	for _, w := range m.members {
		if w.counted() {
			present++
		}
		if w.work == working {
			lag = max(lag, w.lag)
		}
		if w.gone {
			return fmt.Errorf("member %d is gone", w.id)
		}
	}
	for _, w := range m.participants {
		if !w.reduced {
			unreduced++
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
	case present != m.present:
		return fmt.Errorf("%d members have arrived in time, %d counted", present, m.present)
	case lag != m.credit():
		return fmt.Errorf("the credit is %d, kept as %d", lag, m.credit())
	case m.phase == reducing && unreduced != m.unreduced:
		return fmt.Errorf("%d participants reduce, %d counted", unreduced, m.unreduced)
	case len(m.lost) > 0:
		return fmt.Errorf("participant %d was lost without a consequence", m.lost[0].id)
	}
	return nil
}
