package charlm

import (
	"testing"

	"testbed/train/matrix"
)

// BenchmarkStep is an inner step of the default model, on every route. flops
// counts the products alone.
func BenchmarkStep(b *testing.B) {
	c := Defaults()
	task := newTask(b, c, 1, 1)
	routes := matrix.Routes()
	defer matrix.Use(routes[len(routes)-1])
	for _, route := range routes {
		b.Run(route, func(b *testing.B) {
			if err := matrix.Use(route); err != nil {
				b.Fatal(err)
			}
			tr := newTrainer(b, task, 0)
			if err := tr.Begin(b.Context(), 0, task.Start()); err != nil {
				b.Fatal(err)
			}
			n := 0
			for b.Loop() {
				n++
				if _, err := tr.Step(b.Context(), n); err != nil {
					b.Fatal(err)
				}
			}
			perSecond := float64(b.N) / b.Elapsed().Seconds()
			// Two operations for each weight and byte forward, twice as many backward;
			// attention has two products of the context, the head too.
			perByte := 6 * (12*c.Layers*c.Width*c.Width + 2*c.Layers*c.Context*c.Width + c.Width*vocabulary)
			b.ReportMetric(perSecond*float64(task.TokensPerStep()), "tokens/s")
			b.ReportMetric(perSecond*float64(perByte*task.TokensPerStep())/1e9, "GFLOP/s")
		})
	}
}

// BenchmarkValidate is a validation of the default model.
func BenchmarkValidate(b *testing.B) {
	task := newTask(b, Defaults(), 1, 1)
	start := task.Start()
	for b.Loop() {
		validation(task, start)
	}
}
