//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emulation"
	"testbed/emulation/network"
	"testbed/internal/testenv"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/faults"
)

// A tour is a run that loses a worker in each of its phases, one after the
// other.
type tour struct {
	scenario *scenarios.Scenario
	victims  []*victim
	reduce   time.Duration // how long the quickest reduction so far took
}

const joining = "fetch, as joiner"

// A victim is lost when its trigger says so.
type victim struct {
	phase string
	id    policy.ID
	round int // in which it has to be noticed; 0: in any
	// hit says whether this is the moment, and how long to wait from it.
	hit  func(*tour, *victim, emulation.Progress) (wait time.Duration, now bool)
	done bool
}

// on hits when an event of a round comes, of the worker itself if that is
// somebody's.
func on(typ record.Type, round int, part float64) func(*tour, *victim, emulation.Progress) (time.Duration, bool) {
	return func(r *tour, v *victim, p emulation.Progress) (time.Duration, bool) {
		e := p.Event
		if e == nil || e.Type != typ || e.Round != round || e.Node != "" && e.Node != v.id.Node() {
			return 0, false
		}
		return time.Duration(part * float64(r.reduce)), true
	}
}

// onFetch hits a joiner, or its donor, while the state is under way.
func onFetch(joiner policy.ID, donor bool) func(*tour, *victim, emulation.Progress) (time.Duration, bool) {
	return func(_ *tour, v *victim, p emulation.Progress) (time.Duration, bool) {
		e := p.Event
		if e == nil || e.Type != record.FetchStart || e.Node != joiner.Node() {
			return 0, false
		}
		if donor {
			fmt.Sscanf(e.From, "w%d", &v.id)
		}
		return 150 * time.Millisecond, true
	}
}

func atStart(_ *tour, _ *victim, p emulation.Progress) (time.Duration, bool) {
	return 0, strings.HasSuffix(p.Stage, "workers are up")
}

// nemesis strikes the victims whose moment has come.
func (r *tour) nemesis(op faults.Op) func(emulation.Progress) []emulation.Fault {
	return func(p emulation.Progress) (all []emulation.Fault) {
		if e := p.Event; e != nil && e.Type == record.ReduceDone {
			// The least: the first one, and those of a new ring, connect as well.
			if d := r.scenario.RealDuration(e.Duration); r.reduce == 0 || d < r.reduce {
				r.reduce = d
			}
		}
		for _, v := range r.victims {
			if v.done {
				continue
			}
			wait, now := v.hit(r, v, p)
			if !now {
				continue
			}
			v.done = true
			in := faults.Inject{Op: op}
			if op == faults.Partition {
				in.IDs = []policy.ID{v.id}
			} else {
				in.ID = &v.id
			}
			all = append(all, emulation.Fault{Inject: in, After: wait})
		}
		return all
	}
}

// newTour is a scenario in which a reduction and a fetch take about half a
// second each.
func newTour(t *testing.T, rounds int, joins []policy.Time, victims ...*victim) *tour {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, `
seed: 3
inner_steps: 2
target_outer_steps: %d
horizon: 5000000
heartbeat_period: 2000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
real:
  time_scale: 150
  parameters: 100000
  links: {default: {rate_up: 5mbit, rate_down: 5mbit, one_way_delay: 10ms}}
workers:
`, rounds)
	for id, at := range joins {
		mean := 1000
		if id == 5 { // arrives before the others
			mean = 500
		}
		fmt.Fprintf(&b, "  - {id: %d, join_at: %d, inner_step_mean: %d}\n", id, at, mean)
	}
	s, err := scenarios.Parse("tour.yaml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return &tour{scenario: s, victims: victims}
}

// TestEveryPhase kills a worker, freezes one or swallows all its packets, in
// every phase of a run on the real network. The others go on each time, with
// the same bytes, and notice it within the heartbeats' bound.
func TestEveryPhase(t *testing.T) {
	needSandbox(t)
	for name, op := range map[string]faults.Op{"kill": faults.Crash, "freeze": faults.Pause, "black hole": faults.Partition} {
		for phases, tours := range map[string]func() *tour{"start-up": func() *tour {
			return newTour(t, 7, make([]policy.Time, 9),
				&victim{phase: "start-up", id: 3, hit: atStart},
				&victim{phase: "inner steps", id: 4, round: 2, hit: on(record.Step, 2, 0)},
				&victim{phase: "arrival", id: 5, round: 3, hit: on(record.Arrive, 3, 0)},
				&victim{phase: "reduce-scatter", id: 6, round: 4, hit: on(record.ReduceStart, 4, 0.25)},
				&victim{phase: "all-gather", id: 7, round: 5, hit: on(record.ReduceStart, 5, 0.7)},
				&victim{phase: "outer step", id: 8, round: 7, hit: on(record.ReduceDone, 6, 0)})
		}, joining: func() *tour {
			return newTour(t, 12, []policy.Time{0, 0, 0, 0, 5000, 25_000},
				&victim{phase: joining, id: 4, hit: onFetch(4, false)},
				&victim{phase: "fetch, as donor", id: -1, hit: onFetch(5, true)})
		}} {
			t.Run(name+" in "+phases, func(t *testing.T) {
				t.Parallel()
				testenv.MeasureBeside(t, func() func(testenv.Machine) error {
					wrong := tours().play(t, op)
					return func(m testenv.Machine) error {
						if m.Taken >= mayStop/2 { // by the host alone
							return nil
						}
						return wrong
					}
				})
			})
		}
	}
}

