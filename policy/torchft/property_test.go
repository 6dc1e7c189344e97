package torchft_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/policy/torchft"
)

// job plays the workers of a machine, and checks what it decides.
type job struct {
	m         *torchft.Machine
	cfg       policy.Config
	p         torchft.Policy
	now       policy.Time
	wake      policy.Time
	alive     map[policy.ID]int  // incarnation
	out       map[policy.ID]bool // may join anew
	tasks     map[policy.ID]any  // what each was last asked to do
	donors    map[policy.ID]int  // the incarnation of whom it was last asked to fetch from
	holds     map[policy.ID]held
	has       map[policy.ID]int // the round that it has a contribution to
	carries   map[policy.ID]contribution
	reduces   map[policy.Epoch]*policy.Reduce
	in        map[policy.ID]policy.Epoch  // the epoch of the reduction that it is in
	said      map[policy.ID]policy.Epoch  // the epoch of the outcome that it has
	drops     map[policy.ID]*policy.Abort // that it is to confirm
	closed    *policy.Close
	before    *policy.Close          // the one before
	failed    bool                   // an attempt has, since then
	forgot    bool                   // ids have begun anew
	taken     map[policy.Epoch]held  // the states that outer steps came from, by epoch
	commits   map[int][]policy.Epoch // epochs, by round
	diverged  map[policy.Epoch]bool  // epochs that are told to have been second
	end       *policy.Finish
	n         int // groups that there may be
	ranks     int // of each
	processes int
	repeats   int // contributions that counted for another worker
	problem   string
}

// held is an outer state: how many outer steps it has, and the epoch of the last.
type held struct {
	steps int
	by    policy.Epoch
}

var nothing = held{steps: -1}

// contribution names the inner steps of a worker's process. In torchft's sync mode
// whoever fetches the state of a donor also gets the contribution that it carries.
type contribution struct {
	of                 policy.ID
	incarnation, round int // round 0: none
}

func newJob(n, ranks, lighthouses int, p torchft.Policy) *job {
	cfg := policy.Config{HeartbeatPeriod: 100, HeartbeatMissThreshold: 5, TargetOuterSteps: 30, Lighthouses: lighthouses}
	if lighthouses > 1 {
		cfg.Asks = map[policy.ID][]int{} // it may change with a process
		for id := range policy.ID(n * ranks) {
			for incarnation := range 1000 {
				cfg.Asks[id] = append(cfg.Asks[id], (int(id)+incarnation)%lighthouses)
			}
		}
	}
	if ranks > 1 {
		cfg.Grouping = grouping(ranks)
	}
	m, err := torchft.New(cfg, p)
	if err != nil {
		panic(err)
	}
	j := &job{ranks: ranks, m: m, cfg: cfg, p: p, alive: map[policy.ID]int{}, out: map[policy.ID]bool{}, tasks: map[policy.ID]any{}, donors: map[policy.ID]int{}, holds: map[policy.ID]held{}, has: map[policy.ID]int{}, carries: map[policy.ID]contribution{},
		reduces: map[policy.Epoch]*policy.Reduce{}, in: map[policy.ID]policy.Epoch{}, said: map[policy.ID]policy.Epoch{}, drops: map[policy.ID]*policy.Abort{}, taken: map[policy.Epoch]held{}, commits: map[int][]policy.Epoch{}, diverged: map[policy.Epoch]bool{}}
	for id := range n * ranks {
		j.alive[policy.ID(id)] = 0
		j.holds[policy.ID(id)] = held{}
		j.send(policy.Join{ID: policy.ID(id), HasState: true})
	}
	return j
}

// grouping has replica groups of so many ranks each.
func grouping(ranks int) *policy.Grouping {
	if ranks == 1 {
		return nil
	}
	var workers []policy.ID
	for id := range 100 * ranks {
		workers = append(workers, policy.ID(id))
	}
	return policy.NewReplicaGroups(workers, ranks)
}

// group has the workers of a replica group.
func (j *job) group(n int) (of []policy.ID) {
	for k := range j.ranks {
		of = append(of, policy.ID(n*j.ranks+k))
	}
	return of
}

