package policy

import "testbed/internal/errs"

func init() {
	Register("backup", "close a round without the last b arrivals (backup workers)", &Backup{B: 1})
}

// Backup closes a round as soon as all but B members have arrived, as
// synchronous training with B backup workers does. The last arrivals are left
// out, slow or not (J. Chen et al., Revisiting Distributed Synchronous SGD,
// 2016, https://arxiv.org/abs/1604.00981). It evicts nobody.
type Backup struct {
	// The number of members that a round need not wait for.
	B int `yaml:"b" json:"b" tune:"0 0.5 of members"`
}

// Validate reports a parameter out of range.
func (p *Backup) Validate() error {
	if p.B < 0 {
		return errs.Fieldf("b", "is %d: it must not be negative", p.B)
	}
	return nil
}

// Deadline returns nil: this policy sets none.
func (*Backup) Deadline(*Round) *Deadline { return nil }

// Enough needs all members but B, and at least one.
func (p *Backup) Enough(r *Round) (needed int, enough bool) {
	needed = max(1, r.Members-p.B)
	return needed, r.Arrived >= needed
}

// Late evicts nobody.
func (*Backup) Late(*Round, Member) (limit int, evict bool) { return 0, false }

// Closed does nothing.
func (*Backup) Closed(*Round) {}
