package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"testbed/allreduce/bench"
	"testbed/experiment/calibrate"
	"testbed/record"
	"testbed/report"
	"testbed/report/words"
	"testbed/scenarios"
	"testbed/scenarios/convert"
)

// CalibrationFile is the calibration's name in the directory of its runs.
const CalibrationFile = "calibration.json"

// Calibration determines what to measure, and what to write.
type Calibration struct {
	Dir string // of all new runs and the result; created
	// Experiments are the experiments to run. If there are none, the scenarios of
	// Rewrite are run under Policy.
	Experiments []calibrate.Experiment
	Policy      string
	Repeat      int // of each run, at least 1
	// Retries is how often a run whose result may not be used is repeated. The
	// last attempt is kept as it is.
	Retries int
	// Real makes the runs, unless those in Refit are fitted. Without a Dir, the
	// result of a refit goes to the folder of its runs, if they share one.
	Real  Real
	Refit []string
	// Rewrite are scenarios to write calibrated copies of.
	Rewrite []Source
	// Whole is set by Plan: all experiments are run here, so that all costs are
	// measured, and the result becomes this machine's AutoCalibration.
	Whole bool
}

// Source is a scenario with its text, and the format of its copy.
type Source struct {
	Scenario *scenarios.Scenario
	File     string
	Text     []byte
	To       convert.Format
	// Lost lists what the copy does not hold, as convert.Text does.
	Lost []string
}

