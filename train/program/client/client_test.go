//go:build linux

package client_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"testbed/train/program"
	"testbed/train/program/wire"
)

// TestMain makes the test binary the example's program where testbed has started it.
func TestMain(m *testing.M) {
	if os.Getenv(wire.EnvSocket) == "" {
		os.Exit(m.Run())
	}
	Example()
}

// TestExample plays a round with the program of the example, which godoc shows.
func TestExample(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cfg := program.Config{
		Command: []string{exe}, Dir: dir, Limit: time.Minute, OwnGroup: true, Workers: 2, InnerSteps: 2, Rounds: 1, Seed: 9,
		Log: func(name string) (*os.File, error) { return os.Create(filepath.Join(dir, name+".log")) },
	}
	initial, err := program.Ask(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	task := program.New(cfg, initial)
	defer task.Close()
	trainer, err := task.Trainer(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := trainer.Begin(t.Context(), 1, task.Start()); err != nil {
		t.Fatal(err)
	}
	var losses []float64
	for step := range 2 {
		loss, err := trainer.Step(t.Context(), step+1)
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, loss)
	}
	local := make([]float32, 1)
	if err := trainer.Finish(local); err != nil {
		t.Fatal(err)
	}
	// From 0 by a quarter of the way to 2, and then by a quarter of what is left.
	if want := []float64{4, 9}; local[0] != 0.875 || !slices.Equal(losses, want) {
		t.Errorf("parameters %v and losses %v, want 0.875 and %v", local, losses, want)
	}
	if loss, err := task.Validate(local); err != nil || loss != 0.125*0.125 {
		t.Errorf("validation loss %v, %v", loss, err)
	}
	if loss, err := task.Validate([]float32{1}); err != nil || loss != 0 {
		t.Errorf("validation loss of its own slope %v, %v", loss, err)
	}
}
