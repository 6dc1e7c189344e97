package policy_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/policy/adaptive"
)

func drawConfig(t *rapid.T) policy.Config {
	cfg := policy.Config{
		HeartbeatPeriod:        policy.Time(rapid.IntRange(5, 50).Draw(t, "period")),
		HeartbeatMissThreshold: rapid.IntRange(1, 4).Draw(t, "threshold"),
		TargetOuterSteps:       rapid.IntRange(1, 6).Draw(t, "target"),
		Join:                   rapid.SampledFrom(policy.JoinModes).Draw(t, "join"),
		StallAfter:             policy.Time(rapid.SampledFrom([]int{0, 30, 200}).Draw(t, "stall")),
	}
	if rapid.Bool().Draw(t, "rejoin") {
		cfg.Rejoin, cfg.RejoinRounds = policy.RejoinAfterRounds, rapid.IntRange(0, 2).Draw(t, "rounds")
	}
	cfg.Policy = drawPolicy(t, rapid.SampledFrom(policy.Names()).Draw(t, "policy"))
	cfg.Seed, cfg.MinSlack = rapid.Uint64().Draw(t, "seed"), policy.Time(rapid.SampledFrom([]int{0, 0, 10}).Draw(t, "floor"))
	return cfg
}

// drawPolicy draws parameters that matter in short runs; of a policy that it
// does not know it takes the defaults.
func drawPolicy(t *rapid.T, name string) policy.Policy {
	fraction := rapid.SampledFrom([]float64{1e-12, 0.3, 0.5, 0.7, 0.75, 1})
	span := rapid.Map(rapid.IntRange(0, 60), func(n int) policy.Time { return policy.Time(n) })
	switch name {
	case "straggler":
		return drawStraggler(t)
	case "backup":
		return &policy.Backup{B: rapid.IntRange(0, 4).Draw(t, "b")}
	case "deadline":
		return &policy.FixedDeadline{After: span.Draw(t, "after"), Factor: rapid.SampledFrom([]float64{1, 1.5}).Draw(t, "factor"), Quorum: fraction.Draw(t, "quorum")}
	case "quorum":
		return &policy.Quorum{MinReplicas: rapid.IntRange(1, 4).Draw(t, "replicas"), JoinTimeout: span.Draw(t, "timeout")}
	case "sample":
		return &policy.Sample{Fraction: fraction.Draw(t, "fraction")}
	}
	p, _ := policy.Named(name)
	return p
}

func drawStraggler(t *rapid.T) *policy.Straggler {
	return &policy.Straggler{
		Quorum:        rapid.SampledFrom([]float64{1e-12, 0.3, 0.5, 0.7, 0.75, 1}).Draw(t, "quorum"),
		K:             rapid.SampledFrom([]float64{0, 0.5, 3}).Draw(t, "k"),
		Window:        rapid.IntRange(1, 8).Draw(t, "window"),
		MinHistory:    rapid.IntRange(1, 2).Draw(t, "history"),
		MinSlack:      policy.Time(rapid.IntRange(0, 20).Draw(t, "slack")),
		SidelineLimit: rapid.IntRange(0, 2).Draw(t, "limit"),
		FinishSteps:   rapid.Bool().Draw(t, "finish"),
	}
}

// world is the workers of a run: what each was asked to do and has not done.
type world struct {
	*checker
	alive  map[policy.ID]bool
	task   map[policy.ID]int // the round it works on
	next   policy.ID
	reduce *policy.Reduce
	out    map[policy.ID]bool // evicted alive
}

func newWorld(t failer, cfg policy.Config) *world {
	return &world{checker: newChecker(t, cfg), alive: map[policy.ID]bool{}, task: map[policy.ID]int{}, out: map[policy.ID]bool{}}
}

