package sim_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/allreduce/entropy"
	"testbed/allreduce/reduction"
	"testbed/internal/stories"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/faults"
	"testbed/shaping"
	"testbed/sim"
)

var update = flag.Bool("update", false, "write the golden traces anew; review the difference")

// run simulates and returns the summary and the trace as JSON lines.
func run(t testing.TB, s *scenarios.Scenario, policyName string) (record.Summary, string) {
	t.Helper()
	var trace bytes.Buffer
	w := record.NewWriter(&trace)
	sum, err := onChurn(s, policyName, w.Write)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return sum, trace.String()
}

func load(t testing.TB, name string) *scenarios.Scenario {
	t.Helper()
	s, err := scenarios.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWallClocks holds the simulator to the published figures of
// persistent_straggler, and to the reconstructed model's for the others.
func TestWallClocks(t *testing.T) {
	for _, c := range []struct {
		scenario            string
		baseline, straggler policy.Time
	}{
		{"persistent_straggler", 92_050, 20_053},
		{"homogeneous", 11_050, 11_050},
		{"transient_slow", 20_050, 11_052},
		{"crash_mid_round", 13_740, 11_052},
		{"graceful_leave", 11_050, 11_050},
		{"late_join", 11_740, 11_051},
		{"partition_heal", 12_840, 11_051},
	} {
		s := load(t, c.scenario)
		for name, want := range map[string]policy.Time{scenarios.Baseline: c.baseline, scenarios.Straggler: c.straggler} {
			sum, _ := run(t, s, name)
			if sum.WallClock != want || !sum.Complete || sum.OuterSteps != 5 {
				t.Errorf("%s under %s: wall-clock %d µs after %d outer steps (complete %v), want %d after 5", c.scenario, name, sum.WallClock, sum.OuterSteps, sum.Complete, want)
			}
		}
	}
}

// TestChurnLikeUtilization compares with the reconstruction of the published
// 0.62 and 0.89: busy / (busy + barrier wait).
func TestChurnLikeUtilization(t *testing.T) {
	s := load(t, "persistent_straggler")
	for name, want := range map[string]float64{scenarios.Baseline: 134_000.0 / 215_000, scenarios.Straggler: 74_000.0 / 83_003} {
		sum, _ := run(t, s, name)
		if u := sum.ChurnLikeUtilization; u == nil || math.Abs(*u-want) > 1e-12 {
			t.Errorf("%s: churn_like_utilization = %v, want %.4f", name, u, want)
		}
	}
}

// TestFractionsOfTheHomogeneousRun by hand: in rounds of 2,210 µs everybody
// computes for 2,000 and nobody waits for anybody.
func TestFractionsOfTheHomogeneousRun(t *testing.T) {
	for _, name := range scenarios.PolicyNames {
		sum, _ := run(t, load(t, "homogeneous"), name)
		if want := 2000.0 / 2210; math.Abs(sum.ComputeFraction-want) > 1e-12 || sum.BarrierWaitFraction != 0 {
			t.Errorf("%s: compute %v and barrier wait %v, want %v and 0", name, sum.ComputeFraction, sum.BarrierWaitFraction, want)
		}
	}
}

// TestLinksFollowThePlan: what a link has more delay or less rate, rounds take
// longer, and by how much is known where it is delay alone.
func TestLinksFollowThePlan(t *testing.T) {
	play := func(change func(s *scenarios.Scenario)) record.Summary {
		t.Helper()
		s := load(t, "homogeneous")
		s.Real.AllReduce.Entropy = "off" // it would choose by what reductions took
		change(s)
		sum, err := onLinks(s, scenarios.Baseline, sim.Costs{}, nil)
		if err != nil || !sum.Complete {
			t.Fatalf("complete %v: %v", sum.Complete, err)
		}
		return sum
	}
	plain := play(func(*scenarios.Scenario) {})
	// A round is 2 inner steps, and start, arrival, order and report of 10 ms
	// each; what is left is the reduction.
	for _, r := range plain.Rounds {
		if over := r.End - r.Start - r.Reduce; over < 2000+4*33 || over > 2000+4*34 {
			t.Errorf("round %d takes %d µs beside its reduction, want 2,133", r.Round, over)
		}
	}
	if first, second := plain.Rounds[0].Reduce, plain.Rounds[1].Reduce; first < second+60 {
		t.Errorf("the first reduction, which has to connect, takes %d µs, and the second %d", first, second)
	}
	slower := play(func(s *scenarios.Scenario) {
		id, until, rate := policy.ID(2), policy.Time(5000), shaping.Rate(20e6)
		s.Real.Injects = []faults.LinkInject{{Op: faults.Link, At: 3000, Until: &until, ID: &id, Access: shaping.Access{RateUp: &rate}}}
	})
	for i, r := range slower.Rounds {
		if was := plain.Rounds[i].Reduce; i == 1 && r.Reduce < 5*was || i != 1 && r.Reduce != was {
			t.Errorf("with a slow link in round 2, the reduction of round %d takes %d µs, without %d", i+1, r.Reduce, was)
		}
	}
	if same := play(func(s *scenarios.Scenario) { s.Real.TimeScale = 30_000 }); same.WallClock < 10_000 || same.WallClock > 10_030 {
		t.Errorf("where communication is negligible the run takes %d µs, want 10,000", same.WallClock)
	}
}

// TestLongReductionIsNotHeldForStuck: it takes longer than a standstill may,
// but it moves.
func TestLongReductionIsNotHeldForStuck(t *testing.T) {
	s := load(t, "homogeneous")
	rate := shaping.Rate(1e6)
	s.Real.Links.Default.RateUp = &rate
	sum, err := onLinks(s, scenarios.Baseline, sim.Costs{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if took := s.RealDuration(sum.Rounds[0].Reduce); took < 2*s.StallTimeout() {
		t.Fatalf("a reduction takes %v, less than makes a test with a time-out of %v", took, s.StallTimeout())
	}
	if !sum.Complete || len(sum.Evicted) > 0 {
		t.Errorf("complete %v, evicted %v", sum.Complete, sum.Evicted)
	}
}

// TestCrashDetection: silent, a crash is noticed when the heartbeats are missed;
// where the network's word is heeded, when the next one is.
func TestCrashDetection(t *testing.T) {
	for heed, want := range map[bool][2]policy.Time{false: {5000, 5001}, true: {1000, 2000}} {
		s := load(t, "crash_mid_round") // at 3,000 µs, with heartbeats every 1,000
		s.Real.HeedUnreachable = heed
		sum, err := onLinks(s, scenarios.Baseline, sim.Costs{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(sum.Detected) != 1 || sum.Detected[0].After == nil {
			t.Fatalf("detected %+v", sum.Detected)
		}
		if after := *sum.Detected[0].After; after < want[0] || after > want[1] {
			t.Errorf("heeding %v: noticed %d µs after the crash, want %d to %d", heed, after, want[0], want[1])
		}
	}
}

// TestEntropyOnLinks: the third reduction tries coding, and the fifth, as real
// ones do, and where bytes take the time it stays.
func TestEntropyOnLinks(t *testing.T) {
	sent := func(mode entropy.Mode) (bytes []int64) {
		s := load(t, "homogeneous")
		s.TargetOuterSteps = 8
		s.Real.AllReduce.Entropy = mode
		sum, err := onLinks(s, scenarios.Baseline, sim.Costs{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range sum.Rounds {
			bytes = append(bytes, r.BytesSent)
		}
		return bytes
	}
	off, on, auto := sent("off"), sent("on"), sent("auto")
	want := slices.Clone(on)
	for _, plain := range []int{0, 1, 3} {
		want[plain] = off[plain]
	}
	if !slices.Equal(auto, want) || 100*on[1] > 94*off[1] || 100*on[1] < 91*off[1] {
		t.Errorf("bytes off %v, on %v, auto %v", off, on, auto)
	}
}

// TestRingOrderByRates: the way from each worker to the next has a tenth of the
// rate, and rings that go round it have all of it.
func TestRingOrderByRates(t *testing.T) {
	fast, slow, none := shaping.Rate(200e6), shaping.Rate(20e6), shaping.Rate(0)
	reduce := func(order string, workers int) policy.Time {
		s := load(t, "homogeneous")
		for len(s.Workers) < workers {
			next := s.Workers[0]
			next.ID = policy.ID(len(s.Workers))
			s.Workers = append(s.Workers, next)
		}
		all := &s.Real.AllReduce
		all.Order, all.Entropy = order, "off"
		s.Real.Parameters = 4_000_000 // beside whose transfer delays are short
		for i := range workers {
			from, to := policy.ID(i).Node(), policy.ID((i+1)%workers).Node()
			s.Real.Links.Pairs = append(s.Real.Links.Pairs, shaping.Pair{From: from, To: to, Path: shaping.Path{Rate: &slow}})
			if order == reduction.OrderGivenRates {
				all.Rates = append(all.Rates, slices.Repeat([]shaping.Rate{fast}, workers))
				all.Rates[i][i], all.Rates[i][(i+1)%workers] = none, slow
			}
		}
		sum, err := onLinks(s, scenarios.Baseline, sim.Costs{}, nil)
		if err != nil || !sum.Complete {
			t.Fatal(err, sum.Complete)
		}
		return sum.Rounds[len(sum.Rounds)-1].Reduce
	}
	for _, workers := range []int{4, 13} { // exactly, and by steps
		naive := reduce("naive", workers)
		for _, order := range []string{reduction.OrderPlannedRates, reduction.OrderMeasuredRates, reduction.OrderGivenRates} {
			if got := reduce(order, workers); got > naive/8 || got < naive/11 {
				t.Errorf("%d workers: a reduction takes %d µs in the order of the ids, and by %s %d", workers, naive, order, got)
			}
		}
		if got := reduce(reduction.OrderPlanned, workers); got != naive {
			t.Errorf("%d workers: by delays, which are all alike, %d µs and not %d", workers, got, naive)
		}
	}
}

// TestJitterOnLinks: it takes longer, and the same seed gives the same run.
func TestJitterOnLinks(t *testing.T) {
	run := func(jitter time.Duration) policy.Time {
		s := load(t, "homogeneous")
		s.Real.Links.Default.Jitter = new(shaping.Duration(jitter))
		sum, err := onLinks(s, scenarios.Baseline, sim.Costs{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return sum.WallClock
	}
	none, some := run(0), run(3*time.Millisecond)
	if some <= none || some != run(3*time.Millisecond) {
		t.Errorf("without jitter %d µs, with some %d and %d µs", none, some, run(3*time.Millisecond))
	}
}

// TestCutReductionGoesOn when its path is open again, and the run takes as much
// longer.
func TestCutReductionGoesOn(t *testing.T) {
	s := load(t, "homogeneous")
	plain, err := onLinks(s, scenarios.Baseline, sim.Costs{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := plain.Rounds[1].Close + 100
	until := at + 1000
	s.Real.Injects = []faults.LinkInject{{Op: faults.Cut, At: at, Until: &until, From: "w0", To: "w1"}}
	cut, err := onLinks(s, scenarios.Baseline, sim.Costs{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if more := cut.WallClock - plain.WallClock; more < 1000 || more > 3500 {
		t.Errorf("a cut of 1,000 µs in a reduction costs %d", more)
	}
}

// story is what was decided about membership, in a line.
func story(sum record.Summary) string {
	var parts []string
	for _, m := range sum.Sidelined {
		parts = append(parts, fmt.Sprintf("round %d sidelines w%d", m.Round, m.ID))
	}
	for _, m := range sum.Rejoined {
		parts = append(parts, fmt.Sprintf("round %d takes w%d back", m.Round, m.ID))
	}
	for _, m := range sum.Evicted {
		parts = append(parts, fmt.Sprintf("round %d evicts w%d (%s)", m.Round, m.ID, m.Reason))
	}
	if sum.JoinerStall > 0 {
		parts = append(parts, fmt.Sprintf("joiners wait %d µs", sum.JoinerStall))
	}
	return strings.Join(parts, ", ")
}

func TestDecisions(t *testing.T) {
	for scenario, want := range map[string][2]string{ // baseline, straggler
		"homogeneous":          {"", ""},
		"persistent_straggler": {"", "round 2 sidelines w3, round 3 sidelines w3, round 4 evicts w3 (straggler)"},
		"transient_slow":       {"", "round 2 sidelines w3, round 3 sidelines w3, round 4 takes w3 back"},
		"crash_mid_round":      {"round 2 evicts w2 (heartbeat)", "round 2 sidelines w2, round 3 sidelines w2, round 4 evicts w2 (heartbeat)"},
		"graceful_leave":       {"round 2 evicts w2 (leave)", "round 2 evicts w2 (leave)"},
		"late_join":            {"joiners wait 110 µs", "round 3 sidelines w3, round 4 takes w3 back, joiners wait 110 µs"},
		"partition_heal":       {"", "round 2 sidelines w1, round 3 takes w1 back"},
		"flapping_link":        {"", ""},
		"pause_resume":         {"round 3 evicts w2 (heartbeat)", "round 2 sidelines w1, round 3 takes w1 back, round 3 evicts w2 (heartbeat)"},
		"joiner_dies":          {"round 3 evicts w4 (heartbeat)", "round 3 sidelines w4, round 4 sidelines w4, round 5 evicts w4 (heartbeat)"},
		"donor_dies": {"round 3 evicts w0 (heartbeat), joiners wait 5600 µs",
			"round 3 sidelines w5, round 4 takes w5 back, round 3 evicts w0 (heartbeat), joiners wait 5600 µs"},
	} {
		for i, name := range scenarios.PolicyNames {
			sum, _ := run(t, load(t, scenario), name)
			if got := story(sum); got != want[i] {
				t.Errorf("%s under %s:\n  %s\nwant\n  %s", scenario, name, got, want[i])
			}
		}
	}
}

// TestGoldenTraces compares whole traces, byte for byte on every architecture.
// After a change that is meant, run `go test ./sim -update` and review.
func TestGoldenTraces(t *testing.T) {
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Train.Real() {
			continue // as persistent_straggler, and fifty times as long
		}
		if strings.HasPrefix(s.Name, "torchft_mtbf_") {
			continue // internal/stories has their figures, and a trace half a megabyte
		}
		for _, name := range stories.Policies(s) {
			_, got := run(t, s, name)
			file := filepath.Join("testdata", s.Name+"."+name+".jsonl")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v; run go test ./sim -update", err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s differs (-golden +got); if that is meant, run go test ./sim -update:\n%s", file, diff)
			}
		}
	}
}

// scenario is four equal workers, changed by the caller.
func scenario(change func(*scenarios.Scenario)) *scenarios.Scenario {
	s := &scenarios.Scenario{
		Name: "test", Seed: 1, InnerSteps: 2, TargetOuterSteps: 5, Horizon: 5_000_000,
		HeartbeatPeriod: 1000, HeartbeatMissThreshold: 5, BaseLatency: 100, BandwidthBpus: 10, StateBytes: 100,
		Policy: scenarios.DefaultPolicies(),
	}
	for id := range 4 {
		s.Workers = append(s.Workers, scenarios.Worker{ID: policy.ID(id), InnerStepMean: 1000})
	}
	change(s)
	return s
}

func on(op faults.Op, id policy.ID, at policy.Time) faults.Inject {
	return faults.Inject{Op: op, ID: &id, At: at}
}

func slow(id policy.ID, at policy.Time, factor float64) faults.Inject {
	return faults.Inject{Op: faults.Slow, ID: &id, At: at, Factor: &factor}
}

func TestTheSeedFixesTheJitter(t *testing.T) {
	jittery := func(seed uint64) *scenarios.Scenario {
		return scenario(func(s *scenarios.Scenario) {
			s.Seed = seed
			for i := range s.Workers {
				s.Workers[i].InnerStepJitter = 400
			}
		})
	}
	for _, name := range scenarios.PolicyNames {
		_, one := run(t, jittery(7), name)
		_, again := run(t, jittery(7), name)
		_, other := run(t, jittery(8), name)
		if one != again {
			t.Errorf("%s: the same seed gives different traces:\n%s", name, cmp.Diff(one, again))
		}
		if one == other {
			t.Errorf("%s: another seed gives the same trace", name)
		}
	}
}

// TestAPauseHoldsTheStep: worker 1 stalls from 500 to 2,500. Its first
// step has 500 µs left and ends at 3,000, its second at 4,000; the arrival
// takes 100 µs.
func TestAPauseHoldsTheStep(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) {
		s.Injects = []faults.Inject{on(faults.Pause, 1, 500), on(faults.Resume, 1, 2500)}
	})
	sum, trace := run(t, s, scenarios.Baseline)
	if r := sum.Rounds[0]; r.Close != 4100 || story(sum) != "" || !sum.Complete {
		t.Errorf("the first round is %+v, want it to close at 4,100; %s", r, story(sum))
	}
	if want := `{"t_us":3000,"type":"step","node":"w1","round":1,"step":1,"duration_us":1000}`; !strings.Contains(trace, want) {
		t.Errorf("the trace lacks %s", want)
	}
}

// TestAPauseBeyondTheHeartbeatsEvicts: at 2,000 nobody hears of worker 1 any
// more. Its resumption changes nothing.
func TestAPauseBeyondTheHeartbeatsEvicts(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) {
		s.Injects = []faults.Inject{on(faults.Pause, 1, 2500), on(faults.Resume, 1, 9500)}
	})
	sum, _ := run(t, s, scenarios.Baseline)
	if story(sum) != "round 2 evicts w1 (heartbeat)" || !sum.Complete {
		t.Errorf("%s, complete %v", story(sum), sum.Complete)
	}
	if d := sum.Detected; len(d) != 1 || d[0].After == nil || *d[0].After != 4500 {
		t.Errorf("detected %+v, want worker 1 at 7,000, 4,500 µs after its pause", d)
	}
}

// TestAPauseHoldsUp a reduction (from 2,100 to 2,210), the fetch of a joiner
// and a goodbye until the end of the pause.
func TestAPauseHoldsUp(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) {
		s.Injects = []faults.Inject{on(faults.Pause, 1, 2150), on(faults.Leave, 1, 2300), on(faults.Resume, 1, 4000)}
	})
	sum, _ := run(t, s, scenarios.Baseline)
	if story(sum) != "round 1 evicts w1 (leave)" || sum.Rounds[0].End != 4110 {
		t.Errorf("%s; the first round is %+v, want it reduced again from 4,000", story(sum), sum.Rounds[0])
	}
	s = scenario(func(s *scenarios.Scenario) {
		s.Workers[3].JoinAt = 2250
		s.Injects = []faults.Inject{on(faults.Pause, 0, 2300), on(faults.Resume, 0, 3000)}
	})
	sum, trace := run(t, s, scenarios.Baseline)
	if want := `{"t_us":3100,"type":"fetch_done","node":"w3"`; !strings.Contains(trace, want) || story(sum) != "joiners wait 850 µs" {
		t.Errorf("%s; the trace lacks %s", story(sum), want)
	}
}

// TestAPauseOverLinks ends as without: what came meanwhile is there at once.
func TestAPauseOverLinks(t *testing.T) {
	for name, want := range map[string]string{
		scenarios.Baseline:  "round 3 evicts w2 (heartbeat)",
		scenarios.Straggler: "round 2 sidelines w1, round 3 takes w1 back, round 3 evicts w2 (heartbeat)",
	} {
		sum, err := onLinks(load(t, "pause_resume"), name, sim.Costs{}, nil)
		if err != nil || !sum.Complete || story(sum) != want {
			t.Errorf("%s: %s, complete %v, %v", name, story(sum), sum.Complete, err)
		}
	}
}

// TestACrashDuringTheReduction: round 1 reduces from 2,100 to 2,210. Worker 2
// is last heard at 2,000 and evicted at 7,000; the others reduce again.
func TestACrashDuringTheReduction(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) { s.Injects = []faults.Inject{on(faults.Crash, 2, 2150)} })
	for _, name := range scenarios.PolicyNames {
		sum, trace := run(t, s, name)
		if got := story(sum); got != "round 1 evicts w2 (heartbeat)" {
			t.Errorf("%s: %s", name, got)
		}
		if r := sum.Rounds[0]; r.Close != 2100 || r.End != 7110 || len(r.Participants) != 3 || r.Reduce != 110 {
			t.Errorf("%s: the first round is %+v, want it closed at 2,100, reduced again by three from 7,000 to 7,110", name, r)
		}
		if want := `{"t_us":7000,"type":"reduce_abort","round":1,"epoch":1,"participants":[0,1,2,3],"reason":{"rule":"lost","worker":2}}`; !strings.Contains(trace, want) {
			t.Errorf("%s: the trace lacks %s", name, want)
		}
		if want := policy.Time(7110 + 4*2210); sum.WallClock != want {
			t.Errorf("%s: wall-clock %d, want %d", name, sum.WallClock, want)
		}
	}
}

func TestAllCrash(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) {
		for id := range 4 {
			s.Injects = append(s.Injects, on(faults.Crash, policy.ID(id), 3000))
		}
	})
	for _, name := range scenarios.PolicyNames {
		sum, _ := run(t, s, name)
		if sum.Complete || sum.OuterSteps != 1 || sum.WallClock != 2210 || len(sum.Evicted) != 4 {
			t.Errorf("%s: %+v, want one outer step and four evictions", name, sum)
		}
	}
}

