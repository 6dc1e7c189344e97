//go:build linux

package program

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/internal/testprogram"
	"testbed/train"
	"testbed/train/program/wire"
)

// TestMain lets the test binary be the program, too: its last argument says how
// it behaves.
func TestMain(m *testing.M) {
	if os.Getenv(wire.EnvSocket) == "" {
		os.Exit(m.Run())
	}
	testprogram.Main()
}

const size = 5

func configure(t *testing.T, how string) Config {
	t.Helper()
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{
		Command: []string{exe, how}, Dir: dir, Limit: time.Minute, OwnGroup: true, Workers: 2, InnerSteps: 2, Rounds: 3, Seed: 9,
		Log: func(name string) (*os.File, error) { return os.Create(filepath.Join(dir, name+".log")) },
	}
}

func ask(t *testing.T, cfg Config) *Task {
	t.Helper()
	initial, err := Ask(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	task := New(cfg, initial)
	t.Cleanup(func() { task.Close() })
	return task
}

func trainerOf(t *testing.T, task *Task, worker int) train.Trainer {
	t.Helper()
	tr, err := task.Trainer(worker)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// round plays a round, and returns the local parameters and the losses.
func round(tr train.Trainer, number, steps int, outer []float32) (local []float32, losses []float64, err error) {
	if err := tr.Begin(context.Background(), number, outer); err != nil {
		return nil, nil, err
	}
	for n := range steps {
		loss, err := tr.Step(context.Background(), n+1)
		if err != nil {
			return nil, nil, err
		}
		losses = append(losses, loss)
	}
	local = make([]float32, len(outer))
	return local, losses, tr.Finish(local)
}

// same plays a round that has to be as another one was.
func same(t *testing.T, tr train.Trainer, number int, outer, want []float32) {
	t.Helper()
	local, _, err := round(tr, number, 2, outer)
	if err != nil || !slices.Equal(local, want) {
		t.Errorf("round %d: %v, %v, want %v", number, local, err, want)
	}
}

// TestRounds: what was thrown away leaves no trace, whatever it was; a round that
// was kept begins again from where it did; and another process goes on from a
// state.
func TestRounds(t *testing.T) {
	task := ask(t, configure(t, "well"))
	start := task.Start()
	if !slices.Equal(start, []float32{1, 2, 3, 4, 5}) || task.Layers()[0].Len != size {
		t.Fatalf("it begins with %v, %v", start, task.Layers())
	}
	tr := trainerOf(t, task, 1)
	first, losses, err := round(tr, 1, 2, start)
	if err != nil || !slices.Equal(losses, []float64{2, 4}) {
		t.Fatalf("losses %v, %v", losses, err)
	}
	same(t, tr, 1, start, first) // was not kept
	tr.Keep()
	same(t, tr, 1, start, first) // was
	tr.Keep()
	second, _, err := round(tr, 2, 2, first)
	if err != nil || slices.Equal(first, second) {
		t.Fatal(second, err)
	}
	if _, _, err := round(tr, 2, 1, first); err != nil { // ends early
		t.Fatal(err)
	}
	if err := tr.Begin(t.Context(), 2, first); err != nil { // and at once
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tr.Step(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	same(t, tr, 2, first, second)
	state, err := tr.State()
	if err != nil || len(state) != 4 {
		t.Fatal(state, err)
	}
	other := trainerOf(t, task, 1)
	if err := other.Restore(state); err != nil {
		t.Fatal(err)
	}
	same(t, other, 2, first, second)
	if err := other.Restore(make([]byte, 1<<20)); err == nil {
		t.Error("a state is larger than the program asks for")
	}
	if loss, err := task.Validate([]float32{7, 0, 0, 0, 0}); err != nil || loss != 7 {
		t.Errorf("validation loss %v, %v", loss, err)
	}
	none := ask(t, configure(t, "no loss"))
	trainerOf(t, none, 0)
	if _, err := none.Validate(start); !errors.Is(err, train.ErrNoLoss) {
		t.Error(err)
	}
	if n := len(none.open); n != 1 {
		t.Errorf("%d processes of one worker that cannot validate", n)
	}
}

// TestValidatorBeginsWithTheRun: it is there when its worker is, and no loss is late
// because a framework is still being imported.
func TestValidatorBeginsWithTheRun(t *testing.T) {
	task := ask(t, configure(t, "well"))
	trainerOf(t, task, 1)
	if n := len(task.open); n != 1 {
		t.Errorf("%d processes of a worker that does not validate first", n)
	}
	trainerOf(t, task, 0)
	validator := task.validator
	if loss, err := task.Validate([]float32{7, 0, 0, 0, 0}); err != nil || loss != 7 || len(task.open) != 3 || validator != task.validator {
		t.Errorf("validation loss %v, %v; %d processes of two workers", loss, err, len(task.open))
	}
}

// TestFailures: whatever a program does wrong is one clear error, and the process
// is gone.
func TestFailures(t *testing.T) {
	for how, want := range map[string]string{
		"crash at start":                               "(init) crashed: exit status 7",
		"crash at step 1":                              `(w1) crashed: exit status 7; its last line of output: "now I crash"; fix the error`,
		"are killed at step 2":                         "(w1) crashed: signal: killed",
		"end at step 1":                                "(w1) ended by itself before the end of the run",
		"hang up at step 1":                            "(w1) ",
		"fall silent at step 2":                        "(w1) has not sent the loss of the inner step within 5s; its last line of output",
		"fall silent at end 2":                         "has not sent its parameters within 5s",
		"fall silent at validation":                    "(validation) has not sent a validation loss",
		"flood at step 1":                              `sent a message of type "done", attempt 0 and step 0 instead of the loss of the inner step`,
		"say hello at step 1":                          "sent an invalid message of 5 bytes: the message is not a JSON object",
		`say {"type":"init"} at step 1`:                `sent a message of type "init", attempt 0 and step 0 instead of the loss of the inner step`,
		`say {"type":"step","step":1} at step 1`:       "which programs do not send",
		`say {"type":"done","loss":1,"x":1} at step 1`: "unknown field",
		`say {"type":"join","version":9} at start`:     "version 9",
		`say {"type":"join","version":1,"parameters":2000000000} at start`:               "2000000000 parameters: the number must lie between",
		`say {"type":"join","version":1,"parameters":5,"state_bytes":99999999} at start`: "a state of 99999999 bytes",
		"NaN":          "handed over its parameters with the value NaN at position 3; the training has diverged",
		"NaN at once":  "handed over its initial parameters with the value NaN at position 3; make the program begin with finite parameters",
		"another size": "(w1) joined with 6 parameters, but this run has 5",
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cfg := configure(t, how)
			if strings.HasPrefix(how, "fall") {
				cfg.Limit = 5 * time.Second // enough for its start, on a busy machine
			}
			err := play(t, cfg)
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), cfg.Dir) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v\nwant %s", err, want)
			}
			expectNone(t, cfg.Command[0], how)
		})
	}
}

