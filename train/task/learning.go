// Package task is the section `train` of a scenario: the task of a run's
// workers, its data and its optimisers. The package makes the task for the
// scenario's player, and plays nothing itself.
package task

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"testbed/internal/errs"
	"testbed/policy"
	"testbed/train"
	"testbed/train/charlm"
)

// Spec is the section `train`.
type Spec struct {
	// What is trained: `quadratic`, a stand-in that costs next to nothing; `charlm`, a
	// language model on the bytes of a text; or `program`, your own trainer.
	Task string `yaml:"task" json:"task,omitempty"`
	// For `charlm`: the text, a file in the scenario's folder or below. The default is
	// Persuasion by Jane Austen, 466,854 bytes. The last tenth is for validation, and no
	// worker trains on it.
	Text string `yaml:"text" json:"text,omitempty"`
	// Corpus is the content of Text.
	Corpus []byte `yaml:"-" json:"corpus,omitempty"`
	// For `charlm`: how workers share the text. `iid`: every worker draws from the whole
	// text. `contiguous`: each has a part of its own, so their data differ.
	Split string `yaml:"split" json:"split,omitempty"`
	// For `charlm`: the transformer's shape, which sets the number of parameters.
	Model Model `yaml:"model" json:"model,omitzero"`
	// For `charlm`: the inner optimiser, AdamW.
	Inner Inner `yaml:"inner" json:"inner,omitzero"`
	// The outer optimiser, Nesterov momentum, and what a round exchanges.
	Outer Outer `yaml:"outer" json:"outer,omitzero"`
	// Hierarchical outer steps: most rounds average within a region only.
	Regions *policy.RegionsSpec `yaml:"regions" json:"regions,omitempty"`
	// The number of workers in a replica group of torchft, taken in the order of their
	// ids. They are the group's ranks, each with a part of the stand-in's parameters.
	GroupWorldSize int `yaml:"group_world_size" json:"group_world_size,omitempty"`
	// External has the fields of Program.
	External `yaml:",inline"`
}

// Model is the shape of CharLM's transformer, and what a step trains on. Fields
// that are 0 have their default values.
type Model struct {
	// The number of transformer blocks.
	Layers int `yaml:"layers" json:"layers,omitempty"`
	// The number of values per position.
	Width int `yaml:"width" json:"width,omitempty"`
	// The number of attention heads, which divides `width`.
	Heads int `yaml:"heads" json:"heads,omitempty"`
	// The number of bytes that a prediction sees at most.
	Context int `yaml:"context" json:"context,omitempty"` // tokens
	// The number of windows of `context` bytes in an inner step.
	Batch int `yaml:"batch" json:"batch,omitempty"` // sequences
}

// Inner is CharLM's inner optimiser, AdamW. Missing fields have their default
// values.
type Inner struct {
	// The learning rate.
	Rate *float64 `yaml:"rate" json:"rate,omitempty"`
	// The weight decay, of matrices only.
	Decay *float64 `yaml:"decay" json:"decay,omitempty"`
	// The number of inner steps over which the rate rises from 0.
	Warmup *int `yaml:"warmup" json:"warmup,omitempty"` // steps
}

// The tasks.
const (
	Quadratic = "quadratic" // a stand-in, for runs in which only time matters
	CharLM    = "charlm"    // a language model on the bytes of a text
	Program   = "program"   // a task of a user's own program
)

// Tasks lists the tasks.
var Tasks = []string{Quadratic, CharLM, Program}

// Real reports whether the task has a training curve worth showing. A nil
// section is the stand-in.
func (s *Spec) Real() bool { return s.model() || s.Foreign() }

// LossUnit is the unit of a task's losses, empty if only the user's program
// knows it.
func (s *Spec) LossUnit() string {
	if s.model() {
		return "nats per byte"
	}
	return ""
}

func (s *Spec) model() bool { return s != nil && s.Task == CharLM }