func (w *world) send(e policy.Event) {
	w.t.Helper()
	for _, a := range w.step(e) {
		switch a := a.(type) {
		case *policy.StartRound:
			for _, id := range a.IDs {
				w.task[id] = a.Round
			}
		case *policy.Fetch:
			delete(w.task, a.ID)
		case *policy.Reduce:
			w.reduce = a
		case *policy.Abort, *policy.OuterStep:
			w.reduce = nil
		case *policy.Evict:
			if a.Rule != policy.RuleReplaced {
				w.out[a.ID] = w.alive[a.ID]
				delete(w.alive, a.ID)
			}
			delete(w.task, a.ID)
		case *policy.Reject:
			if !w.members[a.ID] {
				delete(w.alive, a.ID)
			}
		}
	}
}

func (w *world) join(state bool) {
	id := w.next
	w.next++
	w.alive[id] = true
	w.send(policy.Join{ID: id, HasState: state})
}

// comeBack has a worker ask to join again: a new process, or the one that was
// evicted.
func (w *world) comeBack(id policy.ID, incarnation int) {
	delete(w.out, id)
	w.alive[id] = true
	w.send(policy.Join{ID: id, Incarnation: incarnation})
}

// advance lets time pass: at every multiple of the heartbeat period the living
// give a sign of life, and Timers come when they are due unless they are held
// back until the next stop.
func (w *world) advance(to policy.Time, punctual func() bool) {
	p := w.cfg.HeartbeatPeriod
	for w.now < to || w.wake >= 0 && w.wake <= w.now {
		if w.finished != nil || len(w.members) == 0 {
			w.now = max(w.now, to)
			return
		}
		stop := min(to, w.now-w.now%p+p)
		if w.wake > w.now {
			stop = min(stop, w.wake)
		} else {
			stop = w.now // a Timer is overdue
		}
		fresh := stop > w.now
		w.now = stop
		if fresh && w.now%p == 0 {
			for _, id := range sorted(w.alive) {
				w.send(policy.Heartbeat{ID: id})
			}
		}
		if w.wake <= w.now {
			if fresh && !punctual() {
				w.now++
			}
			w.send(policy.Timer{})
		}
	}
}

// TestRandomRuns plays runs in which anything may happen to anybody, holds
// every action against the checker, and then lets the living do their part:
// the run has to come to its end.
func TestRandomRuns(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		w := newWorld(t, drawConfig(t))
		for range rapid.IntRange(1, 6).Draw(t, "workers") {
			w.join(true)
		}
		for range rapid.IntRange(0, 80).Draw(t, "events") {
			w.random(t)
		}
		w.conclude()
		w.replay()
	})
}

