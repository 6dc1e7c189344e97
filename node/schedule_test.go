package node

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"testbed/internal/memnet"
	"testbed/internal/rapidtest"
	"testbed/policy"

	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping"
	"testbed/train/task"
)

// How many random schedules of faults TestSchedules tries. The first one has the seed
// of rapidtest. A soak: go test ./node -run TestSchedules -schedules 100000 -timeout 0 -v
var (
	scheduleCount = flag.Int("schedules", 100, "random schedules of faults to try")
	schedulePlay  = flag.String("schedule.policy", "", "the policy of all schedules, instead of any")
)

// recovery is how much scenario time a run gets after its last fault has ended.
const recovery = 150_000

// schedule is one random run. The seed fixes it, though not the order in which
// the goroutines of one instant run.
type schedule struct {
	seed    uint64
	policy  string
	workers int
	joins   map[policy.ID]policy.Time // of those that come later
	join    policy.JoinMode
	rejoin  policy.RejoinMode
	finish  bool       // sidelined workers finish their inner steps
	stale   float64    // weight of what they come to
	learn   bool       // they have a real model
	outer   task.Outer // what of it rounds exchange
	regions *policy.RegionsSpec
	ranks   int // of a replica group
	delay   time.Duration
	jitter  time.Duration
	loss    float64
	faults  []fault
	causes  *detections
}

// detections counts how the lost were noticed.
type detections struct {
	sync.Mutex
	count map[policy.Rule]int
	worst map[policy.Rule]policy.Time // time from a crash to its detection
}

func (d *detections) add(all []record.Detection) {
	d.Lock()
	defer d.Unlock()
	for _, one := range all {
		d.count[one.Cause]++
		if one.After != nil {
			d.worst[one.Cause] = max(d.worst[one.Cause], *one.After)
		}
	}
}

func (d *detections) String() string {
	var parts []string
	for _, cause := range slices.Sorted(maps.Keys(d.count)) {
		parts = append(parts, fmt.Sprintf("%d by %s (of a crash at most %d µs later)", d.count[cause], cause, d.worst[cause]))
	}
	return "lost and detected: " + strings.Join(parts, ", ")
}

// fault happens at a time or, if on is given, after that event of a round.
type fault struct {
	what           string
	id             policy.ID
	other          policy.ID // of a cut; -1: the coordinator
	at             policy.Time
	on             record.Type
	round          int
	lasts          policy.Time
	factor         float64
	alone, forgets bool
}

func (f fault) String() string {
	when := fmt.Sprintf("at %d", f.at)
	if f.on != "" {
		when = fmt.Sprintf("%d after %s of round %d", f.at, f.on, f.round)
	}
	s := fmt.Sprintf("%s w%d %s", f.what, f.id, when)
	switch f.what {
	case "coordinator", "coordinator-torn":
		s = fmt.Sprintf("crash of the coordinator (%s, forgets %t) %s", f.what, f.forgets, when)
	case "cut", "cut-from", "cut-to":
		s = fmt.Sprintf("%s w%d %s %s", f.what, f.id, nodeName(f.other), when)
	case "fail-reduce":
		s += fmt.Sprintf(" alone %t", f.alone)
	case "slow":
		s = fmt.Sprintf("slow w%d ×%g %s", f.id, f.factor, when)
	}
	if f.lasts > 0 {
		s += fmt.Sprintf(" for %d", f.lasts)
	}
	return s
}

func (s schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s, %d workers, one-way delay %v ± %v, loss %g, joins %v (%s, rejoin %s), finish steps %v, staleness weight %g, learns %v, outer %+v, regions %+v, groups of %d", s.seed, s.policy, s.workers, s.delay, s.jitter, s.loss, s.joins, s.join, s.rejoin, s.finish, s.stale, s.learn, s.outer, s.regions, s.ranks)
	for _, f := range s.faults {
		fmt.Fprintf(&b, "\n  %v", f)
	}
	return b.String()
}

// drawSync has three quarters of the runs under torchft play its sync mode, init_sync,
// or both.
func (s *schedule) drawSync() {
	if s.policy == "torchft" && (s.ranks == 1 || s.outer.Overlap == 0) { // otherwise init_sync is refused
		s.policy += []string{"", ":sync=true", ":init_sync=true", ":sync=true:init_sync=true"}[s.seed/2%4]
	}
}

