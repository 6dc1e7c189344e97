package node

import (
	"slices"
	"time"

	"testbed/policy"
	"testbed/record"
)

// tell gives the policy machine an event and carries out its decisions.
func (c *coordinator) tell(e policy.Event) {
	if !c.started || c.done || c.halted {
		return
	}
	actions := c.machine.Step(c.t, e)
	if c.witness(actions); c.failed != nil {
		return
	}
	for _, a := range actions {
		c.act(c.t, a)
	}
}

// act carries out one action of the policy machine.
func (c *coordinator) act(now policy.Time, a policy.Action) {
	if step, ok := a.(*policy.OuterStep); ok {
		c.report(c.outcomes.Step(now, step, c.cfg.ClockTime))
	}
	if e, ok := record.FromAction(now, a); ok {
		c.orderRing(&e)
		c.report(e)
	}
	switch a := a.(type) {
	case *policy.Reject:
		c.dismiss(a.ID, message{Type: msgEvict, Error: string(a.Rule)})
	case *policy.StartRound:
		keeper := c.keeper(a)
		for _, id := range a.IDs {
			c.send(id, message{
				Type: msgStart, Round: a.Round, OuterSteps: a.Round - 1, Now: now, Told: c.reported,
				Checkpoint: id == keeper, Residual: keeper >= 0 && c.cfg.Residuals,
			})
		}
	case *policy.Reduce:
		c.outcomes.Begin(a.Epoch)
		order := c.order(a.Participants)
		for _, id := range a.Participants {
			var ring []peer
			for _, id := range c.grouping.Ring(a.Round, order, id) {
				ring = append(ring, peer{ID: id, Incarnation: c.workers[id].incarnation, Addr: c.workers[id].ring})
			}
			c.send(id, message{Type: msgReduce, Round: a.Round, Epoch: a.Epoch, Peers: ring, Zero: slices.Contains(a.Zero, id), Repeats: policy.Repeats(a.Repeated, id), Now: now})
		}
	case *policy.Abort:
		c.outcomes.Abort(a.Epoch)
		for _, id := range a.Participants {
			c.send(id, message{Type: msgAbort, Round: a.Round, Epoch: a.Epoch, Confirm: a.Confirm})
		}
	case *policy.Fetch:
		var donors []peer
		for _, id := range append([]policy.ID{a.From}, a.Helpers...) {
			donors = append(donors, peer{ID: id, Addr: c.workers[id].fetch})
		}
		c.send(a.ID, message{Type: msgFetch, Round: a.Round, OuterSteps: a.OuterSteps, Peers: donors, Agreed: a.Agreed, Whole: a.Whole})
	case *policy.Evict:
		if a.Rule != policy.RuleReplaced { // otherwise its successor has its place
			c.dismiss(a.ID, message{Type: msgEvict, Error: string(a.Rule), Rejoin: a.Rejoin})
		}
		c.compareStates(c.gone)
	case *policy.WakeAt:
		if !c.replaying {
			c.timer.Reset(time.Until(c.realTime(a.At)))
		}
	case *policy.Finish:
		c.done, c.complete = true, a.Complete
	}
}

// keeper is the worker that saves a checkpoint at the beginning of a round, or
// -1 for none. It saves one if all workers agreed on the state at the
// beginning. The participants of the outer step before take turns. In replica
// groups no rank has the whole state.
func (c *coordinator) keeper(a *policy.StartRound) policy.ID {
	every, step := c.cfg.CheckpointEvery, a.Round-1
	if every == 0 || step == 0 || step%every != 0 || !c.grouping.Together(step) || a.Rule != policy.RuleNextRound {
		return -1
	}
	return a.IDs[step/every%len(a.IDs)]
}

// dismiss sends a worker its last message.
func (c *coordinator) dismiss(id policy.ID, m message) {
	c.send(id, m)
	r := c.workers[id]
	r.gone = true
	if l := r.session.current(); l != nil {
		// A worker that is dead or cut off does not hang up itself.
		time.AfterFunc(c.patient(endPatience), func() { l.conn.CloseWithError(0, "evicted") })
	}
}

func (c *coordinator) send(id policy.ID, m message) {
	if r := c.workers[id]; r != nil {
		r.session.send(m)
	}
}

// note records an event at the present time.
func (c *coordinator) note(e record.Event) {
	e.T = c.t
	c.report(e)
}

// report numbers an event of the record. So an event that this coordinator and
// the one before both know of is not recorded twice.
func (c *coordinator) report(e record.Event) {
	c.reported++
	e.Seq = c.reported
	if c.reported > c.cfg.Reported {
		c.cfg.Report(Report{Event: &e})
	}
}

// compareStates records the states of outer steps at their participants that
// are not gone; with a nil gone, at all that have reported.
func (c *coordinator) compareStates(gone func(policy.ID) bool) {
	for _, e := range c.outcomes.Compare(gone) {
		c.note(e)
	}
}

func (c *coordinator) gone(id policy.ID) bool { return c.workers[id].gone }

// giveUp ends a run that is not complete.
func (c *coordinator) giveUp() {
	c.done, c.complete = true, false
	c.note(record.Event{Type: record.RunEnd, Complete: new(false)})
}
