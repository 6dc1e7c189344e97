package policy

import (
	"math"

	"testbed/internal/errs"
)

func init() {
	Register("deadline", "close a round a fixed time after it began", &FixedDeadline{Factor: 1.5, Quorum: 0.5})
}

// FixedDeadline closes every round at a fixed time after its beginning, with a
// quorum. It evicts nobody.
type FixedDeadline struct {
	// The time from a round's beginning to its deadline. 0 means `factor` times the median
	// member's time for the first round. The first round then has no deadline.
	After Time `yaml:"after" json:"after"`
	// If `after` is 0: the time to a deadline, divided by the median member's time for
	// the first round.
	Factor float64 `yaml:"factor" json:"factor" tune:"1 4 log"`
	// The fraction of the members, rounded up, that must have arrived before a round may
	// close without the others.
	Quorum float64 `yaml:"quorum" json:"quorum" tune:"0.2 1"`

	first Time // the median member's time for the first round; 0: not known
}

// Validate reports a parameter out of range.
func (p *FixedDeadline) Validate() error {
	var bad errs.Problems
	bad.If(p.After < 0 || p.After > maxSlack, "after", "is %d µs: it must lie between 0 and %g µs", p.After, float64(maxSlack))
	bad.If(!(p.Factor >= 1 && p.Factor <= 1000), "factor", "is %v: it must lie in [1, 1000]", p.Factor)
	bad.If(!(p.Quorum > 0 && p.Quorum <= 1), "quorum", "is %v: it must lie in (0, 1]", p.Quorum)
	return bad.Err()
}

// Deadline sets the deadline when the round begins.
func (p *FixedDeadline) Deadline(r *Round) *Deadline {
	after := p.After
	if after == 0 {
		after = Time(math.Ceil(p.Factor * float64(p.first)))
	}
	if r.Deadline != nil || after == 0 {
		return nil
	}
	return &Deadline{At: max(r.Now, r.Start+after), Numbers: map[string]float64{"after_us": float64(after)}}
}

// Enough needs a quorum, from the deadline on.
func (p *FixedDeadline) Enough(r *Round) (needed int, enough bool) {
	needed = Share(p.Quorum, r.Members)
	return needed, r.Overdue && r.Arrived >= needed
}

// Late evicts nobody.
func (*FixedDeadline) Late(*Round, Member) (limit int, evict bool) { return 0, false }

// Closed measures the first round.
func (p *FixedDeadline) Closed(r *Round) {
	if p.first > 0 {
		return
	}
	var took []Time
	for w := range r.All {
		if w.Arrived {
			took = append(took, w.At-r.Start)
		}
	}
	p.first = max(1, Median(took))
}
