package policy_test

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"testbed/policy"
	"testbed/policy/adaptive"
)

// failer is what the checker needs of *testing.T and *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

type step struct {
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
	script  []step

	now        policy.Time
	members    map[policy.ID]bool
	admitted   map[policy.ID]int // the last incarnation of whoever was a member
	evicted    map[policy.ID]eviction
	applicants map[policy.ID]int // their incarnations
	verdict    verdict           // on the Join that was given
	heartbeat  map[policy.ID]policy.Time
	version    map[policy.ID]int // outer steps in the state it holds; absent: none
	fetching   map[policy.ID]policy.ID
	arrived    map[policy.ID]bool // counted in the running round
	late       map[policy.ID]bool // arrived after the round had closed
	misses     map[policy.ID]int
	begun      map[policy.ID]bool // workers that have begun a round
	sidelined  map[policy.ID]bool
	missed     map[policy.ID]bool // already counted in this round
	steps      int
	epoch      policy.Epoch
	closed     bool // the running round has closed
	closers    []policy.ID
	running    *policy.Reduce
	reported   map[policy.ID]bool
	deadline   *policy.ArmDeadline
	overdue    bool        // the quorum is enough
	wake       policy.Time // -1: none
	rounds     int         // closed rounds
	finished   *policy.Finish
	spentTime  bool // the last Timer came at its time
	began      policy.Time
	behind     map[policy.ID]bool        // has missed an outer step at least once
	lag        map[policy.ID]policy.Time // began the running round late by this
	failed     bool                      // a reduction has failed by itself
	failures   map[policy.ID]int         // failed reductions of the round with a part of it
	progressAt policy.Time               // when a participant last received something
	received   map[policy.ID]int64
	hinted     map[policy.ID]bool // unreachable since its last heartbeat
	event      policy.Event
	misfetch   map[policy.ID]int  // fetches in a row that failed
	learner    map[policy.ID]bool // has joined and not begun a round
	awaited    map[policy.ID]bool // no heartbeat since the coordinator was away
	outage     bool               // it was, and a member is awaited
	disturbed  bool               // it was, in the running round
	letIn      policy.Time        // the round waits for joiners since then; -1: it has not
	first      policy.Time        // arrival of the round, if hasFirst
	hasFirst   bool
	tookPart   []policy.ID // in the round before
}

// evicts says whether the policy evicts for slowness.
func (c *checker) evicts() bool {
	_, is := c.cfg.Policy.(*policy.Straggler)
	return is
}

// voters is the members that the running round counts on.
func (c *checker) voters() []policy.ID {
	return slices.DeleteFunc(sorted(c.members), func(id policy.ID) bool { return c.learner[id] })
}

