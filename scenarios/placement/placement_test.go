package placement_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/randscenario"
	"testbed/scenarios"
	"testbed/scenarios/placement"
)

// TestContiguous: no host is without a worker or has more than one more than
// another, the pieces are in order, and what is no worker is at the leader.
func TestContiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randscenario.Draw(t)
		plan, err := s.Plan()
		if err != nil {
			t.Fatal(err)
		}
		hosts := rapid.IntRange(1, len(s.Workers)+2).Draw(t, "hosts")
		of, err := placement.Contiguous(s, plan, hosts)
		if hosts > len(s.Workers) {
			if err == nil {
				t.Fatalf("%d hosts for %d workers", hosts, len(s.Workers))
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		sizes := make([]int, hosts)
		last := 0
		for _, name := range s.WorkerNodes() {
			h := of[plan.Index(name)]
			if h < last {
				t.Fatalf("%s is on host %d, after one on %d", name, h, last)
			}
			last = h
			sizes[h]++
		}
		if slices.Min(sizes) == 0 || slices.Max(sizes)-slices.Min(sizes) > 1 || sizes[0] != slices.Min(sizes) {
			t.Fatalf("pieces of %v", sizes)
		}
		if of[plan.Index(scenarios.Coordinator)] != 0 {
			t.Fatal("the coordinator is not at the leader")
		}
	})
}