// play plays three rounds, with a validation.
func play(t *testing.T, cfg Config) error {
	initial, err := Ask(t.Context(), cfg)
	if err != nil {
		return err
	}
	task := New(cfg, initial)
	defer task.Close()
	tr, err := task.Trainer(1)
	if err != nil {
		return err
	}
	defer tr.Close()
	outer := task.Start()
	for n := range 3 {
		if outer, _, err = round(tr, n+1, 2, outer); err != nil {
			return err
		}
		tr.Keep()
		if _, err := task.Validate(outer); err != nil {
			return err
		}
	}
	return nil
}

// expectNone looks for processes of the program that behave like that.
func expectNone(t *testing.T, program, how string) {
	t.Helper()
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		text, _ := os.ReadFile(name)
		if string(text) == program+"\x00"+how+"\x00" {
			t.Errorf("%s is left behind", filepath.Dir(name))
		}
	}
}

func TestMissingProgram(t *testing.T) {
	cfg := configure(t, "")
	cfg.Command = []string{"there-is-none"}
	if _, err := Ask(t.Context(), cfg); !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), `"there-is-none"`) {
		t.Error(err)
	}
}

// TestLimitCountsFromTheLastWord: a program that was slow and said something has all
// of its time again.
func TestLimitCountsFromTheLastWord(t *testing.T) {
	cfg := configure(t, "well")
	task := ask(t, cfg)
	tr := trainerOf(t, task, 0).(*trainer)
	tr.p.waited = cfg.Limit - time.Millisecond
	for n := range 3 {
		if _, _, err := round(tr, n+1, 2, task.Start()); err != nil {
			t.Fatal(err)
		}
		if tr.p.waited > cfg.Limit/2 {
			t.Errorf("it owes nothing, and yet has waited %v", tr.p.waited)
		}
	}
}

// TestHangsAcrossRounds: a program that has hung fails, though its worker is left
// out before its time is over, again and again.
func TestHangsAcrossRounds(t *testing.T) {
	cfg := configure(t, "fall silent at step 1")
	cfg.Limit = 5 * time.Second // enough for its start, on a busy machine
	task := ask(t, cfg)
	tr := trainerOf(t, task, 0)
	begun := time.Now()
	for n := 1; time.Since(begun) < time.Minute; n++ {
		if err := tr.Begin(t.Context(), n, task.Start()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := tr.Step(ctx, 1)
		cancel()
		if err != nil && strings.Contains(err.Error(), "has not sent") {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("round %d: %v", n, err)
		}
	}
	t.Error("it never fails")
}

func TestFinite(t *testing.T) {
	for n := range 20 {
		for at := range n {
			for v, want := range map[float32]bool{
				math.MaxFloat32: true, -math.MaxFloat32: true, 0: true, -1e-45: true, float32(math.Inf(1)): false, float32(math.Inf(-1)): false, float32(math.NaN()): false,
			} {
				values := make([]float32, n+1)[1:] // two values need not lie in one word
				values[at] = v
				if finite(values) != want {
					t.Errorf("%v: %v", values, !want)
				}
			}
		}
	}
}
