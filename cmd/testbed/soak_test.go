//go:build linux

package main

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
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/faults"
)

// How long TestSoak goes on, and from which seed its faults come. A soak:
// go test ./cmd/testbed -run TestSoak -soak 30m -timeout 0 -v
var (
	soakTime     = flag.Duration("soak", 12*time.Second, "how long to go on")
	soakProfiles = flag.String("soak.profiles", "", "folder for profiles of all processes, every ten seconds")
	soakSeed     = flag.Uint64("soak.seed", 1, "seed of the faults")
)

const (
	soakWorkers = 8
	// soakCrew is the number of members below which nobody is lost any more.
	soakCrew = 5
	// soakFresh is how often a worker comes to replace those that were lost.
	soakFresh = 20 * time.Second
	// soakFault is the mean time between two faults.
	soakFault = 3 * time.Second
)

// A soaker thinks up faults while a run goes on.
type soaker struct {
	scenario *scenarios.Scenario
	rng      *rand.Rand
	began    time.Time
	joined   map[string]float64 // seconds since then
	members  map[policy.ID]bool
	struck   map[policy.ID]time.Time // until when a fault lasts, with a while to recover
	next     time.Time
	count    map[string]int
}

func (s *soaker) nemesis(p emulation.Progress) []emulation.Fault {
	e := p.Event
	if e == nil {
		return nil
	}
	var id policy.ID
	switch fmt.Sscanf(e.Node, "w%d", &id); e.Type {
	case record.RunStart:
		s.next = time.Now().Add(soakFault)
	case record.Join:
		s.members[id] = true
		s.joined[e.Node] = time.Since(s.began).Seconds()
	case record.Evict:
		delete(s.members, id)
	}
	if s.next.IsZero() || time.Now().Before(s.next) {
		return nil
	}
	s.next = time.Now().Add(time.Duration(s.rng.Int64N(int64(2 * soakFault))))
	return s.fault()
}

// fault is the next one. Workers that suffer from one already are spared.
func (s *soaker) fault() []emulation.Fault {
	var well []policy.ID
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		if time.Now().After(s.struck[id]) {
			well = append(well, id)
		}
	}
	if len(well) < 2 {
		return nil
	}
	id := well[s.rng.IntN(len(well))]
	window := s.scenario.RealDuration(s.scenario.HeartbeatPeriod * policy.Time(s.scenario.HeartbeatMissThreshold))
	lasts := time.Duration(s.rng.Int64N(int64(window / 2)))
	lossy := len(s.members) > soakCrew
	if lossy && s.rng.IntN(4) == 0 {
		lasts += window
	}
	do := func(what string, begin, end faults.Inject) []emulation.Fault {
		s.count[what]++
		s.struck[id] = time.Now().Add(lasts + window)
		all := []emulation.Fault{{Inject: begin}}
		if end.Op != "" {
			all = append(all, emulation.Fault{Inject: end, After: lasts})
		}
		return all
	}
	kinds := 4
	if lossy {
		kinds = 6
	}
	switch ids := []policy.ID{id}; s.rng.IntN(kinds) {
	case 0, 1:
		return do("pause", faults.Inject{Op: faults.Pause, ID: &id}, faults.Inject{Op: faults.Resume, ID: &id})
	case 2:
		return do("partition", faults.Inject{Op: faults.Partition, IDs: ids}, faults.Inject{Op: faults.ClearPartition, IDs: ids})
	case 3:
		factor := 1.5 + 3*s.rng.Float64()
		return do("slow", faults.Inject{Op: faults.Slow, ID: &id, Factor: &factor}, faults.Inject{Op: faults.Restore, ID: &id})
	case 4:
		return do("leave", faults.Inject{Op: faults.Leave, ID: &id}, faults.Inject{})
	}
	return do("crash", faults.Inject{Op: faults.Crash, ID: &id}, faults.Inject{})
}