// whole returns how many groups a list of workers, which are in order, has, and
// complains if it has not all ranks of one.
func (j *job) whole(ids []policy.ID) (n int) {
	for k, id := range ids {
		if first := ids[k/j.ranks*j.ranks]; int(first)%j.ranks != 0 || id != first+policy.ID(k%j.ranks) {
			j.bad("%v are not all ranks of their groups", ids)
		}
	}
	return len(ids) / j.ranks
}

func (j *job) bad(format string, args ...any) {
	if j.problem == "" {
		j.problem = fmt.Sprintf("at %d: ", j.now) + fmt.Sprintf(format, args...)
	}
}

func (j *job) send(e policy.Event) {
	for _, a := range slices.Clone(j.m.Step(j.now, e)) {
		j.take(a)
	}
	for round, epochs := range j.commits {
		if len(epochs) > 1 && len(j.diverged) == 0 {
			j.bad("nobody is told that outer step %d is taken twice, by %v", round, epochs)
		}
	}
}

// led reports whether one state came from another.
func (j *job) led(from, to held) bool {
	for from.steps < to.steps && to.by > 0 {
		to = j.taken[to.by]
	}
	return from == to
}

func (j *job) take(a policy.Action) {
	switch a := a.(type) {
	case *policy.WakeAt:
		j.wake = a.At
	case *policy.StartRound:
		for _, id := range a.IDs {
			if e := j.said[id]; e > 0 && slices.Contains(j.commits[a.Round-1], e) {
				j.holds[id] = held{a.Round - 1, e}
			}
			if j.said[id] = 0; j.holds[id].steps == -1 && a.Round == 1 {
				j.holds[id] = held{} // it begins where all did
			}
			if j.holds[id].steps != a.Round-1 {
				j.bad("w%d begins round %d and holds the state after %d outer steps", id, a.Round, j.holds[id].steps)
			}
			j.tasks[id] = a.Round
			delete(j.carries, id)
		}
	case *policy.Fetch:
		from := j.holds[a.From]
		if from == nothing && a.OuterSteps == 0 {
			from = held{} // it begins where all did
		}
		if int(a.From-a.ID)%j.ranks != 0 {
			j.bad("w%d is to fetch another rank's part, of w%d", a.ID, a.From)
		}
		if has := j.holds[a.ID]; from.steps != a.OuterSteps {
			j.bad("w%d is to fetch outer step %d from w%d, which has %d", a.ID, a.OuterSteps, a.From, from.steps)
		} else if !a.Whole && has != nothing && !j.led(has, from) {
			j.bad("w%d is to go on to %+v from %+v, which did not lead there", a.ID, from, has)
		}
		j.tasks[a.ID], j.donors[a.ID], j.has[a.ID] = a, j.alive[a.From], 0
		delete(j.carries, a.ID)
	case *policy.Close:
		j.checkQuorum(a)
	case *policy.Reduce:
		j.reduces[a.Epoch] = a
		j.checkReduction(a)
	case *policy.Abort:
		if j.reduces[a.Epoch] == nil {
			j.bad("%+v of nothing", a)
		}
		for _, id := range a.Participants {
			if j.said[id] == a.Epoch {
				j.said[id] = 0
			}
			if a.Confirm {
				j.drops[id] = a
			}
		}
		delete(j.reduces, a.Epoch)
		j.failed = true
	case *policy.OuterStep:
		j.commit(a)
	case *policy.Diverge:
		j.diverged[a.Epoch] = true
	case *policy.Evict:
		if _, alive := j.alive[a.ID]; a.Rejoin && alive && a.Rule != policy.RuleGaveUp {
			j.out[a.ID] = true
		} else if a.Rule != policy.RuleReplaced {
			delete(j.alive, a.ID)
		}
		delete(j.tasks, a.ID)
		delete(j.has, a.ID)
		delete(j.carries, a.ID)
		delete(j.drops, a.ID)
		j.holds[a.ID], j.in[a.ID], j.said[a.ID] = nothing, 0, 0
	case *policy.Finish:
		j.end = a
	}
}

