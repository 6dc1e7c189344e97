package policy

import (
	"testbed/internal/errs"
)

func init() {
	Register("straggler", "close a round at median + k·MAD of recent arrivals, with a quorum; evict workers that miss too often", DefaultStraggler())
}

// Straggler closes a round at an adaptive deadline, which lies
// max(MinSlack, median + K·MAD) after the round's first arrival. Median and MAD
// are taken over the arrival offsets in the window.
type Straggler struct {
	// The fraction of the members, rounded up, that must have arrived before a round may
	// close without the others.
	Quorum float64 `yaml:"quorum" json:"quorum" tune:"0.3 1"`
	// The deadline comes `k` median absolute deviations after the median arrival. A
	// higher `k` waits longer for workers whose times vary.
	K float64 `yaml:"k" json:"k" tune:"0.5 20 log"`
	// The number of arrival offsets to remember. Rounds are remembered or forgotten
	// whole, because the last offsets of a round are its slowest. The last round is
	// always remembered.
	Window int `yaml:"window" json:"window" tune:"4 256 log"`
	// The number of closed rounds before the first deadline.
	MinHistory int `yaml:"min_history" json:"min_history"`
	// The least time between the first arrival and the deadline.
	MinSlack Time `yaml:"min_slack" json:"min_slack" tune:"0.001 2 log of round"`
	// The number of rounds in a row that a member may miss. The next miss evicts it.
	// Rounds during a joiner's first fetch do not count.
	SidelineLimit int `yaml:"sideline_limit" json:"sideline_limit" tune:"0 8"`
	// A sidelined member finishes its inner steps before it catches up. Otherwise it
	// drops these steps when the next round begins. The missed round never uses them.
	FinishSteps bool `yaml:"finish_steps" json:"finish_steps,omitempty" tune:"0 1"`

	history history
}

// DefaultStraggler returns the parameters that reproduce the published scenario
// exactly.
func DefaultStraggler() *Straggler {
	return &Straggler{Quorum: 0.75, K: 3, Window: 32, MinHistory: 1, MinSlack: 1, SidelineLimit: 2}
}

// Limits keep the history in memory and every deadline inside 64 bits.
const (
	maxWindow = 1_000_000
	maxSlack  = Time(1e15)
)

// Validate reports the first parameter out of range as a *errs.FieldError.
func (s *Straggler) Validate() error {
	var bad errs.Problems
	bad.If(!(s.Quorum > 0 && s.Quorum <= 1), "quorum", "is %v: it must lie in (0, 1]", s.Quorum)
	bad.If(!(s.K >= 0 && s.K <= 1000), "k", "is %v: it must lie in [0, 1000]", s.K)
	bad.If(s.Window < 1 || s.Window > maxWindow, "window", "is %d: it must lie between 1 and %d", s.Window, maxWindow)
	bad.If(s.MinHistory < 1, "min_history", "is %d: it must be at least 1", s.MinHistory)
	bad.If(s.MinSlack < 0 || s.MinSlack > maxSlack, "min_slack", "is %d µs: it must lie between 0 and %g µs", s.MinSlack, float64(maxSlack))
	bad.If(s.SidelineLimit < 0, "sideline_limit", "is %d: it must not be negative", s.SidelineLimit)
	return bad.Err()
}

// Deadline sets the deadline at the first arrival, if there is enough history.
func (s *Straggler) Deadline(r *Round) *Deadline {
	if r.Arrived == 0 || r.Deadline != nil || r.Overdue || s.history.closed < s.MinHistory {
		return nil
	}
	spread := s.history.spread()
	spread.K, spread.MinSlack = s.K, max(s.MinSlack, r.MinSlack)
	offset := max(spread.MinSlack, spread.Median+Time(s.K*float64(spread.MAD)))
	return &Deadline{Spread: spread, At: r.First + offset}
}

// Enough needs a quorum, from the deadline on.
func (s *Straggler) Enough(r *Round) (needed int, enough bool) {
	needed = Share(s.Quorum, r.Members)
	return needed, r.Overdue && r.Arrived >= needed
}

// Late evicts a member that has missed more than SidelineLimit consecutive
// rounds.
func (s *Straggler) Late(_ *Round, w Member) (limit int, evict bool) {
	return s.SidelineLimit, w.Misses > s.SidelineLimit
}

// Closed adds the arrivals of the round to the history.
func (s *Straggler) Closed(r *Round) {
	offsets := make([]Time, 0, r.Arrived)
	for w := range r.All {
		if w.Arrived {
			offsets = append(offsets, w.At-r.First)
		}
	}
	s.history.add(offsets, s.Window)
}

// FinishesSteps implements Finisher.
func (s *Straggler) FinishesSteps() bool { return s.FinishSteps }

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

// spread returns the median and the MAD of the offsets.
func (h *history) spread() *Spread {
	h.scratch = h.scratch[:0]
	for _, r := range h.rounds {
		h.scratch = append(h.scratch, r...)
	}
	d := &Spread{Samples: len(h.scratch)}
	d.Median = Median(h.scratch)
	d.MAD = MAD(h.scratch, d.Median)
	return d
}
