package program_test

import (
	"testing"

	"testbed/experiment"
	"testbed/policy/program"
	"testbed/record"
	"testbed/scenarios"
)

// BenchmarkAnswers simulates a scenario under policies in Python: how many answers they
// give in a second, the simulator's own time included.
func BenchmarkAnswers(b *testing.B) {
	needPython(b)
	for _, scenario := range []string{"persistent_straggler", "lognormal_16", "spot_fleet"} {
		s, err := scenarios.Load(scenario)
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range twins {
			b.Run(scenario+"/"+name, func(b *testing.B) {
				spec, answers := twin(b, s, "testdata", name), 0
				for b.Loop() {
					before := program.Asked()
					if _, err := experiment.OnChurn(s, spec, func(record.Event) {}); err != nil {
						b.Fatal(err)
					}
					answers += program.Asked() - before
				}
				b.ReportMetric(float64(answers)/b.Elapsed().Seconds(), "answers/s")
			})
		}
	}
}