func (j *job) checkReduction(a *policy.Reduce) {
	if len(a.Zero) == len(a.Participants) {
		j.bad("nobody contributes to %+v", a)
	}
	j.whole(a.Participants)
	for _, id := range a.Participants {
		if zero := slices.Contains(a.Zero, id); !zero && j.has[id] != a.Round || j.holds[id].steps != a.Round-1 {
			j.bad("w%d takes part in round %d with outer step %d and a contribution to %d", id, a.Round, j.holds[id].steps, j.has[id])
		}
		if j.holds[id] != j.holds[a.Participants[0]] {
			j.bad("%v take part in one reduction with different states", a.Participants)
		}
		j.in[id] = a.Epoch
	}
	j.checkRepeats(a)
}

// checkRepeats: with Sync each participant counts as what it carries, if the worker
// whose contribution that is takes part with it. With InitSync a ring's first
// reduction has one contribution.
func (j *job) checkRepeats(a *policy.Reduce) {
	for _, r := range a.Repeated {
		if !slices.Contains(a.Zero, r.ID) {
			j.bad("w%d contributes, and counts for w%d", r.ID, r.Donor)
		}
	}
	own := map[int]int{} // contributions by ring
	for _, id := range a.Participants {
		if !slices.Contains(a.Zero, id) {
			own[int(id)%j.ranks]++
			continue
		}
		counts := policy.ID(-1)
		if k := slices.IndexFunc(a.Repeated, func(r policy.Repeat) bool { return r.ID == id }); k >= 0 {
			counts = a.Repeated[k].Donor
		}
		want, c := policy.ID(-1), j.carries[id]
		if contributes := slices.Contains(a.Participants, c.of) && !slices.Contains(a.Zero, c.of); j.p.Sync && contributes && c.round == a.Round && j.carries[c.of] == c {
			want = c.of
		}
		apart := j.forgot && counts < 0 // its process group may be another one
		if counts != want && !apart {
			j.bad("w%d counts for w%d in %+v, want w%d: it carries %+v", counts, id, a, want, c)
		}
		j.repeats += min(1, int(counts)+1)
	}
	for ring, n := range own {
		if a.Round == 1 && j.p.InitSync && n != 1 {
			j.bad("ring %d of %+v has %d contributions", ring, a, n)
		}
	}
}

// checkQuorum: the id grows by one if others take part than before, or if an
// attempt has failed since, and else not at all.
func (j *job) checkQuorum(a *policy.Close) {
	if a.Arrived < j.p.MinReplicas {
		j.bad("a quorum of %d", a.Arrived)
	}
	j.before, j.closed = j.closed, a
	if j.before == nil || j.forgot || j.cfg.Lighthouses > 1 || j.p.MinReplicas <= j.n/2 { // below, quorums may overlap in time
		return
	}
	grown := a.QuorumID - j.before.QuorumID
	if same := slices.Equal(a.Participants, j.before.Participants); grown < 0 || grown == 0 && (!same || j.failed) {
		j.bad("quorum %d of %v after quorum %d of %v, with a failure: %t", a.QuorumID, a.Participants, j.before.QuorumID, j.before.Participants, j.failed)
	}
	j.failed = false
}

// commit is the oracle: an outer step is taken by those that have its outcome, all
// from the same state, and not twice as long as a majority holds it.
func (j *job) commit(a *policy.OuterStep) {
	if of := j.reduces[a.Epoch]; of == nil || j.whole(of.Participants) < j.p.MinReplicas || j.whole(a.Participants) == 0 {
		j.bad("outer step %d is taken by %v after %+v", a.Round, a.Participants, of)
	}
	for _, epoch := range j.commits[a.Round] {
		holders := 0
		for group := range j.n {
			if !slices.ContainsFunc(j.group(group), func(id policy.ID) bool { return !j.led(held{a.Round, epoch}, j.holds[id]) }) {
				holders++
			}
		}
		if holders >= j.majority() {
			j.bad("outer step %d is taken again by %v, and %d hold it", a.Round, a.Participants, holders)
		}
	}
	for _, id := range a.Participants {
		if j.said[id] != a.Epoch {
			j.bad("outer step %d is taken, and w%d has not got its outcome", a.Round, id)
		}
	}
	j.taken[a.Epoch] = j.holds[a.Participants[0]]
	j.commits[a.Round] = append(j.commits[a.Round], a.Epoch)
}

