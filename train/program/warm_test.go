//go:build linux

package program

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// counting has a configuration count the processes that are started.
func counting(t *testing.T, how string, warm *Warm) (cfg Config, started func() int) {
	cfg = configure(t, how)
	cfg.Warm = warm
	n := 0
	cfg.Log = func(name string) (*os.File, error) {
		n++
		return os.Create(filepath.Join(cfg.Dir, fmt.Sprintf("%s.%d.log", name, n)))
	}
	return cfg, func() int { return n }
}

// run plays a run of two workers, of which the second is left out in the middle of a
// round, and returns all that comes of it.
func run(t *testing.T, cfg Config) (all []any) {
	t.Helper()
	initial, err := Ask(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	task := New(cfg, initial)
	defer task.Close()
	for worker := range 2 {
		tr, err := task.Trainer(worker)
		if err != nil {
			t.Fatal(err)
		}
		outer := task.Start()
		for n := range 2 {
			local, losses, err := round(tr, n+1, cfg.InnerSteps, outer)
			if err != nil {
				t.Fatal(err)
			}
			tr.Keep()
			state, err := tr.State()
			if err != nil {
				t.Fatal(err)
			}
			outer = local
			all = append(all, slices.Clone(local), losses, slices.Clone(state))
		}
		if worker == 1 {
			if err := tr.Begin(t.Context(), 3, outer); err != nil {
				t.Fatal(err)
			}
			if _, err := tr.Step(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			if err := tr.Close(); err != nil {
				t.Fatal(err)
			}
		}
		loss, err := task.Validate(outer)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, loss)
	}
	return all
}

// TestWarm: a program that can train for one run after another is started once for each
// process that a run has at a time, and each run is as it is in new processes.
func TestWarm(t *testing.T) {
	warm := &Warm{}
	cfg, started := counting(t, "again, well", warm)
	cold, afresh := counting(t, "well", warm)
	for n := range 4 {
		cfg.InnerSteps, cfg.Seed = 2+n%2, uint64(n)
		cold.InnerSteps, cold.Seed = cfg.InnerSteps, cfg.Seed
		got, want := run(t, cfg), run(t, cold)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("run %d:\n%v\nin new processes:\n%v", n, got, want)
		}
		if started() != 3 { // two workers and the validator; one of them was asked first
			t.Errorf("after run %d %d processes have been started", n, started())
		}
		if afresh() != 4*(n+1) {
			t.Errorf("of the program that does not say so %d processes have been started after run %d", afresh(), n)
		}
	}
	warm.Close()
	expectNone(t, cfg.Command[0], "again, well")
	run(t, cfg)
	expectNone(t, cfg.Command[0], "again, well") // after Close none is kept
}

// TestWarmMakesRoom: a process that has died while it waited, or needs another memory, is
// no failure of the run.
func TestWarmMakesRoom(t *testing.T) {
	warm := &Warm{}
	defer warm.Close()
	cfg, started := counting(t, "again, well", warm)
	run(t, cfg)
	for _, p := range warm.idle {
		if err := p.command.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	run(t, cfg)
	if started() != 6 || len(warm.idle) != 3 {
		t.Errorf("%d processes have been started, %d wait", started(), len(warm.idle))
	}
	cfg, started = counting(t, "again, a size of its own", warm)
	for _, size := range []int{4, 4, 7, 40_000} { // of which three fit into the same pages
		cfg.Seed = uint64(size)
		initial, err := Ask(t.Context(), cfg)
		if err != nil || len(initial) != size {
			t.Fatalf("%v, %v, want %d parameters", initial, err, size)
		}
	}
	if started() != 2 {
		t.Errorf("%d processes have been started for two lengths of the memory", started())
	}
}

// TestWarmFailures: what goes wrong in a later run is the error that it is in the first,
// and the process is not kept.
func TestWarmFailures(t *testing.T) {
	warm := &Warm{}
	defer warm.Close()
	cfg, _ := counting(t, "again, fall silent at round 2", warm)
	cfg.Limit = 5 * time.Second // enough for its start, on a busy machine
	initial, err := Ask(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	task := New(cfg, initial)
	defer task.Close()
	tr := trainerOf(t, task, 1)
	if _, _, err := round(tr, 1, 2, initial); err != nil {
		t.Fatal(err)
	}
	if _, _, err := round(tr, 2, 2, initial); err == nil || !strings.Contains(err.Error(), "(w1) has not sent the loss of the inner step") {
		t.Error(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(warm.idle); n != 0 {
		t.Errorf("%d processes are kept", n)
	}
}
