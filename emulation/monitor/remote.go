//go:build linux

package monitor

import (
	"testbed/shaping/fidelity"
	"testbed/shaping/userlink"
)

// elsewhere is what another host of the run has seen of itself, by its own clock.
type elsewhere struct {
	first, before, last Sample
	known               bool
}

// others are the other hosts, by name.
type others map[string]*elsewhere

// take takes what a host has seen since it told the last time.
func (o others) take(host string, s Sample) {
	e := o[host]
	if e == nil {
		o[host] = &elsewhere{first: s, before: s, last: s}
		return
	}
	for name, d := range e.last.Waits {
		if _, is := s.Waits[name]; !is && s.Waits != nil {
			s.Waits[name] = d // it has ended
		}
	}
	e.before, e.last = e.last, s
	e.known = true
}

// Elsewhere takes what another host has seen since it told the last time, when its
// router was asked for its count; Routed follows. What comes first is from before
// the run, and what comes at the end of all the time.
func (m *Monitor) Elsewhere(host string, s Sample) { m.away.take(host, s) }

// Differ takes the processors of hosts that have different ones.
func (m *Monitor) Differ(processors []string) { m.whole.Processors = processors }

// enterAway enters what other hosts have seen into a round, where that is worse.
func (m *Monitor) enterAway(r *Round) {
	for _, e := range m.away {
		if e.known {
			e.last.enterWorse(e.before, &r.Measured)
			for name, d := range e.last.Waits {
				r.Measured.CPUWait = max(r.Measured.CPUWait, float64(d-e.before.Waits[name])/float64(e.last.At.Sub(e.before.At)))
			}
		}
	}
}

// conclude enters what is of all the time: the other hosts' own, and what became of
// frames between hosts.
func (o others) conclude(router *userlink.Stats, to *fidelity.Measurements) {
	for _, e := range o {
		if e.known {
			e.last.enterWorse(e.first, to)
		}
	}
	if router == nil {
		return
	}
	for _, u := range router.Underlay {
		to.Underlay = append(to.Underlay, fidelity.Underlay{
			From: u.From, To: u.To, Frames: u.Frames, Lost: u.Lost, Late: u.Late, LateMax: u.LateMax,
			Forged: u.Forged, Replayed: u.Replayed, ClockBound: u.Bound,
		})
	}
}

// enterWorse enters what the machine and the links have done since an earlier
// sample, where it is worse than what is entered.
func (s Sample) enterWorse(since Sample, to *fidelity.Measurements) {
	here := *to
	s.enter(since, to)
	to.CPUPressure = max(to.CPUPressure, here.CPUPressure)
	to.Steal, to.SoftIRQ = max(to.Steal, here.Steal), max(to.SoftIRQ, here.SoftIRQ)
}
