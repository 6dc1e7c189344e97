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

// cutoff decides when the running round closes without the late. The baseline
// leaves it at its zero value, but for lagging.
type cutoff struct {
	deadline    Deadline
	hasDeadline bool
	overdue     bool // the deadline has come, and from now on a quorum is enough
	quorate     bool // overdue, and the quorum came at quorateAt
	quorateAt   Time
	lagging     []*member // began the round late, having caught up, in this order
}

// armDeadline sets the deadline of the running round at its first arrival, if
// there is history enough to compute it from.
func (m *Machine) armDeadline(now Time) {
	s, c := m.cfg.Straggler, &m.round.cutoff
	if s == nil || m.history.closed < s.MinHistory || c.overdue {
		return
	}
	c.deadline, c.hasDeadline = m.history.deadline(s), true
	c.deadline.At = now + c.deadline.Offset
	m.emitDeadline(c.deadline)
}

func (m *Machine) emitDeadline(d Deadline) {
	m.emit(&ArmDeadline{Round: m.round.number, At: d.At, Reason: Reason{Rule: RuleDeadline, Deadline: &d}})
}

// resumeCutoff has a deadline that came during an outage count from its end.
func (m *Machine) resumeCutoff(now Time) {
	c := &m.round.cutoff
	if c.quorate {
		c.quorateAt = now
	}
	if m.phase == collecting && c.hasDeadline && !c.overdue {
		c.deadline.At = max(c.deadline.At, now+c.deadline.Offset)
		m.emitDeadline(c.deadline)
	}
}

// cutoffAgain is the cutoff of a round that is open again: overdue.
func (m *Machine) cutoffAgain() cutoff {
	return cutoff{overdue: m.cfg.Straggler != nil, lagging: m.round.cutoff.lagging}
}

// cutoffAt is when a Timer may close a round that is collecting.
func (m *Machine) cutoffAt() (at Time, ok bool) {
	c := &m.round.cutoff
	if c.hasDeadline && !c.overdue {
		return c.deadline.At + m.credit(), true
	}
	return c.quorateAt, c.quorate
}

// cutOff closes the round if it is overdue and has its quorum.
func (m *Machine) cutOff(now Time) {
	c, rule := &m.round.cutoff, RuleQuorum
	if c.hasDeadline && !c.overdue && now >= c.deadline.At+m.credit() {
		c.overdue, rule = true, RuleDeadline
	}
	if c.overdue && m.round.arrived >= m.quorum() {
		m.close(now, rule)
		m.settle(now)
		return
	}
	c.quorate = false // a join may have raised the quorum since
}

// checkQuorum leaves the closing of an overdue round that has its quorum to a
// Timer at the same time, so that the arrivals of one instant are judged
// together and their order does not matter.
func (m *Machine) checkQuorum(now Time) {
	c := &m.round.cutoff
	had := c.quorate
	c.quorate = c.overdue && m.round.arrived >= m.quorum()
	if c.quorate && !had {
		c.quorateAt = now
	}
}

// quorum returns ⌈Quorum × voters⌉, and at least one: a round needs a
// contribution. The small term keeps a product such as 0.7 × 10 from being
// rounded up by its binary representation.
func (m *Machine) quorum() int {
	return max(1, int(math.Ceil(float64(m.cfg.Straggler.Quorum*float64(m.voters()))-1e-9)))
}

// cutoffReason returns the numbers on which the running round closes now.
func (m *Machine) cutoffReason() (needed int, deadline *Deadline) {
	if m.cfg.Straggler != nil {
		needed = m.quorum()
	}
	if c := &m.round.cutoff; c.hasDeadline {
		d := c.deadline
		d.Credit = m.credit()
		deadline = &d
	}
	return needed, deadline
}

// recordOffsets adds the arrivals of a round that closes to the history, unless
// they say more of the coordinator than of the workers.
func (m *Machine) recordOffsets(participants []*member) {
	if m.cfg.Straggler == nil || m.round.interrupted {
		return
	}
	offsets := make([]Time, 0, m.round.arrived)
	for _, w := range participants {
		if w.counted() {
			offsets = append(offsets, w.round.arrivedAt-m.round.firstArrival)
		}
	}
	m.history.add(offsets, m.cfg.Straggler.Window)
}

// sideline counts a miss of the round that closes for those that are late, and
// evicts who has missed too many.
func (m *Machine) sideline(late []*member, why Reason) {
	for _, w := range late {
		// A round that was opened again counts once, and one that a joiner
		// has spent on getting its first state does not count.
		if !w.round.missed && w.begun {
			w.misses++
			w.round.missed = true
		}
		why.Rule, why.Misses, why.Limit = RuleLate, w.misses, m.cfg.Straggler.SidelineLimit
		if w.misses > why.Limit {
			why.Rule = RuleStraggler
			m.evict(w, why)
			continue
		}
		w.sidelined = true
		m.emit(&Sideline{ID: w.id, Round: m.round.number, Reason: why})
	}
}

// rejoin forgives a member whose contribution the round has.
func (m *Machine) rejoin(w *member) {
	if !w.sidelined {
		return
	}
	m.emit(&Rejoin{ID: w.id, Round: m.round.number, Reason: Reason{Rule: RuleOnTime, Misses: w.misses, Limit: m.cfg.Straggler.SidelineLimit}})
	w.misses, w.round.missed, w.sidelined = 0, false, false
}

// mayFinishSteps reports whether a member that the outer step left behind
// finishes its inner steps before it catches up.
func (m *Machine) mayFinishSteps(w *member) bool {
	return m.cfg.Straggler != nil && m.cfg.Straggler.FinishSteps && (w.work == working || w.work == finishing)
}

// giveCredit puts the deadline off for a member that has just caught up.
func (m *Machine) giveCredit(now Time, w *member) {
	w.round.lag = now - m.round.start
	m.round.cutoff.lagging = append(m.round.cutoff.lagging, w)
}

// credit is by how much the deadline is put off for those that are catching
// up: a member that was sidelined begins the next round late by the time that
// its fetch took. Without credit for it, one missed deadline would always lead
// to the next, and every sidelined member to its eviction. Who has caught up
// later lags more, and so the last one counts that is still at work. It is
// asked for at every event: those at the end that are done with the round are
// forgotten.
func (m *Machine) credit() Time {
	c := &m.round.cutoff
	for n := len(c.lagging); n > 0; n-- {
		if w := c.lagging[n-1]; !w.gone && w.work != arrived {
			break
		}
		c.lagging = c.lagging[:n-1]
	}
	for _, w := range slices.Backward(c.lagging) {
		if w.work == working && !w.gone {
			return w.round.lag
		}
	}
	return 0
}

// history is the arrival offsets of the last rounds.
type history struct {
	rounds  [][]Time
	closed  int // rounds added so far
	total   int // offsets in rounds
	scratch []Time
}

// add appends a round's offsets and forgets the oldest rounds that the window
// does not need.
func (h *history) add(offsets []Time, window int) {
	h.closed++
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
