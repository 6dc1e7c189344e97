//go:build linux

package test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/internal/testenv"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/sim"
)

// What torchft's package does in situations that its documentation does not describe,
// each beside what the policy torchft simulates. All of them are played by
//
//	go test -timeout 40m -v -run MeasuredTorchftFinding ./test -every-scenario
//
// and two without the flag.

// TestMeasuredTorchftFindings plays the findings.
func TestMeasuredTorchftFindings(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	python := needStack(t, "torchft")
	before := look(t)
	play := func(name string, find func(*testing.T, string)) {
		t.Run(name, func(t *testing.T) { find(t, python) })
		expectNothing(t, t.Name()+"/"+name, before)
	}
	play("ReusedID", findsReusedID)
	play("Buckets", findsBuckets)
	if *everyScenario {
		play("Healers", findsHealers)
		play("Rotation", findsRotation)
	}
}

// try is an outer step that a quorum tries.
type try struct {
	Step int
	// Quorum numbers the ids of a run: the first is 1, and each other one is one more
	// than the id before it in order of size.
	Quorum  int
	Members int      // of the quorum, by which the mean is divided
	By      []int    // that commit
	Shares  []string // of all replicas in the mean of those that commit
}

func (t try) String() string {
	return fmt.Sprintf("step %d, quorum %d of %d: committed by %v, shares %v", t.Step, t.Quorum, t.Members, t.By, t.Shares)
}

// attempted is a replica's try of an outer step, as testdata/torchft/findings.py
// reports it.
type attempted struct {
	Lighthouse int
	Replica    int
	Step       int
	QuorumID   int64 `json:"quorum_id"`
	Group      []int // the members of the process group
	Divisor    int
	Committed  bool
	Shares     []float64
	Error      string
}

// trained are a replica's parameters after rounds of DiLoCo.
type trained struct {
	Replica    int
	Sizes      []int
	BucketCap  float64 `json:"bucket_cap_mb"`
	Steps      int
	Parameters [][2]float64 // the smallest and the largest value of each
}

// findOut plays a situation with torchft's package, in a node of its own.
func findOut[T any](t *testing.T, python, situation string, lighthouses ...string) (all []T, err error) {
	t.Helper()
	script, err := filepath.Abs("testdata/torchft/findings.py")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"net", scenario(t, 2, "100mbit", ""), "--", program, "in", "w0", python, script, situation}
	r := testbed(t, append(args, lighthouses...)...)
	// The network has nothing to do, and a busy machine makes it invalid.
	if r.code != 0 && r.code != exitInvalid {
		return nil, fmt.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr[max(0, len(r.stderr)-3000):])
	}
	for lines := bufio.NewScanner(strings.NewReader(r.stdout)); lines.Scan(); {
		var one T
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("it printed nothing\n%s", r.stderr)
	}
	return all, nil
}

// shares are rounded, so that those of float32 equal those of float64.
func sharesOf(all []float64) (words []string) {
	for _, share := range all {
		words = append(words, fmt.Sprintf("%.3f", share))
	}
	return words
}

// measuredTries are the committed steps at a lighthouse, in order. Replicas that commit
// a step in the same quorum have the same mean.
func measuredTries(t *testing.T, all []attempted, lighthouse int) (tries []try) {
	t.Helper()
	all = slices.DeleteFunc(slices.Clone(all), func(a attempted) bool { return a.Lighthouse != lighthouse })
	numbers := map[int64]int{}
	for _, a := range all {
		numbers[a.QuorumID] = 0
	}
	for k, id := range slices.Sorted(maps.Keys(numbers)) {
		numbers[id] = k + 1
	}
	slices.SortStableFunc(all, func(a, b attempted) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Replica, b.Replica))
	})
	for _, a := range all {
		if !a.Committed {
			continue
		}
		one := try{a.Step, numbers[a.QuorumID], a.Divisor, []int{a.Replica}, sharesOf(a.Shares)}
		if last := len(tries) - 1; last >= 0 && tries[last].Step == a.Step && tries[last].Quorum == one.Quorum {
			if !slices.Equal(tries[last].Shares, one.Shares) {
				t.Errorf("w%d committed %v, and others %v", a.Replica, one, tries[last])
			}
			tries[last].By = append(tries[last].By, a.Replica)
			continue
		}
		tries = append(tries, one)
	}
	return tries
}