func TestTheLastLeaves(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) {
		s.Workers = s.Workers[:1]
		s.Injects = []faults.Inject{on(faults.Leave, 0, 3000)}
	})
	for _, name := range scenarios.PolicyNames {
		sum, trace := run(t, s, name)
		if sum.Complete || sum.OuterSteps != 1 || story(sum) != "round 2 evicts w0 (leave)" {
			t.Errorf("%s: %+v", name, sum)
		}
		if last := lastLine(trace); last != `{"t_us":3000,"type":"run_end","complete":false}` {
			t.Errorf("%s: the trace ends with %s", name, last)
		}
	}
}

// TestTheStateDiesWithItsHolders: whoever joins after everybody has gone has
// nowhere to get the state from.
func TestTheStateDiesWithItsHolders(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) {
		s.Workers = s.Workers[:2]
		s.Workers[1].JoinAt = 9000
		s.Injects = []faults.Inject{on(faults.Leave, 0, 3000)}
	})
	sum, trace := run(t, s, scenarios.Baseline)
	if want := `"reason":{"rule":"state_lost","members":1}}`; sum.Complete || !strings.HasSuffix(lastLine(trace), want) {
		t.Errorf("complete %v, last event %s", sum.Complete, lastLine(trace))
	}
}

func TestHorizon(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) { s.Horizon = 5000 })
	sum, trace := run(t, s, scenarios.Baseline)
	if sum.Complete || sum.OuterSteps != 2 || sum.WallClock != 4420 {
		t.Errorf("%+v, want two outer steps by 4,420", sum)
	}
	if want := "{\"t_us\":5000,\"type\":\"horizon\"}\n{\"t_us\":5000,\"type\":\"run_end\",\"complete\":false}\n"; !strings.HasSuffix(trace, want) {
		t.Errorf("the trace ends with %s", lastLine(trace))
	}
	s.Horizon = 11_050 // what happens at the horizon still counts
	if sum, _ := run(t, s, scenarios.Baseline); !sum.Complete {
		t.Error("a run whose last outer step comes at the horizon is not complete")
	}
}