// majority is how many have to hold a state so that no other can come up beside
// it: with them, the rest are too few for a quorum.
func (j *job) majority() int { return max(j.n-j.p.MinReplicas+1, 1) }

// advance lets time pass, with heartbeats of the living and Timers.
func (j *job) advance(to policy.Time) {
	for j.now < to && j.end == nil {
		next := min(to, j.now-j.now%j.cfg.HeartbeatPeriod+j.cfg.HeartbeatPeriod)
		if j.wake > j.now {
			next = min(next, j.wake)
		}
		j.now = next
		if j.now%j.cfg.HeartbeatPeriod == 0 {
			for _, id := range slices.Sorted(maps.Keys(j.alive)) {
				j.send(policy.Heartbeat{ID: id})
			}
		}
		for range 10 {
			if j.wake > j.now || j.end != nil {
				break
			}
			j.wake = j.now + 1
			j.send(policy.Timer{})
		}
		if j.wake <= j.now && j.end == nil {
			j.bad("it asks for one Timer after the other")
			return
		}
	}
}

// work has a worker do what it was asked to.
func (j *job) work(id policy.ID) {
	if _, alive := j.alive[id]; !alive {
		return
	}
	if j.out[id] {
		delete(j.out, id)
		j.send(policy.Join{ID: id, Incarnation: j.alive[id]})
		return
	}
	if a := j.drops[id]; a != nil {
		delete(j.drops, id)
		j.send(policy.ReduceFailed{ID: id, Round: a.Round, Epoch: a.Epoch})
		return
	}
	if r := j.reduces[j.in[id]]; r != nil && j.said[id] == 0 {
		j.said[id], j.in[id] = r.Epoch, 0
		j.send(policy.Reduced{ID: id, Round: r.Round, Epoch: r.Epoch})
		return
	}
	task := j.tasks[id]
	delete(j.tasks, id)
	switch task := task.(type) {
	case int:
		j.has[id], j.carries[id] = task, contribution{id, j.alive[id], task}
		j.send(policy.Arrival{ID: id, Round: task})
	case *policy.Fetch:
		from := j.holds[task.From]
		if from == nothing && task.OuterSteps == 0 {
			from = held{}
		}
		if from.steps < task.OuterSteps || j.alive[task.From] != j.donors[id] { // another process does not answer for it
			j.send(policy.FetchFailed{ID: id})
			return
		}
		if j.holds[id] = from; from.steps == task.OuterSteps {
			j.carries[id] = j.carries[task.From]
		}
		j.send(policy.StateFetched{ID: id, OuterSteps: from.steps})
	}
}

func (j *job) random(t *rapid.T, n int) {
	id := policy.ID(rapid.IntRange(0, n-1).Draw(t, "worker"))
	_, alive := j.alive[id]
	reduces := j.reduces[j.in[id]]
	switch op := rapid.IntRange(0, 99).Draw(t, "op"); {
	case op < 55:
		j.work(id)
	case op < 80:
		j.advance(j.now + policy.Time(rapid.IntRange(1, 300).Draw(t, "time")))
	case op < 84 && alive:
		delete(j.alive, id) // in silence
		delete(j.tasks, id)
	case op < 86 && alive:
		j.send(policy.Lost{ID: id, Rule: policy.RuleGaveUp})
	case op < 87 && alive:
		j.send(policy.Leave{ID: id})
	case op < 91 && reduces != nil && alive && j.said[id] == 0:
		j.in[id] = 0
		j.send(policy.ReduceFailed{ID: id, Round: reduces.Round, Epoch: reduces.Epoch, Alone: op < 89})
	case op < 93 && alive:
		if f, fetches := j.tasks[id].(*policy.Fetch); fetches {
			delete(j.tasks, id)
			j.send(policy.FetchFailed{ID: f.ID})
		}
	case op < 98 && !alive:
		j.comeBack(id)
	case op < 99:
		e := policy.Recovered{Away: policy.Time(rapid.IntRange(0, 2000).Draw(t, "away")), Forgets: rapid.Bool().Draw(t, "forgets")}
		j.now += e.Away
		j.forgot = j.forgot || e.Forgets
		j.send(e)
	}
}

