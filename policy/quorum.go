package policy

import (
	"slices"

	"testbed/internal/errs"
)

func init() {
	Register("quorum", "wait join_timeout for the other members, but not for members that missed the last round", &Quorum{MinReplicas: 1, JoinTimeout: 100_000})
}

// Quorum closes a round as torchft's lighthouse closes a quorum
// (https://github.com/pytorch/torchft, src/lighthouse.rs): at once when all
// participants of the last round have arrived, otherwise JoinTimeout after the
// first arrival, if more than half of the members and at least MinReplicas have
// arrived. It evicts nobody.
type Quorum struct {
	// The number of members, at least a majority, that must have arrived, unless all
	// participants of the last round have arrived.
	MinReplicas int `yaml:"min_replicas" json:"min_replicas"`
	// The time from the first arrival until the round may close. The default is from
	// torchft's tests.
	JoinTimeout Time `yaml:"join_timeout" json:"join_timeout" tune:"0.01 4 log of round"`

	last []ID // took part in the round before, in order
}

// Validate reports a parameter out of range.
func (p *Quorum) Validate() error {
	var bad errs.Problems
	bad.If(p.MinReplicas < 1, "min_replicas", "is %d: it must be at least 1", p.MinReplicas)
	bad.If(p.JoinTimeout < 0 || p.JoinTimeout > maxSlack, "join_timeout", "is %d µs: it must lie between 0 and %g µs", p.JoinTimeout, float64(maxSlack))
	return bad.Err()
}

// Deadline sets the deadline at the first arrival.
func (p *Quorum) Deadline(r *Round) *Deadline {
	if r.Arrived == 0 || r.Deadline != nil {
		return nil
	}
	return &Deadline{At: r.First + p.JoinTimeout, Numbers: map[string]float64{"join_timeout_us": float64(p.JoinTimeout)}}
}

// Enough needs all members that took part in the round before, or a majority
// once the deadline has come. As in torchft, the former is impossible after one
// of them has ceased to be a member.
func (p *Quorum) Enough(r *Round) (needed int, enough bool) {
	back := 0
	for w := range r.All {
		if w.Arrived && contains(p.last, w.ID) {
			back++
		}
	}
	if len(p.last) > 0 && back == len(p.last) {
		return back, true
	}
	needed = max(p.MinReplicas, r.Members/2+1)
	return needed, r.Overdue && r.Arrived >= needed
}

func contains(sorted []ID, id ID) bool {
	_, found := slices.BinarySearch(sorted, id)
	return found
}

// Late evicts nobody.
func (*Quorum) Late(*Round, Member) (limit int, evict bool) { return 0, false }

// Closed keeps the participants of the round.
func (p *Quorum) Closed(r *Round) {
	p.last = p.last[:0]
	for w := range r.All {
		if w.Arrived {
			p.last = append(p.last, w.ID)
		}
	}
}
