// Package experiment plays scenarios several times and compares the results:
// comparisons of policies, repeats, sweeps, and the runs that a calibration is
// fitted to. The commands call it. It is given the function that plays a run on
// a real network, so its loops can be tested without one.
package experiment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"testbed/record"
	"testbed/report/words"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
)

// Run is a run to be played on a real network.
type Run struct {
	Scenario *scenarios.Scenario
	// File and Source are the scenario's file name and text, for the copy in
	// the run directory.
	File   string
	Source []byte
	Policy string
	Dir    string // the run directory to make
	// Links is the link backend; empty: the player's default.
	Links string
	// Title identifies this run among many for a person; it may be empty.
	Title string
}

// Real plays a run on a real network. If the machine does not support it, the
// error wraps errors.ErrUnsupported and there is no run directory. After other
// errors the run directory holds a partial record.
type Real func(context.Context, Run) (record.Summary, error)

// InvalidError explains why a result may not be used. Functions that return it
// return the result too.
type InvalidError struct {
	Policy string
	Seed   uint64
	Reason string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("the result under %s with seed %d is not valid: %s", e.Policy, e.Seed, e.Reason)
}

// Usable reports whether the results of real runs may be used. If not, the
// error is an *InvalidError about the first unusable one.
func Usable(results ...record.Summary) error {
	for _, s := range results {
		reason := ""
		switch {
		case len(s.Diverged) > 0:
			reason = fmt.Sprintf("outer step %d was taken twice (split brain)", s.Diverged[0].Round)
		case !s.Complete:
			reason = fmt.Sprintf("the run ended early, after %s", words.Count(s.OuterSteps, "outer step"))
			if s.World == record.Real && s.Fidelity.Verdict == fidelity.Invalid && len(s.Fidelity.Reasons) > 0 {
				reason += ": " + s.Fidelity.Reasons[0]
			}
		case s.BitIdentical != nil && !*s.BitIdentical:
			reason = "workers ended a round with different bytes"
		case s.Fidelity.Verdict == fidelity.Invalid:
			reason = "the emulation did not match its plan (fidelity invalid)"
			if len(s.Fidelity.Reasons) > 0 {
				reason += ": " + s.Fidelity.Reasons[0]
			}
		default:
			continue
		}
		return &InvalidError{s.Policy, s.Seed, reason}
	}
	return nil
}

// DefaultDir makes a run directory named after the run and the time. Its name
// is unique, even among runs of the same second.
func DefaultDir(scenario, what string) (string, error) {
	name := filepath.Join("runs", fmt.Sprintf("%s-%s", folder(scenario+"-", what, ""), time.Now().Format("20060102-150405")))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return "", fmt.Errorf("making the run directory: %w; choose another with --out", err)
	}
	for dir, n := name, 2; ; n++ {
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("making the run directory: %w; choose another with --out", err)
		}
		dir = fmt.Sprintf("%s-%d", name, n)
	}
}

// reseeded returns a run of the scenario with another seed.
func reseeded(r Run, seed uint64) (Run, error) {
	s := *r.Scenario
	s.Seed = seed
	r.Scenario = &s
	return r.rewritten()
}

// rewritten gives the run the text of its scenario, which differs from the text
// that was read.
func (r Run) rewritten() (Run, error) {
	var err error
	r.File = r.Scenario.Name + ".json"
	r.Source, err = r.Scenario.Text()
	return r, err
}

// With returns the run with settings made in its scenario.
func (r Run) With(settings ...scenarios.Setting) (Run, error) {
	var err error
	if r.Scenario, err = r.Scenario.With(settings...); err != nil {
		return Run{}, err
	}
	return r.rewritten()
}

// Dilated returns the run with another dilation (real.dilation).
func (r Run) Dilated(x float64) (Run, error) {
	dilation, err := scenarios.NewSetting("real.dilation", strconv.FormatFloat(x, 'g', -1, 64))
	if err != nil {
		return Run{}, err
	}
	return r.With(dilation)
}

// Rescaled returns the run with another time scale: real time divided by
// scenario time. It changes the scenario.
func (r Run) Rescaled(scale float64) (Run, error) {
	if err := r.Scenario.Rescale(scale); err != nil {
		return Run{}, err
	}
	return r.rewritten()
}
