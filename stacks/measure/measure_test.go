package measure

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"testbed/policy"
	"testbed/record"
	"testbed/shaping/fidelity"
)

// base is a record of three workers from the start, of which one millisecond is a
// microsecond of scenario time.
func base(events ...record.Event) *Record {
	r := &Record{Events: events, Values: 1000, InnerSteps: 2, Joins: map[policy.ID]policy.Time{0: 0, 1: 0, 2: 0}}
	r.Summary.TimeScale, r.Summary.Complete, r.Summary.Fidelity.Verdict = 1000, true, fidelity.Valid
	return r
}

func step(round int, at policy.Time, ids ...policy.ID) record.Event {
	return record.Event{T: at, Type: record.OuterStep, Round: round, Participants: ids}
}

func fault(kind record.Type, at policy.Time, node string) record.Event {
	return record.Event{T: at, Type: kind, Node: node}
}

// check compares measures; floats may differ in the last digits.
func check(t *testing.T, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Error(d)
	}
}

// TestCrashAndRestart: a worker dies after the first round. The others go on without it, it
// comes back with nothing, and then with its own work.
func TestCrashAndRestart(t *testing.T) {
	r := base(
		step(1, 2500, 0, 1, 2), fault(record.Crash, 3000, "w2"), step(2, 9000, 0, 1), fault(record.Restart, 10000, "w2"),
		record.Event{T: 11000, Type: record.ReduceStart, Round: 3, Zero: []policy.ID{2}}, step(3, 11500, 0, 1, 2), step(4, 14000, 0, 1, 2),
		record.Event{T: 14500, Type: record.RunEnd},
	)
	for round, same := range []bool{true, true, false, true} {
		r.Events = append(r.Events, record.Event{T: 14600, Type: record.State, Round: round + 1, Identical: &same})
	}
	r.Summary.Work = &record.Work{StepsDone: 24, StepsOpen: 1}
	for k := range 4 {
		r.Uses = append(r.Uses, map[string]Use{"w0": {uint64(k+1) * 20_000, time.Duration(k+1) * time.Second}, "w1": {uint64(k+1) * 5000, time.Duration(k+1) * 200 * time.Millisecond}})
	}
	check(t, Of(r), Measures{
		Complete: true, Verdict: fidelity.Valid, Rounds: []float64{2.5, 6.5, 2.5, 2.5}, Length: 14,
		// Contributions: 3 + 2 + 2 + 3. The dead worker was absent for 7 s.
		Useful: new(20.0 / (14 + 14 + 3 + 4)), Lost: new(3),
		Faults: []Fault{{Type: record.Crash, Node: "w2", At: 3, Gap: &Gap{Seconds: 6.5}, Without: new(6.0), Back: new(4.0)}},
		Differ: new(1), Compared: 4,
		Wire:      new(100_000.0 / (2 * 4000 * (2 + 1 + 2 + 2))),
		Processor: new(4.8 / 4),
		Took:      [][]policy.ID{{0, 1, 2}, {0, 1}, {0, 1}, {0, 1, 2}},
	})
}

// TestHang: a stack's last round never ends.
func TestHang(t *testing.T) {
	r := base(step(1, 3000, 0, 1, 2), fault(record.Crash, 3500, "w2"))
	r.Summary.Complete, r.Summary.Work = false, &record.Work{StepsDone: 10, StepsOpen: 4}
	r.Summary.Stack = &record.Stack{Disputes: []string{"one"}, FailedReductions: 2}
	mark := func(at policy.Time, node, hash string) record.ProgramEvent {
		return record.ProgramEvent{T: at, Type: record.ProgramMark, Node: node, Mark: "commit", Fields: map[string]any{"round": 1.0, "hash": hash}}
	}
	sample := func(at policy.Time, node string, sent uint64, cpu policy.Time) record.ProgramEvent {
		return record.ProgramEvent{T: at, Type: record.ProgramSample, Node: node, BytesSent: &sent, Processor: &cpu}
	}
	r.Programs = []record.ProgramEvent{
		sample(4_000_000, "w0", 100, 2_000_000), sample(4_900_000, "w0", 1000, 3_000_000), {T: 5_000_000, Type: record.ProgramClock},
		sample(5_100_000, "w0", 1100, 3_100_000), sample(7_900_000, "w0", 9000, 3_500_000), sample(7_900_000, "coordinator", 1<<40, 1<<40),
		mark(8_000_000, "w0", "a"), mark(8_000_000, "w1", "b"), sample(8_400_000, "w0", 17_000, 4_000_000), sample(8_900_000, "w0", 30_000, 9_000_000),
		sample(8_200_000, "w1", 8000, 1_000_000), {T: 65_000_000, Type: record.ProgramsFinish},
	}
	check(t, Of(r), Measures{
		Verdict: fidelity.Valid, Rounds: []float64{3}, Length: 3, Useful: new(6 / (60 + 60 + 3.5)), Lost: new(4),
		Faults: []Fault{{Type: record.Crash, Node: "w2", At: 3.5, Gap: &Gap{Seconds: 57, Open: true}}},
		Differ: new(1), Compared: 1, Wire: new(24_000.0 / (2 * 4000 * 2)), Processor: new(2.0),
		Took: [][]policy.ID{{0, 1, 2}}, Disputes: new(1), Failed: new(2),
	})
}

