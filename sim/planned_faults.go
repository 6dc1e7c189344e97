package sim

import (
	"fmt"
	"time"

	"testbed/policy"
	"testbed/scenarios/resolved"
	"testbed/shaping"
)

// awaitFault schedules the next change of the links after a real time.
func (p *planned) awaitFault(after time.Duration) {
	if at, ok := p.scenario.Faults.Next(after); ok {
		p.changed, p.change = after, at
		p.later(max(p.now, p.scenario.ScenarioTime(at)), p.changeLinks)
	}
}

// changeLinks applies the faults of the present time to the links.
func (p *planned) changeLinks() {
	plan, err := shaping.Compose(p.scenario.Plan, p.scenario.Faults.At(p.change))
	if err != nil {
		p.fail(fmt.Errorf("changing the links at %d µs: %w", p.now, err))
		return
	}
	p.links.plan = plan
	for _, e := range resolved.LinkChanges(p.scenario.Faults, p.changed, p.change) {
		p.note(&e)
	}
	p.awaitFault(p.change)
	p.release()
}

// release delivers the messages that are no longer held up by a cut path, and
// blocks or resumes running reductions.
func (p *planned) release() {
	var still []held
	for _, h := range p.held {
		if p.cut(h.from, h.to) {
			still = append(still, h)
			continue
		}
		p.arrive(h.from, h.to, p.recovered(h.from, h.to, h.sent), h.deliver)
	}
	p.held = still
	for _, r := range p.running {
		switch blocked := p.interrupted(r); {
		case blocked && !r.blocked:
			r.blocked, r.since = true, p.now
		case !blocked && r.blocked:
			p.resumeReduction(r)
		}
	}
}

// recovered is the arrival time of a message whose path is open again. It
// arrives with its next probe. If heartbeats go the same way, it arrives a
// round trip after the next heartbeat, whose acknowledgement shows the loss.
func (p *planned) recovered(from, to int, sent policy.Time) policy.Time {
	at := p.recovery(from, to, sent)
	if to == coordinator {
		period := p.scenario.Policy.HeartbeatPeriod
		at = min(at, p.in(p.links.rtt(from, to)+p.links.oneWay(from, to))+period-p.now%period)
	}
	return max(at, p.now)
}

// recovery is the arrival time of a lost packet that a probe sends again.
func (p *planned) recovery(from, to int, sent policy.Time) policy.Time {
	return p.scenario.ScenarioTime(p.links.recovery(from, to, p.scenario.RealDuration(sent), p.scenario.RealDuration(p.now)))
}
