package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"testbed/estimate"
	"testbed/estimate/emulated"
	"testbed/experiment/calibrate"
	"testbed/record"
	"testbed/report"
	"testbed/scenarios"
)

// EmulationFile is the result's name in the directory of an emulation.
const EmulationFile = "emulation.json"

// Emulation determines which estimated run to play in small.
type Emulation struct {
	Run         estimate.Run
	Calibration *calibrate.Calibration // of this machine, or nil
	Seed        uint64                 // the first one
	Repeat      int                    // number of seeds, at least 1
	Dir         string
	Real        Real // nil: it is only simulated
}

// Emulate scales an estimated run down, plays the small run, and compares the
// estimates with it. A run that cannot be scaled down is refused with an
// *errs.FieldError. With an *InvalidError there may be a result, with other
// errors there is none.
func Emulate(ctx context.Context, o Emulation) (*emulated.Result, error) {
	small, err := emulated.Shrink(o.Run)
	if err != nil {
		return nil, err
	}
	s, text, err := small.Scenario(o.Seed)
	if err != nil {
		return nil, err
	}
	links, err := NewSimulator(NetworkLinks, o.Calibration)
	if err != nil {
		return nil, err
	}
	c, failed := Compare(ctx, Comparison{
		Run:      Run{Scenario: s, File: emulated.Name + ".yaml", Source: text, Dir: o.Dir},
		Policies: []string{scenarios.Baseline}, Repeat: o.Repeat, Real: o.Real, Links: links,
	})
	switch {
	case failed == nil || isInvalid(failed):
	case c != nil:
		return nil, fmt.Errorf("%w; the partial record is in %s", failed, c.Dir)
	default:
		return nil, failed
	}
	var m *estimate.Measurements
	if o.Calibration != nil {
		m = Measurements(o.Calibration)
		// Here all nodes share the processors that were calibrated.
		m.ReduceByte = o.Calibration.SimCosts().ReduceByte / 1e9
	}
	r, err := emulated.Judge(small, m, baselines(c.SimLinks, c.SimLinksRepeats), baselines(c.Real, c.Repeats))
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	r.Dir = c.Dir
	dir := record.Dir(c.Dir)
	if err := dir.WriteFile(emulated.Name+".yaml", text); err != nil {
		return nil, err
	}
	if err := dir.WriteJSON(EmulationFile, r); err != nil {
		return nil, err
	}
	return r, failed
}

// baselines are the runs of sets, if there are any.
func baselines(first report.Set, others []report.Set) (all []record.Summary) {
	if first == nil {
		return nil
	}
	for _, set := range slices.Concat([]report.Set{first}, others) {
		all = append(all, set[scenarios.Baseline])
	}
	return all
}

// Measurements are the terms of a calibration for an estimate of nodes that
// have processors of their own.
func Measurements(c *calibrate.Calibration) *estimate.Measurements {
	costs := c.SimCosts()
	m := &estimate.Measurements{Efficiency: costs.Efficiency, Hop: costs.Hop.Seconds(), Reduce: costs.Reduce.Seconds()}
	for _, s := range c.Document.Straggler {
		m.Stragglers = append(m.Stragglers, estimate.Straggler{Sigma: s.Sigma, Coefficient: s.Coefficient.Value})
	}
	return m
}