func nodeName(id policy.ID) string {
	if id < 0 {
		return policy.CoordinatorNode
	}
	return id.Node()
}

// drawSchedule makes the schedule of a seed. Worker 0 is spared what would end
// it, so that every run has somebody to complete it.
func drawSchedule(seed uint64) schedule {
	r := rand.New(rand.NewPCG(seed, 0))
	s := schedule{
		seed: seed, policy: policy.Names()[r.IntN(len(policy.Names()))], workers: 2 + r.IntN(4),
		joins: map[policy.ID]policy.Time{}, delay: time.Duration(1+r.IntN(20)) * time.Millisecond,
	}
	if r.IntN(3) == 0 {
		s.jitter, s.loss = min(s.delay, 5*time.Millisecond)/2, []float64{0, 0.003, 0.02}[r.IntN(3)]
	}
	s.join, s.finish = policy.JoinModes[r.IntN(len(policy.JoinModes))], r.IntN(2) == 0
	late := s.workers
	for range r.IntN(3) {
		s.joins[policy.ID(late)] = policy.Time(500 + r.IntN(12_000))
		late++
	}
	for range r.IntN(5) {
		s.faults = append(s.faults, s.drawFault(r, late))
	}
	for range max(0, r.IntN(5)-2) {
		s.faults = append(s.faults, s.drawOutage(r, late))
	}
	s.stale = []float64{0, 0.5, 1}[r.IntN(3)]
	s.rejoin = policy.RejoinModes[r.IntN(len(policy.RejoinModes))]
	s.learn = r.IntN(10) == 0
	if r.IntN(3) == 0 {
		s.outer.Fragments, s.outer.Mix, s.stale = 1+r.IntN(3), float64(r.IntN(2))/2, 0
		if s.outer.Overlap = r.IntN(3); s.outer.Overlap == 2 && s.outer.Fragments == 1 {
			s.outer.Mix, s.outer.Correction = 0, task.Eager
		}
	} else if r.IntN(3) == 0 {
		s.drawRegions(r, late)
	}
	for range max(0, r.IntN(4)-2) {
		f := s.drawFault(r, late)
		f.what, f.lasts, f.alone = "fail-reduce", 0, r.IntN(2) == 0
		s.faults = append(s.faults, f)
	}
	for i := range s.faults {
		s.faults[i].forgets = s.torchft() && s.faults[i].id < 0 && r.IntN(3) == 0
	}
	s.ranks = 1
	return s
}

// drawRanks has half of the runs under torchft have groups of two ranks, the first of
// which is spared what would end it.
func (s *schedule) drawRanks() {
	r := rand.New(rand.NewPCG(s.seed, 1))
	if !s.torchft() || r.IntN(2) == 0 {
		return
	}
	s.ranks = 2
	for n := s.workers + len(s.joins); n < 4 || n%2 > 0; n++ {
		s.joins[policy.ID(n)] = policy.Time(500 + r.IntN(12_000))
	}
	for i := range s.faults {
		if f := &s.faults[i]; f.id == 1 {
			if f.id = 2; f.other == 2 {
				f.other = 1
			}
		}
	}
}

// groups is how many replica groups there are.
func (s schedule) groups() int {
	return (s.workers + len(s.joins)) / s.ranks
}

// drawRegions deals the workers to up to three regions.
func (s *schedule) drawRegions(r *rand.Rand, workers int) {
	s.stale, s.regions = 0, &policy.RegionsSpec{Every: []int{1, 2, 3, 6}[r.IntN(4)], Workers: map[string][]policy.ID{}}
	for id := range policy.ID(workers) {
		name := []string{"ap", "eu", "us"}[r.IntN(3)]
		s.regions.Workers[name] = append(s.regions.Workers[name], id)
	}
}

// drawOutage draws a crash of the coordinator at any moment: at a time, after
// an event, or while it acts on one.
func (s *schedule) drawOutage(r *rand.Rand, workers int) fault {
	f := s.drawFault(r, workers)
	f.id, f.what, f.lasts = -1, "coordinator", 0
	if r.IntN(2) == 0 {
		f.what = "coordinator-torn"
	}
	if f.on != "" && r.IntN(2) == 0 {
		f.at = 0
	}
	if r.IntN(3) > 0 {
		f.lasts = policy.Time(r.IntN(20_000))
	}
	return f
}

