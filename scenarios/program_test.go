package scenarios_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/scenarios"
)

const withProgram = `
seed: 3
workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}]
inner_steps: 2
target_outer_steps: 3
horizon: 1000000
heartbeat_period: 1000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
`

func loadProgram(t *testing.T, text string) (*scenarios.Scenario, string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(file, []byte(withProgram+text), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := scenarios.Load(file)
	return s, filepath.Dir(file), err
}

// TestProgramOfTheUsersOwn: where it lies is known, and how large it is only if the
// file says so; a copy of the file says neither.
func TestProgramOfTheUsersOwn(t *testing.T) {
	s, dir, err := loadProgram(t, "train: {task: program, program: [python3, train.py], time_limit: 5s, tokens_per_step: 8}\n")
	if err != nil {
		t.Fatal(err)
	}
	if !s.Unasked() || !s.Train.Foreign() || !s.Train.Real() || s.Train.Dir != dir || !s.Real.Measured(s.Train) || s.Train.TokensPerStep() != 8 || s.Train.Limit().Seconds() != 5 {
		t.Errorf("%+v, %d parameters", s.Train, s.Real.Parameters)
	}
	if _, _, err := s.Train.NewTask(s.Seed, s.IDs(), s.Real.Parameters); err == nil {
		t.Error("it trains, though nobody has started it")
	}
	text, err := s.Text()
	if err != nil || strings.Contains(string(text), dir) {
		t.Errorf("%v: %s", err, text)
	}
	again, err := scenarios.Parse("own.json", text)
	if err != nil || !again.Unasked() {
		t.Error(err)
	}
	for set, unasked := range map[string]bool{"seed=4": true, "real.parameters=7": false} {
		field, value, _ := strings.Cut(set, "=")
		one, err := scenarios.NewSetting(field, value)
		if err != nil {
			t.Fatal(err)
		}
		if changed, err := s.With(one); err != nil || changed.Unasked() != unasked || changed.Train.Dir != dir {
			t.Errorf("%s: %v", set, err)
		}
	}
	planned, _, err := loadProgram(t, "train: {task: program, program: [./train]}\nreal: {compute: planned, parameters: 10}\n")
	if err != nil || planned.Unasked() || planned.Real.Measured(planned.Train) || planned.Train.Limit().Seconds() != 60 {
		t.Error(err)
	}
}

func TestProgramBadInput(t *testing.T) {
	for text, want := range map[string]string{
		"train: {task: program}":                                    "train.program is missing",
		"train: {task: program, program: []}":                       "train.program is missing",
		`train: {task: program, program: [""]}`:                     "train.program is missing",
		"train: {program: [a]}":                                     "train.program applies only to the task program",
		"train: {task: charlm, time_limit: 3s}":                     "train.time_limit applies only to the task program",
		"train: {task: charlm, tokens_per_step: 3}":                 "train.tokens_per_step applies only to the task program",
		"train: {task: program, program: [a], tokens_per_step: -1}": "train.tokens_per_step is -1",
		"train: {task: program, program: [a], time_limit: 1us}":     "train.time_limit is 1µs",
		"train: {task: program, program: [a], model: {width: 3}}":   "train.model applies only to the task charlm",
		"train: {task: program, program: a}":                        "must be a list",
		"real: {parameters: 0}":                                     "real.parameters is 0",
		"train: {task: program, program: [a], own: 3}":              "unknown field",
		"train: {task: program, program: [a], dir: x}":              "unknown field",
	} {
		if _, _, err := loadProgram(t, text+"\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