// soakScenario has workers come throughout, and flapping links.
func soakScenario(t *testing.T, length time.Duration) *scenarios.Scenario {
	const scale = 150
	us := func(d time.Duration) int64 { return int64(float64(d) / 1e3 / scale) }
	var b strings.Builder
	fmt.Fprintf(&b, `
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
  parameters: 100000
  links: {default: {rate_up: 50mbit, rate_down: 50mbit, one_way_delay: 5ms, loss: 0.1%%}}
  injects:
    - {op: Flap, at: %d, between: [w0, w1], period: %d, down: %d}
    - {op: Flap, at: %d, between: [w2, coordinator], period: %d, down: %d}
workers:
`, us(length), scale, us(2*time.Second), us(9*time.Second), us(300*time.Millisecond), us(4*time.Second), us(13*time.Second), us(500*time.Millisecond))
	id := 0
	for ; id < soakWorkers; id++ {
		fmt.Fprintf(&b, "  - {id: %d, inner_step_mean: 1000, inner_step_jitter: 100}\n", id)
	}
	for at := soakFresh / 2; at < length; at += soakFresh {
		fmt.Fprintf(&b, "  - {id: %d, join_at: %d, inner_step_mean: 1000, inner_step_jitter: 100}\n", id, us(at))
		id++
	}
	s, err := scenarios.Parse("soak.yaml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSoak lets faults rain on a run on the real network: workers are paused,
// cut off, slowed, killed or leave every few seconds, and others come. The
// states of the outer steps stay one lineage, and no process grows.
func TestSoak(t *testing.T) {
	needSandbox(t)
	if *soakProfiles == "" {
		t.Parallel()
	} else {
		t.Setenv(network.ProfilesEnv, *soakProfiles)
	}
	s := &soaker{
		scenario: soakScenario(t, *soakTime), rng: rand.New(rand.NewPCG(*soakSeed, 0)),
		began: time.Now(), joined: map[string]float64{}, members: map[policy.ID]bool{}, struck: map[policy.ID]time.Time{}, count: map[string]int{},
	}
	dir := filepath.Join(t.TempDir(), "run")
	lineage := lineage{hashes: map[string]int{}}
	sum, err := emulation.Play(t.Context(), emulation.Options{
		Scenario: s.scenario, File: "soak.yaml", Policy: scenarios.Straggler, Links: network.LinksAuto, Dir: dir,
		Nemesis: s.nemesis, Progress: func(p emulation.Progress) {
			if p.Event != nil {
				lineage.add(t, *p.Event)
			}
		},
	})
	if err != nil {
		logs, _ := os.ReadFile(filepath.Join(dir, record.LogsDir, policy.CoordinatorNode+".log"))
		t.Fatalf("%v\n%s", err, logs[max(0, len(logs)-4000):])
	}
	causes := map[policy.Rule]int{}
	for _, d := range sum.Detected {
		causes[d.Cause]++
	}
	t.Logf("%v, seed %d: faults %v; %d outer steps, %d sidelined, %d evicted, lost and detected %v; %d reductions aborted; fidelity %s %v",
		*soakTime, *soakSeed, s.count, sum.OuterSteps, len(sum.Sidelined), len(sum.Evicted), causes, lineage.aborts, sum.Fidelity.Verdict, sum.Fidelity.Reasons)
	if sum.BitIdentical == nil || !*sum.BitIdentical {
		t.Errorf("bit-identical %v", sum.BitIdentical)
	}
	// A round has 300 ms of inner steps; the faults may cost ten times that.
	if least := int(*soakTime / (3 * time.Second)); sum.OuterSteps < least {
		t.Errorf("%d outer steps in %v, want at least %d", sum.OuterSteps, *soakTime, least)
	}
	for _, reason := range sum.Fidelity.Reasons {
		if strings.Contains(reason, "died of itself") {
			t.Error(reason)
		}
	}
	checkUsage(t, filepath.Join(dir, emulation.UsageFile), s.joined, s.scenario.Real.Parameters)
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