// ReadSources reads scenarios that are to be copied in a format; empty: each in
// the format of its own file. names are those of files or of the library. A
// refusal is a *scenarios.Error.
func ReadSources(names []string, to convert.Format) (all []Source, err error) {
	for _, name := range names {
		found, err := scenarios.Find(name)
		if err != nil {
			return nil, err
		}
		one := Source{File: found.File, Text: found.Text, To: cmp.Or(to, convert.FormatOf(found.Text))}
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

// Plan determines what to run, or to fit again, and to rewrite. names are
// scenarios and, in a refit, further directories. only names experiments;
// without scenarios, none means all of them. A refusal is a *scenarios.Error.
func (o *Calibration) Plan(names, only []string, to convert.Format) (err error) {
	switch {
	case o.Repeat < 1:
		return &scenarios.Error{Field: "--repeat", Problem: fmt.Sprintf("is %d: it must be at least 1", o.Repeat)}
	case o.Retries < 0:
		return &scenarios.Error{Field: "--retries", Problem: fmt.Sprintf("is %d: it must not be negative", o.Retries)}
	}
	if len(o.Refit) > 0 {
		names = slices.DeleteFunc(names, func(name string) bool {
			at, err := os.Stat(name)
			further := err == nil && at.IsDir()
			if further {
				o.Refit = append(o.Refit, name)
			}
			return further
		})
	}
	if o.Rewrite, err = ReadSources(names, to); err != nil {
		return err
	}
	for _, s := range o.Rewrite {
		if err := CheckPolicies(s.Scenario, []string{o.Policy}); err != nil {
			return err
		}
	}
	if len(names) > 0 && len(only) == 0 {
		for _, s := range o.Rewrite {
			if err := calibrate.Fits(s.Scenario); err != nil && len(o.Refit) == 0 {
				return &scenarios.Error{File: s.File, Problem: err.Error() + "; remove that field"}
			}
		}
		return nil
	}
	o.Whole = len(o.Refit) == 0 && len(only) == 0
	if o.Experiments, err = calibrate.Named(only); err != nil {
		err = &scenarios.Error{Field: "--only", Problem: err.Error()}
	}
	return err
}

// Calibrate measures and fits, and writes the result and the calibrated
// scenarios into the directory. files are their paths, the result's first.
func Calibrate(ctx context.Context, o Calibration) (c *calibrate.Calibration, files []string, err error) {
	fail := func(err error) (*calibrate.Calibration, []string, error) { return nil, nil, err }
	from := o.Refit
	var dir record.Dir
	if len(from) == 0 {
		if dir, err = o.makeDir(); err != nil {
			return fail(err)
		}
		from = []string{string(dir)}
		if err := o.measure(ctx, dir); err != nil {
			if errors.Is(err, errors.ErrUnsupported) { // nothing has run
				err = errors.Join(err, os.RemoveAll(string(dir)))
			}
			return fail(err)
		}
	}
	runs, err := calibrate.ReadRuns(from...)
	if err != nil {
		return fail(err)
	}
	if c, err = calibrate.Fit(runs); err != nil {
		return fail(err)
	}
	c.Made, c.Versions = time.Now().Format(time.RFC3339), versions()
	switch {
	case len(o.Refit) == 0:
		c.Machine = thisMachine()
	case len(o.Refit) == 1 && o.Dir == "":
		dir = record.Dir(o.Refit[0])
		if before, err := calibrate.Load(dir.Path(CalibrationFile)); err == nil {
			c.Versions = before.Versions // of those runs
			if c.Machine == (calibrate.Machine{}) {
				c.Machine = before.Machine
			}
		}
	default:
		if dir, err = o.makeDir(); err != nil {
			return fail(err)
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
			return fail(err)
		}
		c.Scenarios, files = append(c.Scenarios, prices), append(files, dir.Path(name))
	}
	if err := dir.WriteJSON(CalibrationFile, c); err != nil || !o.Whole {
		return c, files, err
	}
	return c, files, makeLatest(c)
}

// makeDir makes the directory for the result.
func (o *Calibration) makeDir() (record.Dir, error) {
	if o.Dir == "" {
		var err error
		if o.Dir, err = DefaultDir("calibrate", "machine"); err != nil {
			return "", err
		}
	}
	return record.CreateDir(o.Dir)
}

// thisMachine describes this machine for a calibration.
func thisMachine() calibrate.Machine {
	m := bench.ThisMachine()
	return calibrate.Machine{Processor: m.Processor, Cores: m.Cores, Kernel: m.Kernel, Go: m.Go}
}

// WriteCalibration writes where the files of a calibration are, and its result
// in three lines. With details it writes all tables before. whole is that of its
// experiments.
func WriteCalibration(out io.Writer, c *calibrate.Calibration, files []string, whole, details bool) error {
	if details {
		if err := c.WriteText(out); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "calibration: %s\n", files[0])
	for _, file := range files[1:] {
		fmt.Fprintf(out, "calibrated scenario: %s\n", file)
	}
	use := words.Quote(files[0])
	if whole {
		use = AutoCalibration
	}
	_, err := fmt.Fprintf(out, "this machine adds %.3g ms to a round: %.3g ms to an inner step, 2 × %.3g ms to messages, %.3g ms to a reduction%s\n%s\nuse the calibration: testbed simulate SCENARIO --policy straggler --network links --calibration %s\n",
		c.AddedPerRound(), c.Costs.Step.Value, c.Costs.Message.Value, c.Costs.Reduce.Value, untold(c), heldOut(c), use)
	return err
}

// untold says how many costs and shapes of steps the runs do not determine.
func untold(c *calibrate.Calibration) string {
	if len(c.Untold) == 0 {
		return ""
	}
	return fmt.Sprintf(" (values that the runs do not determine: %d, listed by -v)", len(c.Untold))
}

// heldOut says how large the simulator's error is on runs that it was not
// fitted to.
func heldOut(c *calibrate.Calibration) string {
	e := c.HeldOut
	if e == nil {
		return "error on held-out runs: unknown, because it needs valid runs of at least two scenarios or policies"
	}
	text := fmt.Sprintf("error on held-out runs: %.1f %% (median of %s", 100*e.Median, words.Count(e.N, "run"))
	if i := e.Interval; i != nil {
		text += fmt.Sprintf("; %.3g %% interval: %.1f to %.1f %%", 100*i.Level, 100*i.Low, 100*i.High)
	}
	return text + ")"
}

// AutoCalibration stands for the file of the latest whole calibration that the user
// has made on this machine.
const AutoCalibration = "auto"

// latestCalibration is that file's folder, the same for all directories of runs.
func latestCalibration() (record.Dir, error) {
	config, err := os.UserConfigDir()
	return record.Dir(filepath.Join(config, "testbed")), err
}

// makeLatest makes the calibration the latest one of this machine.
func makeLatest(c *calibrate.Calibration) error {
	dir, err := latestCalibration()
	if err == nil {
		err = errors.Join(os.MkdirAll(string(dir), 0o755), dir.WriteJSON(CalibrationFile, c))
	}
	if err != nil {
		return fmt.Errorf("saving the calibration for --calibration %s: %w", AutoCalibration, err)
	}
	return nil
}

// LoadCalibration reads a calibration for use on this machine. foreign lists
// the differences between this machine and the calibration's, a line each. A
// calibration of another machine is an error if the file is AutoCalibration.
func LoadCalibration(file string) (c *calibrate.Calibration, foreign []string, err error) {
	auto := file == AutoCalibration
	if auto {
		dir, err := latestCalibration()
		if err != nil {
			return nil, nil, fmt.Errorf("looking for the latest calibration: %w; name a file with --calibration", err)
		}
		file = dir.Path(CalibrationFile)
	}
	c, err = calibrate.Load(file)
	switch {
	case auto && errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("this machine has no calibration yet (there is no file %s): run testbed calibrate, which takes two minutes", file)
	case err != nil:
		return nil, nil, err
	}
	differs := c.Machine.Differs(thisMachine())
	if auto && len(differs) > 0 {
		return nil, nil, fmt.Errorf("the latest calibration, %s, was made with %s: run testbed calibrate on this machine, or use that calibration anyway with --calibration %[1]s", file, strings.Join(differs, ", and "))
	}
	for _, line := range differs {
		foreign = append(foreign, "the calibration was made with "+line+"; its costs may not hold on this machine, so run testbed calibrate")
	}
	return c, foreign, nil
}

// OtherLinks reports, in words, if a comparison has run on another backend of
// links than the calibration.
func OtherLinks(c *calibrate.Calibration, of *report.Comparison) []string {
	for _, sum := range of.Real {
		if c.Links != "" && sum.Links != c.Links {
			return []string{fmt.Sprintf("the calibration was made on %s links, but the runs used %s links; calibrate with --links %s", c.Links, sum.Links, sum.Links)}
		}
	}
	return nil
}

// runs are the runs to make, each in a directory of its name.
func (o *Calibration) runs() (all []Run, err error) {
	for _, e := range o.Experiments {
		r := Run{File: e.Name + ".yaml", Source: e.Source, Policy: e.Policy, Dir: e.Name}
		if r.Scenario, err = scenarios.Parse(r.File, r.Source); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		for _, s := range o.Rewrite {
			all = append(all, Run{Scenario: s.Scenario, File: s.File, Source: s.Text, Policy: o.Policy, Dir: s.Scenario.Name})
		}
	}
	return all, nil
}

// measure makes the runs, each into a directory of its own.
func (o *Calibration) measure(ctx context.Context, dir record.Dir) error {
	all, err := o.runs()
	if err != nil {
		return err
	}
	began := time.Now()
	for n := range o.Repeat {
		for k, r := range all {
			name := r.Dir
			if n > 0 {
				name = fmt.Sprintf("%s-%d", name, n+1)
			}
			r.Dir = dir.Path(name)
			done, of := n*len(all)+k, o.Repeat*len(all)
			r.Title = fmt.Sprintf("run %d of %d: %s", done+1, of, name)
			if took := time.Since(began) / time.Duration(max(done, 1)); done > 0 && took >= time.Second {
				r.Title += fmt.Sprintf(", about %v left", (took * time.Duration(of-done)).Round(time.Second))
			}
			if err := o.Real.retried(ctx, o.Retries, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// retried plays a run until its result may be used, with at most retries
// repetitions.
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
		r.Title = "  the run is repeated: " + invalid.Reason
		if err := os.RemoveAll(r.Dir); err != nil {
			return fmt.Errorf("removing an invalid run: %w", err)
		}
	}
}

// versions are the versions that a calibration depends on.
func versions() map[string]string {
	v := map[string]string{}
	if r := record.Revision(); r != "" {
		v["vcs.revision"] = r
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/quic-go/quic-go" {
			v["quic-go"] = m.Version
		}
	}
	return v
}
