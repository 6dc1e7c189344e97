package state

import (
	"testing"

	"testbed/train"
)

// newTestOuter is the outer state at the start of a run.
func newTestOuter(seed uint64, parameters int) *Outer {
	return newFragments(seed, parameters, 1)
}

// newFragments is one of so many fragments.
func newFragments(seed uint64, parameters, fragments int) *Outer {
	task := train.NewQuadratic(seed, parameters)
	dealt, err := train.Deal(task.Layers(), fragments)
	if err != nil {
		panic(err)
	}
	return NewOuter(task.Start(), train.DiLoCo, dealt, nil)
}

// TestOuterStep compares the outer step with SGD's definition in PyTorch
// (torch.optim.SGD, nesterov=True), in float64.
func TestOuterStep(t *testing.T) {
	m := newTestOuter(3, 1000)
	params, buffer := make([]float64, 1000), make([]float64, 1000)
	for i, o := range m.now.Parameters {
		params[i] = float64(o)
	}
	for step := range 3 {
		gradient := train.NewQuadratic(uint64(step), 1000).Start()
		m.Step(gradient, nil)
		for i, g := range gradient {
			buffer[i] = 0.9*buffer[i] + float64(g)
			params[i] -= 0.7 * (float64(g) + 0.9*buffer[i])
		}
	}
	for i, want := range params {
		if got := float64(m.now.Parameters[i]); got-want > 1e-5 || want-got > 1e-5 {
			t.Fatalf("parameter %d is %v, want %v", i, got, want)
		}
	}
	if steps, _ := m.Version(); steps != 3 {
		t.Errorf("at outer step %d, want 3", steps)
	}
}