func lastLine(trace string) string {
	lines := strings.Split(strings.TrimSpace(trace), "\n")
	return lines[len(lines)-1]
}

// TestAPartitionLongerThanTheHeartbeatWindow evicts who is cut off, though it
// comes back: 2,000 is its last heartbeat, 7,000 the check that evicts.
func TestAPartitionLongerThanTheHeartbeatWindow(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) {
		s.Injects = []faults.Inject{
			{Op: faults.Partition, IDs: []policy.ID{1}, At: 2500},
			{Op: faults.ClearPartition, At: 9500},
		}
	})
	sum, _ := run(t, s, scenarios.Baseline)
	if got := story(sum); got != "round 2 evicts w1 (heartbeat)" || !sum.Complete {
		t.Errorf("baseline: %s, complete %v", got, sum.Complete)
	}
	if sum.Rounds[1].Close != 7000 {
		t.Errorf("round 2 closed at %d, want 7,000", sum.Rounds[1].Close)
	}
	// With a quorum of a half even the loss of two is no reason to wait.
	s.Injects[0].IDs = []policy.ID{1, 2}
	straggler(s).Quorum = 0.5
	s.TargetOuterSteps = 10
	sum, _ = run(t, s, scenarios.Straggler)
	if want := "round 2 sidelines w1, round 2 sidelines w2, round 3 sidelines w1, round 3 sidelines w2, round 4 evicts w1 (heartbeat), round 4 evicts w2 (heartbeat)"; story(sum) != want || !sum.Complete {
		t.Errorf("straggler: %s, complete %v, want\n%s", story(sum), sum.Complete, want)
	}
}

