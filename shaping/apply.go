package shaping

import (
	"fmt"
	"time"

	"testbed/internal/errs"
)

// reject reports the name of a field and what is wrong with it.
type reject func(name, format string, args ...any)

// apply sets the given properties of the node.
func (a Access) apply(n *NodePlan) {
	// A rate replaces a trace.
	if a.AccessPreset != nil {
		a.AccessPreset.apply(n)
		n.PaceUp, n.PaceDown = 0, 0
	}
	if a.RateUp != nil {
		n.PaceUp = 0
	}
	if a.RateDown != nil {
		n.PaceDown = 0
	}
	set(&n.RateUp, a.RateUp)
	set(&n.RateDown, a.RateDown)
	set(&n.Queue, a.Queue)
	set(&n.AccessOneWayDelay, a.AccessOneWayDelay)
}

// apply sets the given properties of the path.
func (p Path) apply(to *PathPlan) {
	if p.PathPreset != nil {
		to.OneWayDelay, _ = p.PathPreset.oneWayDelay() // check reports the error
	}
	set(&to.OneWayDelay, p.OneWayDelay)
	set(&to.Rate, p.Rate)
	set(&to.Jitter, p.Jitter)
	set(&to.JitterDistribution, p.JitterDistribution)
	if p.Loss != nil {
		to.Loss, to.LossBurst = *p.Loss, LossBurst{}
	}
	if p.LossBurst != nil {
		to.Loss, to.LossBurst = 0, *p.LossBurst
	}
	set(&to.Duplicate, p.Duplicate)
	set(&to.Reorder, p.Reorder)
	set(&to.Corrupt, p.Corrupt)
}

func set[T any](to, v *T) {
	if v != nil {
		*to = *v
	}
}

// check checks each value by itself.
func (a Access) check(bad reject) {
	if a.AccessPreset != nil {
		if problem := a.AccessPreset.problem(); problem != "" {
			bad("access_preset", "%s", problem)
		}
	}
	checkRate(bad, "rate_up", a.RateUp)
	checkRate(bad, "rate_down", a.RateDown)
	if a.Queue != nil {
		if problem := a.Queue.problem(); problem != "" {
			bad("queue", "%s", problem)
		}
	}
	checkTime(bad, "access_one_way_delay", a.AccessOneWayDelay)
}

// check checks each value by itself; PathPlan.problem checks them together.
func (p Path) check(bad reject) {
	if p.PathPreset != nil {
		if _, err := p.PathPreset.oneWayDelay(); err != nil {
			bad("path_preset", "%v", err)
		}
	}
	checkTime(bad, "one_way_delay", p.OneWayDelay)
	checkRate(bad, "rate", p.Rate)
	checkTime(bad, "jitter", p.Jitter)
	if p.Jitter != nil && *p.Jitter > maxJitter && *p.Jitter <= maxTime {
		bad("jitter", "%v is above the limit of %v", *p.Jitter, maxJitter)
	}
	if d := p.JitterDistribution; d != nil && int(*d) >= len(distributionNames) {
		bad("jitter_distribution", "%v is not a distribution; the distributions are %s", *d, errs.List(distributionNames))
	}
	if p.Loss != nil && p.LossBurst != nil {
		bad("loss_burst", "cannot be combined with loss: give one of the two (loss_outside is the loss outside bursts)")
	}
	if p.LossBurst != nil {
		p.LossBurst.check(func(name, format string, args ...any) { bad("loss_burst."+name, format, args...) })
	}
	for _, f := range []struct {
		name  string
		share *Probability
	}{{"loss", p.Loss}, {"duplicate", p.Duplicate}, {"reorder", p.Reorder}, {"corrupt", p.Corrupt}} {
		if f.share != nil {
			if problem := f.share.problem(); problem != "" {
				bad(f.name, "%s", problem)
			}
		}
	}
}

func checkRate(bad reject, name string, r *Rate) {
	if r != nil && *r < 0 {
		bad(name, "%d bit/s is negative; leave it out for an unlimited rate", int64(*r))
	}
}

func checkTime(bad reject, name string, d *Duration) {
	if d != nil {
		if problem := d.problem(); problem != "" {
			bad(name, "%s", problem)
		}
	}
}

// problem names a property that contradicts the others, and says why.
func (p PathPlan) problem() (name, problem string) {
	switch {
	case p.OneWayDelay < 0 || p.OneWayDelay > maxTime:
		return "one_way_delay", p.OneWayDelay.problem() + ", including the access links"
	case p.Fastest() >= 0:
	case p.JitterDistribution == Uniform:
		return "jitter", fmt.Sprintf("%v exceeds the one-way delay of %v, and a packet cannot arrive before it was sent; lower the jitter or raise one_way_delay", p.Jitter, p.OneWayDelay)
	default:
		early := time.Duration(p.OneWayDelay - p.Fastest()).Round(time.Microsecond)
		return "jitter", fmt.Sprintf("with jitter %v and the distribution %v, packets would arrive up to %v before the one-way delay of %v is over, that is, before they are sent; lower the jitter or raise one_way_delay", p.Jitter, p.JitterDistribution, early, p.OneWayDelay)
	}
	return "", ""
}
