package words_test

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"testbed/allreduce"
	"testbed/allreduce/reduction"
	"testbed/internal/randscenario"
	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/policy/adaptive"
	"testbed/record"
	"testbed/report/words"
	"testbed/scenarios"
	"testbed/sim"
)

// TestReasonsAreTrue plays random scenarios under every policy on both networks of the
// simulator. It rebuilds the numbers of each sentence about a decision from the other
// events of the record.
func TestReasonsAreTrue(t *testing.T) {
	for _, name := range policy.Names() {
		t.Run(name, func(t *testing.T) {
			seen := map[string]int{}
			rapidtest.Check(t, func(t *rapid.T) {
				s := randscenario.Draw(t)
				links := rapid.Bool().Draw(t, "links")
				a := &account{t: t, s: s, name: name, links: links, seen: seen, members: map[policy.ID]*membership{}, gone: map[policy.ID]int{}}
				if err := play(s, name, links, a.take); err != nil {
					t.Fatal(err)
				}
			})
			if seen["close"] == 0 || name == scenarios.Straggler && (seen["deadline"] == 0 || seen["late quorum"] == 0 || seen["miss"] == 0 || seen["silent"] == 0) {
				t.Errorf("hardly anything was judged: %v", seen)
			}
		})
	}
}

// TestQuorumAfterTheDeadline is a round whose quorum comes long after its deadline. The
// sentence does not say that the quorum had arrived at the deadline.
func TestQuorumAfterTheDeadline(t *testing.T) {
	s := rounds(7, 370_005)
	var said []string
	a := &account{t: t, s: s, name: scenarios.Straggler, seen: map[string]int{}, members: map[policy.ID]*membership{}, gone: map[policy.ID]int{}}
	err := play(s, scenarios.Straggler, false, func(e record.Event) {
		a.take(e)
		switch e.Type {
		case record.RoundClose:
			said = append(said, words.Closing(e.Reason))
		case record.Sideline:
			said = append(said, words.Because(e.Reason))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = "6 of 7 workers had arrived (6 needed) when the round closed, and the deadline was 370,005 µs after the first arrival"
	if text := strings.Join(said, "\n"); strings.Count(text, want) < 2 || strings.Contains(text, "at the deadline") {
		t.Errorf("a round that closed long after its deadline:\n%s\nwant %q", text, want)
	}
}

// rounds is a scenario of two rounds. In the second, two workers are so slow that the
// quorum comes after the deadline.
func rounds(workers int, slack policy.Time) *scenarios.Scenario {
	s := &scenarios.Scenario{
		Name: "late_quorum", InnerSteps: 1, TargetOuterSteps: 2, Horizon: 10_000_000, HeartbeatPeriod: 100_000, HeartbeatMissThreshold: 100,
		BandwidthBpus: 10, Policy: scenarios.DefaultPolicies(),
	}
	s.Policy.Parameters[scenarios.Straggler].(*policy.Straggler).MinSlack = slack
	for id := range workers {
		s.Workers = append(s.Workers, scenarios.Worker{ID: policy.ID(id), InnerStepMean: 1000})
	}
	s.Workers[5].InnerStepMean, s.Workers[6].InnerStepMean = 976_684, 2_000_000
	return s
}

func play(s *scenarios.Scenario, name string, links bool, note func(record.Event)) error {
	if links {
		s.Real = scenarios.Real{TimeScale: 1000, Parameters: 1000, AllReduce: reduction.Spec{Algorithm: "ring", Order: reduction.Orders[0], Format: allreduce.DefaultFormat}}
		r, err := s.Resolve(name)
		if err != nil {
			return err
		}
		_, err = sim.RunLinks(r, sim.Costs{Efficiency: 0.8}, note)
		return err
	}
	r, err := s.ResolveWithoutLinks(name)
	if err != nil {
		return err
	}
	_, err = sim.Run(r, note)
	return err
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// account is a second account of a run, from its events alone: it looks at no reason.
type account struct {
	t       failer
	s       *scenarios.Scenario
	name    string // of the policy
	links   bool
	seen    map[string]int
	told    []string
	members map[policy.ID]*membership
	gone    map[policy.ID]int // outer steps at the eviction

	steps    int
	arrived  map[policy.ID]policy.Time // counted in the running round
	late     map[policy.ID]policy.Time
	deadline policy.Time     // the last that was set
	offsets  [][]policy.Time // times of the arrivals of each closed round
	away     bool            // the coordinator was, once
	reduces  policy.Time
	closers  []policy.ID
}

// membership is what the record has of a member since it joined.
type membership struct {
	since, died policy.Time // died: 0 if it has not
	worked      bool        // has done an inner step
	missed      []int       // rounds in a row
	surely      []int       // of them, since it has worked
	refetches   int
	failures    int // reductions of the round that failed with it
}

func (a *account) require(ok bool, said, format string, args ...any) {
	if !ok {
		a.t.Helper()
		last := a.told[max(0, len(a.told)-40):]
		a.t.Fatalf("policy %s: %q is not true: %s\nseed %d; the last events:\n%s", a.name, said, fmt.Sprintf(format, args...), a.s.Seed, strings.Join(last, "\n"))
	}
}

func (a *account) take(e record.Event) {
	a.told = append(a.told, fmt.Sprintf("%d %s %s round %d %v without %v", e.T, e.Type, e.Node, e.Round, e.Participants, e.Missing))
	id, _ := e.Worker()
	m := a.members[id]
	switch e.Type {
	case record.Join:
		a.returned(e, id)
		a.members[id] = &membership{since: e.T}
	case record.Step:
		if m != nil {
			m.worked = true
		}
	case record.FetchDone:
		m.refetches = 0
	case record.Crash, record.Fail:
		if m != nil && m.died == 0 {
			m.died = e.T
		}
	case record.CoordinatorCrash:
		a.away = true
	case record.Arrive:
		if e.Round == a.steps+1 && m != nil {
			if a.arrived == nil {
				a.arrived, a.late = map[policy.ID]policy.Time{}, map[policy.ID]policy.Time{}
			}
			if e.Late {
				a.late[id] = e.T
			} else {
				a.arrived[id] = e.T
			}
		}
	case record.DeadlineSet:
		a.deadline = e.At
	case record.RoundClose:
		a.closed(e)
	case record.ReduceStart:
		a.reduces = e.T
	case record.ReduceAbort:
		a.aborted(e)
	case record.OuterStep:
		a.steps, a.arrived, a.late = max(a.steps, e.Round), nil, nil
		for _, m := range a.members {
			m.failures = 0
		}
	case record.Rejoin:
		m.missed, m.surely = nil, nil
	case record.FetchStart:
		if e.Reason.Rule == policy.RuleFetchFailed {
			m.refetches++
		}
	case record.HeartbeatMiss, record.Sideline:
		a.judge(e, id, m)
	case record.Evict:
		a.judge(e, id, m)
		delete(a.members, id)
		delete(a.arrived, id)
		a.gone[id] = a.steps
	}
}

// aborted opens the round again if nobody is left of those that contributed to it.
func (a *account) aborted(e record.Event) {
	if a.name == "torchft" {
		return
	}
	why := e.Reason
	if why.Rule == policy.RuleReduceFailed || why.Rule == policy.RuleProgress {
		a.blame(why)
	}
	if slices.ContainsFunc(a.closers, func(id policy.ID) bool { return a.members[id] != nil }) {
		return
	}
	a.arrived, a.late = a.late, map[policy.ID]policy.Time{}
	for id := range a.arrived {
		if a.members[id] == nil {
			delete(a.arrived, id)
		}
	}
}

// blame counts a failed reduction for the two workers that failed at each other.
func (a *account) blame(why *policy.Reason) {
	for k, id := range []*policy.ID{why.Lost, why.Peer} {
		if id != nil && a.members[*id] != nil && (k == 0 || why.Lost == nil || *id != *why.Lost) {
			a.members[*id].failures++
		}
	}
}

var (
	allArrived = regexp.MustCompile(`^all workers \((\d+)\) had arrived, and (?:there was no deadline|the deadline was (.+))$`)
	enough     = regexp.MustCompile(`^(\d+) of (\d+) workers had arrived, which was enough \((\d+) needed\)$`)
	atDeadline = regexp.MustCompile(`^(\d+) of (\d+) workers had arrived \((\d+) needed\) at the deadline, (.+)$`)
	afterwards = regexp.MustCompile(`^(\d+) of (\d+) workers had arrived \((\d+) needed\) when the round closed, and the deadline was (.+)$`)
	leftOut    = regexp.MustCompile(`^(\d+) of (\d+) workers had arrived \((\d+) needed\) when the round closed(?:, and the deadline was (.+?))?\. (?:This does not count as a miss|Consecutive misses: (\d+)(?: \(tolerated: (\d+)\))?)$`)
	deadline   = regexp.MustCompile(`^([\d,]+) µs (after|before) the first (?:arrival|request)` +
		`(?: \(median ([\d,]+) µs \+ ([\d.e+]+) × MAD ([\d,]+) µs, at least ([\d,]+) µs\))?(?:, postponed by ([\d,]+) µs because the coordinator was down)?` +
		`(?: \([a-z_]+=[^)]+\))?(?: and ([\d,]+) µs of credit for catching up)?$`)
	silence  = regexp.MustCompile(`^it was silent for ([\d,]+) µs and missed (\d+) heartbeats? \(limit: (\d+)\)$`)
	lastBeat = regexp.MustCompile(`, ([\d,]+) µs after (?:its last heartbeat|the last heartbeat of the old process)$`)
	again    = regexp.MustCompile(`^outer steps since its eviction: (\d+), required: (\d+)$`)
	fetches  = regexp.MustCompile(`^its fetches of the outer state failed (\d+) times? in a row$`)
	reduces  = regexp.MustCompile(`^it took part in (\d+) failed reductions? of the round$`)
	still    = regexp.MustCompile(`^the reduction had stalled for ([\d,]+) µs, (?:and the worker had been silent for ([\d,]+) µs|and reductions with the worker had failed (\d+) times?)$`)
	waited   = regexp.MustCompile(`^it waited ([\d,]+) µs for a quorum, and (?:restart (\d+) of at most (\d+) follows|no restart is left \(policy\.torchft\.restarts: \d+\))$`)
	rankGone = regexp.MustCompile(`^w\d+, another rank of its replica group, is gone$`)
)

// number reads one as words writes it; 0 for what is not there.
func number(text string) int64 {
	n, _ := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
	return n
}

// closed judges why a round closed.
func (a *account) closed(e record.Event) {
	said := words.Closing(e.Reason)
	a.seen["close"]++
	switch m := allArrived.FindStringSubmatch(said); {
	case m != nil:
		a.require(len(e.Missing) == 0 || a.name == "torchft", said, "%v are missing", e.Missing)
		a.counts(said, e, m[1], m[1], "")
		if m[2] != "" {
			a.due(said, m[2], e)
		}
	case enough.MatchString(said):
		m = enough.FindStringSubmatch(said)
		a.require(number(m[1]) >= number(m[3]), said, "that is not enough")
		a.counts(said, e, m[1], m[2], m[3])
	case atDeadline.MatchString(said):
		a.seen["deadline"]++
		m = atDeadline.FindStringSubmatch(said)
		a.counts(said, e, m[1], m[2], m[3])
		at := a.due(said, m[4], e)
		a.require(e.T == at || e.T > at && e.Held > 0, said, "it closed at %d, and the deadline was at %d", e.T, at)
		n := int64(0)
		for _, t := range a.arrived {
			if t <= at {
				n++
			}
		}
		a.require(n == number(m[1]) || a.name == "torchft", said, "%d had", n)
	case afterwards.MatchString(said):
		m = afterwards.FindStringSubmatch(said)
		a.counts(said, e, m[1], m[2], m[3])
		if at := a.due(said, m[4], e); e.T > at {
			a.seen["late quorum"]++
		}
	default:
		a.require(false, said, "the checker does not know this sentence")
	}
	if a.name == "torchft" {
		return
	}
	a.offsets = append(a.offsets, slices.Collect(maps.Values(a.arrived)))
	a.closers = slices.DeleteFunc(slices.Clone(e.Participants), func(id policy.ID) bool { _, is := a.arrived[id]; return !is })
	for _, id := range e.Missing {
		m := a.members[id]
		a.require(m != nil, said, "w%d is missing, and no member", id)
		if !slices.Contains(m.missed, e.Round) {
			m.missed = append(m.missed, e.Round)
		}
		if m.worked && !slices.Contains(m.surely, e.Round) {
			m.surely = append(m.surely, e.Round)
		}
	}
}

// counts judges how many had arrived, of how many, and how many were needed.
func (a *account) counts(said string, e record.Event, arrived, of, needed string) {
	n, all := number(arrived), number(of)
	if a.name == "torchft" { // who lives is the lighthouse's knowledge; groups ask
		a.require(n <= all && n >= number(needed), said, "it does not add up")
		return
	}
	a.require(int(n) == len(a.arrived), said, "%d had arrived", len(a.arrived))
	a.require(int(all) == len(a.arrived)+len(e.Missing), said, "%d had arrived, and %v are missing", len(a.arrived), e.Missing)
	if needed == "" {
		return
	}
	share := func(fraction float64) int64 { return max(1, int64(math.Ceil(fraction*float64(all)-1e-9))) }
	want := number(needed)
	switch p := a.s.Policy.Parameters[a.name].(type) {
	case *policy.Straggler:
		want = share(p.Quorum)
	case *policy.FixedDeadline:
		want = share(p.Quorum)
	case *adaptive.Policy:
		want = share(p.Quorum)
	case *policy.Sample:
		want = share(p.Fraction)
	case *policy.Backup:
		want = max(1, all-int64(p.B))
	}
	a.require(number(needed) == want, said, "%d were needed", want)
}

// due judges what a sentence says of the deadline, and returns when that was.
func (a *account) due(said, text string, e record.Event) policy.Time {
	m := deadline.FindStringSubmatch(text)
	a.require(m != nil, said, "the checker does not know %q", text)
	offset, credit := policy.Time(number(m[1])), policy.Time(number(m[8]))
	if m[2] == "before" {
		offset = -offset
	}
	if a.name == "torchft" { // the record has no requests
		a.require(strings.Contains(text, " the first request") && m[3] == "", said, "its deadlines count from a request")
		return a.deadline
	}
	first := e.T
	for _, at := range a.arrived {
		first = min(first, at)
	}
	// A worker that arrived first may have gone since.
	a.require(first+offset == a.deadline || first+offset > a.deadline && len(a.gone) > 0, said, "the deadline was at %d, and the first arrived at %d", a.deadline, first)
	if m[3] == "" || a.away {
		return a.deadline + credit
	}
	p := a.s.Policy.Parameters[a.name].(*policy.Straggler)
	var all []policy.Time
	kept := a.offsets
	for total := count(kept); len(kept) > 1 && total-len(kept[0]) >= p.Window; kept = kept[1:] {
		total -= len(kept[0])
	}
	for _, round := range kept {
		least := slices.Min(round)
		for _, at := range round {
			all = append(all, at-least)
		}
	}
	middle := func(values []policy.Time) policy.Time {
		slices.Sort(values)
		n := len(values)
		return (values[(n-1)/2] + values[n/2]) / 2
	}
	median := middle(all)
	for k := range all {
		all[k] = max(all[k]-median, median-all[k])
	}
	mad := middle(all)
	if len(a.gone) == 0 { // else offsets may count from the arrival of one that has gone
		a.require(number(m[3]) == int64(median) && number(m[5]) == int64(mad), said, "the median was %d, and the MAD %d", median, mad)
	}
	k, _ := strconv.ParseFloat(m[4], 64)
	a.require(k == p.K && number(m[6]) >= int64(p.MinSlack) && number(m[7]) == 0, said, "the parameters are %+v", p)
	a.require(int64(offset) == max(number(m[6]), number(m[3])+int64(k*float64(number(m[5])))), said, "the formula gives something else")
	return a.deadline + credit
}

func count(rounds [][]policy.Time) (n int) {
	for _, r := range rounds {
		n += len(r)
	}
	return n
}

// returned judges why a worker that was evicted is a member again.
func (a *account) returned(e record.Event, id policy.ID) {
	if e.Reason.Rule != policy.RuleRejoin {
		return
	}
	said := words.Because(e.Reason)
	m := again.FindStringSubmatch(said)
	a.require(m != nil && int(number(m[1])) == a.steps-a.gone[id] && int(number(m[2])) == max(1, a.s.Policy.RejoinRounds), said,
		"%d outer steps since", a.steps-a.gone[id])
}

// judge judges why a worker was left out, or removed.
func (a *account) judge(e record.Event, id policy.ID, m *membership) {
	said := words.Because(e.Reason)
	a.require(m != nil, said, "w%d is no member", id)
	since := e.T - m.since
	is := func(form *regexp.Regexp) (found []string) { return form.FindStringSubmatch(said) }
	switch {
	case said == "it left in good order":
	case is(leftOut) != nil:
		a.missed(said, is(leftOut), e, m)
	case is(silence) != nil:
		found := is(silence)
		a.seen["silent"]++
		silent, period := policy.Time(number(found[1])), a.s.HeartbeatPeriod
		a.require(silent <= since && number(found[2]) == int64(silent/period), said, "it joined %d ago", since)
		a.require(a.name == "torchft" || int(number(found[3])) == a.s.HeartbeatMissThreshold, said, "the threshold is %d", a.s.HeartbeatMissThreshold)
		if m.died > 0 && !a.away && !a.links {
			a.require(silent >= e.T-m.died-a.s.BaseLatency, said, "it died %d ago", e.T-m.died)
		}
	case is(lastBeat) != nil:
		a.require(policy.Time(number(is(lastBeat)[1])) <= since, said, "it joined %d ago", since)
	case is(fetches) != nil:
		n := int(number(is(fetches)[1]))
		a.require(m.refetches >= n-1, said, "it began %d fetches anew", m.refetches)
	case is(reduces) != nil && a.name == "torchft", is(rankGone) != nil && a.name == "torchft":
	case is(reduces) != nil:
		a.blamed(said, is(reduces)[1], e.Reason, m)
	case is(still) != nil:
		found := is(still)
		a.require(policy.Time(number(found[1])) <= e.T-a.reduces && policy.Time(number(found[2])) <= since, said, "the reduction began %d ago", e.T-a.reduces)
		if found[3] != "" {
			a.blamed(said, found[3], e.Reason, m)
		}
	case is(waited) != nil:
		found := is(waited)
		a.require(policy.Time(number(found[1])) <= since && number(found[2]) <= number(found[3]), said, "it joined %d ago", since)
	default:
		a.require(false, said, "the checker does not know this sentence")
	}
}

// missed judges the numbers on which a round went on without a worker.
func (a *account) missed(said string, found []string, e record.Event, m *membership) {
	if a.name == "torchft" {
		a.require(number(found[1]) <= number(found[2]), said, "it does not add up")
		return
	}
	last := a.told[len(a.told)-1]
	a.require(slices.Contains(m.missed, e.Round), said, "round %d closed without it: %s", e.Round, last)
	if found[5] == "" {
		a.require(len(m.surely) == 0, said, "it had worked before in rounds %v", m.surely)
		return
	}
	a.seen["miss"]++
	n := int(number(found[5]))
	a.require(n >= len(m.surely) && n <= len(m.missed), said, "it missed rounds %v, and since its first step %v", m.missed, m.surely)
	if p, is := a.s.Policy.Parameters[a.name].(*policy.Straggler); is {
		a.require(int(number(found[6])) == p.SidelineLimit, said, "the limit is %d", p.SidelineLimit)
		a.require((n > p.SidelineLimit) == (e.Type == record.Evict), said, "it is a %s", e.Type)
	}
}

// blamed judges how many failed reductions a worker had a part in.
func (a *account) blamed(said, n string, why *policy.Reason, m *membership) {
	with := m.failures
	for k, id := range []*policy.ID{why.Lost, why.Peer} {
		if id != nil && a.members[*id] == m && (k == 0 || why.Lost == nil || *id != *why.Lost) {
			with++
		}
	}
	a.require(int(number(n)) == with, said, "it had a part in %d", with)
	for _, m := range a.members {
		m.failures = 0
	}
	// The abort that follows counts for nobody.
	for _, id := range []*policy.ID{why.Lost, why.Peer} {
		if id != nil && a.members[*id] != nil {
			a.members[*id].failures--
		}
	}
}
