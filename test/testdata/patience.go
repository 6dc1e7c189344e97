package main

import "testbed/policy"

func init() {
	policy.Register("patience", "once a share has arrived, wait a little longer", &Patience{Share: 0.5, Longer: 0.25})
}

// Patience waits until the fraction Share of the members has arrived. It then
// waits for the others, for Longer × this time, but at least for MinSlack.
type Patience struct {
	Share  float64 `yaml:"share" json:"share"`
	Longer float64 `yaml:"longer" json:"longer"`
}

func (p *Patience) Validate() error {
	switch {
	case !(p.Share > 0 && p.Share <= 1):
		return policy.BadParameter("share", "is %v: it must lie in (0, 1]", p.Share)
	case !(p.Longer >= 0 && p.Longer <= 100):
		return policy.BadParameter("longer", "is %v: it must lie in [0, 100]", p.Longer)
	}
	return nil
}

func (p *Patience) Deadline(r *policy.Round) *policy.Deadline {
	if r.Deadline != nil || r.Arrived < policy.Share(p.Share, r.Members) {
		return nil
	}
	took := r.Now - r.Start
	wait := max(r.MinSlack, policy.Time(p.Longer*float64(took)))
	return &policy.Deadline{At: r.Now + wait, Numbers: map[string]float64{"took_us": float64(took), "longer": p.Longer}}
}

func (p *Patience) Enough(r *policy.Round) (needed int, enough bool) {
	needed = policy.Share(p.Share, r.Members)
	return needed, r.Overdue && r.Arrived >= needed
}

func (p *Patience) Late(_ *policy.Round, w policy.Member) (limit int, evict bool) {
	return 0, false // late members are only sidelined
}

func (p *Patience) Closed(*policy.Round) {} // it learns nothing
