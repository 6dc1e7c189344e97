package replay_test

import (
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/experiment"
	"testbed/internal/stories"
	"testbed/internal/testscenario"
	"testbed/record"
	"testbed/scenarios"
	"testbed/train/replay"
	"testbed/train/task"
)

// played simulates a scenario of the library with a small model in it, and
// returns its events, and the hashes of its outer states.
func played(t *testing.T, name, policyName, network string, set ...string) (*scenarios.Scenario, record.Summary, []record.Event) {
	t.Helper()
	s, err := scenarios.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	s.Train = &task.Spec{Task: task.CharLM, Model: task.Model{Layers: 1, Width: 8, Heads: 2, Context: 8, Batch: 2}}
	s.Real.Parameters = s.Train.Parameters()
	play, err := experiment.NewSimulator(network, nil)
	if err != nil {
		t.Fatal(err)
	}
	var events []record.Event
	sum, err := play.Trained(t.Context(), "")(s, policyName, func(e record.Event) { events = append(events, e) })
	if err != nil {
		t.Fatalf("%s under %s: %v", name, policyName, err)
	}
	return s, sum, events
}

// TestEveryScenarioLearns plays the library with learning: every round has a
// hash and losses, and the decisions are those without it.
func TestEveryScenarioLearns(t *testing.T) {
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if len(s.Workers)*s.TargetOuterSteps*s.InnerSteps > 2000 || stories.Told(s) {
			continue
		}
		for _, network := range []string{experiment.NetworkChurn, experiment.NetworkLinks} {
			_, sum, _ := played(t, s.Name, scenarios.Straggler, network)
			seen := map[string]bool{}
			for _, r := range sum.Rounds {
				if seen[r.ModelHash] || r.ModelHash == "" || r.Loss == nil || r.Loss.Validation == nil || r.Loss.Train == nil {
					t.Errorf("%s on %s: round %d has %+v", s.Name, network, r.Round, r)
				}
				seen[r.ModelHash] = true
			}
			if sum.TokensSeen == nil || *sum.TokensSeen == 0 || len(sum.TimeToLoss) == 0 {
				t.Errorf("%s on %s: tokens %v, times to losses %v", s.Name, network, sum.TokensSeen, sum.TimeToLoss)
			}
		}
	}
}

// TestSameDecisionsSameModel: on either network nothing happens to the
// homogeneous workers, and so they learn the same, bit by bit, however long it
// takes.
func TestSameDecisionsSameModel(t *testing.T) {
	_, churn, _ := played(t, "homogeneous", scenarios.Baseline, experiment.NetworkChurn)
	_, links, _ := played(t, "homogeneous", scenarios.Straggler, experiment.NetworkLinks)
	if churn.WallClock == links.WallClock || len(churn.Rounds) != len(links.Rounds) {
		t.Fatalf("%d µs and %d rounds, %d µs and %d rounds", churn.WallClock, len(churn.Rounds), links.WallClock, len(links.Rounds))
	}
	for i, r := range churn.Rounds {
		if l := links.Rounds[i]; l.ModelHash != r.ModelHash || *l.Loss.Validation != *r.Loss.Validation {
			t.Errorf("round %d: %s with %v, %s with %v", r.Round, r.ModelHash, *r.Loss.Validation, l.ModelHash, *l.Loss.Validation)
		}
	}
}

// hashes computes what a record trains, and returns what the states hash to.
func hashes(t testing.TB, s *scenarios.Scenario, events []record.Event) (all []string, err error) {
	l, err := replay.New(testscenario.Resolve(t, s, ""))
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if e.Type == record.State || e.Type == record.Validated {
			continue // what was learnt when it was recorded
		}
		learnt, err := l.Add(&e)
		if err != nil {
			return nil, err
		}
		for _, k := range learnt {
			if k.Type == record.State {
				all = append(all, k.Hash)
			}
		}
	}
	return all, nil
}

