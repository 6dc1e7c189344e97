package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"testbed/estimate"
	"testbed/experiment"
	"testbed/experiment/calibrate"
	"testbed/internal/errs"
	"testbed/scenarios"
)

type estimateFlags struct {
	set         []string
	variant     string
	preset      string
	reliability string
	calibration string
	sweep       []string
	list, json  bool
	csv         bool
	html        string
	emulation   emulateFlags
}

func estimateCommand() *cobra.Command {
	var f estimateFlags
	cmd := &cobra.Command{
		Use: "estimate [FILE]", Short: "Estimate the days of a training run, from formulas",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errs.Usagef("name at most one file, for example: %s run.yaml", cmd.CommandPath())
			}
			return nil
		},
		Long: `Estimates how many days a training run takes on nodes that are connected by the
internet, with the formulas of the Decentralized Training Simulator. Nothing is
simulated or measured. docs/estimate.md lists the formulas and their known errors.

FILE is JSON or YAML with the input names and units of the simulator's web page.
Inputs that FILE lacks take the page's defaults:

  testbed estimate run.yaml --set bandwidthMbps=500
  testbed estimate --preset intellect-1-global
  testbed estimate --list                   # published runs, and what was reported

"days" is the time until the loss that synchronous training reaches on these
tokens. "What to change first" lists the inputs of which 1 % saves the most
days, and choices that save days.

--variant page computes as the page does, --variant document as the page's text
says. The two differ by a factor of four where the model needs pipelines.

--calibration FILE (from testbed calibrate) computes the run three times: as the
page, as the document, and with measured terms. It shows the effect of each term,
and adds the inputs nodeSpread, stepSpread, fragments and overlapSteps.

--sweep NAME=V1,V2,… computes the days for each value, and for each combination
if it is given several times:

  testbed estimate --sweep numNodes=16,32,64 --sweep bandwidthMbps=100,1000
  testbed estimate --sweep innerSteps=32,128,512 --calibration calibration.json --csv

--html FILE writes a page with pictures of the sweep (of nodes and bandwidth if
no sweep is given). This page computes the sweep again when an input is moved.

--emulate makes a scenario that is the same run at small scale, with as much
transfer and latency for each second of compute. It plays that scenario as
testbed run does. It compares each variant's estimate with the measured time, and
shows which assumptions held:

  testbed estimate run.yaml --emulate --calibration calibration.json
  testbed estimate run.yaml --emulate --world sim   # simulated, on any system

Exits with 3 if a real run is not valid (see testbed run --help).

--reliability FILE computes the page's reliability model instead: the share of
time that is useful when nodes fail and some are slow.`,
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.set, "set", nil, "NAME=VALUE: give an input another value; may be given several times")
	flags.StringVar(&f.variant, "variant", string(estimate.Page), "formulas to use: page (as the web page computes) or document (as the page's text says)")
	flags.StringVar(&f.preset, "preset", "", "begin with a published run (--list names them)")
	flags.StringVar(&f.calibration, "calibration", "", "calibration.json of testbed calibrate: also compute with measured terms, in a third column")
	flags.StringArrayVar(&f.sweep, "sweep", nil, "NAME=V1,V2,…: vary an input; may be given several times")
	flags.BoolVar(&f.csv, "csv", false, "print a sweep as CSV")
	flags.StringVar(&f.html, "html", "", "write a page of the sweep to this file")
	flags.StringVar(&f.reliability, "reliability", "", "compute the reliability model from this file")
	flags.BoolVar(&f.list, "list", false, "list the published runs, with estimated and reported figures")
	flags.BoolVar(&f.json, "json", false, "print the result as JSON")
	f.emulation.declare(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file := ""
		if len(args) == 1 {
			file = args[0]
		}
		return f.run(cmd, file)
	}
	return cmd
}