func newChecker(t failer, cfg policy.Config) *checker {
	m, err := policy.New(cfg)
	if err != nil {
		t.Fatalf("new machine: %v", err)
	}
	return &checker{
		t: t, cfg: cfg, machine: m, wake: -1, letIn: -1,
		members: map[policy.ID]bool{}, admitted: map[policy.ID]int{}, evicted: map[policy.ID]eviction{}, applicants: map[policy.ID]int{}, heartbeat: map[policy.ID]policy.Time{},
		version: map[policy.ID]int{}, fetching: map[policy.ID]policy.ID{}, arrived: map[policy.ID]bool{}, late: map[policy.ID]bool{},
		misses: map[policy.ID]int{}, begun: map[policy.ID]bool{}, sidelined: map[policy.ID]bool{}, missed: map[policy.ID]bool{}, reported: map[policy.ID]bool{},
		behind: map[policy.ID]bool{}, lag: map[policy.ID]policy.Time{},
		failures: map[policy.ID]int{}, received: map[policy.ID]int64{}, hinted: map[policy.ID]bool{},
		learner: map[policy.ID]bool{}, misfetch: map[policy.ID]int{}, awaited: map[policy.ID]bool{},
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

// share is the least number of workers that reaches the fraction of the voters.
func (c *checker) share(fraction float64) int {
	for n := 1; ; n++ {
		if float64(n) >= fraction*float64(len(c.voters()))-1e-9 {
			return n
		}
	}
}

// mayClose says whether the running round may close without the late, and how
// many had to arrive for it; known is false for a policy of which the checker
// has no account of its own.
func (c *checker) mayClose() (needed int, may, known bool) {
	arrived := len(c.arrived)
	switch p := c.cfg.Policy.(type) {
	case *policy.Baseline:
		return 0, false, true
	case *policy.Straggler:
		needed = c.share(p.Quorum)
		return needed, c.overdue && arrived >= needed, true
	case *policy.FixedDeadline:
		needed = c.share(p.Quorum)
		return needed, c.overdue && arrived >= needed, true
	case *policy.Backup:
		needed = max(1, len(c.voters())-p.B)
		return needed, arrived >= needed, true
	case *policy.Sample:
		return c.share(p.Fraction), c.drawnHaveArrived(p), true
	case *policy.Quorum:
		back := 0
		for _, id := range c.tookPart {
			if c.arrived[id] {
				back++
			}
		}
		if back > 0 && back == len(c.tookPart) {
			return back, true, true
		}
		needed = max(p.MinReplicas, len(c.voters())/2+1)
		return needed, c.overdue && arrived >= needed, true
	}
	return 0, false, false
}

// drawnHaveArrived says whether everybody has arrived whose lot is among the
// lowest.
func (c *checker) drawnHaveArrived(p *policy.Sample) bool {
	lot := func(id policy.ID) uint64 {
		mix := func(x uint64) uint64 { // SplitMix64
			x += 0x9e3779b97f4a7c15
			x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
			x = (x ^ x>>27) * 0x94d049bb133111eb
			return x ^ x>>31
		}
		return mix(mix(c.cfg.Seed^uint64(c.steps+1)) ^ uint64(id))
	}
	all := c.voters()
	slices.SortStableFunc(all, func(a, b policy.ID) int { return cmp.Compare(lot(a), lot(b)) })
	return !slices.ContainsFunc(all[:c.share(p.Fraction)], func(id policy.ID) bool { return !c.arrived[id] })
}

// due says whether the deadline has come: a Timer brings it.
func (c *checker) due() bool {
	_, timer := c.event.(policy.Timer)
	return timer && !c.outage && c.deadline != nil && c.now >= c.deadline.At+c.credit()
}

// armed checks the numbers of a deadline against the policy.
func (c *checker) armed(a *policy.ArmDeadline) {
	d := a.Why().Deadline
	since := c.first
	if len(c.arrived) == 0 && !c.hasFirst {
		since = c.began
	}
	// Set again at the end of an outage, or by the policy in the same instant.
	again := c.deadline != nil && c.reunited() && a.At == max(c.now+d.Offset, c.deadline.At)
	c.require(!c.overdue && !c.closed && d.At == a.At && (again || d.Offset == d.At-since), "the deadline's numbers: %+v, since %d", d, since)
	switch p := c.cfg.Policy.(type) {
	case *policy.Straggler:
		slack := max(p.MinSlack, c.cfg.MinSlack)
		c.require((c.deadline == nil || again) && c.rounds >= p.MinHistory && d.Samples > 0 && d.K == p.K && d.Spread.MinSlack == slack, "deadline out of place")
		c.require(d.Offset == max(slack, d.Median+policy.Time(d.K*float64(d.MAD))), "the deadline's numbers: %+v", d)
	case *policy.FixedDeadline:
		c.require((c.deadline == nil || again) && (p.After == 0 && c.rounds > 0 || p.After > 0), "deadline out of place")
		if !again && p.After > 0 {
			c.require(a.At == max(c.now, c.began+p.After), "the deadline's numbers: %+v", d)
		}
	case *policy.Quorum:
		c.require(again || c.deadline == nil && a.At == c.first+p.JoinTimeout, "the deadline's numbers: %+v", d)
	case *policy.Baseline, *policy.Backup, *policy.Sample:
		c.require(false, "%T has no deadline", p)
	}
	c.deadline = a
}

// step gives the machine an event now and checks what it does.
func (c *checker) step(e policy.Event) []policy.Action {
	c.t.Helper()
	_, restart := e.(policy.Restarted)
	ended := c.finished != nil && !restart
	actions := slices.Clone(c.machine.Step(c.now, e))
	if err := c.machine.Consistent(); err != nil {
		c.t.Fatalf("after %+v: %v", e, err)
	}
	c.script = append(c.script, step{c.now, e, actions})
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
	c.spentTime, c.event, c.verdict = false, e, none
	switch e := e.(type) {
	case policy.Recovered:
		if c.finished != nil {
			return
		}
		c.outage, c.disturbed = true, true
		clear(c.hinted)
		for id := range c.members {
			c.heartbeat[id], c.awaited[id] = c.now, true
		}
		for id := range c.applicants {
			c.heartbeat[id] = c.now
		}
	case policy.Restarted:
		c.restart(e)
	case policy.Progress:
		c.heartbeat[e.ID] = c.now
		delete(c.hinted, e.ID)
		delete(c.awaited, e.ID)
		if c.running != nil && c.running.Epoch == e.Epoch && slices.Contains(c.running.Participants, e.ID) && c.received[e.ID] != e.Received {
			c.received[e.ID], c.progressAt = e.Received, c.now
		}
	case policy.FetchFailed:
		if _, ok := c.fetching[e.ID]; ok {
			c.misfetch[e.ID]++
		}
	case policy.Unreachable:
		c.hinted[e.ID] = true
	case policy.ReduceFailed:
		c.failed = c.failed || c.running != nil
	case policy.Join:
		if c.finished == nil {
			c.asked(e)
		}
	case policy.Lost:
		delete(c.applicants, e.ID)
	case policy.Heartbeat:
		c.heartbeat[e.ID] = c.now
		delete(c.hinted, e.ID)
		delete(c.awaited, e.ID)
	case policy.Reduced:
		if c.running != nil && c.running.Epoch == e.Epoch && c.running.Round == e.Round && slices.Contains(c.running.Participants, e.ID) {
			c.reported[e.ID] = true
		}
	case policy.Timer:
		c.failed = c.failed || c.stalled()
		c.spentTime = c.wake >= 0 && c.now >= c.wake
	}
}

// restart undoes what came after the checkpoint, but for the membership and the
// misses of earlier rounds.
func (c *checker) restart(e policy.Restarted) {
	c.steps, c.began, c.finished = e.OuterSteps, c.now, nil
	c.running, c.closed, c.closers, c.deadline, c.overdue, c.hasFirst = nil, false, nil, nil, false, false
	c.outage, c.disturbed, c.letIn = false, false, -1
	for _, m := range []map[policy.ID]bool{c.arrived, c.late, c.missed, c.reported, c.hinted, c.learner, c.awaited, c.behind} {
		clear(m)
	}
	clear(c.version)
	clear(c.fetching)
	clear(c.misfetch)
	clear(c.applicants)
	clear(c.lag)
	clear(c.failures)
	clear(c.received)
	for id := range c.members {
		c.heartbeat[id] = c.now
		if slices.Contains(e.Holders, id) {
			c.version[id] = e.OuterSteps
		} else {
			c.behind[id] = true
		}
	}
}

// letsIn says whether the running round waits for joiners.
func (c *checker) letsIn() bool {
	return c.letIn >= 0 && slices.ContainsFunc(sorted(c.fetching), func(id policy.ID) bool { return c.learner[id] })
}

// letting checks that a joiner is let in when the round could close.
func (c *checker) letting(a *policy.Fetch) {
	if c.cfg.Join != policy.JoinBlocking || !c.learner[a.ID] || len(c.voters()) == 0 {
		return
	}
	c.require(len(a.Helpers) == 0, "%v help to let worker %d in", a.Helpers, a.ID)
	if a.Rule != policy.RuleJoin {
		return
	}
	c.overdue = c.overdue || c.due()
	_, may, known := c.mayClose()
	c.require(!c.closed && len(c.arrived) > 0 && (len(c.arrived) == len(c.voters()) || may || !known), "worker %d is let in while the round cannot close", a.ID)
	c.require(c.letIn < 0 || c.letIn == c.now, "worker %d is let in %d after others", a.ID, c.now-c.letIn)
	c.letIn = c.now
}

// reunited says whether every member has given a heartbeat since the coordinator
// was away.
func (c *checker) reunited() bool {
	return c.outage && !slices.ContainsFunc(sorted(c.members), func(id policy.ID) bool { return c.awaited[id] })
}

func (c *checker) check(a policy.Action) {
	why := a.Why()
	switch a := a.(type) {
	case *policy.Admit:
		c.admit(a)
		c.require(a.Round == c.steps+1 && a.Members == len(c.members), "Admit's numbers")
		_, holds := c.version[a.ID]
		c.learner[a.ID] = !holds && c.cfg.Join.Learns()
	case *policy.Reject:
		left := c.event == policy.Event(policy.Leave{ID: a.ID})
		_, applies := c.applicants[a.ID]
		c.require(c.verdict == reject || left && applies, "worker %d rejected", a.ID)
		delete(c.applicants, a.ID)
	case *policy.StartRound:
		for _, id := range a.IDs {
			c.begun[id] = true
		}
		c.require(a.Round == c.steps+1 && len(a.IDs) > 0, "round %d started after %d outer steps", a.Round, c.steps)
		c.require(c.running == nil, "round started during a reduction")
		for _, id := range a.IDs {
			v, ok := c.version[id]
			c.require(c.members[id] && ok && v == c.steps, "worker %d starts round %d with state %d (holds one: %v)", id, a.Round, v, ok)
			c.require(!c.arrived[id], "worker %d starts round %d again", id, a.Round)
			if c.learner[id] {
				c.require(len(c.voters()) == 0, "worker %d begins a round that goes on without it", id)
				clear(c.learner)
			}
			if why.Rule == policy.RuleState && c.behind[id] {
				c.lag[id] = c.now - c.began
			}
		}
	case *policy.Arrived:
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
		if !c.hasFirst {
			c.hasFirst, c.first = true, c.now
		}
		c.require(why.Arrived == len(c.arrived) && why.Members == len(c.voters()) && a.Offset >= 0, "Arrived's numbers")
	case *policy.ArmDeadline:
		c.armed(a)
	case *policy.Close:
		c.close(a)
	case *policy.Reduce:
		c.require(c.running == nil && c.closed && a.Round == c.steps+1, "reduction out of place")
		c.require(a.Epoch > c.epoch, "epoch %d used after %d", a.Epoch, c.epoch)
		c.require(len(a.Participants) > 0, "participants %v", a.Participants)
		if !c.failed {
			c.require(slices.IsSorted(a.Participants), "participants %v out of order without a failure", a.Participants)
		}
		for _, id := range a.Participants {
			c.require(c.members[id] && slices.Contains(c.closers, id), "worker %d cannot take part", id)
			c.require(slices.Contains(a.Zero, id) == c.learner[id], "worker %d contributes zeros, or should", id)
		}
		c.require(len(a.Zero) < len(a.Participants), "nobody contributes anything")
		c.epoch, c.running, c.progressAt = a.Epoch, a, c.now
		clear(c.reported)
	case *policy.Abort:
		if why.Rule == policy.RuleReduceFailed || why.Rule == policy.RuleProgress {
			if why.Misses >= why.Limit {
				clear(c.failures) // somebody has gone for it
			} else {
				c.count(why)
			}
		}
		c.require(c.running != nil && c.running.Epoch == a.Epoch && c.running.Round == a.Round, "abort of what does not run")
		gone := !slices.ContainsFunc(c.running.Participants, func(id policy.ID) bool { return c.members[id] && !c.learner[id] })
		c.running = nil
		if gone { // the round is open again
			c.closed, c.closers, c.deadline, c.overdue, c.hasFirst, c.letIn = false, nil, nil, true, false, -1
			clear(c.arrived)
			for id := range c.late {
				if c.members[id] {
					c.arrived[id] = true
				}
			}
			clear(c.late)
			if len(c.voters()) == 0 {
				clear(c.learner)
			}
		}
	case *policy.OuterStep:
		c.require(c.running != nil && c.running.Epoch == a.Epoch, "outer step without its reduction")
		c.require(a.Round == c.steps+1, "round %d ends after %d outer steps", a.Round, c.steps)
		c.require(slices.Equal(a.Participants, slices.Sorted(slices.Values(c.running.Participants))), "participants changed from %v to %v", c.running.Participants, a.Participants)
		for _, id := range a.Participants {
			c.require(c.members[id] && c.reported[id], "worker %d is in the outcome of round %d without having reported it", id, a.Round)
			c.version[id] = a.Round
			delete(c.learner, id)
		}
		c.steps, c.running, c.deadline, c.overdue, c.closed, c.closers = a.Round, nil, nil, false, false, nil
		clear(c.arrived)
		clear(c.late)
		clear(c.missed)
		clear(c.lag)
		clear(c.failures)
		c.began, c.disturbed, c.hasFirst, c.letIn = c.now, c.outage, false, -1
	case *policy.HeartbeatMiss:
		c.silence(a.ID, why)
		c.require(why.Silent < c.limit() && why.Misses < why.Limit, "a miss beyond the limit does not evict")
	case *policy.Sideline:
		c.require(why.Misses == c.misses[a.ID] && (why.Misses <= why.Limit || !c.evicts()) && a.Round == c.steps+1, "Sideline's numbers, want %d misses", c.misses[a.ID])
		c.sidelined[a.ID] = true
	case *policy.Rejoin:
		c.require(why.Misses == c.misses[a.ID] && c.sidelined[a.ID] && c.arrived[a.ID], "Rejoin's numbers, want %d misses", c.misses[a.ID])
		delete(c.misses, a.ID)
		delete(c.missed, a.ID)
		delete(c.sidelined, a.ID)
	case *policy.Evict:
		c.require(c.members[a.ID], "eviction of worker %d, no member", a.ID)
		switch why.Rule {
		case policy.RuleHeartbeat:
			c.silence(a.ID, why)
			c.require(why.Silent >= c.limit() && why.Misses >= why.Limit && c.spentTime, "evicted too early")
		case policy.RuleStraggler:
			c.require(c.evicts() && why.Misses == c.misses[a.ID] && why.Misses == why.Limit+1, "straggler's numbers, want %d misses", c.misses[a.ID])
		case policy.RuleLeave:
		case policy.RuleReplaced:
			e, ok := c.event.(policy.Join)
			c.require(ok && e.ID == a.ID && e.Incarnation > c.admitted[a.ID], "replaced by nobody")
		case policy.RuleGaveUp:
			c.require(c.event == policy.Event(policy.Lost{ID: a.ID, Rule: why.Rule}), "evicted for a message that nobody sent")
		case policy.RuleConnection:
			lost := c.event == policy.Event(policy.Lost{ID: a.ID, Rule: why.Rule})
			c.require(lost || c.hinted[a.ID] && c.now-c.heartbeat[a.ID] >= c.cfg.HeartbeatPeriod, "evicted for what the network says alone")
		case policy.RuleFetchFailed:
			c.require(c.event == policy.Event(policy.FetchFailed{ID: a.ID}) && why.Misses == why.Limit && c.misfetch[a.ID] == why.Limit, "evicted after %d failed fetches", c.misfetch[a.ID])
		case policy.RuleReduceFailed, policy.RuleProgress:
			if why.Rule == policy.RuleProgress {
				c.require(c.stalled() && why.Stalled == c.now-c.progressAt, "evicted for a standstill since %d", c.progressAt)
			}
			if why.Limit == 0 {
				c.require(why.Silent == c.now-c.heartbeat[a.ID] && why.Silent >= 2*c.cfg.HeartbeatPeriod, "a live worker evicted")
				break
			}
			c.count(why)
			for id, n := range c.failures {
				c.require(n < c.failures[a.ID] || n == c.failures[a.ID] && id <= a.ID || !slices.Contains(c.running.Participants, id), "worker %d evicted for %d failures, %d had %d", a.ID, c.failures[a.ID], id, n)
			}
			c.require(why.Misses == c.failures[a.ID] && why.Misses == why.Limit, "worker %d had a part in %d failures", a.ID, c.failures[a.ID])
		default:
			c.require(false, "eviction by rule %s", why.Rule)
		}
		c.evicted[a.ID] = eviction{why.Rule, c.steps}
		delete(c.members, a.ID)
		delete(c.arrived, a.ID)
		delete(c.version, a.ID)
		delete(c.fetching, a.ID)
	case *policy.Fetch:
		v, ok := c.version[a.From]
		_, busy := c.fetching[a.From]
		c.require(a.From != a.ID && c.members[a.From] && c.members[a.ID] && !busy, "worker %d cannot fetch from %d", a.ID, a.From)
		c.require(ok && v == c.steps && a.OuterSteps == c.steps && a.Round == c.steps+1, "worker %d fetches state %d from %d, which holds %d", a.ID, c.steps, a.From, v)
		c.letting(a)
		c.fetching[a.ID] = a.From
		for _, h := range a.Helpers {
			_, busy := c.fetching[h]
			c.require(c.members[h] && !busy && h != a.From && h != a.ID && c.version[h] == c.steps, "worker %d cannot help %d", h, a.ID)
		}
		if why.Rule == policy.RuleResync {
			delete(c.learner, a.ID)
		}
		c.behind[a.ID] = c.behind[a.ID] || why.Rule == policy.RuleResync
	case *policy.Fetched:
		_, ok := c.fetching[a.ID]
		c.require(ok, "worker %d did not fetch", a.ID)
		delete(c.fetching, a.ID)
		delete(c.misfetch, a.ID)
		c.version[a.ID] = c.steps
	case *policy.WakeAt:
		c.require(a.At >= c.now, "wake-up in the past")
		c.wake = a.At
	case *policy.Finish:
		c.require(a.Complete == (c.steps == c.cfg.TargetOuterSteps), "complete %v after %d outer steps", a.Complete, c.steps)
		c.finished = a
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

// count counts a failure at both its ends.
func (c *checker) count(why *policy.Reason) {
	c.failures[*why.Lost]++
	if why.Peer != nil && *why.Peer != *why.Lost && slices.Contains(c.running.Participants, *why.Peer) {
		c.failures[*why.Peer]++
	}
}

// stalled says whether the running reduction stalls.
func (c *checker) stalled() bool {
	return c.running != nil && !c.outage && c.cfg.StallAfter > 0 && c.now >= c.progressAt+c.cfg.StallAfter
}

func (c *checker) limit() policy.Time {
	return c.cfg.HeartbeatPeriod * policy.Time(c.cfg.HeartbeatMissThreshold)
}

func (c *checker) silence(id policy.ID, why *policy.Reason) {
	silent := c.now - c.heartbeat[id]
	if c.awaited[id] {
		silent = max(0, silent-c.cfg.StallAfter)
	}
	c.require(c.members[id] && why.Silent == silent && why.Misses == int(silent/c.cfg.HeartbeatPeriod) && why.Misses > 0, "worker %d was silent for %d", id, silent)
}

func (c *checker) close(a *policy.Close) {
	why := a.Why()
	c.require(c.running == nil && !c.closed && a.Round == c.steps+1, "round %d closed out of place", a.Round)
	working := slices.DeleteFunc(slices.Clone(a.Participants), func(id policy.ID) bool { return c.learner[id] })
	c.require(slices.Equal(working, sorted(c.arrived)), "participants %v, but %v have arrived", working, sorted(c.arrived))
	for _, id := range a.Participants {
		v, ok := c.version[id]
		_, busy := c.fetching[id]
		c.require(!c.learner[id] || c.cfg.Join != policy.JoinNext && ok && v == c.steps && !busy, "worker %d cannot contribute zeros", id)
	}
	c.require(!c.letsIn(), "the round closes while joiners are let in")
	held := policy.Time(0)
	if c.letIn >= 0 {
		held = c.now - c.letIn
	}
	c.require(a.Held == held, "held for %d, want %d", a.Held, held)
	both := append(slices.Clone(working), a.Late...)
	slices.Sort(both)
	c.require(slices.Equal(both, c.voters()), "participants and late are not the members")
	c.require(why.Members == len(c.voters()) && why.Arrived == len(working), "Close's numbers")
	c.overdue = c.overdue || c.due()
	needed, may, known := c.mayClose()
	c.require(!known || why.Needed == needed, "needed %d, not %d", needed, why.Needed)
	c.require(len(a.Late) == 0 || why.Arrived >= why.Needed && (may || !known), "closed without %v, %d needed", a.Late, needed)
	if p, is := c.cfg.Policy.(*adaptive.Policy); is {
		c.require(why.Needed == c.share(p.Quorum) && why.Arrived >= min(why.Needed, len(c.voters())), "closed with %d of %d needed", why.Arrived, c.share(p.Quorum))
	}
	c.require(len(why.Rule) > 0 && (why.Rule != policy.RuleDeadline || c.overdue), "closed at a deadline that has not come")
	if !c.disturbed {
		c.tookPart = working
	}
	for _, id := range a.Late {
		if !c.missed[id] && c.begun[id] {
			c.misses[id]++
			c.missed[id] = true
		}
	}
	if !c.disturbed {
		c.rounds++
	}
	c.closed, c.closers = true, a.Participants
}

func (c *checker) after(e policy.Event) {
	c.admissions(e)
	if c.finished != nil || len(c.members) == 0 {
		return
	}
	c.require(c.wake >= 0, "nothing will wake the machine")
	defer func() {
		if c.reunited() {
			c.outage, c.progressAt = false, c.now
		}
	}()
	if _, ok := e.(policy.Timer); ok {
		c.require(c.wake > c.now || c.reunited(), "after a Timer the next wake-up is not later (%d)", c.wake)
		c.overdue = c.overdue || c.due()
		_, may, _ := c.mayClose()
		c.require(c.closed || c.outage || !may || len(c.arrived) == 0 || c.letsIn(), "the round may close, and is still open")
	}
	c.require(c.closed || len(c.arrived) == 0 || len(c.arrived) < len(c.voters()) || c.letsIn(), "everybody has arrived, and the round is still open")
	if c.running != nil {
		waits := slices.ContainsFunc(c.running.Participants, func(id policy.ID) bool { return !c.reported[id] })
		c.require(waits, "everybody has reported the reduction, and the round is still open")
		if _, ok := e.(policy.Timer); ok {
			c.require(!c.stalled(), "the reduction stalls, and nothing is done")
		}
	}
	for id, from := range c.fetching {
		c.require(c.members[from], "worker %d fetches from %d, which is gone", id, from)
	}
}

// replay plays the same events on a fresh machine.
func (c *checker) replay() {
	c.t.Helper()
	c.replayUnder(c.cfg)
}

// replayUnder plays the same events on a machine that has to decide the same.
func (c *checker) replayUnder(cfg policy.Config) {
	c.t.Helper()
	m, err := policy.New(cfg)
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

// eviction is the last one of a worker.
type eviction struct {
	rule  policy.Rule
	steps int // that were final
}

// verdict is what has to become of a Join.
type verdict int

const (
	none verdict = iota
	admit
	wait
	reject
)

// asked judges a request to join.
func (c *checker) asked(e policy.Join) {
	last, known := c.admitted[e.ID]
	delete(c.applicants, e.ID)
	switch {
	case !known, e.Incarnation > last && (c.members[e.ID] || c.evicted[e.ID].rule != policy.RuleStraggler):
		c.verdict = admit
	case c.cfg.Rejoin == policy.RejoinAfterRounds && !c.members[e.ID] && e.Incarnation >= last:
		c.verdict, c.applicants[e.ID], c.heartbeat[e.ID] = wait, e.Incarnation, c.now
		c.admitted[e.ID] = e.Incarnation
	default:
		c.verdict = reject
	}
}

// waited says whether an applicant has waited long enough.
func (c *checker) waited(id policy.ID) bool {
	return c.steps-c.evicted[id].steps >= max(1, c.cfg.RejoinRounds)
}

func (c *checker) admit(a *policy.Admit) {
	c.require(!c.members[a.ID], "worker %d admitted twice", a.ID)
	e, joins := c.event.(policy.Join)
	if incarnation, applies := c.applicants[a.ID]; applies {
		c.require(c.waited(a.ID) && c.now-c.heartbeat[a.ID] < c.limit(), "worker %d comes back too early", a.ID)
		c.require(a.Rule == policy.RuleRejoin && a.Misses == c.steps-c.evicted[a.ID].steps && a.Incarnation == incarnation, "the numbers of a rejoin")
	} else {
		c.require(joins && e.ID == a.ID && c.verdict == admit && a.Incarnation == e.Incarnation && a.Rule == policy.RuleJoin, "worker %d admitted", a.ID)
		if e.HasState && c.steps == 0 {
			c.version[a.ID] = 0
		}
	}
	delete(c.applicants, a.ID)
	for _, m := range []map[policy.ID]bool{c.late, c.begun, c.sidelined, c.missed, c.behind, c.hinted, c.awaited, c.reported} {
		delete(m, a.ID)
	}
	delete(c.misses, a.ID)
	delete(c.misfetch, a.ID)
	delete(c.lag, a.ID)
	delete(c.failures, a.ID)
	delete(c.received, a.ID)
	c.members[a.ID], c.admitted[a.ID], c.heartbeat[a.ID] = true, a.Incarnation, c.now
	if len(c.members) == 1 && c.steps == 0 {
		c.began = c.now
	}
}

// admissions requires that nobody is kept out who may come in.
func (c *checker) admissions(e policy.Event) {
	if c.finished != nil {
		return
	}
	if j, ok := e.(policy.Join); ok && c.verdict == admit {
		c.require(c.members[j.ID], "worker %d may join, and is no member", j.ID)
	}
	last := c.script[len(c.script)-1].actions
	stepped := slices.ContainsFunc(last, func(a policy.Action) bool { _, ok := a.(*policy.OuterStep); return ok })
	for id := range c.applicants {
		c.require(!stepped || !c.waited(id) || c.now-c.heartbeat[id] >= c.limit(), "worker %d still waits, %d outer steps after %+v", id, c.steps, c.evicted[id])
	}
}
