package scenarios

import (
	"errors"
	"fmt"
	"slices"

	"testbed/train/work"
)

// validateWork checks the section `work`, and reads the file it names.
func (p *parser) validateWork(s *Scenario) {
	if s.Work == nil || !p.sound("work") {
		return
	}
	if err := s.Work.Validate(); err != nil {
		p.noteFields("work.", err)
		return
	}
	for i, c := range s.Work.Classes {
		if len(c.IDs) == 0 {
			p.note(p.fail(fmt.Sprintf("work.classes[%d].ids", i), "is empty: name the workers of the class, or remove the class"))
		}
		for k, id := range c.IDs {
			if _, known := p.workers[id]; !known {
				p.note(p.worker(s, fmt.Sprintf("work.classes[%d].ids[%d]", i, k), id))
			}
		}
	}
	steps := &s.Work.Steps
	for i, w := range s.Workers {
		if w.InnerStepJitter > 0 && !steps.TakesJitter() {
			p.note(p.fail(fmt.Sprintf("workers[%d].inner_step_jitter", i), fmt.Sprintf("is %d, but work.steps says how steps vary (%s): remove inner_step_jitter or work.steps", w.InnerStepJitter, steps)))
		}
	}
	steps.Ratios = nil
	if steps.File == "" {
		return
	}
	text, err := p.named(s, "work.steps.file", "trace", steps.File)
	if err == nil {
		steps.Ratios, err = work.ParseDurations(text)
	}
	if bad, ok := errors.AsType[*work.TraceError](err); ok {
		err = p.inNamed("work.steps.file", steps.File, bad.Line, bad.Problem)
	}
	p.note(err)
}

// crowdClasses returns the section with its classes for the first n workers and
// for copies of the workers in turn, as crowd makes them. Classes without
// workers are removed.
func crowdClasses(spec *work.Spec, before, after []Worker) *work.Spec {
	if spec == nil {
		return nil
	}
	c := *spec
	c.Classes = nil
	for _, class := range spec.Classes {
		ids := class.IDs
		class.IDs = nil
		for i, w := range after {
			if slices.Contains(ids, before[i%len(before)].ID) {
				class.IDs = append(class.IDs, w.ID)
			}
		}
		if len(class.IDs) > 0 {
			c.Classes = append(c.Classes, class)
		}
	}
	return &c
}
