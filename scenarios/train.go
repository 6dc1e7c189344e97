package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"testbed/internal/errs"
	"testbed/policy"
	"testbed/train"
	"testbed/train/task"
)

// How long inner steps take: their planned durations, whatever is computed
// meanwhile, or the time of computing.
const (
	ComputePlanned  = "planned" // the default, except for a user's own program
	ComputeMeasured = "measured"
)

// IDs are the workers' ids, in their order.
func (s *Scenario) IDs() []policy.ID {
	ids := make([]policy.ID, len(s.Workers))
	for i, w := range s.Workers {
		ids[i] = w.ID
	}
	return ids
}

// Exchange determines the part of the parameters that a round exchanges.
func (s *Scenario) Exchange() *train.Exchange {
	return s.Train.Exchange(s.InnerSteps, s.Real.Parameters)
}

// Grouping determines which workers reduce together in which round; nil: always
// all.
func (s *Scenario) Grouping() *policy.Grouping {
	if !s.Train.Apart() {
		return nil
	}
	return s.Train.Rule(s.IDs(), s.Real.Links.GroupOf(s.WorkerNodes()))
}

// validateRegions checks the groups that reduce separately, once the links are
// valid.
func (p *parser) validateRegions(s *Scenario) error {
	if !s.Train.Apart() {
		return nil
	}
	run := task.Size{Rounds: s.TargetOuterSteps, Parameters: s.Real.Parameters, Uploads: s.Real.Upload.Every}
	if bad, ok := errors.AsType[*errs.FieldError](s.Train.ValidateApart(s.IDs(), s.Real.Links.GroupOf(s.WorkerNodes()), run)); ok {
		return p.fail("train."+bad.Field, bad.Problem)
	}
	return nil
}

// Measured reports whether inner steps take as long as computing takes.
func (r *Real) Measured(t *task.Spec) bool {
	return r.Compute == ComputeMeasured || r.Compute == "" && t.Foreign()
}

// Unasked reports whether the number of parameters is known only to a user's
// own program, which has not been asked.
func (s *Scenario) Unasked() bool { return s.Real.Parameters == 0 && s.Train.Foreign() }

// Sized returns a copy of the scenario with the number of parameters that its
// program has. Every error is an *Error.
func (s *Scenario) Sized(parameters int) (*Scenario, error) {
	if n := s.Real.Parameters; n != parameters && !s.Unasked() {
		return nil, &Error{File: s.Name, Field: "real.parameters", Problem: fmt.Sprintf("is %d, but the program has %d parameters: correct or remove real.parameters, or correct the program", n, parameters)}
	}
	set, err := NewSetting("real.parameters", strconv.Itoa(parameters))
	if err != nil {
		return nil, err
	}
	return s.With(set)
}

// FindProgram returns the path of the program that trains. Every error is an *Error.
func (s *Scenario) FindProgram() (path string, err error) {
	name := s.Train.Program[0]
	if strings.ContainsRune(name, filepath.Separator) && !filepath.IsAbs(name) {
		name = filepath.Join(s.Train.Dir, name)
	}
	if path, err = exec.LookPath(name); err != nil {
		if failed, is := errors.AsType[*exec.Error](err); is {
			err = errs.Cause(failed.Err) // without the name
		}
		return "", &Error{File: s.Name, Field: "train.program", Problem: fmt.Sprintf(
			"the program %q cannot be started: %v; install it, or write its path from the scenario's folder, %s", s.Train.Program[0], err, s.Train.Dir)}
	}
	return path, nil
}

// notGiven stands for a number of parameters that the file does not give.
const notGiven = math.MinInt

// fillParameters takes the number of parameters from the trained model.
func (p *parser) fillParameters(s *Scenario) error {
	own, given := s.Train.Parameters(), s.Real.Parameters
	if own != 0 && given != notGiven && given != own {
		return p.fail("real.parameters", fmt.Sprintf("is %d, but the model of the section train has %d parameters: remove real.parameters", given, own))
	}
	switch {
	case given == notGiven && own == 0 && s.Train.Foreign():
		s.Real.Parameters = 0 // only the program knows
	case given == notGiven:
		s.Real.Parameters = cmp.Or(own, DefaultParameters)
	}
	return nil
}

// validateTrain checks the section `train`, and reads the file it names.
func (p *parser) validateTrain(s *Scenario) {
	if c := s.Real.Compute; c != "" && c != ComputePlanned && c != ComputeMeasured {
		p.note(p.fail("real.compute", fmt.Sprintf("is %q: choose %s or %s", c, ComputePlanned, ComputeMeasured)))
	}
	if s.Train == nil || !p.sound("train") {
		return
	}
	p.noteFields("train.", s.Train.Validate())
	if !p.sound("train", "inner_steps", "real.parameters", "policy.staleness_weight") {
		return
	}
	p.noteFields("train.", s.Train.ValidateRounds(s.InnerSteps, s.Real.Parameters, s.Policy.StalenessWeight))
	s.Train.Corpus = nil
	if s.Train.Text != "" {
		text, err := p.named(s, "train.text", "text", s.Train.Text)
		p.note(err)
		s.Train.Corpus = text
	}
	if !s.Train.Real() || s.Train.Foreign() || !p.sound("train", "workers", "seed") {
		return
	}
	if _, _, err := s.Train.NewTask(s.Seed, s.IDs(), s.Real.Parameters); err != nil {
		p.note(p.fail("train", err.Error()))
	}
}
