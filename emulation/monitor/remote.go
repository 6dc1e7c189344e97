//go:build linux

package monitor

import (
	"testbed/shaping/fidelity"
	"testbed/shaping/userlink"
)

// remoteHost has the observations of another host of the run, by its own clock.
type remoteHost struct {
	first, before, last Sample
	known               bool
}

// remoteHosts are the other hosts, by name.
type remoteHosts map[string]*remoteHost

// take records a host's observations since its last report.
func (r remoteHosts) take(host string, s Sample) {
	e := r[host]
	if e == nil {
		r[host] = &remoteHost{first: s, before: s, last: s}
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

// Remote records another host's observations since its last report, when its
// router was asked for its count; Routed follows. The first observations are
// from before the run. The last ones cover the whole time.
func (m *Monitor) Remote(host string, s Sample) { m.remote.take(host, s) }

// Differ records the hosts' processor types, if they differ.
func (m *Monitor) Differ(processors []string) { m.whole.Processors = processors }

// enterRemote adds other hosts' observations to a round, if they are worse.
func (m *Monitor) enterRemote(r *Round) {
	for _, e := range m.remote {
		if e.known {
			e.last.enterWorse(e.before, &r.Measured)
			for name, d := range e.last.Waits {
				r.Measured.CPUWait = max(r.Measured.CPUWait, float64(d-e.before.Waits[name])/float64(e.last.At-e.before.At))
			}
		}
	}
}

// conclude adds the observations of the whole time: the other hosts' own, and
// those of frames between hosts.
func (r remoteHosts) conclude(router *userlink.Stats, to *fidelity.Measurements) {
	for _, e := range r {
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

// enterWorse adds the changes of the machine and the links since an earlier
// sample, if they are worse than the present values.
func (s Sample) enterWorse(since Sample, to *fidelity.Measurements) {
	here := *to
	s.enter(since, to)
	to.CPUPressure = max(to.CPUPressure, here.CPUPressure)
	to.Steal, to.SoftIRQ = max(to.Steal, here.Steal), max(to.SoftIRQ, here.SoftIRQ)
	if here.Throttled > to.Throttled || to.CPUQuota == 0 {
		to.Throttled, to.CPUQuota = here.Throttled, here.CPUQuota
	}
}
