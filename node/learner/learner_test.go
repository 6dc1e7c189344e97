package learner

import (
	"context"
	"slices"
	"testing"

	"testbed/node/state"
	"testbed/train"
)

// TestLearner: on threads of their own or not, the inner steps lead to what the
// trainer says, and the loss is that of the outer state when it was asked for.
func TestLearner(t *testing.T) {
	const parameters = 500
	task := train.NewQuadratic(3, parameters)
	var first []float32
	for _, long := range []bool{false, true} {
		trainer, err := task.Trainer(1)
		if err != nil {
			t.Fatal(err)
		}
		outer := state.NewOuter(task.Start(), train.DiLoCo)
		l := New(task, trainer, outer, long)
		gradient := make([]float32, parameters)
		for round := 1; round <= 3; round++ {
			for step := 1; step <= 4; step++ {
				if loss, _, err := l.Step(t.Context(), round, step); err != nil || loss <= 0 {
					t.Fatalf("round %d, step %d: loss %v, %v", round, step, loss, err)
				}
			}
			if err := l.Finish(gradient); err != nil {
				t.Fatal(err)
			}
			l.Keep()
			before, want := l.Loss(), 0.0
			outer.Read(func(p []float32) { want = task.Validate(p) })
			outer.Step(gradient, nil)
			if got := before(); got != want || got == l.Loss()() {
				t.Errorf("round %d: loss %v, want %v, then %v", round, got, want, l.Loss()())
			}
		}
		if first == nil {
			first = slices.Clone(gradient)
		} else if !slices.Equal(first, gradient) {
			t.Error("a thread of its own computes something else")
		}
		if _, _, err := l.Step(t.Context(), 4, 2); err == nil {
			t.Error("a round begins with its second step")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := l.Step(ctx, 4, 1); err == nil {
			t.Error("a step is taken for nobody")
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