// TestARecordDeterminesTheTraining: what was learnt follows from the record, also where
// workers told of their inner steps only after the outer step; and another record
// leads to something else.
func TestARecordDeterminesTheTraining(t *testing.T) {
	s, sum, events := played(t, "transient_slow", scenarios.Straggler, experiment.NetworkLinks)
	differs := func(what string, changed []record.Event) bool {
		t.Helper()
		got, err := hashes(t, s, changed)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for i, r := range sum.Rounds {
			if got[i] != r.ModelHash {
				return true
			}
		}
		return false
	}
	if differs("as it is", events) {
		t.Error("the record leads to other states")
	}
	var told, late []record.Event // steps come after the next outer step
	for _, e := range events {
		if e.Type == record.Step {
			late = append(late, e)
			continue
		}
		told = append(told, e)
		if e.Type == record.OuterStep {
			told, late = append(told, late...), nil
		}
	}
	if differs("told late", told) {
		t.Error("the record leads to other states if workers tell late")
	}
	var fewer []record.Event
	for _, e := range events {
		if e.Type == record.ReduceStart && e.Round == 2 && len(e.Participants) > 1 {
			e.Participants = e.Participants[1:]
		}
		fewer = append(fewer, e)
	}
	if !differs("with one less", fewer) {
		t.Error("a participant less changes nothing")
	}
}

// TestTaughtOnce: what is computed once for all is what each run alone learns, in
// the whole library and under several policies, and runs in which something else
// is decided do not get it.
func TestTaughtOnce(t *testing.T) {
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	models, runs := map[string]bool{}, 0
	for _, s := range all {
		if len(s.Workers)*s.TargetOuterSteps*s.InnerSteps > 150 || stories.Told(s) {
			continue
		}
		s.Train = &task.Spec{Task: task.CharLM, Model: task.Model{Layers: 1, Width: 8, Heads: 2, Context: 8, Batch: 2}}
		s.Real.Parameters = s.Train.Parameters()
		for _, network := range []string{experiment.NetworkChurn, experiment.NetworkLinks} {
			play, err := experiment.NewSimulator(network, nil)
			if err != nil {
				t.Fatal(err)
			}
			once, end := play.TrainedOnce(t.Context())
			t.Cleanup(func() { _ = end() })
			for _, policyName := range []string{"baseline", "straggler", "deadline", "straggler:k=9"} {
				want, err := play.Trained(t.Context(), "")(s, policyName, nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := once(s, policyName, nil)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want.Rounds, got.Rounds); diff != "" {
					t.Errorf("%s under %s on %s (-alone +once):\n%s", s.Name, policyName, network, diff)
				}
				if runs++; len(want.Rounds) > 0 {
					models[want.Rounds[len(want.Rounds)-1].ModelHash] = true
				}
			}
		}
	}
	if len(models) < runs/8 || len(models) > runs*3/4 {
		t.Errorf("%d runs learn %d models: some alike, and some not", runs, len(models))
	}
}