func (f *estimateFlags) run(cmd *cobra.Command, file string) error {
	v := estimate.Variant(f.variant)
	chosen := 0
	for _, given := range []bool{file != "", f.preset != "", f.reliability != "", f.list} {
		if given {
			chosen++
		}
	}
	switch {
	case v != estimate.Page && v != estimate.Document:
		return errs.Usagef("--variant %q must be page or document", f.variant)
	case f.calibration != "" && cmd.Flags().Changed("variant"):
		return errs.Usagef("--calibration shows all variants; leave --variant out")
	case (f.calibration != "" || len(f.sweep) > 0 || f.html != "") && (f.reliability != "" || f.list):
		return errs.Usagef("--calibration, --sweep and --html apply only to the estimate of a run: leave --reliability and --list out")
	case f.html != "" && (f.csv || f.json):
		return errs.Usagef("--html cannot be combined with --csv or --json; choose one of them")
	case f.emulation.wanted && (f.reliability != "" || f.list || len(f.sweep) > 0 || f.html != "" || cmd.Flags().Changed("variant")):
		return errs.Usagef("--emulate needs one run, and shows all variants; leave --reliability, --list, --sweep, --html and --variant out")
	case f.csv && len(f.sweep) == 0:
		return errs.Usagef("--csv needs --sweep; add --sweep, or leave --csv out")
	case f.csv && f.json:
		return errs.Usagef("--csv and --json cannot be combined; choose one of them")
	case chosen > 1:
		return errs.Usagef("FILE, --preset, --reliability and --list exclude each other; give only one of them")
	case f.list && len(f.set) > 0:
		return errs.Usagef("--set changes a run, but --list shows the published runs unchanged; leave one of the two out")
	case f.reliability != "":
		return f.printReliability(cmd)
	case f.list && f.json:
		return printJSON(cmd, estimate.Presets(v))
	case f.list:
		return estimate.WritePresets(cmd.OutOrStdout(), estimate.Presets(v))
	}
	if err := f.emulation.check(cmd); err != nil {
		return err
	}
	r, c, err := f.read(cmd, v, file)
	switch {
	case err != nil:
		return err
	case f.emulation.wanted:
		return f.emulation.run(cmd, r, c, f.json)
	}
	var measured *estimate.Measurements
	if c != nil {
		measured = experiment.Measurements(c)
	}
	switch {
	case len(f.sweep) > 0 || f.html != "":
		return f.printSweep(cmd, r, measured)
	case measured != nil && f.json:
		return printJSON(cmd, estimate.Compare(r, *measured))
	case measured != nil:
		return estimate.WriteComparison(cmd.OutOrStdout(), estimate.Compare(r, *measured))
	}
	e := estimate.Explain(r.Inputs, v)
	if f.json {
		return printJSON(cmd, e)
	}
	return estimate.WriteText(cmd.OutOrStdout(), e)
}

// read returns the run, and the calibration if there is one. Without a
// calibration or --emulate a run has no further inputs.
func (f *estimateFlags) read(cmd *cobra.Command, v estimate.Variant, file string) (r estimate.Run, c *calibrate.Calibration, err error) {
	r.Further = estimate.DefaultFurther()
	if r.Inputs, err = f.inputs(v); err != nil {
		return r, nil, err
	}
	if f.calibration == "" {
		if f.emulation.wanted {
			return r, nil, readInputs(file, &r, f.set)
		}
		return r, nil, readInputs(file, &r.Inputs, f.set)
	}
	if c, err = loadCalibration(cmd, f.calibration); err != nil {
		return r, nil, err
	}
	if err := experiment.Measurements(c).Check(); err != nil {
		return r, nil, errs.Usagef("--calibration %s: %w", f.calibration, err)
	}
	return r, c, readInputs(file, &r, f.set)
}