// over says whether a victim had done its part of its round when it was hit.
func (v *victim) over(events []record.Event) bool {
	return slices.ContainsFunc(events, func(e record.Event) bool {
		return e.Type == record.OuterStep && e.Round == v.round && slices.Contains(e.Participants, v.id)
	})
}

// play plays the tour and says what was not as it should be.
func (r *tour) play(t *testing.T, op faults.Op) (wrong error) {
	bad := func(format string, args ...any) { wrong = errors.Join(wrong, fmt.Errorf(format, args...)) }
	var events []record.Event
	dir := filepath.Join(t.TempDir(), "run")
	begin := time.Now()
	sum, err := emulation.Play(t.Context(), emulation.Options{
		Scenario: r.scenario, File: "tour.yaml", Policy: scenarios.Baseline, Links: network.LinksAuto, Dir: dir,
		Nemesis: r.nemesis(op), Progress: func(p emulation.Progress) {
			if p.Event != nil {
				events = append(events, *p.Event)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !sum.Complete || sum.BitIdentical == nil || !*sum.BitIdentical {
		bad("complete %v, and not shown to be bit-identical", sum.Complete)
	}
	if same := sum.BitIdentical; same != nil && !*same {
		t.Error("not bit-identical") // whatever the machine does
	}
	window := r.scenario.HeartbeatPeriod * policy.Time(r.scenario.HeartbeatMissThreshold+1)
	// A machine on which six networks are busy at once may be late by half
	// of this.
	bound := window + window/2
	lost := map[policy.ID]bool{}
	has := func(typ record.Type, id policy.ID) bool {
		return slices.ContainsFunc(events, func(e record.Event) bool { return e.Type == typ && e.Node == id.Node() })
	}
	for _, v := range r.victims {
		if !v.done {
			bad("%s: its moment never came", v.phase)
			continue
		}
		lost[v.id] = true
		if has(record.Absent, v.id) {
			t.Logf("%s: the run began without it", v.phase)
			continue
		}
		i := slices.IndexFunc(sum.Detected, func(d record.Detection) bool { return d.ID == v.id })
		if i < 0 {
			bad("%s: the loss of w%d was not noticed", v.phase, v.id)
			continue
		}
		d := sum.Detected[i]
		took := d.Silent
		if d.After != nil {
			took = *d.After
		}
		t.Logf("%s: noticed in round %d (%s) %d µs after the loss, the bound is %d", v.phase, d.Round, d.Cause, took, window)
		if v.round != 0 && d.Round > v.round && v.over(events) {
			t.Logf("%s: the machine was late, and the round over", v.phase)
		} else if v.round != 0 && v.round != d.Round || v.phase == joining && has(record.FetchDone, v.id) {
			bad("%s: w%d was lost in another phase", v.phase, v.id)
		}
		if took > bound {
			bad("%s: the loss of w%d was noticed after %d µs, the bound is %d", v.phase, v.id, took, window)
		}
	}
	var survivors []policy.ID
	for _, w := range r.scenario.Workers {
		if !lost[w.ID] {
			survivors = append(survivors, w.ID)
		}
	}
	if n := len(sum.Rounds); n > 0 && !slices.Equal(slices.Sorted(slices.Values(sum.Rounds[n-1].Participants)), survivors) {
		bad("the last round had %v, want the survivors %v", sum.Rounds[n-1].Participants, survivors)
	}
	for _, reason := range sum.Fidelity.Reasons {
		if strings.Contains(reason, "died of itself") {
			bad("%s", reason)
		}
	}
	t.Logf("%v of real time, %d outer steps", time.Since(begin).Round(100*time.Millisecond), sum.OuterSteps)
	if wrong != nil {
		note, _ := os.ReadFile(filepath.Join(dir, record.EventsFile))
		t.Logf("%s", note)
	}
	return wrong
}