// TestDivergence is told by who has learnt nothing more.
func TestDivergence(t *testing.T) {
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	s.Train = &task.Spec{Task: task.CharLM, Model: task.Model{Layers: 1, Width: 8, Heads: 2, Context: 8, Batch: 2}, Outer: task.Outer{Rate: new(math.Inf(1))}}
	s.Real.Parameters = s.Train.Parameters()
	play, err := experiment.NewSimulator(experiment.NetworkChurn, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := play.Trained(t.Context(), "")(s, scenarios.Baseline, nil); err == nil || !strings.Contains(err.Error(), "diverged") {
		t.Errorf("error %v", err)
	}
}

// TestOuterStepsOfTheField: with as many inner steps Streaming DiLoCo learns as much
// as plain DiLoCo, and outer steps that come a round late, which are known to harm,
// are seen to; the eager correction makes up for some of it.
func TestOuterStepsOfTheField(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: sixteen thousand inner steps take half a minute")
	}
	s, err := scenarios.Load("charlm_straggler")
	if err != nil {
		t.Fatal(err)
	}
	s.Train.Model = task.Model{Width: 16, Heads: 2, Context: 32, Batch: 3}
	s.Real.Parameters = s.Train.Parameters()
	simulate, err := experiment.NewSimulator(experiment.NetworkChurn, nil)
	if err != nil {
		t.Fatal(err)
	}
	play := func(o task.Outer, every int) float64 {
		own := *s.Train
		own.Outer.Fragments, own.Outer.Mix, own.Outer.Overlap, own.Outer.Correction = o.Fragments, o.Mix, o.Overlap, o.Correction
		played := *s
		played.Train, played.InnerSteps, played.TargetOuterSteps = &own, s.InnerSteps/every, s.TargetOuterSteps*every
		sum, err := simulate.Trained(t.Context(), "")(&played, scenarios.Baseline, nil)
		if err != nil {
			t.Error(err) // in a goroutine
			return 0
		}
		return *sum.Rounds[len(sum.Rounds)-1].Loss.Validation
	}
	worst := 0.0
	cases := []struct {
		what        string
		outer       task.Outer
		every       int // so many times as many rounds, each so many times as short
		least, most float64
	}{
		{"plain", task.Outer{}, 1, 0, 0},
		{"two fragments, each as often", task.Outer{Fragments: 2}, 2, -0.015, 0.015},
		{"a round late", task.Outer{Overlap: s.InnerSteps}, 1, 0.1, 10},
		{"a round late, eagerly", task.Outer{Overlap: s.InnerSteps, Correction: task.Eager}, 1, 0, 10},
	}
	losses := make([]float64, len(cases))
	var all sync.WaitGroup
	for i, c := range cases {
		all.Go(func() { losses[i] = play(c.outer, c.every) })
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for i, c := range cases {
		loss := losses[i]
		change := loss/losses[0] - 1
		t.Logf("%s: %.4f nats a byte, %+.2f %%", c.what, loss, 100*change)
		if !(change >= c.least && change <= c.most) {
			t.Errorf("%s changes the loss by %+.2f %%, want from %+.1f to %+.1f %%", c.what, 100*change, 100*c.least, 100*c.most)
		}
		if worst = max(worst, loss); c.outer.Correction != "" && loss == worst {
			t.Errorf("the correction corrects nothing: %.4f", loss)
		}
	}
}

// TestCheckMindsNoOrder: what a worker has to say of an outer step may come before
// the coordinator's word that it is final; but it has to be true, and to come of it.
func TestCheckMindsNoOrder(t *testing.T) {
	s, _, events := played(t, "homogeneous", scenarios.Baseline, experiment.NetworkLinks)
	of := func(e record.Event) bool { return e.Type == record.Contributed || e.Type == record.Validated }
	last := s.TargetOuterSteps
	var early, rest []record.Event
	for _, e := range events {
		if of(e) && e.Round == last {
			early = append(early, e)
		} else {
			rest = append(rest, e)
		}
	}
	final := slices.IndexFunc(rest, func(e record.Event) bool { return e.Type == record.OuterStep && e.Round == last })
	if len(early) != len(s.Workers)+1 || final < 0 {
		t.Fatalf("%d events of outer step %d, which is event %d", len(early), last, final)
	}
	if err := testscenario.CheckTraining(testscenario.Resolve(t, s, ""), slices.Insert(slices.Clone(rest), final, early...)); err != nil {
		t.Errorf("told early: %v", err)
	}
	early[0].Round++
	if err := testscenario.CheckTraining(testscenario.Resolve(t, s, ""), slices.Insert(slices.Clone(rest), final, early...)); err == nil || !strings.Contains(err.Error(), "does not give this event") {
		t.Errorf("of an outer step that never was: %v", err)
	}
}