func (s *schedule) drawFault(r *rand.Rand, workers int) fault {
	f := fault{id: policy.ID(1 + r.IntN(workers-1)), at: policy.Time(r.IntN(16_000))}
	if r.IntN(2) == 0 {
		f.on = []record.Type{record.Arrive, record.RoundClose, record.ReduceStart, record.ReduceStart, record.ReduceStart, record.OuterStep, record.FetchStart, record.Join}[r.IntN(8)]
		f.round, f.at = 1+r.IntN(6), policy.Time(r.IntN(1500))
	}
	if f.on == record.FetchStart || f.on == record.Join {
		f.round = 0 // of any round, the first one
	}
	const window = 5000 // until the heartbeats evict
	short := policy.Time(100 + r.IntN(window/2))
	long := policy.Time(100 + r.IntN(5*window))
	switch r.IntN(14) {
	case 0, 1:
		f.what = "crash"
	case 2:
		f.what = "freeze"
	case 3:
		f.what = "leave"
	case 4:
		f.what, f.factor, f.lasts = "slow", []float64{1.5, 3, 10}[r.IntN(3)], long
	case 5:
		f.what, f.lasts = "partition", long
	case 6:
		f.what, f.lasts = "pause", []policy.Time{short, long}[r.IntN(2)]
	case 8, 9:
		f.what, f.lasts = "restart", []policy.Time{0, short, long}[r.IntN(3)]
	case 10:
		f.what = "fail"
	case 11:
		f.what, f.lasts = "preempt", short
	case 7:
		f.what, f.lasts = "partition", short
		f.id = policy.ID(r.IntN(workers))
	default:
		f.what = []string{"cut", "cut-from", "cut-to"}[r.IntN(3)]
		f.other, f.lasts = f.id, long
		for f.other == f.id {
			f.other = policy.ID(r.IntN(workers+1) - 1)
		}
		if f.other < 0 && r.IntN(2) == 0 {
			f.lasts = short
		}
	}
	return f
}

// touched says who has reason to be evicted.
func (s schedule) touched() map[policy.ID]bool {
	all := map[policy.ID]bool{}
	for _, f := range s.faults {
		all[f.id] = true
		if strings.HasPrefix(f.what, "cut") && f.other >= 0 {
			all[f.other] = true
		}
	}
	if s.ranks > 1 {
		for id := range maps.Clone(all) {
			all[id^1] = true
		}
	}
	return all
}

func (s schedule) scenario(t testing.TB) *scenarios.Scenario {
	sc := worldScenario(t, s.workers+len(s.joins))
	for i := range sc.Workers {
		sc.Workers[i].JoinAt = s.joins[sc.Workers[i].ID]
		sc.Workers[i].InnerStepJitter = 50
	}
	last := policy.Time(0)
	for _, at := range s.joins {
		last = max(last, at)
	}
	for _, f := range s.faults {
		last = max(last, f.at+f.lasts)
	}
	sc.Seed, sc.Policy.Join, straggler(sc).FinishSteps = s.seed, s.join, s.finish
	sc.Policy.StalenessWeight, sc.Policy.Rejoin = s.stale, s.rejoin
	sc.Horizon = last + recovery
	d := &sc.Real.Links.Default
	delay, jitter, loss := shaping.Duration(s.delay), shaping.Duration(s.jitter), shaping.Probability(s.loss)
	d.OneWayDelay, d.Jitter, d.Loss = &delay, &jitter, &loss
	if s.learn && s.ranks == 1 {
		learn(sc)
		sc.Real.AllReduce.ErrorFeedback = true
	}
	if s.outer != (task.Outer{}) {
		if sc.Train == nil {
			sc.Train = &task.Spec{}
		}
		sc.Train.Outer = s.outer
	}
	if s.regions != nil && !s.torchft() { // which has one outer state for all
		if sc.Train == nil {
			sc.Train = &task.Spec{}
		}
		sc.Train.Regions = s.regions
	}
	if s.ranks > 1 {
		if sc.Train == nil {
			sc.Train = &task.Spec{}
		}
		sc.Train.GroupWorldSize = s.ranks
	}
	return sc
}

