package scenarios

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"testbed/policy"
	"testbed/train"
)

// How long inner steps take: as planned, whatever is computed meanwhile, or as
// long as computing takes.
const (
	ComputePlanned  = "planned" // if nothing is said
	ComputeMeasured = "measured"
)

// Learning makes what the workers train, and the inner optimiser of one of them.
func (s *Scenario) Learning(id policy.ID) (train.Task, train.Trainer, error) {
	task, trainer, err := s.task()
	if err != nil {
		return nil, nil, err
	}
	t, err := trainer(id)
	return task, t, err
}

func (s *Scenario) task() (train.Task, func(policy.ID) (train.Trainer, error), error) {
	ids := make([]policy.ID, len(s.Workers))
	for i, w := range s.Workers {
		ids[i] = w.ID
	}
	return s.Train.NewTask(s.Seed, ids, s.Real.Parameters)
}

// WorkersKeep says whether each worker has something beside the outer state that
// all share: what quantisation has taken, or the state of its optimiser.
func (s *Scenario) WorkersKeep() bool { return s.Real.AllReduce.Feedback() || s.Train.Real() }

// notGiven stands for a number of parameters that the file lacks.
const notGiven = math.MinInt

// fillParameters takes the number of parameters from what is trained.
func (p *parser) fillParameters(s *Scenario) error {
	own, given := s.Train.Parameters(), s.Real.Parameters
	if own != 0 && given != notGiven && given != own {
		return p.fail("real.parameters", fmt.Sprintf("is %d, but the model of the section train has %d; remove it", given, own))
	}
	if given == notGiven {
		s.Real.Parameters = cmp.Or(own, DefaultParameters)
	}
	return nil
}

// validateTrain looks at the section `train`, and reads the file it names.
func (p *parser) validateTrain(s *Scenario) error {
	if c := s.Real.Compute; c != "" && c != ComputePlanned && c != ComputeMeasured {
		return p.fail("real.compute", fmt.Sprintf("is %q; choose %s or %s", c, ComputePlanned, ComputeMeasured))
	}
	if s.Train == nil {
		return nil
	}
	if bad, ok := errors.AsType[*policy.FieldError](s.Train.Validate()); ok {
		return p.fail("train."+bad.Field, bad.Mend)
	}
	s.Train.Corpus = nil
	if s.Train.Text != "" {
		text, err := p.named(s, "train.text", "text", s.Train.Text)
		if err != nil {
			return err
		}
		s.Train.Corpus = text
	}
	if !s.Train.Real() {
		return nil
	}
	if _, _, err := s.task(); err != nil {
		return p.fail("train", err.Error())
	}
	return nil
}