// TestPauses: a pause that all wait for, one after which the worker is left out, and a
// partition that is over before anybody is left out. A worker comes late.
func TestPauses(t *testing.T) {
	r := base(
		fault(record.Pause, 1000, "w0"), fault(record.Resume, 4000, "w0"), step(1, 5000, 0, 1), fault(record.Pause, 6000, "w1"), step(2, 8000, 0),
		fault(record.Resume, 9000, "w1"), record.Event{T: 9500, Type: record.Partition, IDs: []policy.ID{0}}, record.Event{T: 10000, Type: record.Heal, IDs: []policy.ID{0}},
		step(3, 12000, 0, 1, 2),
	)
	r.Joins[2] = 7000
	check(t, Of(r).Faults, []Fault{
		{Type: record.Pause, Node: "w0", At: 1, Gap: &Gap{Seconds: 5}, Back: new(1.0)},
		{Type: record.Pause, Node: "w1", At: 6, Gap: &Gap{Seconds: 3}, Without: new(2.0), Back: new(3.0)},
		{Type: record.Join, Node: "w2", At: 7, Gap: &Gap{Seconds: 4}, Back: new(5.0)},
		{Type: record.Partition, Node: "w0", At: 9.5, Gap: &Gap{Seconds: 4}, Back: new(2.0)},
	})
}

// TestNothingMeasured: what the record lacks is absent.
func TestNothingMeasured(t *testing.T) {
	check(t, Of(base()), Measures{Complete: true, Verdict: fidelity.Valid, Rounds: []float64{}, Faults: []Fault{}, Took: [][]policy.ID{}})
	r := base(step(1, 1000, 0, 1, 2))
	r.Summary.Stack = &record.Stack{}
	r.Programs = []record.ProgramEvent{{Type: record.ProgramMark, Node: "w0", Mark: "commit", Fields: map[string]any{"round": 1.0}}}
	check(t, Of(r), Measures{
		Complete: true, Verdict: fidelity.Valid, Rounds: []float64{1}, Length: 1, Faults: []Fault{}, Took: [][]policy.ID{{0, 1, 2}}, Disputes: new(0), Failed: new(0),
	})
	alone := base(step(1, 1000, 0))
	alone.Uses = []map[string]Use{{"w0": {100, time.Second}}}
	if m := Of(alone); m.Wire != nil || m.Processor == nil || *m.Processor != 1 {
		t.Errorf("one worker: %v over an ideal of nothing, %v", m.Wire, m.Processor)
	}
}

const scenario = `description: two workers
seed: 1
workers:
  - {id: 0, join_at: 0, inner_step_mean: 1000, inner_step_jitter: 0}
  - {id: 1, join_at: 500, inner_step_mean: 1000, inner_step_jitter: 0}
injects: []
inner_steps: 3
target_outer_steps: 1
horizon: 5000000
heartbeat_period: 1000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
real: {time_scale: 10, parameters: 1000}
`

// TestRead reads the directory of a policy's run, and of a stack's.
func TestRead(t *testing.T) {
	dir := record.Dir(t.TempDir())
	for name, text := range map[string]string{
		"scenario.yaml": scenario, record.EnvironmentFile: `{"kernel": "6.1"}`,
		record.SummaryFile:  `{"policy": "baseline", "time_scale": 10, "complete": true, "fidelity": {"verdict": "valid"}}`,
		record.EventsFile:   `{"t_us":100,"type":"outer_step","round":1,"participants":[0,1]}` + "\n",
		record.FidelityFile: `{"rounds": [{"nodes": {"w0": {"sent_bytes": 3000, "cpu_ns": 5000000}, "w1": {"sent_bytes": 5000, "cpu_ns": 0}}}]}`,
	} {
		if err := dir.WriteFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Read(string(dir))
	if err != nil {
		t.Fatal(err)
	}
	if r.Values != 1000 || r.InnerSteps != 3 || r.Joins[1] != 500 || r.Environment.Kernel != "6.1" {
		t.Errorf("%+v", r)
	}
	if m := Of(r); m.Wire == nil || *m.Wire != 1 || m.Processor == nil || *m.Processor != 0.005 || m.Length != 0.001 {
		t.Errorf("%+v", m)
	}
	if err := os.Mkdir(dir.Path("stack"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		record.SummaryFile: `{"policy": "stack:gloo", "stack": {"name": "gloo"}}`, filepath.Join("stack", record.ProgramsFile): `{"t_us":1,"type":"clock"}` + "\n",
	} {
		if err := dir.WriteFile(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if r, err = Read(string(dir)); err != nil || len(r.Programs) != 1 || len(r.Uses) != 0 || Of(r).Wire != nil {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Read(t.TempDir()); err == nil {
		t.Error("an empty directory was read")
	}
}
