package policy_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"testbed/policy"
)

// failer is what the checker needs of *testing.T and *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

type told struct {
	now     policy.Time
	event   policy.Event
	actions []policy.Action
}

// checker drives a machine and holds every action against a second, slow and
// obvious account of the run.
type checker struct {
	t       failer
	cfg     policy.Config
	machine *policy.Machine
	script  []told

	now       policy.Time
	members   map[policy.ID]bool
	former    map[policy.ID]bool
	heard     map[policy.ID]policy.Time
	version   map[policy.ID]int // outer steps in the state it holds; absent: none
	fetching  map[policy.ID]policy.ID
	arrived   map[policy.ID]bool // counted in the running round
	late      map[policy.ID]bool // arrived after the round had closed
	misses    map[policy.ID]int
	missed    map[policy.ID]bool // already counted in this round
	steps     int
	epoch     int
	closed    bool // the running round has closed
	closers   []policy.ID
	running   *policy.Reduce
	reported  map[policy.ID]bool
	deadline  *policy.ArmDeadline
	overdue   bool        // the quorum is enough
	wake      policy.Time // -1: none
	rounds    int         // closed rounds
	finished  *policy.Finish
	spentTime bool // the last Timer came at its time
	began     policy.Time
	behind    map[policy.ID]bool        // has missed an outer step at least once
	lag       map[policy.ID]policy.Time // began the running round late by this
}

func newChecker(t failer, cfg policy.Config) *checker {
	m, err := policy.New(cfg)
	if err != nil {
		t.Fatalf("new machine: %v", err)
	}
	return &checker{
		t: t, cfg: cfg, machine: m, wake: -1,
		members: map[policy.ID]bool{}, former: map[policy.ID]bool{}, heard: map[policy.ID]policy.Time{},
		version: map[policy.ID]int{}, fetching: map[policy.ID]policy.ID{}, arrived: map[policy.ID]bool{}, late: map[policy.ID]bool{},
		misses: map[policy.ID]int{}, missed: map[policy.ID]bool{}, reported: map[policy.ID]bool{},
		behind: map[policy.ID]bool{}, lag: map[policy.ID]policy.Time{},
	}
}

func sorted[M ~map[policy.ID]V, V any](m M) []policy.ID { return slices.Sorted(maps.Keys(m)) }

func (c *checker) require(ok bool, format string, args ...any) {
	if !ok {
		c.t.Helper()
		last := c.script[len(c.script)-1]
		c.t.Fatalf("%s\n  at %d after %T%+v the machine did\n  %s\n  members %v arrived %v steps %d running %v",
			fmt.Sprintf(format, args...), last.now, last.event, last.event, describe(last.actions), sorted(c.members), sorted(c.arrived), c.steps, c.running)
	}
}

func describe(actions []policy.Action) string {
	s := ""
	for _, a := range actions {
		s += fmt.Sprintf("%T%+v\n  ", a, a)
	}
	return s
}

// quorum is the least number of workers whose share reaches the quorum.
func (c *checker) quorum() int {
	for n := 1; ; n++ {
		if float64(n) >= c.cfg.Straggler.Quorum*float64(len(c.members))-1e-9 {
			return n
		}
	}
}

// tell gives the machine an event now and checks what it does.
func (c *checker) tell(e policy.Event) []policy.Action {
	c.t.Helper()
	ended := c.finished != nil
	actions := slices.Clone(c.machine.Step(c.now, e))
	if err := c.machine.Consistent(); err != nil {
		c.t.Fatalf("after %+v: %v", e, err)
	}
	c.script = append(c.script, told{c.now, e, actions})
	c.before(e)
	c.require(!ended || len(actions) == 0, "actions after Finish")
	for _, a := range actions {
		c.require(c.finished == nil, "%T after Finish", a)
		c.require(a.Why().Rule != "", "%T has no rule", a)
		c.check(a)
	}
	c.after(e)
	return actions
}

func (c *checker) before(e policy.Event) {
	c.spentTime = false
	switch e := e.(type) {
	case policy.Join:
		if !c.former[e.ID] {
			c.heard[e.ID] = c.now
			if e.HasState && c.steps == 0 {
				c.version[e.ID] = 0
			}
		}
	case policy.Heartbeat:
		c.heard[e.ID] = c.now
	case policy.Reduced:
		if c.running != nil && c.running.Epoch == e.Epoch && c.running.Round == e.Round && slices.Contains(c.running.Participants, e.ID) {
			c.reported[e.ID] = true
		}
	case policy.Timer:
		c.spentTime = c.wake >= 0 && c.now >= c.wake
	}
}