// TestAPartitionDuringTheReduction holds it up until it is over.
func TestAPartitionDuringTheReduction(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) {
		s.Injects = []faults.Inject{
			{Op: faults.Partition, IDs: []policy.ID{0, 1}, At: 2150},
			{Op: faults.ClearPartition, IDs: []policy.ID{0, 1}, At: 4000},
		}
	})
	sum, _ := run(t, s, scenarios.Baseline)
	if r := sum.Rounds[0]; r.End != 4100 || len(sum.Evicted) != 0 || !sum.Complete {
		t.Errorf("the first round is %+v, want it to end at 4,100, and nobody evicted (%s)", r, story(sum))
	}
}

// TestACrashOfTheDonor: the joiner asks worker 0 at 2,250 for a state that
// takes 2,100 µs. Worker 0 crashes and is evicted at 7,000; worker 1 serves.
func TestACrashOfTheDonor(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) {
		s.Workers[3].JoinAt = 2250
		s.StateBytes = 20_000
		s.Injects = []faults.Inject{on(faults.Crash, 0, 2300)}
	})
	sum, trace := run(t, s, scenarios.Baseline)
	for _, want := range []string{
		`{"t_us":2250,"type":"fetch_start","node":"w3","round":1,"from":"w0","reason":{"rule":"join"}}`,
		`{"t_us":7000,"type":"fetch_start","node":"w3","round":1,"from":"w1","reason":{"rule":"fetch_failed","worker":0}}`,
		`{"t_us":9100,"type":"fetch_done","node":"w3","round":1,"reason":{"rule":"state_fetched"}}`,
	} {
		if !strings.Contains(trace, want) {
			t.Errorf("the trace lacks %s", want)
		}
	}
	if !sum.Complete || story(sum) != "round 1 evicts w0 (heartbeat), joiners wait 6850 µs" {
		t.Errorf("%s, complete %v", story(sum), sum.Complete)
	}
}