// config is CharLM's configuration, with missing fields filled in.
func (s *Spec) config() charlm.Config {
	c := charlm.Defaults()
	for to, given := range map[*int]int{
		&c.Layers: s.Model.Layers, &c.Width: s.Model.Width, &c.Heads: s.Model.Heads, &c.Context: s.Model.Context, &c.Batch: s.Model.Batch,
	} {
		if given != 0 {
			*to = given
		}
	}
	for to, given := range map[*float64]*float64{&c.Rate: s.Inner.Rate, &c.Decay: s.Inner.Decay} {
		if given != nil {
			*to = *given
		}
	}
	if s.Inner.Warmup != nil {
		c.Warmup = *s.Inner.Warmup
	}
	return c
}

// Parameters is the number of the model's parameters. It is 0 if the scenario
// chooses it, or a program that has not been asked.
func (s *Spec) Parameters() int {
	switch {
	case s.Foreign() && s.Own != nil:
		return parameters(s.Own)
	case !s.model():
		return 0
	}
	c := s.config()
	if c.Validate() != nil { // there may be too many layers to count
		return 0
	}
	return c.Parameters()
}

// TokensPerStep is the number of tokens of an inner step; 0 if there are none.
func (s *Spec) TokensPerStep() int {
	switch {
	case s.Foreign():
		return s.Tokens
	case !s.model():
		return 0
	}
	c := s.config()
	return c.Batch * c.Context
}

// NewTask makes the task of the workers with these ids. It accepts a nil
// section. parameters is the stand-in's number of parameters, of which a rank
// has its part. The returned function is train.Task.Trainer by id.
func (s *Spec) NewTask(seed uint64, ids []policy.ID, parameters int) (train.Task, func(policy.ID) (train.Trainer, error), error) {
	if s.Foreign() {
		return s.ownTask()
	}
	if !s.Real() {
		task := train.NewQuadratic(seed, s.Shard(parameters))
		return task, func(id policy.ID) (train.Trainer, error) { return task.Trainer(int(id)) }, nil
	}
	text := s.Corpus
	if s.Text == "" {
		text = charlm.Text()
	}
	split := charlm.IID
	if s.Split != "" {
		split = charlm.Split(s.Split)
	}
	task, err := charlm.New(s.config(), seed, text, len(ids), split)
	if err != nil {
		return nil, nil, fmt.Errorf("making the model: %w", err)
	}
	ids = slices.Sorted(slices.Values(ids))
	return task, func(id policy.ID) (train.Trainer, error) {
		shard, ok := slices.BinarySearch(ids, id)
		if !ok {
			return nil, fmt.Errorf("worker %d has no shard of the text", id)
		}
		return task.Trainer(shard)
	}, nil
}

// Validate checks everything except the text. The error joins *errs.FieldErrors
// with the path of the field in the section.
func (s *Spec) Validate() error {
	if s.Task != "" && !slices.Contains(Tasks, s.Task) {
		return errs.Fieldf("task", "%q is not a task; choose one of %s", s.Task, strings.Join(Tasks, ", "))
	}
	return errors.Join(s.Outer.validate(errs.Fieldf), s.External.validate(s.Task, errs.Fieldf), s.validateModel())
}

// validateModel checks the fields of a model.
func (s *Spec) validateModel() error {
	bad := errs.Fieldf
	if !s.model() {
		for _, f := range []struct {
			field string
			given bool
		}{{"text", s.Text != ""}, {"split", s.Split != ""}, {"model", s.Model != Model{}}, {"inner", s.Inner != Inner{}}} {
			if f.given {
				return bad(f.field, "applies only to the task %s: remove the field, or choose that task", CharLM)
			}
		}
		return nil
	}
	if s.Split != "" && charlm.Split(s.Split) != charlm.IID && charlm.Split(s.Split) != charlm.Contiguous {
		return bad("split", "%q is not a way to split a text; choose %s or %s", s.Split, charlm.IID, charlm.Contiguous)
	}
	if err := s.config().Validate(); err != nil {
		field, mend, _ := strings.Cut(err.Error(), " ") // it begins with the field
		for _, in := range []struct {
			section string
			fields  []string
		}{{"model", []string{"layers", "width", "heads", "context", "batch"}}, {"inner", []string{"rate", "decay", "warmup"}}} {
			if slices.Contains(in.fields, field) {
				field = in.section + "." + field
			}
		}
		return bad(field, "%s", mend)
	}
	return nil
}