func (c *checker) check(a policy.Action) {
	why := a.Why()
	switch a := a.(type) {
	case policy.Admit:
		c.require(!c.former[a.ID], "worker %d admitted twice", a.ID)
		c.members[a.ID], c.former[a.ID] = true, true
		c.require(a.Round == c.steps+1 && a.Members == len(c.members), "Admit's numbers")
	case policy.Reject:
		c.require(c.former[a.ID], "worker %d rejected at its first join", a.ID)
	case policy.StartRound:
		c.require(a.Round == c.steps+1 && len(a.IDs) > 0, "round %d started after %d outer steps", a.Round, c.steps)
		c.require(c.running == nil, "round started during a reduction")
		for _, id := range a.IDs {
			v, ok := c.version[id]
			c.require(c.members[id] && ok && v == c.steps, "worker %d starts round %d with state %d (holds one: %v)", id, a.Round, v, ok)
			c.require(!c.arrived[id], "worker %d starts round %d again", id, a.Round)
			if why.Rule == policy.RuleState && c.behind[id] {
				c.lag[id] = c.now - c.began
			}
		}
	case policy.Arrived:
		c.require(c.members[a.ID], "arrival of worker %d, no member", a.ID)
		if a.Late {
			if a.Round == c.steps+1 {
				c.require(c.closed && !c.arrived[a.ID], "worker %d called late in an open round", a.ID)
				c.late[a.ID] = true
			}
			return
		}
		c.require(a.Round == c.steps+1 && !c.closed && !c.arrived[a.ID], "arrival counted wrongly")
		c.arrived[a.ID] = true
		c.require(why.Arrived == len(c.arrived) && why.Members == len(c.members) && a.Offset >= 0, "Arrived's numbers")
	case policy.ArmDeadline:
		c.require(c.cfg.Straggler != nil && c.deadline == nil && !c.overdue && c.rounds >= c.cfg.Straggler.MinHistory, "deadline out of place")
		d := why.Deadline
		offset := max(d.MinSlack, d.Median+policy.Time(d.K*float64(d.MAD)))
		c.require(d.Offset == offset && d.At == c.now+offset && a.At == d.At && d.Samples > 0, "the deadline's numbers")
		c.deadline = &a
	case policy.Close:
		c.close(a)
	case policy.Reduce:
		c.require(c.running == nil && c.closed && a.Round == c.steps+1, "reduction out of place")
		c.require(a.Epoch > c.epoch, "epoch %d used after %d", a.Epoch, c.epoch)
		c.require(len(a.Participants) > 0 && slices.IsSorted(a.Participants), "participants %v", a.Participants)
		for _, id := range a.Participants {
			c.require(c.members[id] && slices.Contains(c.closers, id), "worker %d cannot take part", id)
		}
		c.epoch, c.running = a.Epoch, &a
		clear(c.reported)
	case policy.Abort:
		c.require(c.running != nil && c.running.Epoch == a.Epoch && c.running.Round == a.Round, "abort of what does not run")
		gone := !slices.ContainsFunc(c.running.Participants, func(id policy.ID) bool { return c.members[id] })
		c.running = nil
		if gone { // the round is open again
			c.closed, c.closers, c.deadline, c.overdue = false, nil, nil, c.cfg.Straggler != nil
			clear(c.arrived)
			for id := range c.late {
				if c.members[id] {
					c.arrived[id] = true
				}
			}
			clear(c.late)
		}
	case policy.OuterStep:
		c.require(c.running != nil && c.running.Epoch == a.Epoch, "outer step without its reduction")
		c.require(a.Round == c.steps+1, "round %d ends after %d outer steps", a.Round, c.steps)
		c.require(slices.Equal(a.Participants, c.running.Participants), "participants changed from %v to %v", c.running.Participants, a.Participants)
		for _, id := range a.Participants {
			c.require(c.members[id] && c.reported[id], "worker %d is in the outcome of round %d without having reported it", id, a.Round)
			c.version[id] = a.Round
		}
		c.steps, c.running, c.deadline, c.overdue, c.closed, c.closers = a.Round, nil, nil, false, false, nil
		clear(c.arrived)
		clear(c.late)
		clear(c.missed)
		clear(c.lag)
		c.began = c.now
	case policy.HeartbeatMiss:
		c.silence(a.ID, why)
		c.require(why.Silent < c.limit() && why.Misses < why.Limit, "a miss beyond the limit does not evict")
	case policy.Sideline:
		c.require(why.Misses == c.misses[a.ID] && why.Misses <= why.Limit && a.Round == c.steps+1, "Sideline's numbers, want %d misses", c.misses[a.ID])
	case policy.Rejoin:
		c.require(why.Misses == c.misses[a.ID] && why.Misses > 0 && c.arrived[a.ID], "Rejoin's numbers, want %d misses", c.misses[a.ID])
		delete(c.misses, a.ID)
		delete(c.missed, a.ID)
	case policy.Evict:
		c.require(c.members[a.ID], "eviction of worker %d, no member", a.ID)
		switch why.Rule {
		case policy.RuleHeartbeat:
			c.silence(a.ID, why)
			c.require(why.Silent >= c.limit() && why.Misses >= why.Limit && c.spentTime, "evicted too early")
		case policy.RuleStraggler:
			c.require(why.Misses == c.misses[a.ID] && why.Misses == why.Limit+1, "straggler's numbers, want %d misses", c.misses[a.ID])
		case policy.RuleLeave:
		default:
			c.require(false, "eviction by rule %s", why.Rule)
		}
		delete(c.members, a.ID)
		delete(c.arrived, a.ID)
		delete(c.version, a.ID)
		delete(c.fetching, a.ID)
	case policy.Fetch:
		v, ok := c.version[a.From]
		_, busy := c.fetching[a.From]
		c.require(a.From != a.ID && c.members[a.From] && c.members[a.ID] && !busy, "worker %d cannot fetch from %d", a.ID, a.From)
		c.require(ok && v == c.steps && a.OuterSteps == c.steps && a.Round == c.steps+1, "worker %d fetches state %d from %d, which holds %d", a.ID, c.steps, a.From, v)
		c.fetching[a.ID] = a.From
		c.behind[a.ID] = c.behind[a.ID] || why.Rule == policy.RuleResync
	case policy.Fetched:
		_, ok := c.fetching[a.ID]
		c.require(ok, "worker %d did not fetch", a.ID)
		delete(c.fetching, a.ID)
		c.version[a.ID] = c.steps
	case policy.WakeAt:
		c.require(a.At >= c.now, "wake-up in the past")
		c.wake = a.At
	case policy.Finish:
		c.require(a.Complete == (c.steps == c.cfg.TargetOuterSteps), "complete %v after %d outer steps", a.Complete, c.steps)
		c.finished = &a
	default:
		c.require(false, "unknown action")
	}
}

