//go:build linux

package test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emulation"
	"testbed/emulation/network"
	"testbed/internal/rapidtest"
	"testbed/internal/testenv"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/faults"
)

// How long TestMeasuredSoak goes on. The seed of its faults is that of rapidtest. A soak:
// go test ./test -run TestMeasuredSoak -soak 30m -timeout 0 -v
var (
	soakTime     = flag.Duration("soak", 12*time.Second, "how long to go on")
	soakProfiles = flag.String("soak.profiles", "", "folder for profiles of all processes, every ten seconds")
)

const (
	soakWorkers = 8
	// soakCrew is the number of members below which nobody is lost any more.
	soakCrew = 5
	// soakFresh is how often a worker comes to replace those that were lost.
	soakFresh = 20 * time.Second
	// soakFault is the mean time between two faults.
	soakFault = 3 * time.Second
	// soakScale is how long a microsecond of the scenario takes.
	soakScale = 150
	// soakWindow is how long a silent worker is waited for.
	soakWindow = 5 * 2000 * soakScale * time.Microsecond
)

// A soaker thinks up the faults of a run.
type soaker struct {
	rng     *rand.Rand
	members map[policy.ID]bool
	struck  map[policy.ID]time.Duration // until when a fault lasts, with a while to recover
	count   map[string]int
	injects strings.Builder
}

// fault draws one that begins at a time. Workers that suffer from one already are
// spared.
func (s *soaker) fault(at time.Duration) {
	var well []policy.ID
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		if at > s.struck[id] {
			well = append(well, id)
		}
	}
	if len(well) < 2 {
		return
	}
	id := well[s.rng.IntN(len(well))]
	lasts := time.Duration(s.rng.Int64N(int64(soakWindow / 2)))
	lossy := len(s.members) > soakCrew
	if lossy && s.rng.IntN(4) == 0 {
		lasts += soakWindow
	}
	// do has the worker suffer; without an end it is lost, and it may be if the fault
	// lasts longer than it is waited for.
	do := func(op faults.Op, fields string, end faults.Op) {
		s.count[string(op)]++
		s.struck[id] = at + lasts + soakWindow
		who := fmt.Sprintf("id: %d", id)
		if op == faults.Partition {
			who = fmt.Sprintf("ids: [%d]", id)
		}
		fmt.Fprintf(&s.injects, "  - {op: %s, %s, at: %d%s}\n", op, who, micros(at), fields)
		if end != "" {
			fmt.Fprintf(&s.injects, "  - {op: %s, %s, at: %d}\n", end, who, micros(at+lasts))
		}
		if end == "" || lasts > soakWindow && op != faults.Slow {
			delete(s.members, id)
		}
	}
	kinds := 4
	if lossy {
		kinds = 6
	}
	switch s.rng.IntN(kinds) {
	case 0, 1:
		do(faults.Pause, "", faults.Resume)
	case 2:
		do(faults.Partition, "", faults.ClearPartition)
	case 3:
		do(faults.Slow, fmt.Sprintf(", factor: %.2f", 1.5+3*s.rng.Float64()), faults.Restore)
	case 4:
		do(faults.Leave, "", "")
	case 5:
		do(faults.Crash, "", "")
	}
}

// micros is a real time as one of the scenario.
func micros(d time.Duration) int64 { return int64(d / soakScale / time.Microsecond) }

// newSoak has workers come throughout, links flap, and faults rain.
func newSoak(length time.Duration) (s *soaker, text string) {
	s = &soaker{rng: rand.New(rand.NewPCG(rapidtest.Seed(), 0)), members: map[policy.ID]bool{}, struck: map[policy.ID]time.Duration{}, count: map[string]int{}}
	var workers strings.Builder
	come := func(at time.Duration) {
		id := policy.ID(strings.Count(workers.String(), "\n"))
		s.members[id] = true
		fmt.Fprintf(&workers, "  - {id: %d, join_at: %d, inner_step_mean: 1000, inner_step_jitter: 100}\n", id, micros(at))
	}
	for range soakWorkers {
		come(0)
	}
	fresh := soakFresh / 2
	for at := soakFault; at < length; at += time.Duration(s.rng.Int64N(int64(2 * soakFault))) {
		for ; fresh < at; fresh += soakFresh {
			come(fresh)
		}
		s.fault(at)
	}
	return s, fmt.Sprintf(`
seed: 5
inner_steps: 2
target_outer_steps: 1000000
horizon: %d
heartbeat_period: 2000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
policy: {straggler: {sideline_limit: 10}}
real:
  time_scale: %d
  parameters: %d
  links: {default: {rate_up: 50mbit, rate_down: 50mbit, one_way_delay: 5ms, loss: 0.1%%}}
  injects:
    - {op: Flap, at: %d, between: [w0, w1], period: %d, down: %d}
    - {op: Flap, at: %d, between: [w2, coordinator], period: %d, down: %d}
workers:
%sinjects:
%s`, micros(length), soakScale, soakParameters, micros(2*time.Second), micros(9*time.Second), micros(300*time.Millisecond),
		micros(4*time.Second), micros(13*time.Second), micros(500*time.Millisecond), &workers, &s.injects)
}

const soakParameters = 100_000

