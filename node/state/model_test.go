package state

import (
	"slices"
	"testing"
)

// TestOuterStep compares the outer step with SGD's definition in PyTorch
// (torch.optim.SGD, nesterov=True), in float64.
func TestOuterStep(t *testing.T) {
	m := NewModel(3, 0, 1000)
	params, buffer := make([]float64, 1000), make([]float64, 1000)
	for i, o := range m.Outer.now.parameters {
		params[i] = float64(o)
	}
	for step := range 3 {
		gradient := gaussian(9, uint64(step), 1000)
		m.OuterStep(gradient, nil)
		for i, g := range gradient {
			buffer[i] = 0.9*buffer[i] + float64(g)
			params[i] -= 0.7 * (float64(g) + 0.9*buffer[i])
		}
	}
	for i, want := range params {
		if got := float64(m.Outer.now.parameters[i]); got-want > 1e-5 || want-got > 1e-5 {
			t.Fatalf("parameter %d is %v, want %v", i, got, want)
		}
	}
	if steps, _ := m.Outer.Version(); steps != 3 {
		t.Errorf("at outer step %d, want 3", steps)
	}
}

func TestFirstJoinersShareOneState(t *testing.T) {
	a, b := NewModel(5, 0, 1000), NewModel(5, 1, 1000)
	if a.Outer.Hash() != b.Outer.Hash() {
		t.Error("two workers of a run start from different states")
	}
	a.InnerStep()
	b.InnerStep()
	if slices.Equal(a.local, b.local) {
		t.Error("two workers with different data made the same step")
	}
	if c := NewModel(6, 0, 1000); c.Outer.Hash() == a.Outer.Hash() {
		t.Error("two seeds give the same state")
	}
}
