package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"testbed/bench"
	"testbed/calibrate"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/scenarios/convert"
)

// CalibrationFile is the calibration's name in the directory of its runs.
const CalibrationFile = "calibration.json"

// Calibration says what to measure, and what to write.
type Calibration struct {
	Dir         string // of all runs and the result
	Experiments []calibrate.Experiment
	Repeat      int // of each experiment, at least 1
	// Retries is how often a run is made again that may not be used. The last
	// one is kept as it is.
	Retries int
	// Real makes the runs. If it is nil, those that are in Dir are fitted again.
	Real Real
	// Rewrite are scenarios of which calibrated copies are written.
	Rewrite []Source
}

// Source is a scenario with its text, and the format of its copy.
type Source struct {
	Scenario *scenarios.Scenario
	Text     []byte
	To       convert.Format
	// Lost is what the copy does not hold, as convert.Text has it.
	Lost []string
}

// ReadSources reads scenarios, by the names of their files or in the library, of
// which there are to be copies in a format; empty: each in that of its own file.
// What it refuses is a *scenarios.Error.
func ReadSources(names []string, to convert.Format) (all []Source, err error) {
	for _, name := range names {
		found, err := scenarios.Find(name)
		if err != nil {
			return nil, err
		}
		one := Source{Text: found.Text, To: cmp.Or(to, convert.FormatOf(found.Text))}
		if one.Scenario, err = found.Parse(); err != nil {
			return nil, err
		}
		if _, one.Lost, err = convert.Text(one.Scenario, one.To); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// Calibrate measures and fits, and writes the result and the calibrated
// scenarios into the directory. files are their paths, the result's first.
func Calibrate(ctx context.Context, o Calibration) (c *calibrate.Calibration, files []string, err error) {
	dir := runlog.Dir(o.Dir)
	if o.Real != nil {
		if dir, err = runlog.CreateDir(o.Dir); err != nil {
			return nil, nil, err
		}
		if err := o.measure(ctx, dir); err != nil {
			if errors.Is(err, errors.ErrUnsupported) { // nothing has run
				err = errors.Join(err, os.RemoveAll(string(dir)))
			}
			return nil, nil, err
		}
	}
	runs, err := calibrate.ReadRuns(string(dir))
	if err != nil {
		return nil, nil, err
	}
	if c, err = calibrate.Fit(runs); err != nil {
		return nil, nil, err
	}
	c.Made, c.Machine, c.Links, c.Versions = time.Now().Format(time.RFC3339), bench.ThisMachine(), runs[0].Summary.Links, versions()
	if o.Real == nil { // the runs may have been made elsewhere
		if before, err := calibrate.Load(dir.Path(CalibrationFile)); err == nil {
			c.Machine, c.Versions = before.Machine, before.Versions
		}
	}
	files = []string{dir.Path(CalibrationFile)}
	for _, s := range o.Rewrite {
		name := s.Scenario.Name + s.To.Extension()
		text, prices, err := c.Rewrite(s.Scenario, s.Text, s.To)
		if err == nil {
			err = errors.Join(dir.WriteNamed(s.Scenario.Traces), dir.WriteFile(name, text))
		}
		if err != nil {
			return nil, nil, err
		}
		c.Scenarios, files = append(c.Scenarios, prices), append(files, dir.Path(name))
	}
	return c, files, dir.WriteJSON(CalibrationFile, c)
}

// measure makes the runs, each into a directory of its own.
func (o *Calibration) measure(ctx context.Context, dir runlog.Dir) error {
	for n := range o.Repeat {
		for k, e := range o.Experiments {
			name := e.Name
			if n > 0 {
				name = fmt.Sprintf("%s-%d", name, n+1)
			}
			s, err := scenarios.Parse(e.Name+".yaml", e.Source)
			if err != nil {
				return err
			}
			err = o.Real.retried(ctx, o.Retries, Run{
				Scenario: s, File: e.Name + ".yaml", Source: e.Source, Policy: e.Policy, Dir: dir.Path(name),
				Title: fmt.Sprintf("%d of %d: %s", n*len(o.Experiments)+k+1, o.Repeat*len(o.Experiments), name),
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// retried plays a run until its result may be used, and so many times more.
func (play Real) retried(ctx context.Context, retries int, r Run) error {
	for ; ; retries-- {
		sum, err := play(ctx, r)
		if err != nil {
			return err
		}
		invalid, ok := errors.AsType[*InvalidError](Usable(sum))
		if !ok || retries == 0 {
			return nil
		}
		r.Title = "  again: " + invalid.Reason
		if err := os.RemoveAll(r.Dir); err != nil {
			return fmt.Errorf("removing an invalid run: %w", err)
		}
	}
}

// versions are what else a calibration depends on.
func versions() map[string]string {
	v := map[string]string{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
			v[s.Key] = s.Value
		}
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/quic-go/quic-go" {
			v["quic-go"] = m.Version
		}
	}
	return v
}
