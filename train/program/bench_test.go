//go:build linux

package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// numpyTrainer is the least that a program in Python does: what a step costs
// without computing, and what handing parameters over does.
const numpyTrainer = `
import sys
import numpy as np
import testbed
run = testbed.join()
run.init(np.zeros(int(sys.argv[1]), np.float32))
model = np.zeros(int(sys.argv[1]), np.float32)
for r in run:
    np.copyto(model, r.params)
    for step in r.steps:
        r.done(1.0)
    r.params = model
`

// languages are the programs to measure, of so many parameters.
func languages(b *testing.B, parameters int) map[string]Config {
	b.Helper()
	dir := b.TempDir()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	python, err := filepath.Abs("../python")
	if err != nil {
		b.Fatal(err)
	}
	cfg := Config{Dir: dir, Limit: time.Minute, OwnGroup: true, Log: func(name string) (*os.File, error) {
		return os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	}}
	of := map[string]Config{}
	cfg.Command = []string{exe, fmt.Sprintf("copies %d", parameters)}
	of["go"] = cfg
	if err := exec.Command("/usr/bin/python3", "-c", "import numpy").Run(); err != nil {
		return of
	}
	cfg.Command, cfg.Env = []string{"/usr/bin/python3", "-c", numpyTrainer, fmt.Sprint(parameters)}, []string{"PYTHONPATH=" + python}
	of["numpy"] = cfg
	return of
}

func benchmark(b *testing.B, parameters int, measure func(b *testing.B, tr *trainer, outer []float32)) {
	for name, cfg := range languages(b, parameters) {
		b.Run(name, func(b *testing.B) {
			initial, err := Ask(b.Context(), cfg)
			if err != nil {
				b.Fatal(err)
			}
			task := New(cfg, initial)
			defer task.Close()
			tr, err := task.Trainer(0)
			if err != nil {
				b.Fatal(err)
			}
			measure(b, tr.(*trainer), initial)
		})
	}
}

// BenchmarkStep is an inner step in which nothing is computed.
func BenchmarkStep(b *testing.B) {
	benchmark(b, 1000, func(b *testing.B, tr *trainer, outer []float32) {
		if err := tr.Begin(b.Context(), 1, outer); err != nil {
			b.Fatal(err)
		}
		n := 0
		for b.Loop() {
			n++
			if _, err := tr.Step(b.Context(), n); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRound is 100 MB of parameters there and back, with a step in which
// nothing is computed.
func BenchmarkRound(b *testing.B) {
	const parameters = 25_000_000
	benchmark(b, parameters, func(b *testing.B, tr *trainer, outer []float32) {
		local := make([]float32, parameters)
		n := 0
		for b.Loop() {
			n++
			if err := tr.Begin(b.Context(), n, outer); err != nil {
				b.Fatal(err)
			}
			if _, err := tr.Step(b.Context(), 1); err != nil {
				b.Fatal(err)
			}
			if err := tr.Finish(local); err != nil {
				b.Fatal(err)
			}
			tr.Keep()
		}
		b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(2*b.N), "ms/way")
	})
}
