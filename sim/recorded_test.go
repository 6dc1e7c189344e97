package sim_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/randscenario"
	"testbed/internal/rapidtest"
	"testbed/internal/stories"
	"testbed/policy"
	"testbed/scenarios/faults"

	"testbed/record"
	"testbed/report"
	"testbed/scenarios"
	"testbed/train/task"
)

type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// replayed runs a policy over a record.
func replayed(t failer, s *scenarios.Scenario, note []record.Event, policyName string) []record.Event {
	t.Helper()
	r, err := newRecording(s, policyName, note)
	if err != nil {
		t.Fatal(err)
	}
	var events []record.Event
	if _, err := r.Replay(func(e record.Event) { events = append(events, e) }); err != nil {
		t.Fatal(err)
	}
	return events
}

// sameDecisions fails unless the replay has the decisions of the record, at
// the same times.
func sameDecisions(t failer, s *scenarios.Scenario, note []record.Event, policyName string) {
	t.Helper()
	events := replayed(t, s, note, policyName)
	was, is := report.Decisions(note), report.Decisions(events)
	if d := report.Differences(was, is); len(d) > 0 {
		t.Fatalf("%s: %d differences, the first in round %d: recorded %+v, replayed %+v", policyName, len(d), d[0].Round, d[0].Recorded, d[0].Replayed)
	}
	for i := range was {
		if was[i].T != is[i].T {
			t.Fatalf("%s: %s of round %d at %d µs, recorded at %d µs", policyName, is[i].What, is[i].Round, is[i].T, was[i].T)
		}
	}
}

func recorded(t failer, s *scenarios.Scenario, policyName string) []record.Event {
	t.Helper()
	var events []record.Event
	if _, err := onChurn(s, policyName, func(e record.Event) { events = append(events, e) }); err != nil {
		t.Fatal(err)
	}
	return events
}

func TestReplayOfSimulatedRuns(t *testing.T) {
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if stories.Told(s) {
			continue // what torchft decides hangs on more than a record has
		}
		if slices.ContainsFunc(s.Injects, unplayable) || s.Grouping() != nil {
			if _, err := newRecording(s, scenarios.Baseline, recorded(t, s, scenarios.Baseline)); err == nil || !strings.Contains(err.Error(), "cannot be replayed") {
				t.Errorf("%s: error %v, want one that it cannot be replayed", s.Name, err)
			}
			continue
		}
		for _, name := range scenarios.PolicyNames {
			t.Run(s.Name+"/"+name, func(t *testing.T) { sameDecisions(t, s, recorded(t, s, name), name) })
		}
	}
}

// unplayable says whether a run with such an inject cannot be replayed.
func unplayable(in faults.Inject) bool {
	return in.Op == faults.CoordinatorCrash || in.Op == faults.Restart
}

// TestARunWithAReturnCannotBeReplayed also without a restart.
func TestARunWithAReturnCannotBeReplayed(t *testing.T) {
	s, err := scenarios.Load("persistent_straggler")
	if err != nil {
		t.Fatal(err)
	}
	s.Policy.Rejoin = policy.RejoinAfterRounds
	if _, err := newRecording(s, scenarios.Straggler, recorded(t, s, scenarios.Straggler)); err == nil || !strings.Contains(err.Error(), "cannot be replayed") {
		t.Errorf("error %v, want one that it cannot be replayed", err)
	}
}

func TestReplayOfRandomRuns(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		s := randscenario.Draw(t)
		s.Injects = slices.DeleteFunc(s.Injects, unplayable)
		s.Policy.Rejoin = policy.RejoinNever
		name := rapid.SampledFrom(policy.Names()).Draw(t, "policy")
		note := recorded(t, s, name)
		if slices.ContainsFunc(note, func(e record.Event) bool { return e.Type == record.Diverged }) {
			if _, err := newRecording(s, name, note); err == nil || !strings.Contains(err.Error(), "cannot be replayed") {
				t.Fatalf("error %v, want one that it cannot be replayed", err)
			}
			return
		}
		// What torchft decides depends on when each heartbeat came, and on workers
		// who begin a round again, of which a record says less than everything.
		// What happens at one instant has no order in a record, and blocking joins
		// that cost nothing do, as well as the end of a notice and a heartbeat.
		instant := s.BaseLatency == 0 && s.Policy.Join == policy.JoinBlocking || slices.ContainsFunc(s.Injects, func(in faults.Inject) bool {
			return in.Op == faults.Preempt && (in.At+in.Notice)%s.HeartbeatPeriod == 0
		})
		if name != "torchft" && !instant {
			sameDecisions(t, s, note, name)
		}
		// Under the other policy it is a run like any other.
		other := scenarios.PolicyNames[0]
		if other == name {
			other = scenarios.PolicyNames[1]
		}
		events := replayed(t, s, note, other)
		for i, e := range events {
			if i > 0 && e.T < events[i-1].T || e.T > s.Horizon {
				t.Fatalf("event %d at %d µs, after %d µs", i, e.T, events[i-1].T)
			}
		}
		if last := events[len(events)-1]; last.Type != record.RunEnd {
			t.Fatalf("it ends with %s", last.Type)
		}
	})
}

