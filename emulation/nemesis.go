//go:build linux

package emulation

import (
	"time"

	"testbed/record"
	"testbed/scenarios/faults"
)

// takeFaults takes the faults that the nemesis finds during the run.
func (p *player) takeFaults() {
	for {
		var f Fault
		if p.s.NextCommand(&f) != nil {
			return // there will be no more
		}
		time.AfterFunc(f.After, func() { p.s.Post(func() error { return p.injectUnplanned(f.Inject) }) })
	}
}

// injectUnplanned carries out an inject that no scenario has.
func (p *player) injectUnplanned(in faults.Inject) error {
	started := p.clock.running()
	in.At = p.spec.Scenario.FirstJoin()
	if started {
		in.At = p.clock.now()
	}
	if in.ID == nil {
		return p.partition(in, started)
	}
	w := p.worker(*in.ID)
	switch {
	case w == nil:
	case started:
		return p.inject(in)
	case in.Op == faults.Crash:
		w.excused, w.pausing = true, false
		w.child.Kill()
	case in.Op == faults.Pause:
		w.excused, w.pausing = true, true
		return p.stop(w)
	}
	return nil
}

// partition cuts workers off from the others, or ends that.
func (p *player) partition(in faults.Inject, started bool) error {
	for _, id := range in.IDs {
		if w := p.worker(id); w != nil {
			w.excused = true
		}
	}
	// Whoever applies faults later has to know of it.
	p.spec.Scenario.Faults.Injects = append(p.spec.Scenario.Faults.Injects, in)
	if err := p.faults.Apply(p.spec.Scenario.RealDuration(in.At)); err != nil || !started {
		return err
	}
	e := record.Event{T: in.At, Type: record.Partition, IDs: in.IDs}
	if in.Op == faults.ClearPartition {
		e.Type = record.Heal
	}
	return p.record(e)
}