// run plays the schedule and returns what is wrong with the outcome, and what
// the nodes had to say.
func (s schedule) run(t *testing.T) (logs string, problem error) {
	escaped := memnet.TryBubble(t, func(t *testing.T) {
		w := newWorld(t, s.scenario(t))
		w.onEvent = func() func(record.Event) {
			armed := slices.Clone(s.faults)
			return func(e record.Event) {
				for i, f := range armed {
					switch {
					case f.what == "":
					case f.on == "" && e.Type == record.RunStart:
						w.at(f.at, func() { w.inflict(i, f) })
						armed[i].what = ""
					case f.on != "" && f.on == e.Type && (f.round == 0 || f.round == e.Round) && f.at == 0 && strings.HasPrefix(f.what, "coordinator"):
						armed[i].what = ""
						w.inflict(i, f)
					case f.on != "" && f.on == e.Type && (f.round == 0 || f.round == e.Round):
						time.AfterFunc(w.scenario.RealDuration(f.at), func() { w.inflict(i, f) })
						armed[i].what = ""
					}
				}
			}
		}()
		spec := s.policy
		if n := s.majority(); n > 0 {
			spec += fmt.Sprint(":min_replicas=", n)
		}
		sum, events := w.play(spec, time.Hour)
		problem, logs = s.judge(w, sum, events), w.logs.String()
		for _, e := range events {
			logs += fmt.Sprintf("%+v\n", e)
		}
	})
	return logs, errors.Join(problem, escaped)
}

// leavesOut says whether the policy leaves healthy workers out, too: then those
// that have a fault may be the only ones that hold the newest outer state.
func (s schedule) leavesOut() bool {
	return s.policy != scenarios.Baseline && s.policy != scenarios.Straggler
}

func (s schedule) torchft() bool { return strings.HasPrefix(s.policy, "torchft") }

// majority is how many groups a quorum needs so that there is one at a time, in
// schedules of an even seed; the others have quorums of one.
func (s schedule) majority() int {
	if !s.torchft() || s.seed%2 > 0 {
		return 0
	}
	return s.groups()/2 + 1
}

// forgets says whether requests may be lost, so that groups die of waiting.
func (s schedule) forgets() bool {
	return slices.ContainsFunc(s.faults, func(f fault) bool { return f.forgets })
}

// splits says whether a run under torchft may come to two lineages: if a quorum is
// no majority, or fewer took a step than that. With a majority lost for good nobody
// goes on.
func (s schedule) splits(events []record.Event) (splits, stops bool) {
	if !s.torchft() {
		return false, false
	}
	for _, e := range events {
		if e.Type == record.OuterStep && len(e.Participants)/s.ranks < s.majority() {
			splits = true
		}
		stops = stops || e.Type == record.Evict && e.Reason.Rule == policy.RuleQuorumTimeout && (s.majority() > 0 || s.forgets())
	}
	return splits || s.majority() == 0, stops
}

// beginsAnew says whether a worker has begun with the initial state when others were
// ahead.
func beginsAnew(events []record.Event) bool {
	joined := map[string]int{}
	return slices.ContainsFunc(events, func(e record.Event) bool {
		if e.Type == record.Join {
			joined[e.Node] = e.Round
		}
		return e.Type == record.Step && e.Round < joined[e.Node]
	})
}

func lostItsState(events []record.Event) bool {
	return slices.ContainsFunc(events, func(e record.Event) bool {
		return e.Type == record.RunEnd && e.Reason != nil && e.Reason.Rule == policy.RuleStateLost
	})
}

// longestFetch is the longest time that a worker took to get a state, from its first
// order to fetch to the end, with all that it fetched again because that was stale.
func longestFetch(id policy.ID, events []record.Event) (longest policy.Time) {
	began, fetching := policy.Time(0), false
	for _, e := range events {
		if e.Node != id.Node() {
			continue
		}
		switch e.Type {
		case record.FetchStart:
			if !fetching {
				began, fetching = e.T, true
			}
		case record.FetchDone, record.Evict:
			if fetching {
				longest, fetching = max(longest, e.T-began), false
			}
		}
	}
	return longest
}