// random lets one thing happen.
func (w *world) random(t *rapid.T) {
	pick := func(ids []policy.ID) (policy.ID, bool) {
		if len(ids) == 0 {
			return 0, false
		}
		return rapid.SampledFrom(ids).Draw(t, "id"), true
	}
	switch n := rapid.IntRange(0, 110).Draw(t, "op"); {
	case n < 30:
		if id, ok := pick(sorted(w.task)); ok && w.alive[id] {
			w.arrive(id)
		}
	case n < 50:
		if w.reduce == nil {
			return
		}
		if id, _ := pick(w.reduce.Participants); w.alive[id] {
			w.send(policy.Reduced{ID: id, Round: w.reduce.Round, Epoch: w.reduce.Epoch})
		}
	case n < 70:
		step := policy.Time(rapid.IntRange(0, int(2*w.cfg.HeartbeatPeriod)).Draw(t, "time"))
		w.advance(w.now+step, func() bool { return rapid.IntRange(0, 4).Draw(t, "punctual") > 0 })
	case n < 78:
		if id, ok := pick(sorted(w.fetching)); ok && w.alive[id] {
			w.send(policy.StateFetched{ID: id, OuterSteps: w.steps - rapid.IntRange(0, min(1, w.steps)).Draw(t, "stale")})
		}
	case n < 81:
		if id, ok := pick(sorted(w.fetching)); ok && w.alive[id] {
			w.send(policy.FetchFailed{ID: id})
		}
	case n < 84:
		w.join(rapid.Bool().Draw(t, "state"))
	case n < 87:
		if id, ok := pick(sorted(w.alive)); ok {
			w.send(policy.Leave{ID: id})
		}
	case n < 92:
		if id, ok := pick(sorted(w.alive)); ok {
			delete(w.alive, id) // silent from now on
		}
	case n < 94:
		if w.reduce != nil {
			id, _ := pick(w.reduce.Participants)
			e := policy.ReduceFailed{ID: id, Round: w.reduce.Round, Epoch: w.reduce.Epoch}
			if peer, _ := pick(w.reduce.Participants); peer != id {
				e.Peer = &peer
			}
			w.send(e)
		}
	case n < 96:
		if w.reduce != nil {
			id, _ := pick(w.reduce.Participants)
			from, _ := pick(w.reduce.Participants)
			if w.alive[id] {
				w.send(policy.Progress{ID: id, Epoch: w.reduce.Epoch, Received: int64(rapid.IntRange(0, 3).Draw(t, "received")), From: from, Due: int64(rapid.IntRange(0, 2).Draw(t, "due"))})
			}
		}
	case n < 97:
		if id, ok := pick(sorted(w.alive)); ok {
			w.send(policy.Lost{ID: id, Rule: rapid.SampledFrom([]policy.Rule{policy.RuleGaveUp, policy.RuleConnection}).Draw(t, "cause")})
		}
	case n < 98:
		if id, ok := pick(sorted(w.members)); ok {
			w.send(policy.Unreachable{ID: id})
		}
	case n < 100:
		w.send(nonsense(t, w))
	case n < 102:
		// The coordinator is away for a while, and gets no event and no Timer.
		w.now += policy.Time(rapid.IntRange(0, int(6*w.cfg.HeartbeatPeriod)).Draw(t, "away"))
		w.send(policy.Recovered{})
	case n < 104:
		w.restart(t)
	case n < 108:
		if id, ok := pick(sorted(w.admitted)); ok {
			w.comeBack(id, w.admitted[id]+rapid.IntRange(-1, 2).Draw(t, "newer"))
		}
	default:
		if id, ok := pick(sorted(w.out)); ok && w.out[id] {
			w.comeBack(id, w.admitted[id])
		}
	}
}

// restart has everything end and begin anew from a checkpoint, with some of the
// members that are alive. The last outer step leaves no checkpoint.
func (w *world) restart(t *rapid.T) {
	last := min(w.steps, w.cfg.TargetOuterSteps-1)
	if last < 1 {
		return
	}
	e := policy.Restarted{OuterSteps: rapid.IntRange(1, last).Draw(t, "checkpoint")}
	for _, id := range sorted(w.alive) {
		if w.members[id] && rapid.IntRange(0, 3).Draw(t, "holds") > 0 {
			e.Holders = append(e.Holders, id)
		}
	}
	w.reduce = nil
	clear(w.task)
	w.now += policy.Time(rapid.IntRange(0, int(6*w.cfg.HeartbeatPeriod)).Draw(t, "down"))
	w.send(e)
}

func (w *world) arrive(id policy.ID) {
	round := w.task[id]
	delete(w.task, id)
	w.send(policy.Arrival{ID: id, Round: round})
}

// nonsense is an event that no well-behaved driver sends.
func nonsense(t *rapid.T, w *world) policy.Event {
	id := rapid.OneOf(
		rapid.Map(rapid.IntRange(-1, int(w.next)), func(i int) policy.ID { return policy.ID(i) }),
		rapid.SampledFrom([]policy.ID{math.MinInt, math.MaxInt, 1 << 62}),
	).Draw(t, "whose")
	round := rapid.IntRange(-1, w.steps+3).Draw(t, "round")
	epoch := policy.Epoch(rapid.IntRange(-1, int(w.epoch)+2).Draw(t, "epoch"))
	if w.members[id] && (round == w.steps+1 || epoch == w.epoch) {
		id = -1 // that would make sense
	}
	twice := policy.ID(-1)
	if len(w.arrived) > 0 && !w.closed {
		twice = rapid.SampledFrom(sorted(w.arrived)).Draw(t, "twice")
	}
	return rapid.SampledFrom([]policy.Event{
		policy.Arrival{ID: twice, Round: w.steps + 1},
		policy.Join{ID: rapid.SampledFrom(sorted(w.admitted)).Draw(t, "former")},
		policy.Leave{ID: -7},
		policy.Heartbeat{ID: -7},
		policy.Arrival{ID: id, Round: round},
		policy.Reduced{ID: id, Round: round, Epoch: epoch},
		policy.ReduceFailed{ID: id, Round: round, Epoch: epoch},
		policy.StateFetched{ID: -7, OuterSteps: w.steps},
		policy.FetchFailed{ID: -7},
		policy.Timer{},
		nil,
	}).Draw(t, "nonsense")
}

