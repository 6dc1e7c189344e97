package torchft_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/torchft"
)

// job is replicas that train by the quorums of two lighthouses, each replica
// with one of them at a time:
//
//	a  b  c  d  e
//	└──┴──┤  ├──┘
//	      L0 L1
//
// A step is committed by all participants of its quorum or by none, and no
// replica loses its state.
type job struct {
	cfg         torchft.Config
	now         policy.Time
	lighthouses [2]*torchft.Lighthouse
	pending     [2]*torchft.Quorum // the last quorum of each, until it is committed
	replicas    []jobReplica
	commits     map[int64]string // by step: who committed it
	dead        int
	split       string // the first step that was committed twice
}

type jobReplica struct {
	at     int             // its lighthouse
	step   int64           // committed
	calls  bool            // waits for a quorum
	trains *torchft.Quorum // the quorum of its step under way
	dead   bool            // for good
	shrink bool            // asks for shrink_only
	failed int64           // commits
}

// op is something that happens to the job.
type op struct {
	Do         string
	Replica    int
	Lighthouse int
	Passes     policy.Time
}

// Most of a life is rounds, in which all but one at a lighthouse ask.
var doings = []string{"round", "round", "round", "round", "ask", "ask", "ask", "commit", "commit", "commit", "time", "beat", "fail", "move", "move", "gather", "lose", "restart", "die"}

func drawOps(t *rapid.T) []op {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
		return op{
			Do:         rapid.SampledFrom(doings).Draw(t, "do"),
			Replica:    rapid.IntRange(0, 5).Draw(t, "replica"),
			Lighthouse: rapid.IntRange(0, 1).Draw(t, "lighthouse"),
			Passes:     policy.Time(rapid.IntRange(0, 4).Draw(t, "passes")),
		}
	}), 150, 300).Draw(t, "ops")
}

func newJob(t rapid.TB, replicas, minReplicas int) *job {
	j := &job{
		cfg:      torchft.Config{MinReplicas: minReplicas, JoinTimeout: 5, HeartbeatTimeout: 30},
		replicas: make([]jobReplica, replicas), commits: map[int64]string{},
	}
	for i := range j.lighthouses {
		j.restart(t, i)
	}
	for i := replicas / 2; i < replicas; i++ {
		j.replicas[i].at = 1
	}
	return j
}

func (j *job) restart(t rapid.TB, lighthouse int) {
	l, err := torchft.New(j.cfg)
	if err != nil {
		t.Fatal(err)
	}
	j.lighthouses[lighthouse], j.pending[lighthouse] = l, nil
	for i := range j.replicas {
		if r := &j.replicas[i]; r.at == lighthouse {
			r.calls = false
		}
	}
}

// play carries out an op and then lets time pass.
func (j *job) play(t rapid.TB, o op) {
	r := &j.replicas[o.Replica%len(j.replicas)]
	id := string(rune('a' + o.Replica%len(j.replicas)))
	switch {
	case o.Do == "restart":
		j.restart(t, o.Lighthouse)
	case o.Do == "commit":
		j.commit(o.Lighthouse)
	case o.Do == "round":
		for i := range j.replicas {
			if i != o.Replica && j.replicas[i].at == o.Lighthouse {
				j.ask(i)
			}
		}
	case o.Do == "gather":
		for i := range j.replicas {
			j.move(i, o.Lighthouse)
		}
	case o.Do == "time" || r.dead:
	case o.Do == "ask":
		j.ask(o.Replica % len(j.replicas))
	case o.Do == "beat":
		j.step(r.at, torchft.Heartbeat{ReplicaID: id})
	case o.Do == "fail":
		r.trains = nil
		r.failed++
	case o.Do == "lose": // the call, and the lighthouse does not learn of it
		r.calls = false
	case o.Do == "move":
		j.move(o.Replica%len(j.replicas), o.Lighthouse)
	case o.Do == "die" && j.dead < (len(j.replicas)-1)/2: // a majority lives
		j.dead++
		r.dead, r.calls, r.trains = true, false, nil
	}
	for range o.Passes {
		j.now++
		for i := range j.lighthouses {
			j.step(i, torchft.Tick{})
		}
	}
}

func (j *job) ask(replica int) {
	if r := &j.replicas[replica]; !r.dead {
		r.calls, r.trains = true, nil
		m := torchft.Member{ReplicaID: string(rune('a' + replica)), Step: r.step, ShrinkOnly: r.shrink, CommitFailures: r.failed}
		j.step(r.at, torchft.Request{Member: m})
	}
}

func (j *job) move(replica, lighthouse int) {
	r := &j.replicas[replica]
	if r.calls {
		j.step(r.at, torchft.Cancel{ReplicaID: string(rune('a' + replica))})
	}
	r.calls, r.at = false, lighthouse
}