func (f *estimateFlags) printSweep(cmd *cobra.Command, r estimate.Run, measured *estimate.Measurements) error {
	s := &estimate.Sweep{Run: r, Variants: []estimate.Variant{estimate.Variant(f.variant)}, Measured: measured}
	if measured != nil {
		s.Variants = []estimate.Variant{estimate.Page, estimate.Document, estimate.Measured}
	}
	for _, text := range f.sweep {
		axis, err := estimate.ParseAxis(text, func(r *estimate.Run, name, value string) error {
			if measured == nil {
				return scenarios.Assign(&r.Inputs, name, value)
			}
			return scenarios.Assign(r, name, value)
		})
		if err != nil {
			return errs.Usagef("--sweep %w", err)
		}
		s.Axes = append(s.Axes, axis)
	}
	err := s.Check()
	switch {
	case err != nil:
	case f.html != "":
		err = writeEstimate(cmd, f.html, s)
	case f.csv:
		err = s.WriteCSV(cmd.OutOrStdout())
	case f.json:
		var points []estimate.Point
		if points, err = s.Points(); err == nil {
			return printJSON(cmd, struct {
				Inputs       any                    `json:"inputs"`
				Axes         []estimate.Axis        `json:"axes"`
				Points       []estimate.Point       `json:"points"`
				Measurements *estimate.Measurements `json:"measurements,omitempty"`
			}{f.given(r), s.Axes, points, measured})
		}
	default:
		err = s.WriteText(cmd.OutOrStdout())
	}
	if wrong := (*errs.FieldError)(nil); errors.As(err, &wrong) {
		return errs.Usagef("--sweep %w", err)
	}
	return err
}

// given are the inputs of a run: further ones only with --calibration.
func (f *estimateFlags) given(r estimate.Run) any {
	if f.calibration == "" {
		return r.Inputs
	}
	return r
}

// inputs are the initial inputs of a run.
func (f *estimateFlags) inputs(v estimate.Variant) (estimate.Inputs, error) {
	if f.preset == "" {
		return estimate.Defaults(), nil
	}
	var names []string
	for _, p := range estimate.Presets(v) {
		if p.Name == f.preset {
			return p.Inputs, nil
		}
		names = append(names, p.Name)
	}
	return estimate.Inputs{}, errs.Usagef("--preset %s: there is no such preset; choose one of %s", f.preset, strings.Join(names, ", "))
}

func (f *estimateFlags) printReliability(cmd *cobra.Command) error {
	in := estimate.DefaultReliability()
	if err := readInputs(f.reliability, &in, f.set); err != nil {
		return err
	}
	out := estimate.Reliability(in)
	if f.json {
		return printJSON(cmd, struct {
			Inputs  estimate.ReliabilityInputs  `json:"inputs"`
			Outputs estimate.ReliabilityOutputs `json:"outputs"`
		}{in, out})
	}
	return estimate.WriteReliability(cmd.OutOrStdout(), in, out)
}

// readInputs fills the struct that v points to from a file, if there is one,
// and from settings. An impossible value is reported with the line of the file
// unless a setting gave it.
func readInputs(file string, v interface{ Check() error }, settings []string) error {
	at := func(field, problem string) error { return &scenarios.Error{Field: field, Problem: problem} }
	inSetting := map[string]bool{}
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return &scenarios.Error{File: file, Problem: "cannot be read: " + errs.Cause(err).Error()}
		}
		if at, err = scenarios.Decode(file, data, v); err != nil {
			return err
		}
	}
	for _, s := range settings {
		field, value, ok := strings.Cut(s, "=")
		if !ok {
			return errs.Usagef("--set %q must be NAME=VALUE, such as numNodes=16", s)
		}
		if err := scenarios.Assign(v, field, value); err != nil {
			return fmt.Errorf("--set %w", err)
		}
		inSetting[field] = true
	}
	var wrong *errs.FieldError
	switch err := v.Check(); {
	case !errors.As(err, &wrong):
		return err
	case inSetting[wrong.Field]:
		return fmt.Errorf("--set %w", &scenarios.Error{Field: wrong.Field, Problem: wrong.Problem})
	default:
		return at(wrong.Field, wrong.Problem)
	}
}
