//go:build linux

package realrun

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testbed/node/host/emulation"
	"testing"

	"testbed/runlog"
)

// TestStoreCheckpoint: a checkpoint is kept with the one before, and what is of
// earlier steps goes.
func TestStoreCheckpoint(t *testing.T) {
	dir := t.TempDir()
	memory, err := emulation.NewMemory("w0")
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

// TestClaim: a run is claimed once, and keeps its name.
func TestClaim(t *testing.T) {
	dir := runlog.Dir(t.TempDir())
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
	dir := runlog.Dir(t.TempDir())
	whole := `{"t_us":0,"type":"run_start","run":{"schema":1}}` + "\n" + `{"t_us":5,"type":"join","node":"w0"}` + "\n"
	for text, want := range map[string]string{
		whole:             whole,
		whole + `{"t_us"`: whole,
		"":                "killed before it began",
		`{"t_us":0,"ty`:   "killed before it began",
	} {
		if err := os.WriteFile(dir.Path(runlog.EventsFile), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		r := &recorder{}
		r.dir = dir
		events, err := r.reopenRecord()
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if left, err := os.ReadFile(dir.Path(runlog.EventsFile)); string(left) != want || err != nil || len(events) != 2 {
			t.Errorf("%q: left %q, %s, %v", text, left, fmt.Sprint(len(events)), err)
		}
	}
}
