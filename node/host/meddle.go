//go:build linux

package host

import (
	"time"

	"testbed/runlog"
	"testbed/scenarios"
)

// hearMeddling takes the meddlings that come during the run.
func (p *play) hearMeddling() {
	for {
		var w word
		if p.words.Decode(&w) != nil {
			return // whoever meddles has nothing more to say
		}
		if m := w.Meddle; m != nil {
			time.AfterFunc(m.After, func() { p.inbox <- func() error { return p.meddle(m.Inject) } })
		}
	}
}

// meddle carries out an inject that no scenario has.
func (p *play) meddle(in scenarios.Inject) error {
	started := !p.began.IsZero()
	in.At = p.Scenario.FirstJoin()
	if started {
		in.At = p.now()
	}
	if in.ID != nil {
		c := p.nodes[scenarios.NodeName(*in.ID)]
		if c == nil || !started && in.Op != scenarios.Crash && in.Op != scenarios.Pause {
			return nil
		}
		if started {
			return p.inject(in)
		}
		c.excused, c.pausing = true, in.Op == scenarios.Pause
		if c.pausing {
			p.stop(c)
		} else {
			c.process.Kill()
		}
		return nil
	}
	for _, id := range in.IDs {
		if c := p.nodes[scenarios.NodeName(id)]; c != nil {
			c.excused = true
		}
	}
	// Whoever lays faults later has to know of it.
	p.Scenario.Injects = append(p.Scenario.Injects, in)
	at := p.Scenario.RealDuration(in.At)
	if err := p.layFaults(at); err != nil || !started {
		return err
	}
	e := runlog.Event{T: in.At, Type: runlog.Partition, IDs: in.IDs}
	if in.Op == scenarios.ClearPartition {
		e.Type = runlog.Heal
	}
	p.tell(note{Event: &e})
	return nil
}