// comeBack begins another process of a worker, which holds nothing.
func (j *job) comeBack(id policy.ID) {
	delete(j.out, id)
	j.processes++
	j.alive[id] = j.processes
	j.has[id], j.in[id], j.said[id] = 0, 0, 0
	delete(j.carries, id)
	delete(j.tasks, id)
	j.send(policy.Join{ID: id, Incarnation: j.alive[id]})
}

// play lets anything happen to anybody, of whom the first groups hold the state.
func play(t *rapid.T, n, first, minReplicas, lighthouses int) *job {
	p := torchft.Policy{
		MinReplicas: minReplicas,
		JoinTimeout: policy.Time(rapid.IntRange(1, 600).Draw(t, "join")), QuorumTimeout: policy.Time(rapid.IntRange(1500, 5000).Draw(t, "quorum")),
		Timeout: policy.Time(rapid.IntRange(100, 3000).Draw(t, "timeout")), QuorumRetries: rapid.IntRange(0, 3).Draw(t, "retries"), Restarts: rapid.IntRange(0, 3).Draw(t, "restarts"),
		MaxRetries: max(0, rapid.IntRange(-3, 3).Draw(t, "failures")), Sync: rapid.Bool().Draw(t, "sync"), InitSync: rapid.Bool().Draw(t, "init sync"),
	}
	if p.InitSync { // at step 0 each try has a healing
		p.Timeout += 300
	}
	j := newJob(first, rapid.IntRange(1, 3).Draw(t, "ranks"), lighthouses, p)
	j.n = n
	for range rapid.IntRange(0, 150*j.ranks).Draw(t, "events") {
		if j.random(t, n*j.ranks); j.end != nil || j.problem != "" {
			break
		}
	}
	return j
}

// TestOneLineage: with min_replicas a majority of all workers, no outer step is
// taken twice while a majority holds it, and each by those that hold its outcome.
func TestOneLineage(t *testing.T) {
	committed, repeats := 0, 0
	rapidtest.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "workers")
		j := play(t, n, n, n/2+1, rapid.IntRange(1, 2).Draw(t, "lighthouses"))
		if j.problem != "" {
			t.Fatal(j.problem)
		}
		committed += len(j.commits)
		repeats += j.repeats
	})
	t.Logf("%d outer steps, %d contributions that counted for another worker", committed, repeats)
	if committed == 0 || repeats == 0 {
		t.Error("nothing was committed, or no contribution counted for another worker")
	}
}

// TestSplitBrain: below a majority random runs take an outer step twice, which the
// machine tells. It shows that TestOneLineage can fail.
func TestSplitBrain(t *testing.T) {
	splits := 0
	rapidtest.Check(t, func(t *rapid.T) {
		j := play(t, 5, 2, 1, rapid.IntRange(1, 2).Draw(t, "lighthouses"))
		if j.problem != "" {
			t.Fatal(j.problem)
		}
		if len(j.diverged) > 0 {
			splits++
		}
	})
	t.Logf("%d runs split", splits)
	if splits == 0 && !testing.Short() { // which plays too few
		t.Error("no run split")
	}
}

// TestItGoesOn: when the faults are over and a majority is there, the run comes to
// its end.
func TestItGoesOn(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "workers")
		j := play(t, n, n, n/2+1, 1)
		for id := range policy.ID(n * j.ranks) {
			if _, alive := j.alive[id]; !alive && j.end == nil {
				j.comeBack(id)
			}
		}
		for range 3000 {
			if j.end != nil || j.problem != "" {
				break
			}
			for id := range policy.ID(n * j.ranks) {
				if _, alive := j.alive[id]; !alive {
					j.comeBack(id) // what killed it has killed it for the last time
				}
				j.work(id)
			}
			j.advance(j.now + 50)
		}
		if j.problem != "" || j.end == nil || !j.end.Complete && j.end.Rule != policy.RuleStateLost && j.end.Rule != policy.RuleSplitBrain {
			t.Fatalf("%s; at %d it has ended by %+v with %v; tasks %v, alive %v, reducing %+v", j.problem, j.now, j.end, j.m, j.tasks, j.alive, j.reduces)
		}
	})
}
