package sweep_test

import (
	"context"
	"testing"

	"testbed/experiment"
	"testbed/experiment/sweep"
	"testbed/record"
	"testbed/scenarios"
)

func simulate(_ context.Context, s *scenarios.Scenario, _ string, pt sweep.Point) (record.Summary, error) {
	return experiment.OnChurn(s, pt.Policy, nil)
}

// BenchmarkPoint plays points of 64 workers and 100 rounds on one core, each
// with another scenario.
func BenchmarkPoint(b *testing.B) {
	p := plan(b, "homogeneous", "workers.count=64", "target_outer_steps=100", "workers[*].inner_step_jitter=100,200")
	p.Seeds = make([]uint64, b.N/4+1)
	for i := range p.Seeds {
		p.Seeds[i] = uint64(i)
	}
	keys := p.Keys()
	b.ResetTimer()
	n := 0
	err := p.Play(b.Context(), 1, keys[:b.N], nil, simulate, func(sweep.Row) error { n++; return nil })
	if err != nil || n != b.N {
		b.Fatalf("%d points: %v", n, err)
	}
}

// BenchmarkCell makes the scenario of a cell of 64 workers.
func BenchmarkCell(b *testing.B) {
	for name, axis := range map[string]string{"links as they were": "policy.straggler.k=2", "other links": "real.links.default.loss=1%"} {
		b.Run(name, func(b *testing.B) {
			p := plan(b, "homogeneous", "workers.count=64")
			s, err := p.Scenario.With(p.Cells[0]...)
			if err != nil {
				b.Fatal(err)
			}
			set := plan(b, "homogeneous", axis).Cells[0]
			for b.Loop() {
				if _, err := s.With(set...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