func (j *job) step(lighthouse int, e torchft.Event) {
	for _, a := range j.lighthouses[lighthouse].Step(j.now, e) {
		i, ok := a.(*torchft.Issue)
		if !ok {
			continue
		}
		j.pending[lighthouse] = &i.Quorum
		for _, m := range i.Quorum.Participants {
			if r := &j.replicas[m.ReplicaID[0]-'a']; r.calls && r.at == lighthouse {
				r.calls, r.trains = false, &i.Quorum
			}
		}
	}
}

// commit ends the step of a lighthouse's last quorum, if all its participants
// are still at it. It is the oracle of split brains: a step is committed once.
func (j *job) commit(lighthouse int) {
	q := j.pending[lighthouse]
	if q == nil {
		return
	}
	step := int64(0)
	for _, m := range q.Participants {
		if j.replicas[m.ReplicaID[0]-'a'].trains != q {
			return
		}
		step = max(step, m.Step)
	}
	for _, m := range q.Participants {
		r := &j.replicas[m.ReplicaID[0]-'a']
		r.step, r.trains, r.failed = step+1, nil, 0
	}
	j.pending[lighthouse] = nil
	who := fmt.Sprintf("%v of lighthouse %d at %d", namesOf(q.Participants), lighthouse, j.now)
	if before, twice := j.commits[step]; twice && j.split == "" {
		j.split = fmt.Sprintf("step %d is committed by %s and by %s", step, before, who)
	}
	j.commits[step] = who
}

// TestOneLineage: with min_replicas a majority of the job no step is committed
// by two quorums, whatever the replicas and lighthouses go through.
func TestOneLineage(t *testing.T) {
	schedules, committed := 0, 0
	rapidtest.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "replicas")
		j := newJob(t, n, n/2+1)
		for _, o := range drawOps(t) {
			if j.play(t, o); j.split != "" {
				t.Fatal(j.split)
			}
		}
		schedules++
		committed += len(j.commits)
	})
	if committed < schedules/2 {
		t.Errorf("%d steps were committed in %d schedules, which say nothing", committed, schedules)
	}
}

// TestSplitBrain: with min_replicas below a majority random schedules find two
// quorums for one step. It shows that TestOneLineage can fail.
func TestSplitBrain(t *testing.T) {
	schedules, splits := rapid.Custom(drawOps), 0
	for seed := range 200 {
		j := newJob(t, 4, 2)
		for _, o := range schedules.Example(seed) {
			j.play(t, o)
		}
		if j.split != "" {
			splits++
		}
	}
	if splits == 0 {
		t.Error("no split brain in 200 schedules of two lighthouses")
	}
	t.Logf("%d of 200 schedules split", splits)
}

// TestSplitBrainOfTwoLighthouses: four replicas, two at each lighthouse. Two
// replicas are a quorum if min_replicas says so, and not if it is a majority.
func TestSplitBrainOfTwoLighthouses(t *testing.T) {
	for minReplicas, want := range map[int]string{
		2: "step 0 is committed by [a b] of lighthouse 0 at 10 and by [c d] of lighthouse 1 at 10",
		3: "",
	} {
		j := newJob(t, 4, minReplicas)
		for i := range 4 {
			j.play(t, op{Do: "beat", Replica: i})
		}
		for i := range 4 {
			j.play(t, op{Do: "ask", Replica: i})
		}
		j.play(t, op{Do: "time", Passes: 10})
		j.play(t, op{Do: "commit", Lighthouse: 0})
		j.play(t, op{Do: "commit", Lighthouse: 1})
		if j.split != want {
			t.Errorf("min_replicas %d: %q, want %q", minReplicas, j.split, want)
		}
	}
}

// TestShrinkOnlySplits: shrink_only leaves a alone with its lighthouse, where
// the fast path goes on below min_replicas, while a majority meets at the other.
func TestShrinkOnlySplits(t *testing.T) {
	j := newJob(t, 5, 3)
	for i := range j.replicas {
		j.replicas[i].at = 0
	}
	for i := range 3 {
		j.play(t, op{Do: "beat", Replica: i})
	}
	for i := range 3 {
		j.play(t, op{Do: "ask", Replica: i})
	}
	j.replicas[0].shrink = true
	for i := 1; i < 5; i++ {
		j.play(t, op{Do: "move", Replica: i, Lighthouse: 1, Passes: 10})
	}
	// b is gone, and d and e, which are new, ask beside a.
	for _, i := range []int{3, 4} {
		j.replicas[i].at = 0
		j.play(t, op{Do: "ask", Replica: i})
	}
	j.play(t, op{Do: "ask", Replica: 0})
	j.play(t, op{Do: "commit", Lighthouse: 0})
	for i := 1; i < 5; i++ {
		j.play(t, op{Do: "move", Replica: i, Lighthouse: 1})
		j.play(t, op{Do: "beat", Replica: i})
	}
	for i := 1; i < 5; i++ {
		j.play(t, op{Do: "ask", Replica: i})
	}
	j.play(t, op{Do: "commit", Lighthouse: 1})
	if j.split == "" {
		t.Error("no split")
	}
}
