//go:build linux

package program

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"testbed/internal/lines"
	"testbed/policy"
	"testbed/train/task"
)

// Settings determine how the program of a section is run, by workers that join
// at these times: plain values, the same on every machine.
func Settings(t *task.Spec, seed uint64, innerSteps, rounds int, joins map[policy.ID]policy.Time) Config {
	// The lowest of a reduction's workers validates.
	first := slices.MinFunc(slices.Collect(maps.Keys(joins)), func(a, b policy.ID) int {
		return cmp.Or(cmp.Compare(joins[a], joins[b]), cmp.Compare(a, b))
	})
	return Config{
		Command: t.Program, Dir: t.Dir, Limit: t.Limit(),
		Workers: len(joins), Seed: seed, InnerSteps: innerSteps, Rounds: rounds, Validator: int(first),
	}
}

// Here adds the machine's settings: the place of the Python package, and the
// files for the program's output.
func (c Config) Here(pythonPath string, log func(name string) string) Config {
	if other := os.Getenv("PYTHONPATH"); other != "" {
		pythonPath += string(os.PathListSeparator) + other
	}
	c.Env = []string{"PYTHONPATH=" + pythonPath, "PYTHONUNBUFFERED=1"} // its output before it is killed counts
	if os.Getenv("OMP_NUM_THREADS") == "" {                            // workers share the machine
		c.Env = append(c.Env, "OMP_NUM_THREADS=1")
	}
	c.Log = func(name string) (*os.File, error) {
		return lines.AppendText(log(name))
	}
	return c
}
