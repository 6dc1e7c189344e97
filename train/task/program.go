package task

import (
	"errors"
	"time"

	"testbed/policy"
	"testbed/record"
	"testbed/shaping"
	"testbed/train"
)

// External has the section's fields for a program that trains.
type External struct {
	// For `program`, which needs it: the program and its arguments, without a shell. A
	// name with a slash is relative to the scenario's folder. Others are found as by a
	// shell. The program runs in the scenario's folder.
	Program []string `yaml:"program" json:"program,omitempty"`
	// Dir is the folder of the scenario's file.
	Dir string `yaml:"-" json:"dir,omitempty"`
	// For `program`: the real time that the program may take to join, to do an inner
	// step, or to hand over its parameters.
	TimeLimit shaping.Duration `yaml:"time_limit" json:"time_limit,omitzero"`
	// For `program`: the number of tokens that an inner step trains on. Results contain
	// `tokens_seen` and `time_to_loss` unless it is 0.
	Tokens int `yaml:"tokens_per_step" json:"tokens_per_step,omitempty"`
	// Own is the task. The scenario's player sets it, because a scenario starts no
	// program.
	Own train.Task `yaml:"-" json:"-"`
	// Made describes the program, once it has been started.
	Made *record.Trainer `yaml:"-" json:"-"`
}

// DefaultTimeLimit is enough time to import a framework on a busy machine.
const DefaultTimeLimit = time.Minute

// Foreign reports whether a user's own program trains.
func (s *Spec) Foreign() bool { return s != nil && s.Task == Program }

// Limit is how long the program may take to answer.
func (e *External) Limit() time.Duration {
	if e.TimeLimit == 0 {
		return DefaultTimeLimit
	}
	return time.Duration(e.TimeLimit)
}

func (s *Spec) ownTask() (train.Task, func(policy.ID) (train.Trainer, error), error) {
	if s.Own == nil {
		return nil, nil, errors.New("the program of train.program has not been started")
	}
	return s.Own, func(id policy.ID) (train.Trainer, error) { return s.Own.Trainer(int(id)) }, nil
}

// parameters counts a task's parameters.
func parameters(t train.Task) (n int) {
	for _, l := range t.Layers() {
		n += l.Len
	}
	return n
}

// validate checks the fields, for a task of that name.
func (e *External) validate(task string, bad func(field, format string, args ...any) error) error {
	if task != Program {
		for _, f := range []struct {
			field string
			given bool
		}{{"program", e.Program != nil}, {"time_limit", e.TimeLimit != 0}, {"tokens_per_step", e.Tokens != 0}} {
			if f.given {
				return bad(f.field, "applies only to the task %s: remove the field, or choose that task", Program)
			}
		}
		return nil
	}
	switch {
	case len(e.Program) == 0 || e.Program[0] == "":
		return bad("program", "is missing: give the program and its arguments, such as [python3, train.py]")
	case e.Limit() < time.Millisecond || e.Limit() > 24*time.Hour:
		return bad("time_limit", "is %v: it must lie between 1ms and 24h", e.Limit())
	case e.Tokens < 0:
		return bad("tokens_per_step", "is %d: it must not be negative", e.Tokens)
	}
	return nil
}
