//go:build linux

package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"testbed/internal/testenv"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
)

// A tour is a run that loses a worker in each of its phases, one after the
// other, by what is done to its process from outside.
type tour struct {
	scenario *scenarios.Scenario
	file     string // of the scenario
	victims  []*victim
	reduce   time.Duration // how long the quickest reduction so far took
	strikes  sync.WaitGroup
	failed   chan error // strikes
}

const joining = "fetch, as joiner"

// A victim is lost when its trigger says so.
type victim struct {
	phase string
	id    policy.ID
	round int // in which it has to be noticed; 0: in any
	// hit says whether an event is the moment, and how long to wait from it. It is nil
	// for who is lost before the first one.
	hit  func(*tour, *victim, record.Event) (wait time.Duration, now bool)
	done bool
}

// on hits when an event of a round comes, of the worker itself if that is
// somebody's.
func on(typ record.Type, round int, part float64) func(*tour, *victim, record.Event) (time.Duration, bool) {
	return func(r *tour, v *victim, e record.Event) (time.Duration, bool) {
		if e.Type != typ || e.Round != round || e.Node != "" && e.Node != v.id.Node() {
			return 0, false
		}
		return time.Duration(part * float64(r.reduce)), true
	}
}

// onFetch hits a joiner, or its donor, while the state is under way.
func onFetch(joiner policy.ID, donor bool) func(*tour, *victim, record.Event) (time.Duration, bool) {
	return func(_ *tour, v *victim, e record.Event) (time.Duration, bool) {
		if e.Type != record.FetchStart || e.Node != joiner.Node() {
			return 0, false
		}
		if donor {
			fmt.Sscanf(e.From, "w%d", &v.id)
		}
		return 150 * time.Millisecond, true
	}
}

// harms are what is done to a worker's process.
var harms = map[string]func(pid int) error{
	"kill":   func(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) },
	"freeze": func(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) },
	// Links carry no frames of another address, and deliver none to it.
	"black hole": func(pid int) error {
		enter := []string{"--target", strconv.Itoa(pid), "--net"}
		if os.Geteuid() != 0 {
			enter = append(enter, "--user", "--preserve-credentials")
		}
		out, err := exec.Command("nsenter", append(enter, "ip", "link", "set", "eth0", "address", "02:00:00:00:00:01")...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	},
}

// strike does the harm to the victims whose moment has come. Those without one are
// hit when all workers are up.
func (r *tour) strike(run *underWay, harm func(pid int) error, e *record.Event) {
	if e != nil && e.Type == record.ReduceDone {
		// The least: the first one, and those of a new ring, connect as well.
		if d := r.scenario.RealDuration(e.Duration); r.reduce == 0 || d < r.reduce {
			r.reduce = d
		}
	}
	for _, v := range r.victims {
		if v.done || (v.hit == nil) != (e == nil) {
			continue
		}
		var wait time.Duration
		if e != nil {
			var now bool
			if wait, now = v.hit(r, v, *e); !now {
				continue
			}
		}
		v.done = true
		r.strikes.Go(func() {
			time.Sleep(wait)
			pid, err := run.process(v.id.Node())
			if err == nil {
				err = harm(pid)
			}
			if err != nil {
				r.failed <- fmt.Errorf("%s: %w", v.phase, err)
			}
		})
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
	file := filepath.Join(t.TempDir(), "tour.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return &tour{scenario: s, file: file, victims: victims, failed: make(chan error, len(victims))}
}

// TestMeasuredEveryPhase kills a worker, freezes one or swallows all its packets, in
// every phase of a run on the real network. The others go on each time, with
// the same bytes, and notice it within the heartbeats' bound.
func TestMeasuredEveryPhase(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	for name := range harms {
		for phases, tours := range map[string]func(t *testing.T) *tour{"start-up": func(t *testing.T) *tour {
			return newTour(t, 7, make([]policy.Time, 9),
				&victim{phase: "start-up", id: 3},
				&victim{phase: "inner steps", id: 4, round: 2, hit: on(record.Step, 2, 0)},
				&victim{phase: "arrival", id: 5, round: 3, hit: on(record.Arrive, 3, 0)},
				&victim{phase: "reduce-scatter", id: 6, round: 4, hit: on(record.ReduceStart, 4, 0.25)},
				&victim{phase: "all-gather", id: 7, round: 5, hit: on(record.ReduceStart, 5, 0.7)},
				&victim{phase: "outer step", id: 8, round: 7, hit: on(record.ReduceDone, 6, 0)})
		}, joining: func(t *testing.T) *tour {
			return newTour(t, 12, []policy.Time{0, 0, 0, 0, 5000, 25_000},
				&victim{phase: joining, id: 4, hit: onFetch(4, false)},
				&victim{phase: "fetch, as donor", id: -1, hit: onFetch(5, true)})
		}} {
			t.Run(name+" in "+phases, func(t *testing.T) {
				t.Parallel()
				if name == "black hole" {
					needTool(t, "nsenter")
					needTool(t, "ip")
				}
				testenv.Measure(t, func() func(testenv.Machine) error {
					wrong := tours(t).play(t, name)
					return func(testenv.Machine) error { return wrong }
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
func (r *tour) play(t *testing.T, harm string) (wrong error) {
	bad := func(format string, args ...any) { wrong = errors.Join(wrong, fmt.Errorf(format, args...)) }
	var events []record.Event
	run := start(t, r.file, "--policy", scenarios.Baseline, "--links", "user")
	waitFor(t, func() bool { return strings.Contains(run.said(), " workers are up") })
	r.strike(run, harms[harm], nil)
	sum := run.follow(t, func(e record.Event) {
		r.strike(run, harms[harm], &e)
		events = append(events, e)
	})
	r.strikes.Wait()
	close(r.failed)
	for err := range r.failed {
		bad("%w", err)
	}
	if !sum.Complete || sum.BitIdentical == nil || !*sum.BitIdentical {
		bad("complete %v, and not shown to be bit-identical", sum.Complete)
	}
	if same := sum.BitIdentical; same != nil && !*same {
		t.Error("not bit-identical") // whatever the machine does
	}
	window := r.scenario.HeartbeatPeriod * policy.Time(r.scenario.HeartbeatMissThreshold+1)
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
		t.Logf("%s: noticed in round %d (%s) after %d µs of silence, the bound is %d", v.phase, d.Round, d.Cause, took, window)
		if v.round != 0 && d.Round > v.round && v.over(events) {
			t.Logf("%s: the machine was late, and the round over", v.phase)
		} else if v.round != 0 && v.round != d.Round || v.phase == joining && has(record.FetchDone, v.id) {
			bad("%s: w%d was lost in another phase", v.phase, v.id)
		}
		if took > window {
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
	died := 0
	for _, reason := range sum.Fidelity.Reasons {
		if strings.Contains(reason, "unexpectedly") {
			died++
		}
	}
	if harm == "kill" && died == 0 || harm != "kill" && died > 0 {
		bad("the verdict has the reasons %q", sum.Fidelity.Reasons)
	}
	if wrong != nil {
		note, _ := os.ReadFile(filepath.Join(run.dir, record.EventsFile))
		t.Logf("%s", note)
	}
	return wrong
}