// conclude has everybody who lives do everything that is asked of them. The
// run has to end: nobody may wait for who has crashed.
func (w *world) conclude() {
	w.t.Helper()
	bound := 20 * (w.cfg.TargetOuterSteps + 2) * (w.cfg.HeartbeatMissThreshold + 2)
	for range bound {
		if w.finished != nil || len(w.members) == 0 {
			break
		}
		for _, id := range sorted(w.fetching) {
			if _, still := w.fetching[id]; still && w.alive[id] && w.alive[w.fetching[id]] {
				w.send(policy.StateFetched{ID: id, OuterSteps: w.steps})
			}
		}
		for _, id := range sorted(w.task) {
			if w.alive[id] {
				w.arrive(id)
			}
		}
		if r := w.reduce; r != nil && !slices.ContainsFunc(r.Participants, func(id policy.ID) bool { return !w.alive[id] }) {
			for _, id := range r.Participants {
				w.send(policy.Reduced{ID: id, Round: r.Round, Epoch: r.Epoch})
			}
		}
		if w.finished == nil && len(w.members) > 0 {
			w.advance(w.wake, func() bool { return true })
		}
	}
	switch {
	case w.finished == nil && len(w.members) > 0:
		w.t.Fatalf("the living have done their part, and the run does not end: members %v, alive %v, fetching %v, %d outer steps, running %+v",
			sorted(w.members), sorted(w.alive), w.fetching, w.steps, w.running)
	case w.finished != nil && !w.finished.Complete:
		if rule := w.finished.Rule; rule != policy.RuleStateLost {
			w.t.Fatalf("the run ended early by rule %q", rule)
		}
	}
}

// TestSameTimeArrivalsInAnyOrder plays two runs with the same arrivals, those
// of one instant in different orders and always before a Timer of that instant.
// Every decision has to be the same.
func TestSameTimeArrivalsInAnyOrder(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		cfg.HeartbeatPeriod, cfg.HeartbeatMissThreshold = 1000, 1000
		n := rapid.IntRange(2, 8).Draw(t, "workers")
		one, other := newWorld(t, cfg), newWorld(t, cfg)
		for range n {
			one.join(true)
			other.join(true)
		}
		for round := 1; one.finished == nil; round++ {
			plan := map[policy.Time][]policy.ID{}
			var times []policy.Time
			for _, id := range sorted(one.members) {
				at := one.now + policy.Time(rapid.IntRange(0, 12).Draw(t, "offset"))
				if rapid.IntRange(0, 9).Draw(t, "slow") == 0 {
					at += 30
				}
				plan[at] = append(plan[at], id)
				times = append(times, at)
			}
			slices.Sort(times)
			for _, at := range slices.Compact(times) {
				shuffled := rapid.Permutation(plan[at]).Draw(t, "order")
				a := one.instant(at, plan[at])
				b := other.instant(at, shuffled)
				if !reflect.DeepEqual(a, b) {
					t.Fatalf("round %d at %d: arrivals in order %v gave\n  %v\nin order %v\n  %v", round, at, plan[at], a, shuffled, b)
				}
			}
			one.settleRound()
			other.settleRound()
		}
	})
}