func (s schedule) judge(w *world, sum record.Summary, events []record.Event) error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for _, f := range w.failed {
		bad("%s", f)
	}
	splits, stops := s.splits(events)
	if splits && (len(sum.Diverged) > 0 || beginsAnew(events)) {
		return errors.Join(problems...) // what else there is to say is of one lineage
	}
	if err := checkLineage(w.scenario, events); err != nil {
		problems = append(problems, err)
	}
	if !sum.Complete && !(s.leavesOut() && lostItsState(events)) && !stops {
		bad("not complete %d µs after the last fault: %d outer steps, last event %+v", policy.Time(recovery), sum.OuterSteps, events[len(events)-1])
	}
	if s.causes != nil {
		s.causes.add(sum.Detected)
	}
	window := w.scenario.HeartbeatPeriod * policy.Time(w.scenario.HeartbeatMissThreshold+1)
	for _, d := range sum.Detected {
		// A coordinator that was away begins to count when it is back, and gives
		// the workers the time of a standstill to come back.
		if window := window + w.away(); d.After != nil && *d.After > window && !s.torchft() { // which evicts nobody for silence
			bad("the crash of w%d was detected %d µs later (%s), the bound is %d", d.ID, *d.After, d.Cause, window)
		}
	}
	touched, steps := s.touched(), policy.Time(w.scenario.InnerSteps)*w.scenario.Workers[0].InnerStepMean
	for _, m := range sum.Evicted {
		// One worker alone leaves no outcome of its region's step, and who missed that
		// fetches the whole state, which losses, or reductions of its donor that faults
		// hold up, may have take longer than the others' inner steps.
		slow := s.regions != nil && m.Reason == policy.RuleStraggler && longestFetch(m.ID, events) > steps
		if !touched[m.ID] && !slow && !(m.Reason == policy.RuleQuorumTimeout && (s.majority() > 0 || s.forgets())) {
			bad("w%d was evicted (%s) in round %d without a fault", m.ID, m.Reason, m.Round)
		}
	}
	// A joiner begins the running round when the others may be almost done.
	if !s.leavesOut() && len(s.faults)+len(s.joins) == 0 && len(sum.Sidelined) > 0 && s.loss == 0 {
		bad("sidelined without a fault: %+v", sum.Sidelined)
	}
	return errors.Join(problems...)
}

// away bounds for how long the crashes of the coordinator put things off.
func (w *world) away() (t policy.Time) {
	for _, e := range w.events {
		if e.Type == record.CoordinatorCrash {
			t += w.scenario.HeartbeatPeriod*policy.Time(w.scenario.HeartbeatMissThreshold+1) + policy.Time(float64(w.scenario.StallTimeout())/1e3/w.scenario.Real.TimeScale)
		}
	}
	return t + w.outages
}

// inflict lets a fault happen.
func (w *world) inflict(i int, f fault) {
	if f.id >= 0 && w.node(f.id) == nil {
		return
	}
	for _, id := range []policy.ID{f.id, f.other} {
		if id > 0 && (f.what != "slow") {
			w.excuse(id)
		}
	}
	name := f.id.Node()
	cause := fmt.Sprint("fault ", i)
	lay := func(faults ...shaping.Fault) {
		w.net.Fault(w.t, cause, faults...)
		time.AfterFunc(w.scenario.RealDuration(f.lasts), func() { w.net.Fault(w.t, cause) })
	}
	switch f.what {
	case "coordinator", "coordinator-torn":
		w.crashLighthouse(f.lasts, f.what == "coordinator-torn", f.forgets)
	case "crash":
		w.report(Report{Event: &record.Event{T: w.now(), Type: record.Crash, Node: name}})
		w.crash(f.id)
	case "restart":
		w.report(Report{Event: &record.Event{T: w.now(), Type: record.Crash, Node: name}})
		w.crash(f.id)
		time.AfterFunc(w.scenario.RealDuration(f.lasts), func() { w.restart(f.id) })
	case "fail":
		w.command(f.id, Command{Op: OpFail})
	case "preempt":
		w.command(f.id, Command{Op: OpPreempt})
		n := w.node(f.id)
		time.AfterFunc(w.scenario.RealDuration(f.lasts), func() {
			select {
			case <-n.ended:
			default:
				n.crash()
			}
		})
	case "fail-reduce":
		w.command(f.id, Command{Op: OpFailReduce, Alone: f.alone})
	case "freeze":
		w.freeze(f.id)
	case "leave":
		w.command(f.id, Command{Op: OpLeave})
	case "slow":
		w.command(f.id, Command{Op: OpSlow, At: 1, Factor: f.factor})
		time.AfterFunc(w.scenario.RealDuration(f.lasts), func() { w.command(f.id, Command{Op: OpRestore, At: 1}) })
	case "partition":
		lay(shaping.Partition{Nodes: []string{name}})
	case "pause":
		w.command(f.id, Command{Op: OpPause})
		lay(shaping.Partition{Nodes: []string{name}})
		time.AfterFunc(w.scenario.RealDuration(f.lasts), func() { w.command(f.id, Command{Op: OpResume}) })
	case "cut":
		lay(shaping.Cut{Paths: []shaping.Direction{{From: name, To: nodeName(f.other)}, {From: nodeName(f.other), To: name}}})
	case "cut-from":
		lay(shaping.Cut{Paths: []shaping.Direction{{From: name, To: nodeName(f.other)}}})
	case "cut-to":
		lay(shaping.Cut{Paths: []shaping.Direction{{From: nodeName(f.other), To: name}}})
	}
}

