package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/internal/memnet"
	"testbed/internal/stories"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/faults"
)

// stage has the injects of the scenario happen, of workers and of links.
func (w *world) stage() {
	for _, in := range w.scenario.Injects {
		w.at(in.At, func() { w.inject(in) })
	}
	var relay func(after time.Duration)
	relay = func(after time.Duration) {
		at, more := w.scenario.Faults().Next(after)
		if !more {
			return
		}
		time.AfterFunc(time.Until(w.began.Add(at)), func() {
			w.net.Fault(w.t, "links", w.scenario.Faults().At(at)...)
			relay(at)
		})
	}
	relay(-1)
}

func (w *world) inject(in faults.Inject) {
	switch in.Op {
	case faults.Slow:
		w.command(*in.ID, Command{Op: OpSlow, At: in.At, Factor: *in.Factor})
	case faults.Restart:
		w.crash(*in.ID)
		time.AfterFunc(w.scenario.RealDuration(in.After), func() { w.restart(*in.ID) })
	case faults.Restore:
		w.command(*in.ID, Command{Op: OpRestore, At: in.At})
	case faults.CoordinatorCrash:
		w.crashLighthouse(in.Down, false, in.Forgets)
	case faults.FailReduce:
		w.command(*in.ID, Command{Op: OpFailReduce, Alone: in.Alone})
	default:
		w.fail("%s is not staged", in.Op)
	}
}

// TestStories plays torchft's failures, and what mends them, with the real
// coordinator and workers: they come to what the simulator comes to. The network
// has delays, losses and cuts, and no rates.
func TestStories(t *testing.T) {
	t.Parallel()
	for _, story := range stories.All {
		if story.Rates() {
			continue
		}
		for _, version := range story.Versions {
			t.Run(story.Scenario+" "+version.Policy, func(t *testing.T) {
				err := memnet.TryBubble(t, func(t *testing.T) { tellStory(t, story.Scenario, version) })
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestGroups: a rank dies, and another votes against a step. Their groups share that.
func TestGroups(t *testing.T) {
	if err := memnet.TryBubble(t, func(t *testing.T) { tellStory(t, stories.Groups.Scenario, stories.Groups.Versions[0]) }); err != nil {
		t.Error(err)
	}
}

func tellStory(t *testing.T, name string, version stories.Version) {
	s, err := scenarios.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	s.Real.Parameters = 1500 // quickly summed
	w := newWorld(t, s)
	w.onEvent = func(e record.Event) {
		if e.Type == record.RunStart {
			w.stage()
		}
	}
	sum, events := w.play(version.Policy, time.Hour)
	if len(w.failed) > 0 {
		t.Errorf("%q", w.failed)
	}
	for _, e := range events {
		if e.T > s.Horizon {
			t.Errorf("%s of %s at %d", e.Type, e.Node, e.T)
		}
	}
	if diff := cmp.Diff(version.Told, stories.Tell(events)); diff != "" {
		t.Errorf("-told +played:\n%s\n%s", diff, w.logs.String())
	}
	if err := checkLineage(s, events); (err != nil) != (len(sum.Diverged) > 0) {
		t.Errorf("diverged %v; of the lineage of states: %v", sum.Diverged, err)
	}
}
