package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/internal/memnet"
	"testbed/policy"
	"testbed/record"
	"testbed/train/task"
)

// TestSync plays a straggler, newcomers and a failed reduction in torchft's sync mode.
// Whoever heals counts as its donor does, all end with the same bytes, and the record
// leads to the same states, with a model as without, in rings of each rank and with
// quantisation.
func TestSync(t *testing.T) {
	ofFirst := []policy.Repeat{{ID: 1, Donor: 0}, {ID: 2, Donor: 0}, {ID: 3, Donor: 0}}
	for _, c := range []struct {
		wait  policy.Time // the join timeout
		joins policy.Time // of w4 and w5
		spec  string
		ranks int
		bits  int
		learn bool
		first []policy.Repeat // in round 1
	}{
		{1000, 4000, "", 1, 8, false, nil},
		{1000, 4000, ":sync=true", 1, 8, false, nil},
		{1000, 4000, ":sync=true", 1, 32, true, nil},
		{8000, 20_000, ":sync=true:init_sync=true", 1, 8, true, ofFirst},
		{1000, 4000, ":init_sync=true", 1, 8, false, nil},
		{8000, 20_000, ":sync=true:init_sync=true", 2, 32, false, []policy.Repeat{{ID: 1, Donor: 3}, {ID: 2, Donor: 0}}},
	} {
		t.Run(fmt.Sprintf("torchft%s, %d ranks, %d bits", c.spec, c.ranks, c.bits), func(t *testing.T) {
			err := memnet.TryBubble(t, func(t *testing.T) {
				s := worldScenario(t, 6)
				s.TargetOuterSteps = 8
				for i := range s.Workers {
					s.Workers[i].JoinAt = policy.Time(i/4) * c.joins
				}
				s.Workers[3].InnerStepMean = 3500
				if s.Real.AllReduce.Bits = c.bits; c.bits < 32 {
					s.Real.AllReduce.ErrorFeedback = true
				}
				s.Train = &task.Spec{}
				if c.learn {
					s.Train = &task.Spec{Task: task.CharLM, Model: task.Model{Layers: 1, Width: 8, Heads: 2, Context: 8, Batch: 2}}
					s.Real.Parameters = s.Train.Parameters()
				}
				if c.ranks > 1 {
					s.Train.GroupWorldSize = c.ranks
				}
				w := newWorld(t, s)
				fails := true
				w.onEvent = func(e record.Event) {
					if e.Type == record.FetchDone && e.Round > 2 && fails {
						fails = false
						w.command(0, Command{Op: OpFailReduce})
					}
				}
				sum, events := w.play(fmt.Sprintf("torchft:join_timeout=%d%s", c.wait, c.spec), time.Hour)
				if err := checkLineage(w.scenario, events); err != nil || !sum.Complete || len(w.failed)+len(sum.Evicted) > 0 {
					t.Errorf("%v; complete: %t, failed %q, evicted %v", err, sum.Complete, w.failed, sum.Evicted)
				}
				var last record.Event
				healed, repeated, again := 0, 0, 0
				for _, e := range events {
					if e.Type != record.ReduceStart {
						continue
					}
					healed, repeated = healed+len(e.Zero), repeated+len(e.Repeated)
					if len(e.Repeated) > 0 && e.Round == last.Round && cmp.Equal(e.Repeated, last.Repeated) {
						again++
					}
					if last = e; e.Epoch == 1 {
						if diff := cmp.Diff(c.first, e.Repeated); diff != "" {
							t.Errorf("round 1 (-want +got):\n%s", diff)
						}
					}
				}
				// Whether the failed reduction is tried again with the same donors depends on
				// which message comes first.
				if sync := strings.Contains(c.spec, ":sync"); healed == 0 || sync != (repeated > 0) || again > 0 && !sync {
					t.Errorf("%d healed, %d counted as their donors, %d of them tried again", healed, repeated, again)
				}
				t.Logf("%d healed, %d counted as their donors, %d tried again", healed, repeated, again)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