// TestSlowAppliesToTheNextStep and the factor replaces the one before.
func TestSlowAppliesToTheNextStep(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) {
		s.Workers, s.InnerSteps, s.TargetOuterSteps = s.Workers[:1], 4, 1
		s.Injects = []faults.Inject{slow(0, 500, 3), slow(0, 1500, 2), on(faults.Restore, 0, 4500)}
	})
	_, trace := run(t, s, scenarios.Baseline)
	events, err := record.Read(strings.NewReader(trace))
	if err != nil {
		t.Fatal(err)
	}
	var steps []policy.Time
	for _, e := range events {
		if e.Type == record.Step {
			steps = append(steps, e.Duration)
		}
	}
	if want := []policy.Time{1000, 3000, 2000, 1000}; !slices.Equal(steps, want) {
		t.Errorf("the steps took %v, want %v", steps, want)
	}
}

func TestAnUnknownPolicyIsAnError(t *testing.T) {
	if _, err := onChurn(load(t, "homogeneous"), "strict", nil); err == nil {
		t.Error("a run under an unknown policy succeeded")
	}
	s := scenario(func(s *scenarios.Scenario) { straggler(s).Quorum = 2 })
	_, err := onChurn(s, scenarios.Straggler, nil)
	if want := "policy.straggler.quorum is 2: it must lie in (0, 1]"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// crowd is a scenario of jittery workers.
func crowd(workers, rounds int) *scenarios.Scenario {
	return scenario(func(s *scenarios.Scenario) {
		s.Workers, s.TargetOuterSteps = nil, rounds
		for id := range workers {
			s.Workers = append(s.Workers, scenarios.Worker{ID: policy.ID(id), InnerStepMean: 1000, InnerStepJitter: 200})
		}
	})
}

// BenchmarkRun plays crowds. An event is a line of the record; the time and
// the memory for one must not depend on the number of workers.
func BenchmarkRun(b *testing.B) {
	for _, workers := range []int{64, 1_000, 10_000} {
		s := crowd(workers, 100)
		for _, name := range append(slices.Clone(scenarios.PolicyNames), "adaptive") {
			b.Run(fmt.Sprintf("%d workers/%s", workers, name), func(b *testing.B) {
				events := 0
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for b.Loop() {
					if _, err := onChurn(s, name, func(record.Event) { events++ }); err != nil {
						b.Fatal(err)
					}
				}
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
				b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(events), "B/event")
			})
		}
	}
}

