//go:build linux

package emulation

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/emulation/network"
	"testbed/internal/lines"
	"testbed/node"
	"testbed/node/state"
	"testbed/policy"
	"testbed/record"
	"testbed/train"
)

// TestStoreCheckpoint: a checkpoint is kept with the one before, and what is of
// earlier steps goes.
func TestStoreCheckpoint(t *testing.T) {
	dir := t.TempDir()
	memory, err := network.NewMemory("w0")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	store := func(name string) {
		t.Helper()
		if _, err := memory.WriteAt([]byte("state of "+name), 0); err != nil {
			t.Fatal(err)
		}
		if err := storeCheckpoint(dir, name, memory); err != nil {
			t.Fatal(err)
		}
		if left, err := io.ReadAll(io.NewSectionReader(memory, 0, 1)); len(left) > 0 || err != nil {
			t.Errorf("memory still holds it, %v", err)
		}
	}
	for steps := 2; steps <= 10; steps += 2 {
		store(checkpointName(steps))
		store(residualName(steps, "w0"))
	}
	store(residualName(6, "w1")) // late
	entries, err := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := "outer-10.checkpoint outer-10.w0.residual outer-8.checkpoint outer-8.w0.residual"
	if got := strings.Join(names, " "); got != want || err != nil {
		t.Errorf("kept %s, want %s; %v", got, want, err)
	}
	if steps, err := checkpoints(dir); !slices.Equal(steps, []int{8, 10}) || err != nil {
		t.Errorf("%v, %v", steps, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, checkpointName(10))); string(text) != "state of outer-10.checkpoint" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// TestLastCheckpoint: a run goes on from the last checkpoint beside which lies what is
// the own of all that took part, else from the last one that is whole.
func TestLastCheckpoint(t *testing.T) {
	s := load(t, "homogeneous")
	s.Parameters, s.Reduction.ErrorFeedback = 10, true
	const run, steps = "run", 3
	for name, c := range map[string]struct {
		own     map[int][]policy.ID // kept beside the checkpoint of w1, which has its own
		took    map[int][]policy.ID
		damaged int
		want    int
	}{
		"all is there":                 {own: map[int][]policy.ID{2: {0, 2}, 3: {0, 2}}, want: 3},
		"killed before the last":       {own: map[int][]policy.ID{2: {0, 2}, 3: {0}}, want: 2},
		"who took no part keeps none":  {own: map[int][]policy.ID{2: {0, 2}, 3: {0}}, took: map[int][]policy.ID{3: {0, 1}}, want: 3},
		"neither has all":              {own: map[int][]policy.ID{2: {2}, 3: {0}}, want: 3},
		"neither, and one damaged":     {own: map[int][]policy.ID{2: {2}, 3: {0}}, damaged: 3, want: 2},
		"the one that has all damaged": {own: map[int][]policy.ID{2: {0, 2}, 3: {0}}, damaged: 2, want: 3},
	} {
		r := &recorder{dir: record.Dir(t.TempDir())}
		r.spec.Scenario, r.spec.Name, r.spec.Resume = s, run, &node.Resume{Holders: []policy.ID{0, 1, 2}}
		if err := os.Mkdir(r.dir.Path(resumeDir), 0o755); err != nil {
			t.Fatal(err)
		}
		outer := state.NewOuter(make([]float32, 10), train.DiLoCo, s.Train.Exchange(s.InnerSteps, s.Parameters).Fragments, nil)
		led := map[int]record.Event{}
		for step := 1; step <= steps; step++ {
			outer.Step(make([]float32, 10), nil)
			led[step] = record.Event{Hash: outer.Hash(), Participants: c.took[step]}
			store := func(name string, saving state.Saving) {
				var b strings.Builder
				_, err := outer.Checkpoint(saving)(&b)
				text := b.String()
				if step == c.damaged {
					text = text[:len(text)-1]
				}
				if err = errors.Join(err, os.WriteFile(r.dir.Path(filepath.Join(resumeDir, name)), []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			own := state.Own{Residual: make([]float32, 10)}
			if step > steps-keptCheckpoints {
				store(checkpointName(step), state.Saving{Run: run, Of: 1, Own: own})
			}
			for _, id := range c.own[step] {
				store(residualName(step, id.Node()), state.Saving{Run: run, Of: id, Own: own, Stateless: true})
			}
		}
		got, err := r.lastCheckpoint(led)
		if err != nil || got.OuterSteps != c.want || got.Hash != led[c.want].Hash {
			t.Errorf("%s: goes on from %+v, want outer step %d; %v", name, got, c.want, err)
		}
		left, err := checkpoints(r.dir.Path(resumeDir))
		if err != nil || len(left) == 0 || left[len(left)-1] != c.want {
			t.Errorf("%s: %v are left, and the run will come to other states after %d; %v", name, left, c.want, err)
		}
		if own, err := filepath.Glob(r.dir.Path(filepath.Join(resumeDir, "outer-3.*.residual"))); (len(own) > 0) != (c.want == 3) || err != nil {
			t.Errorf("%s: %v are left; %v", name, own, err)
		}
	}
}

// TestClaim: a run is claimed once, and keeps its name.
func TestClaim(t *testing.T) {
	dir := record.Dir(t.TempDir())
	name, lock, err := claim(dir)
	if err != nil || name == "" {
		t.Fatalf("%q, %v", name, err)
	}
	if _, _, err := claim(dir); err == nil || !strings.Contains(err.Error(), "still going on") {
		t.Errorf("claimed twice: %v", err)
	}
	lock.Close()
	again, lock, err := claim(dir)
	if err != nil || again != name {
		t.Fatalf("%q, was %q, %v", again, name, err)
	}
	lock.Close()
}

// TestReopenRecord: a last line that was cut off goes.
func TestReopenRecord(t *testing.T) {
	dir := record.Dir(t.TempDir())
	whole := `{"t_us":0,"type":"run_start","run":{"schema":1}}` + "\n" + `{"t_us":5,"type":"join","node":"w0"}` + "\n"
	for text, want := range map[string]string{
		whole:             whole,
		whole + `{"t_us"`: whole,
		"":                "", // a run that was killed before it began begins anew
		`{"t_us":0,"ty`:   "",
	} {
		if err := os.WriteFile(dir.Path(record.EventsFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		r := &recorder{}
		r.dir = dir
		events, err := r.reopenRecord()
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		file, err := lines.Append(dir.Path(record.EventsFile)) // as the recorder goes on
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		if left, err := os.ReadFile(dir.Path(record.EventsFile)); string(left) != want || err != nil || len(events) != strings.Count(want, "\n") {
			t.Errorf("%q: left %q, %s, %v", text, left, fmt.Sprint(len(events)), err)
		}
	}
}
