package sim_test

import (
	"fmt"
	"strings"
	"testing"

	"testbed/allreduce"
	"testbed/allreduce/reduction"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/faults"
	"testbed/sim"
)

// TestComingBack: what becomes of workers that end and come back, on both
// networks. Their stories are the same; when things happen is not.
func TestComingBack(t *testing.T) {
	restart := func(id policy.ID, at, after policy.Time) faults.Inject {
		in := on(faults.Restart, id, at)
		in.After = after
		return in
	}
	preempt := func(id policy.ID, at, notice policy.Time) faults.Inject {
		in := on(faults.Preempt, id, at)
		in.Notice = notice
		return in
	}
	cut := func(id policy.ID, at, until policy.Time) []faults.Inject {
		ids := []policy.ID{id}
		return []faults.Inject{{Op: faults.Partition, At: at, IDs: ids}, {Op: faults.ClearPartition, At: until, IDs: ids}}
	}
	for _, c := range []struct {
		name    string
		injects []faults.Inject
		rejoin  policy.RejoinMode
		want    string
	}{
		{"a fast restart", []faults.Inject{restart(2, 3000, 400)}, "",
			"crash w2, restart w2, evict w2 replaced, join w2 join"},
		{"a restart long after the loss", []faults.Inject{restart(2, 3000, 9000)}, "",
			"crash w2, evict w2 heartbeat, restart w2, join w2 join"},
		{"two restarts, and a crash", []faults.Inject{restart(2, 3000, 400), restart(2, 6000, 0), on(faults.Crash, 2, 9000)}, "",
			"crash w2, restart w2, evict w2 replaced, join w2 join, crash w2, restart w2, evict w2 replaced, join w2 join, crash w2, evict w2 heartbeat"},
		{"a restart of the dead", []faults.Inject{on(faults.Crash, 2, 3000), restart(2, 4000, 100)}, "",
			"crash w2, restart w2, evict w2 replaced, join w2 join"},
		{"a restart in a reduction", []faults.Inject{restart(2, 2150, 10)}, "",
			"crash w2, restart w2, evict w2 replaced, join w2 join"},
		{"a restart of one that is paused", []faults.Inject{on(faults.Pause, 2, 2500), restart(2, 3000, 400)}, "",
			"pause w2, crash w2, restart w2, evict w2 replaced, join w2 join"},
		{"a restart behind a partition", append(cut(2, 2900, 4500), restart(2, 3000, 400)), "",
			"partition, crash w2, restart w2, heal, evict w2 replaced, join w2 join"},
		{"a restart without a coordinator", []faults.Inject{{Op: faults.CoordinatorCrash, At: 2900, Down: 1500}, restart(2, 3000, 400)}, "",
			"crash w2, restart w2, evict w2 replaced, join w2 join"},
		{"last words", []faults.Inject{on(faults.Fail, 2, 3000)}, "", "fail w2, evict w2 gave_up"},
		{"last words of one that is paused", []faults.Inject{on(faults.Pause, 2, 2500), on(faults.Fail, 2, 3000), on(faults.Resume, 2, 4000)}, "",
			"pause w2, resume w2, fail w2, evict w2 gave_up"},
		{"last words behind a partition", append(cut(2, 2900, 20000), on(faults.Fail, 2, 3000)), "",
			"partition, fail w2, evict w2 heartbeat, heal"},
		{"notice enough", []faults.Inject{preempt(2, 3000, 4000)}, "", "preempt w2, evict w2 leave"},
		{"too little notice", []faults.Inject{preempt(2, 3600, 500)}, "", "preempt w2, crash w2, evict w2 heartbeat"},
		{"no notice", []faults.Inject{preempt(2, 3000, 0)}, "", "preempt w2, crash w2, evict w2 heartbeat"},
		{"notice, and a new process before it is over", []faults.Inject{preempt(2, 3000, 5000), restart(2, 3200, 100)}, "",
			"preempt w2, crash w2, restart w2, evict w2 replaced, join w2 join"},
		{"cut off for long, and out", cut(2, 3000, 12000), policy.RejoinNever, "partition, evict w2 heartbeat, heal"},
		{"cut off for long, and back", cut(2, 3000, 12000), policy.RejoinAfterRounds, "partition, evict w2 heartbeat, heal, join w2 rejoin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := scenario(func(s *scenarios.Scenario) {
				s.TargetOuterSteps, s.Injects, s.Policy.Rejoin, s.Policy.Join = 12, c.injects, c.rejoin, policy.JoinNext
			})
			s.Real.TimeScale, s.Real.Parameters, s.Real.AllReduce = 100, 1000, reduction.Spec{Algorithm: "ring", Order: "naive", Format: allreduce.DefaultFormat}
			for name, play := range map[string]func(func(record.Event)) (record.Summary, error){
				"churn": func(do func(record.Event)) (record.Summary, error) { return onChurn(s, scenarios.Baseline, do) },
				"links": func(do func(record.Event)) (record.Summary, error) {
					return onLinks(s, scenarios.Baseline, sim.Costs{}, do)
				},
			} {
				var got []string
				sum, err := play(func(e record.Event) {
					switch e.Type {
					case record.Crash, record.Restart, record.Fail, record.Preempt, record.Pause, record.Resume:
						got = append(got, fmt.Sprintf("%s %s", e.Type, e.Node))
					case record.Partition, record.Heal:
						got = append(got, string(e.Type))
					case record.Join, record.Evict, record.Reject:
						if e.T > 0 {
							got = append(got, fmt.Sprintf("%s %s %s", e.Type, e.Node, e.Reason.Rule))
						}
					}
				})
				if text := strings.Join(got, ", "); err != nil || !sum.Complete || text != c.want {
					t.Errorf("%s: complete %v, %v\n%s, want\n%s", name, sum.Complete, err, text, c.want)
				}
				if n := strings.Count(c.want, "join"); n > 0 && len(sum.Rounds[11].Participants) < 4 && !strings.HasSuffix(c.want, "heartbeat") {
					t.Errorf("%s: the last round is %v's", name, sum.Rounds[11].Participants)
				}
			}
		})
	}
}