// shrink drops faults and joins as long as the schedule still breaks an
// invariant.
func (s schedule) shrink(t *testing.T) schedule {
	breaks := func(s schedule) bool {
		for range 2 { // the order of goroutines may hide it
			if _, err := s.run(t); err != nil {
				return true
			}
		}
		return false
	}
	for again := true; again; {
		again = false
		for i := range s.faults {
			smaller := s
			smaller.faults = slices.Delete(slices.Clone(s.faults), i, i+1)
			if breaks(smaller) {
				s, again = smaller, true
				break
			}
		}
	}
	return s
}

// TestSchedules plays random schedules of faults in virtual time and holds each
// run against the invariants: one lineage of outer states, the same bytes at
// all participants, the mean over exactly those, completion within a bound
// after the last fault, no eviction without a fault, no goroutine left over.
func TestSchedules(t *testing.T) {
	n := *scheduleCount
	var tried, broken atomic.Int64
	causes := detections{worst: map[policy.Rule]policy.Time{}, count: map[policy.Rule]int{}}
	begin := time.Now()
	t.Cleanup(func() {
		t.Log(causes.String())
		t.Logf("%d schedules tried in %v, %d broke an invariant", tried.Load(), time.Since(begin).Round(time.Second), broken.Load())
	})
	shards := runtime.GOMAXPROCS(0)
	for shard := range shards {
		t.Run(fmt.Sprint("shard ", shard), func(t *testing.T) {
			t.Parallel()
			for i := shard; i < n && broken.Load() < 5; i += shards {
				s := drawSchedule(rapidtest.Seed() + uint64(i))
				if s.causes = &causes; *schedulePlay != "" {
					s.policy = *schedulePlay
				}
				s.drawRanks()
				s.drawSync()
				logs, err := s.run(t)
				tried.Add(1)
				if err == nil {
					continue
				}
				broken.Add(1)
				t.Errorf("%v\n%v\nsmallest that breaks: %v", s, err, s.shrink(t))
				if n == 1 {
					t.Log(logs)
				}
			}
		})
	}
}

// TestFoundSchedules plays again what longer soaks have found.
func TestFoundSchedules(t *testing.T) {
	t.Parallel()
	for _, found := range []struct {
		policy string
		seed   uint64
	}{
		{scenarios.Straggler, 1173}, {"torchft", 51772}, {scenarios.Straggler, 3577}, {scenarios.Baseline, 700372}, // told to join at the end
		{scenarios.Straggler, 711905}, {scenarios.Straggler, 712809}, // rounds overlap, and one is half a round behind
		{scenarios.Straggler, 712099},                               // the only donor of a region is held up
		{scenarios.Baseline, 840477}, {scenarios.Straggler, 830514}, // what a contribution has after its round is over
	} {
		s := drawSchedule(found.seed)
		s.policy = found.policy
		if _, err := s.run(t); err != nil {
			t.Errorf("%v\n%v", s, err)
		}
	}
}