// TestMeasuredSoak lets faults rain on a run on the real network: workers are paused,
// cut off, slowed, killed or leave every few seconds, and others come. The
// states of the outer steps stay one lineage, and no process grows.
func TestMeasuredSoak(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	if *soakProfiles != "" {
		t.Setenv(network.ProfilesEnv, *soakProfiles)
	}
	s, text := newSoak(*soakTime)
	file := filepath.Join(t.TempDir(), "soak.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run := start(t, file, "--policy", scenarios.Straggler)
	lineage := lineage{hashes: map[string]int{}}
	began, joined := time.Now(), map[string]float64{} // seconds since then
	sum := run.follow(t, func(e record.Event) {
		if e.Type == record.Join {
			joined[e.Node] = time.Since(began).Seconds()
		}
		lineage.add(t, e)
	})
	if sum.OuterSteps == 0 {
		logs, _ := os.ReadFile(filepath.Join(run.dir, record.LogsDir, policy.CoordinatorNode+".log"))
		t.Fatalf("%s\n%s", run.said(), logs[max(0, len(logs)-4000):])
	}
	causes := map[policy.Rule]int{}
	for _, d := range sum.Detected {
		causes[d.Cause]++
	}
	t.Logf("%v, seed %d: faults %v; %d outer steps, %d sidelined, %d evicted, lost and detected %v; %d reductions aborted; fidelity %s %v",
		*soakTime, rapidtest.Seed(), s.count, sum.OuterSteps, len(sum.Sidelined), len(sum.Evicted), causes, lineage.aborts, sum.Fidelity.Verdict, sum.Fidelity.Reasons)
	if sum.BitIdentical == nil || !*sum.BitIdentical {
		t.Errorf("bit-identical %v", sum.BitIdentical)
	}
	// A round has 300 ms of inner steps; the faults may cost ten times that.
	if least := int(*soakTime / (3 * time.Second)); sum.OuterSteps < least {
		t.Errorf("%d outer steps in %v, want at least %d", sum.OuterSteps, *soakTime, least)
	}
	for _, reason := range sum.Fidelity.Reasons {
		if strings.Contains(reason, "unexpectedly") {
			t.Error(reason)
		}
	}
	checkUsage(t, filepath.Join(run.dir, emulation.UsageFile), joined, soakParameters)
}

// lineage follows the outer states of a run.
type lineage struct {
	steps, aborts int
	hashes        map[string]int
}

func (l *lineage) add(t *testing.T, e record.Event) {
	switch e.Type {
	case record.ReduceAbort:
		l.aborts++
	case record.OuterStep:
		if l.steps++; e.Round != l.steps {
			t.Errorf("outer step %d follows %d", e.Round, l.steps-1)
		}
	case record.State:
		if before, seen := l.hashes[e.Hash]; seen || e.Identical == nil || !*e.Identical {
			t.Errorf("the states after outer step %d: the same %v, the same as after step %d (%v)", e.Round, e.Identical, before, seen)
		}
		l.hashes[e.Hash] = e.Round
	}
}

// checkUsage compares what each process held in the second quarter of its life
// with what it held in the last. The life of a worker begins when it joins.
//
// What a worker may come to hold in between has bounds: two states that it has
// served to others, one of which it has a part from a donor that failed, and one
// that it is about to take over, of eight bytes a parameter each; the outcomes of
// four outer steps and of the running reduction, of one byte a parameter; and the
// connections of links that the last eight reductions have used, ring orders that
// change by one or two workers at a time. The collector lets the heap double.
func checkUsage(t *testing.T, file string, joined map[string]float64, parameters int) {
	const (
		connections = 10  // more, at both ends of about three further links
		goroutines  = 3   // of a connection
		buffers     = 0.1 // MB of a connection
	)
	heap := (4*8+5)*float64(parameters)/1e6 + connections*buffers
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lives := map[string][]network.Usage{}
	for in := json.NewDecoder(bytes.NewReader(data)); in.More(); {
		var u network.Usage
		if err := in.Decode(&u); err != nil {
			t.Fatal(err)
		}
		at, worker := joined[u.Process]
		if strings.HasPrefix(u.Process, "w") && (!worker || u.Seconds < at+20) {
			continue
		}
		lives[u.Process] = append(lives[u.Process], u)
	}
	// Looks, five minutes: a connection to a peer that has died lives on for
	// one, and a state that is fetched is held twice.
	const least = 30
	median := func(us []network.Usage, of func(network.Usage) float64) float64 {
		var all []float64
		for _, u := range us {
			all = append(all, of(u))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	for _, process := range slices.Sorted(maps.Keys(lives)) {
		life := lives[process]
		n := len(life)
		if n < least {
			continue
		}
		for _, c := range []struct {
			what  string
			of    func(network.Usage) float64
			bound float64 // of growth
		}{
			{"goroutines", func(u network.Usage) float64 { return float64(u.Goroutines) }, connections * goroutines},
			{"descriptors", func(u network.Usage) float64 { return float64(u.Descriptors) }, 5},
			{"MB of heap", func(u network.Usage) float64 { return float64(u.HeapBytes) / 1e6 }, heap},
			{"MB of memory", func(u network.Usage) float64 { return float64(u.ResidentBytes) / 1e6 }, 2 * heap},
		} {
			early, late := median(life[n/4:n/2], c.of), median(life[n-n/4:], c.of)
			t.Logf("%-12s %5.0f s  %-13s %6.1f → %6.1f", process, life[n-1].Seconds-life[0].Seconds, c.what, early, late)
			if late > early+c.bound {
				t.Errorf("%s had %.1f %s early and %.1f late", process, early, c.what, late)
			}
		}
	}
}