// credit is the most by which a member that is still at work began the round
// late because it had to catch up.
func (c *checker) credit() policy.Time {
	var most policy.Time
	for id, lag := range c.lag {
		if _, busy := c.fetching[id]; c.members[id] && !c.arrived[id] && !busy {
			most = max(most, lag)
		}
	}
	return most
}

func (c *checker) limit() policy.Time {
	return c.cfg.HeartbeatPeriod * policy.Time(c.cfg.HeartbeatMissThreshold)
}

func (c *checker) silence(id policy.ID, why policy.Reason) {
	silent := c.now - c.heard[id]
	c.require(c.members[id] && why.Silent == silent && why.Misses == int(silent/c.cfg.HeartbeatPeriod) && why.Misses > 0, "worker %d was silent for %d", id, silent)
}

func (c *checker) close(a policy.Close) {
	why := a.Why()
	c.require(c.running == nil && !c.closed && a.Round == c.steps+1, "round %d closed out of place", a.Round)
	c.require(slices.Equal(a.Participants, sorted(c.arrived)), "participants %v, but %v have arrived", a.Participants, sorted(c.arrived))
	both := append(slices.Clone(a.Participants), a.Late...)
	slices.Sort(both)
	c.require(slices.Equal(both, sorted(c.members)), "participants and late are not the members")
	c.require(why.Members == len(c.members) && why.Arrived == len(a.Participants), "Close's numbers")
	if c.cfg.Straggler == nil {
		c.require(len(a.Late) == 0, "the baseline closed without %v", a.Late)
	} else {
		c.require(why.Needed == c.quorum() && why.Arrived >= why.Needed, "closed below the quorum of %d", c.quorum())
		c.require(len(a.Late) == 0 || c.rounds >= c.cfg.Straggler.MinHistory || c.epoch > c.steps, "closed early without a history")
	}
	for _, id := range a.Late {
		if !c.missed[id] {
			c.misses[id]++
			c.missed[id] = true
		}
	}
	c.rounds++
	c.closed, c.closers = true, a.Participants
}

func (c *checker) after(e policy.Event) {
	if c.finished != nil || len(c.members) == 0 {
		return
	}
	c.require(c.wake >= 0, "nothing will wake the machine")
	if _, ok := e.(policy.Timer); ok {
		c.require(c.wake > c.now, "after a Timer the next wake-up is not later (%d)", c.wake)
		c.overdue = c.overdue || c.deadline != nil && c.now >= c.deadline.At+c.credit()
		c.require(c.closed || !c.overdue || len(c.arrived) < c.quorum(), "the deadline came with a quorum, and the round is still open")
	}
	c.require(c.closed || len(c.arrived) < len(c.members), "everybody has arrived, and the round is still open")
	if c.running != nil {
		waits := slices.ContainsFunc(c.running.Participants, func(id policy.ID) bool { return !c.reported[id] })
		c.require(waits, "everybody has reported the reduction, and the round is still open")
	}
	for id, from := range c.fetching {
		c.require(c.members[from], "worker %d fetches from %d, which is gone", id, from)
	}
}

// replay plays the same events on a fresh machine.
func (c *checker) replay() {
	c.t.Helper()
	m, err := policy.New(c.cfg)
	if err != nil {
		c.t.Fatalf("new machine: %v", err)
	}
	for i, s := range c.script {
		again := m.Step(s.now, s.event)
		if len(again) != len(s.actions) || len(again) > 0 && !reflect.DeepEqual(slices.Clone(again), s.actions) {
			c.t.Fatalf("event %d, %T%+v at %d, replayed gave\n  %s\nbut first\n  %s", i, s.event, s.event, s.now, describe(again), describe(s.actions))
		}
	}
}