// instant lets time pass to at, sends the arrivals and then the Timer if it is
// due, and returns the decisions since.
func (w *world) instant(at policy.Time, arrivals []policy.ID) []string {
	from := len(w.script)
	if w.wake > 0 && w.wake < at {
		w.advance(at-1, func() bool { return true })
	}
	w.now = max(w.now, at)
	for _, id := range arrivals {
		if _, working := w.task[id]; working {
			w.arrive(id)
		}
	}
	if w.wake >= 0 && w.wake <= w.now {
		w.send(policy.Timer{})
	}
	return decisions(w.script[from:])
}

// settleRound completes what is asked for until the next round has begun.
func (w *world) settleRound() {
	if w.reduce == nil && w.finished == nil {
		w.t.Fatalf("everybody has arrived, and nothing is reduced")
	}
	w.now++
	for w.reduce != nil {
		r := w.reduce
		for _, id := range r.Participants {
			w.send(policy.Reduced{ID: id, Round: r.Round, Epoch: r.Epoch})
		}
	}
	for _, id := range sorted(w.fetching) {
		w.send(policy.StateFetched{ID: id, OuterSteps: w.steps})
	}
}

// decisions renders what was decided, without what the order of the events
// shows in: the arrivals themselves and the wake-ups.
func decisions(script []step) []string {
	var out []string
	for _, s := range script {
		for _, a := range s.actions {
			switch a.(type) {
			case *policy.Arrived, *policy.WakeAt:
				continue
			}
			text, err := json.Marshal(a)
			if err != nil {
				panic(err) // plain data
			}
			out = append(out, fmt.Sprintf("%d %T %s", s.now, a, text))
		}
	}
	slices.Sort(out)
	return out
}

// watcher is a policy that holds Round.Changes against what All yields, at every question.
type watcher struct {
	adaptive.Policy
	t       failer
	changes int
	members map[policy.ID]policy.Member
}

func (w *watcher) watch(r *policy.Round) {
	w.t.Helper()
	now := map[policy.ID]policy.Member{}
	for m := range r.All {
		now[m.ID] = m
		if shown, ok := r.Member(m.ID); !ok || shown != m {
			w.t.Fatalf("member %d is %+v, %t; All yields %+v", m.ID, shown, ok, m)
		}
		before, known := w.members[m.ID]
		if r.Changes != w.changes {
			continue
		}
		if before.Arrived && !m.Arrived {
			w.t.Fatalf("%+v had arrived, without a change since: %+v", before, m)
		}
		before.Arrived, before.At, before.Misses = m.Arrived, m.At, m.Misses
		if !known || before != m {
			w.t.Fatalf("%+v was %+v, %t, without a change since", m, before, known)
		}
	}
	for id := range w.members {
		_, is := now[id]
		if _, shown := r.Member(id); shown != is || !is && r.Changes == w.changes {
			w.t.Fatalf("member %d is shown: %t; All yields it: %t; changes: %d, then %d", id, shown, is, w.changes, r.Changes)
		}
	}
	w.changes, w.members = r.Changes, now
}

func (w *watcher) Deadline(r *policy.Round) *policy.Deadline {
	w.watch(r)
	return w.Policy.Deadline(r)
}

func (w *watcher) Enough(r *policy.Round) (needed int, enough bool) {
	w.watch(r)
	return w.Policy.Enough(r)
}

func (w *watcher) Late(r *policy.Round, m policy.Member) (limit int, evict bool) {
	w.watch(r)
	return w.Policy.Late(r, m)
}

func (w *watcher) Closed(r *policy.Round) {
	w.watch(r)
	w.Policy.Closed(r)
}

// TestChangesAreCounted: a policy may rely on Round.Changes.
func TestChangesAreCounted(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		cfg.Policy = &watcher{Policy: adaptive.Policy{Quorum: 0.5, Z: 3, Window: 8, Gain: 0.05, Prior: 0.3}, t: t}
		w := newWorld(t, cfg)
		for range rapid.IntRange(1, 6).Draw(t, "workers") {
			w.join(true)
		}
		for range rapid.IntRange(0, 12).Draw(t, "stretches") {
			for range rapid.IntRange(0, 4).Draw(t, "events") {
				w.random(t)
			}
			w.labour(t, rapid.IntRange(0, 20).Draw(t, "deeds"))
		}
	})
}