// TestReplayUnderTheOtherPolicy: of a simulated run of the library, where a
// slow step takes as long in every round, the replay comes to what a
// simulation under that policy comes to.
func TestReplayUnderTheOtherPolicy(t *testing.T) {
	for _, c := range []struct{ scenario, record, policy string }{
		{"persistent_straggler", scenarios.Baseline, scenarios.Straggler},
		{"persistent_straggler", scenarios.Straggler, scenarios.Baseline},
		{"crash_mid_round", scenarios.Baseline, scenarios.Straggler},
		{"crash_mid_round", scenarios.Straggler, scenarios.Baseline},
		{"graceful_leave", scenarios.Baseline, scenarios.Straggler},
		{"homogeneous", scenarios.Straggler, scenarios.Baseline},
	} {
		s, err := scenarios.Load(c.scenario)
		if err != nil {
			t.Fatal(err)
		}
		want, got := recorded(t, s, c.policy), replayed(t, s, recorded(t, s, c.record), c.policy)
		for _, d := range report.Differences(report.Decisions(want), report.Decisions(got)) {
			t.Errorf("%s of %s under %s: simulated %+v, replayed %+v", c.record, c.scenario, c.policy, d.Recorded, d.Replayed)
		}
		if w, g := want[len(want)-1].T, got[len(got)-1].T; w != g {
			t.Errorf("%s of %s under %s: the end is at %d µs, simulated at %d", c.record, c.scenario, c.policy, g, w)
		}
	}
}

// TestReplayOfRealRuns replays the records in testdata, of runs on a real
// network, under the policy that they were made under.
func TestReplayOfRealRuns(t *testing.T) {
	files, err := filepath.Glob("testdata/*/scenario.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("records %v: %v", files, err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			s, events := readReal(t, dir)
			sameDecisions(t, s, events, events[0].Run.Policy)
		})
	}
}

func readReal(t *testing.T, dir string) (*scenarios.Scenario, []record.Event) {
	t.Helper()
	s, err := scenarios.Load(filepath.Join(dir, "scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, record.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	events, err := record.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return s, events
}

// TestReplayUnderOtherParameters: with a deadline that nobody misses, the
// straggler policy decides as the baseline does.
func TestReplayUnderOtherParameters(t *testing.T) {
	s, events := readReal(t, "testdata/transient_slow")
	patient, err := set(s, "policy.straggler.min_slack", "1000000")
	if err != nil {
		t.Fatal(err)
	}
	var rounds [2]int
	for i, c := range []struct {
		s    *scenarios.Scenario
		name string
	}{{patient, scenarios.Straggler}, {s, scenarios.Baseline}} {
		for _, d := range report.Decisions(replayed(t, c.s, events, c.name)) {
			if d.What != string(record.RoundClose) || len(d.Late) > 0 {
				t.Errorf("%s: %+v, want nobody late", c.name, d)
			}
			rounds[i]++
		}
	}
	if rounds != [2]int{5, 5} {
		t.Errorf("rounds closed %v, want 5 and 5", rounds)
	}
}

func set(s *scenarios.Scenario, field, value string) (*scenarios.Scenario, error) {
	one, err := scenarios.NewSetting(field, value)
	if err != nil {
		return nil, err
	}
	return s.With(one)
}

func TestBadRecords(t *testing.T) {
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	good := recorded(t, s, scenarios.Baseline)
	other := *good[0].Run
	other.Schema = 99
	scaled := *good[0].Run
	scaled.World, scaled.TimeScale = record.Real, 7
	stranger := append([]record.Event{}, good...)
	stranger[1].Node = "w99"
	for want, events := range map[string][]record.Event{
		"does not begin with run_start":    good[1:],
		"version 99":                       {{Type: record.RunStart, Run: &other}},
		"the run has a time scale of 7":    {{Type: record.RunStart, Run: &scaled}},
		"w99 is not in the scenario":       stranger,
		"record does not begin with run_s": nil,
	} {
		if _, err := newRecording(s, scenarios.Baseline, events); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := newRecording(s, "", good); err == nil || !strings.Contains(err.Error(), "without a policy") {
		t.Errorf("error %v, want one that there is no policy", err)
	}
}

// FuzzRecording replays whatever record is to be read: it may be refused, but
// nothing else.
func FuzzRecording(f *testing.F) {
	for _, name := range []string{"transient_slow", "crash_mid_round", "late_join"} {
		text, err := os.ReadFile(filepath.Join("testdata", name, record.EventsFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	s, err := scenarios.Load("crash_mid_round")
	if err != nil {
		f.Fatal(err)
	}
	s.Horizon = 100_000
	f.Fuzz(func(t *testing.T, text []byte) {
		events, err := record.Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, name := range scenarios.PolicyNames {
			if r, err := newRecording(s, name, events); err == nil {
				_, _ = r.Replay(nil) // an error is an answer
			}
		}
	})
}

// TestOverlapCannotBeReplayed: what workers do ahead of an outer step has no
// beginning in the record. Nor has the reduction of each region an end of its own.
func TestOverlapCannotBeReplayed(t *testing.T) {
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	s.Train = &task.Spec{Regions: &policy.RegionsSpec{Every: 2, Workers: map[string][]policy.ID{"all": {0, 1, 2, 3}}}}
	if _, err := newRecording(s, scenarios.Baseline, recorded(t, s, scenarios.Baseline)); err == nil || !strings.Contains(err.Error(), "train.regions") {
		t.Errorf("error %v, want one that rounds of regions cannot be replayed", err)
	}
	s.Train = &task.Spec{Outer: task.Outer{Overlap: 1}}
	if _, err := newRecording(s, scenarios.Baseline, recorded(t, s, scenarios.Baseline)); err == nil || !strings.Contains(err.Error(), "train.outer.overlap") {
		t.Errorf("error %v, want one that it cannot be replayed", err)
	}
}
