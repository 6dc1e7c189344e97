package train

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"
)

func trainer(t *testing.T, task Task, worker int) Trainer {
	t.Helper()
	tr, err := task.Trainer(worker)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// round takes the steps of a round, and returns the local parameters and the
// last step's loss.
func round(t *testing.T, tr Trainer, number, steps int, outer []float32) (local []float32, loss float64) {
	t.Helper()
	if err := tr.Begin(t.Context(), number, outer); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= steps; n++ {
		var err error
		if loss, err = tr.Step(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	local = make([]float32, len(outer))
	if err := tr.Finish(local); err != nil {
		t.Fatal(err)
	}
	return local, loss
}

// TestQuadraticKeepsItsBits: they are those of runs recorded before.
func TestQuadraticKeepsItsBits(t *testing.T) {
	task := NewQuadratic(3, 1000)
	h := sha256.New()
	for worker := range 2 {
		local, _ := round(t, trainer(t, task, worker), 0, 3, task.Start())
		binary.Write(h, binary.LittleEndian, local)
		binary.Write(h, binary.LittleEndian, validation(task, local))
	}
	const want = "15c40d31ea41e6a233abd9b20be60fea6fde0b24839e0257aff353fcc9e93546"
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("parameters and loss hash to %s, want %s", got, want)
	}
}

func TestQuadraticLearns(t *testing.T) {
	task := NewQuadratic(5, 10_000)
	outer := task.Start()
	a, first := round(t, trainer(t, task, 0), 0, 1, outer)
	b, _ := round(t, trainer(t, task, 1), 0, 1, outer)
	if slices.Equal(a, b) {
		t.Error("two workers with different data made the same step")
	}
	far, later := round(t, trainer(t, task, 0), 0, 20, outer)
	if later >= first/100 {
		t.Errorf("the training loss went from %v to %v in 20 steps, want a hundredth", first, later)
	}
	// A worker's own target is 0.3 away from the optimum, as the root of the mean
	// square.
	if at := validation(task, far); math.Abs(at-0.09) > 0.01 {
		t.Errorf("a worker alone comes to a validation loss of %v, want 0.09", at)
	}
	if slices.Equal(NewQuadratic(6, 10_000).Start(), outer) {
		t.Error("two seeds give the same start")
	}
}

func TestQuadraticForgetsWhatWasNotFinished(t *testing.T) {
	task := NewQuadratic(7, 100)
	tr := trainer(t, task, 0)
	want, _ := round(t, trainer(t, task, 0), 4, 2, task.Start())
	if err := tr.Begin(t.Context(), 3, task.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Step(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if got, _ := round(t, tr, 4, 2, task.Start()); !slices.Equal(got, want) {
		t.Error("steps of a round that was not finished left a trace")
	}
}

func TestLayersCoverTheParameters(t *testing.T) {
	at := 0
	for _, l := range NewQuadratic(1, 1234).Layers() {
		if l.At != at {
			t.Errorf("layer %s begins at %d, want %d", l.Name, l.At, at)
		}
		at += l.Len
	}
	if at != 1234 {
		t.Errorf("layers have %d parameters, want 1234", at)
	}
}

// TestCallsOutOfOrder: each gets an error that says what was asked and what
// would have been right.
func TestCallsOutOfOrder(t *testing.T) {
	ctx := t.Context()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	task := NewQuadratic(1, 10)
	begun := func() Trainer {
		tr := trainer(t, task, 0)
		if err := tr.Begin(ctx, 7, task.Start()); err != nil {
			t.Fatal(err)
		}
		return tr
	}
	step := func(tr Trainer, ctx context.Context, n int) error {
		_, err := tr.Step(ctx, n)
		return err
	}
	_, negative := task.Trainer(-1)
	for want, err := range map[string]error{
		"workers count from 0":                                      negative,
		"beginning round 2: 9 outer parameters":                     trainer(t, task, 0).Begin(ctx, 2, make([]float32, 9)),
		"asked for inner step 1 before a round began":               step(trainer(t, task, 0), ctx, 1),
		"asked for inner step 2 of round 7, but the next step is 1": step(begun(), ctx, 2),
		"asked to end a round before a round began":                 trainer(t, task, 0).Finish(make([]float32, 10)),
		"ending round 7: there is room for 11 local":                begun().Finish(make([]float32, 11)),
		"it has no state, but 3 bytes":                              begun().Restore(make([]byte, 3)),
		"context canceled":                                          begun().Begin(cancelled, 8, task.Start()),
		"canceled":                                                  step(begun(), cancelled, 1),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	tr := begun()
	if err := tr.Restore(nil); err != nil {
		t.Fatal(err)
	}
	if err := step(tr, ctx, 1); err == nil {
		t.Error("a round goes on after the state was restored")
	}
}

// validation is the validation loss, which these tasks have.
func validation(task Task, parameters []float32) float64 {
	l, err := task.Validate(parameters)
	if err != nil {
		panic(err)
	}
	return l
}