// TestTheOnlyWorkerRestarts: nobody holds the state any more.
func TestTheOnlyWorkerRestarts(t *testing.T) {
	in := on(faults.Restart, 0, 3000)
	in.After = 100
	s := scenario(func(s *scenarios.Scenario) { s.Workers, s.Injects = s.Workers[:1], []faults.Inject{in} })
	sum, trace := run(t, s, scenarios.Baseline)
	if want := `"reason":{"rule":"state_lost","members":1}}`; sum.Complete || !strings.HasSuffix(lastLine(trace), want) {
		t.Errorf("complete %v, last event %s", sum.Complete, lastLine(trace))
	}
}

// TestWhatIsUnderWayFromAnEarlierLifeIsDropped: the arrival that the dead process
// sent at 2,000 comes at 2,100, when the new one has joined at 2,050; the round
// waits for its own.
func TestWhatIsUnderWayFromAnEarlierLifeIsDropped(t *testing.T) {
	in := on(faults.Restart, 2, 2020)
	in.After = 30
	s := scenario(func(s *scenarios.Scenario) { s.Injects = []faults.Inject{in} })
	_, trace := run(t, s, scenarios.Baseline)
	if strings.Contains(trace, `{"t_us":2100,"type":"arrive","node":"w2"`) {
		t.Errorf("an arrival of the process before:\n%s", trace)
	}
	if want := `{"t_us":4260,"type":"arrive","node":"w2","round":1`; !strings.Contains(trace, want) {
		t.Errorf("the trace lacks %s: joined at 2,050, fetched until 2,160, two steps, one message", want)
	}
}