// TestAnArrivalAtTheDeadlineIsOnTime though the wake-up for the deadline was
// scheduled before it: without latency worker 3 arrives in the very instant in
// which its last step is done, 50 µs after the others.
func TestAnArrivalAtTheDeadlineIsOnTime(t *testing.T) {
	s := scenario(func(s *scenarios.Scenario) {
		s.BaseLatency = 0
		s.Workers[3].InnerStepMean = 1025
		straggler(s).MinSlack = 50
	})
	if sum, _ := run(t, s, scenarios.Straggler); story(sum) != "" {
		t.Errorf("%s, want nobody late", story(sum))
	}
	straggler(s).MinSlack = 49
	if sum, _ := run(t, s, scenarios.Straggler); len(sum.Sidelined) == 0 {
		t.Error("nobody is late with a deadline of 49 µs")
	}
}

// TestWhatAPartitionHeldBackIsDeliveredOnce, not at every heal.
func TestWhatAPartitionHeldBackIsDeliveredOnce(t *testing.T) {
	s := load(t, "partition_heal")
	s.Injects = append(s.Injects,
		faults.Inject{Op: faults.Partition, IDs: []policy.ID{1}, At: 7000}, faults.Inject{Op: faults.ClearPartition, At: 7100})
	_, trace := run(t, s, scenarios.Straggler)
	if n := strings.Count(trace, `"late":true`); n != 1 {
		t.Errorf("%d late arrivals, want 1", n)
	}
}

// straggler is the parameters of the straggler policy, to be changed in place.
func straggler(s *scenarios.Scenario) *policy.Straggler {
	return s.Policy.Parameters[scenarios.Straggler].(*policy.Straggler)
}

// TestWaitIsCountedOnce: a round that closes again and again, because its steps
// come to nothing, is one wait.
func TestWaitIsCountedOnce(t *testing.T) {
	s, err := scenarios.Parse("again.yaml", []byte(`{description: no step ends in time, seed: 0, injects: [], base_latency: 0, workers: [{id: 0, inner_step_mean: 1}],
		inner_steps: 1, target_outer_steps: 1, horizon: 2401, heartbeat_period: 50, heartbeat_miss_threshold: 1, bandwidth_bpus: 10, state_bytes: 12010}`))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := onChurn(s, "torchft", func(record.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	if sum.OuterSteps != 0 || sum.ComputeFraction+sum.BarrierWaitFraction > 1 {
		t.Errorf("%d outer steps; %v computing, %v waiting", sum.OuterSteps, sum.ComputeFraction, sum.BarrierWaitFraction)
	}
}