// simulatedTries are the committed steps that the policy torchft simulates.
func simulatedTries(t *testing.T, text, policyName string, workers int) (tries []try) {
	t.Helper()
	s, err := scenarios.Parse("simulated.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	reductions := map[policy.Epoch]record.Event{}
	_, err = experiment.OnLinks(s, policyName, sim.Costs{}, func(e record.Event) {
		switch e.Type {
		case record.ReduceStart:
			reductions[e.Epoch] = e
		case record.OuterStep:
			r := reductions[e.Epoch]
			shares, one := make([]float64, workers), 1/float64(len(r.Participants))
			for _, id := range r.Participants {
				if !slices.Contains(r.Zero, id) {
					shares[id] += one
				}
			}
			for _, repeat := range r.Repeated {
				shares[repeat.Donor] += one
			}
			by := make([]int, len(e.Participants))
			for k, id := range e.Participants {
				by[k] = int(id)
			}
			tries = append(tries, try{e.Round, int(r.Reason.QuorumID), len(r.Participants), by, sharesOf(shares)})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return tries
}

// fourth is the situation of testdata/torchft/findings.py: a fourth worker comes during
// the inner steps of round 3, and asks first.
const fourth = `seed: 7
inner_steps: 2
target_outer_steps: 5
horizon: 90000
heartbeat_period: 500
heartbeat_miss_threshold: 10
base_latency: 100
bandwidth_bpus: 10
state_bytes: 10000
workers:
  - {id: 0, join_at: 0, inner_step_mean: 1000}
  - {id: 1, join_at: 0, inner_step_mean: 1000}
  - {id: 2, join_at: 0, inner_step_mean: 1000}
  - {id: 3, join_at: 4600, inner_step_mean: 1000}
real:
  time_scale: 100
  parameters: 10000
  links: {default: {rate_up: 100mbit, rate_down: 100mbit, one_way_delay: 1ms}}
`

// dies is an inject of fourth in the same inner steps.
const dies = "injects: [{op: CoordinatorCrash, at: 4500, down: 200, forgets: %t}]\n"

// sameTries compares what the package did with what the policy simulates.
func sameTries(what string, measured, simulated []try) error {
	if fmt.Sprint(measured) != fmt.Sprint(simulated) {
		return fmt.Errorf("%s, torchft's package:\n%s\nsimulated:\n%s", what, listed(measured), listed(simulated))
	}
	return nil
}

func listed(all []try) string {
	var b strings.Builder
	for _, one := range all {
		fmt.Fprintf(&b, "  %v\n", one)
	}
	return b.String()
}

// findsReusedID: torchft's lighthouse counts its quorums from 1
// again after a restart. If the first quorum has a newcomer, the others keep their
// process group, because its id is the same. They reduce without the newcomer, divide by
// four, and commit a step that is scaled by 3/4. Testbed's lighthouse does so with
// --compat only. The policy simulates both.
func findsReusedID(t *testing.T, python string) {
	lighthouses := []string{"torchft", program + " lighthouse", program + " lighthouse --compat"}
	if !*everyScenario {
		lighthouses = lighthouses[:2]
	}
	testenv.Measure(t, func() func(testenv.Machine) error {
		all, err := findOut[attempted](t, python, "restart", lighthouses...)
		return func(testenv.Machine) error {
			if err != nil {
				return err
			}
			for k, lighthouse := range lighthouses {
				forgets := k != 1
				measured := measuredTries(t, all, k)
				simulated := simulatedTries(t, fourth+fmt.Sprintf(dies, forgets), "torchft:min_replicas=3:quorum_retries=3:join_timeout=60000:sync=true", 4)
				if err := sameTries(lighthouse, measured, simulated); err != nil {
					return err
				}
				// The finding itself, whatever is simulated.
				scaled := try{3, 1, 4, []int{0, 1, 2}, []string{"0.250", "0.250", "0.250", "0.000"}}
				if has := slices.ContainsFunc(measured, func(one try) bool { return one.String() == scaled.String() }); has != forgets {
					return fmt.Errorf("%s: that the old members commit %v is %t, want %t:\n%s", lighthouse, scaled, has, forgets, listed(measured))
				}
				for _, a := range all {
					if silent := a.Error == ""; a.Lighthouse == k && silent != a.Committed || a.Lighthouse == k && !a.Committed && !forgets {
						return fmt.Errorf("%s: %+v", lighthouse, a)
					}
				}
			}
			t.Logf("torchft's lighthouse:\n%s", listed(measuredTries(t, all, 0)))
			return nil
		}
	})
}

// findsBuckets: DiLoCo's buckets lose parameters. A tensor that does
// not fit the space left in its bucket is not reduced. And of several buckets only the
// last one's averages arrive. Every step commits, and replicas differ from then on. The
// default, a bucket of 1 GiB, has no such effect. Testbed has no buckets.
func findsBuckets(t *testing.T, python string) {
	all, err := findOut[trained](t, python, "buckets", "torchft")
	if err != nil {
		t.Fatal(err)
	}
	const mib = 262_144 // float32 values
	for _, c := range []struct {
		sizes    []int
		mebi     float64
		averaged []bool // each parameter
	}{
		{[]int{256, mib}, 1, []bool{false, false}}, // the second does not fit, and the last bucket has none
		{[]int{mib, 256}, 1, []bool{false, true}},  // two buckets, both full
		{[]int{256, 256}, 1, []bool{true, true}},   // one bucket
		{[]int{256, mib}, 32, []bool{true, true}},
		{[]int{256, mib}, 0, []bool{true, true}}, // the default
	} {
		seen := 0
		for _, one := range all {
			if !slices.Equal(one.Sizes, c.sizes) || one.BucketCap != c.mebi {
				continue
			}
			seen++
			for k, averaged := range c.averaged {
				want := 2 * float64(one.Replica+1) // its own two rounds
				if averaged {
					want = 3
				}
				if one.Steps != 2 || one.Parameters[k] != [2]float64{want, want} {
					t.Errorf("sizes %v in buckets of %v MiB, w%d: after %d steps parameter %d is %v, want %v", c.sizes, c.mebi, one.Replica, one.Steps, k, one.Parameters[k], want)
				}
			}
		}
		if seen != 2 {
			t.Errorf("sizes %v in buckets of %v MiB: %d replicas", c.sizes, c.mebi, seen)
		}
	}
}

// findsHealers: in the synchronous mode, which DiLoCo demands, a
// replica that heals takes part with its donor's contribution. So the donor counts
// twice, and with init_sync the first step is one replica's alone. The policy simulates
// both with sync.
func findsHealers(t *testing.T, python string) {
	testenv.Measure(t, func() func(testenv.Machine) error {
		all, err := findOut[attempted](t, python, "heal", "torchft")
		return func(testenv.Machine) error {
			if err != nil {
				return err
			}
			measured := measuredTries(t, all, 0)
			if want := "[1.000 0.000 0.000 0.000]"; len(measured) != 5 || fmt.Sprint(measured[0].Shares) != want || fmt.Sprint(measured[2].Shares) != "[0.500 0.250 0.250 0.000]" {
				return fmt.Errorf("\n%s", listed(measured))
			}
			t.Logf("\n%s", listed(measured))
			return sameTries("healers", measured, simulatedTries(t, fourth, "torchft:min_replicas=3:join_timeout=60000:sync=true:init_sync=true", 4))
		}
	})
}

// rotation is what a run of the scenario torchft_t18 comes to.
type rotation struct {
	whole    int     // rounds before the stall, with everybody
	left     int     // rounds that leave somebody out and have nobody who heals
	rotating int     // rounds with three members, one of which heals
	recovers bool    // a later round has everybody again
	rate     float64 // the duration of a rotating round, divided by that of one with everybody
}

// rotationOf reads a record.
func rotationOf(events []record.Event) (o rotation) {
	zero := map[policy.Epoch]int{}
	var first, other, last policy.Time // the end of the round before
	var before, after []policy.Time
	for _, e := range events {
		switch e.Type {
		case record.ReduceStart:
			zero[e.Epoch] = len(e.Zero)
		case record.OuterStep:
			switch took := e.T - last; {
			case len(e.Participants) == 4 && zero[e.Epoch] == 0 && o.left == 0:
				if o.whole++; o.whole > 1 { // the first sets up connections
					before = append(before, took)
				}
			case len(e.Participants) == 4:
				o.recovers = true
			case len(e.Participants) == 3 && zero[e.Epoch] == 0:
				o.left++
			case len(e.Participants) == 3 && zero[e.Epoch] == 1:
				o.rotating++
				after = append(after, took)
			}
			last = e.T
		}
	}
	for _, took := range before {
		first += took
	}
	for _, took := range after {
		other += took
	}
	if len(before) > 0 && len(after) > 0 {
		o.rate = float64(other) / float64(len(after)) / (float64(first) / float64(len(before)))
	}
	return o
}

// findsRotation: if join_timeout is below a round, one stall makes
// the job leave out one replica in each round while another heals, for ever. Two of four
// contribute. The simulation of T18 has the same, and so does the remedy.
func findsRotation(t *testing.T, _ string) {
	s, err := scenarios.Load("torchft_t18")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		policy, stack string
		rotates       bool
	}{
		{"torchft", "torchft:join_timeout_ms=1500:min_replicas=2", true},
		{"torchft:join_timeout=4000", "torchft:join_timeout_ms=4000:min_replicas=2", false},
	} {
		var events []record.Event
		if _, err := experiment.OnLinks(s, c.policy, sim.Costs{}, func(e record.Event) { events = append(events, e) }); err != nil {
			t.Fatal(err)
		}
		simulated := rotationOf(events)
		testenv.Measure(t, func() func(testenv.Machine) error {
			dir := filepath.Join(t.TempDir(), "run")
			r := testbed(t, "run", "torchft_t18", "--stack", c.stack, "--json", "--time-scale", slowRounds, "--out", dir)
			sum := ofStack(t, r)
			return func(testenv.Machine) error {
				if !sum.Complete || len(sum.Rounds) != 12 || sum.BitIdentical == nil || !*sum.BitIdentical || len(sum.Stack.Failures) > 0 {
					return fmt.Errorf("%s: exit code %d, %+v\n%s", c.stack, r.code, sum.Stack, r.stderr)
				}
				measured := rotationOf(readEvents(t, dir))
				t.Logf("%s: measured %+v, simulated %+v", c.stack, measured, simulated)
				for world, o := range map[string]rotation{"measured": measured, "simulated": simulated} {
					switch {
					case !c.rotates && o != (rotation{whole: 12}):
						return fmt.Errorf("%s, %s: %+v, want everybody in all rounds", c.stack, world, o)
					case c.rotates && (o.whole < 3 || o.left != 1 || o.recovers || o.whole+o.left+o.rotating != 12 || o.rate < 1.02 || o.rate > 1.5):
						return fmt.Errorf("%s, %s: %+v, want one stall, and a rotation from then on, in longer rounds", c.stack, world, o)
					}
				}
				return nil
			}
		})
	}
}

// TestMeasuredTorchftDDP: an unmodified program of torchft's DistributedDataParallel trains
// against our lighthouse. When one of its two groups is killed, the other goes on alone. The
// group that starts again takes the model from it, and both end with the same weights.
func TestMeasuredTorchftDDP(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	python := needStack(t, "torchft")
	before := look(t)
	testenv.Measure(t, func() func(testenv.Machine) error {
		r := testbed(t, "launch", launched(t, "../torchft/ddp.yaml"), "--keep-going",
			"--central", program+" lighthouse --bind [::]:29510 --min_replicas 1 --join_timeout_ms 2000 --heartbeat_timeout_ms 2000",
			"--", "env", "TORCHFT_LIGHTHOUSE=http://coordinator:29510", "STEPS=100", python, launched(t, "torchft_ddp.py"))
		expectNothing(t, t.Name(), before)
		weights(t, r, 2)
		_, killed, _ := strings.Cut(r.stdout, "w1: step ")
		return func(testenv.Machine) error {
			var missing []string
			for _, want := range []string{`w0: step \d+ of 2 groups`, `w0: step \d+ of 1 groups`, `w1: took the model from another group`, `w1: step \d+ of 2 groups`} {
				at := regexp.MustCompile(want).FindStringIndex(killed)
				if at == nil {
					missing = append(missing, want)
					continue
				}
				killed = killed[at[1]:]
			}
			if missing != nil {
				return fmt.Errorf("after w1's first step, the programs do not say in this order %q:\n%s%s", missing, r.stdout, r.stderr)
			}
			return nil
		}
	})
}
