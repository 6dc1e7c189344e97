package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"testbed/estimate"
	"testbed/experiment"
	"testbed/experiment/sweep"
	"testbed/internal/errs"
	"testbed/report"
	"testbed/report/estimates"
	"testbed/report/picture"
	"testbed/report/programs"
	"testbed/report/runs"
	"testbed/report/sweeps"
	"testbed/report/timeline"
)

func reportCommand() *cobra.Command {
	var out, trace, drawn, what string
	var loss float64
	cmd := &cobra.Command{
		Use: "report DIR…", Short: "Write a report of runs as one HTML file, a picture or a trace",
		Long: `Writes a report of the runs in the directories: of a comparison, or of runs of
one scenario. The report is one HTML file that needs no network: which workers
were slow, what the policy did and why, what it gained, and whether to trust it.
If DIR has no predictions of the simulator, the command simulates them now.

For the directory that testbed launch or net wrote with --out, the report shows
what every node did, its traffic and processor time, the injects, and the marks
of programs.

For the directory of a sweep, the report shows the effect of the fields: curves
of one field, heat maps of more, and which policy is faster where. For a file
printed by testbed estimate --json, the command writes the page of testbed
estimate --html.

Where a model was trained, the loss comes first. --loss chooses the target loss:
a policy's time ends when the loss reaches it.

--trace also writes a trace of a single run, for ui.perfetto.dev and
chrome://tracing.

--picture also draws the runs. Where a model was trained, the picture shows the
losses, as an SVG or PDF file, for a paper. Otherwise the picture shows what every
worker did, with the runs one below the other, as an SVG file. --draw chooses
between the two pictures.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errs.Usagef("name the directory of a run or a comparison, for example %s runs/…", cmd.CommandPath())
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "the HTML file to write (default report.html in the first DIR)")
	cmd.Flags().StringVar(&trace, "trace", "", "write a trace of the run to this file, too")
	cmd.Flags().StringVar(&drawn, "picture", "", "draw the runs to this file, too, .svg or .pdf")
	cmd.Flags().StringVar(&what, "draw", "auto", "with --picture, what to draw: loss, lanes (what every worker did), or auto")
	lossFlag(cmd, &loss, "the --loss of testbed compare, or the final loss of the first policy")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if drawn != "" && (slices.ContainsFunc(args, sweep.Is) || slices.ContainsFunc(args, isFile)) {
			return errs.Usagef("--picture draws runs only, not a sweep or an estimate; remove it")
		}
		if slices.ContainsFunc(args, sweep.Is) {
			return reportSweep(cmd, args, out, trace)
		}
		if slices.ContainsFunc(args, isFile) {
			return reportEstimate(cmd, args, out, trace)
		}
		if slices.ContainsFunc(args, programs.Is) {
			return reportPrograms(cmd, args, out, trace, drawn)
		}
		if !validLoss(loss) {
			return wrongLoss(loss)
		}
		rec, err := runs.Read(args...)
		if err != nil {
			return err
		}
		if loss > 0 {
			rec.Target = loss
		}
		draw, err := pictureOf(cmd, drawn, what, rec)
		if err != nil {
			return err
		}
		for _, also := range []struct {
			file  string
			write func(io.Writer, *runs.Record) error
		}{{trace, timeline.WriteTrace}, {drawn, draw}} {
			if also.file == "" {
				continue
			}
			if err := writeFile(also.file, func(w io.Writer) error { return also.write(w, rec) }); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), also.file)
		}
		if err := experiment.Predict(rec); err != nil {
			return err
		}
		if out == "" {
			out = filepath.Join(args[0], "report.html")
		}
		if err := writeFile(out, func(w io.Writer) error { return report.WriteHTML(w, rec) }); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), out)
		return nil
	}
	return cmd
}

// pictureOf returns the function that draws the runs to a file; nil without
// one.
func pictureOf(cmd *cobra.Command, file, what string, rec *runs.Record) (func(io.Writer, *runs.Record) error, error) {
	format := picture.Format(strings.TrimPrefix(strings.ToLower(filepath.Ext(file)), "."))
	switch trained := picture.Trained(rec); {
	case file == "" && cmd.Flags().Changed("draw"):
		return nil, errs.Usagef("--draw applies only with --picture; add --picture FILE")
	case file == "":
		return nil, nil
	case what != "auto" && what != "loss" && what != "lanes":
		return nil, errs.Usagef("--draw %s: choose loss, lanes or auto", what)
	case what == "loss" && !trained:
		return nil, errs.Usagef("--draw loss: not every policy has a run with losses; choose lanes")
	case what == "lanes" || !trained:
		if format == picture.PDF {
			return nil, errs.Usagef("--picture %s: only losses are drawn as PDF; name an SVG file", file)
		}
		return picture.Write, nil
	}
	if format != picture.PDF {
		format = picture.SVG
	}
	return func(out io.Writer, rec *runs.Record) error { return picture.WriteLosses(out, rec, format) }, nil
}

// reportSweep writes the page of a sweep.
func reportSweep(cmd *cobra.Command, args []string, out, trace string) error {
	switch {
	case len(args) > 1:
		return errs.Usagef("name one directory of a sweep, and no other directory; make a report for each sweep")
	case trace != "":
		return errs.Usagef("--trace needs a single run; name one of the runs of a real sweep, in its folder points/")
	}
	r, err := sweep.Read(args[0])
	if err != nil {
		return err
	}
	if out == "" {
		out = filepath.Join(args[0], "report.html")
	}
	if err := writeFile(out, func(w io.Writer) error { return sweeps.WriteHTML(w, r) }); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), out)
	return nil
}

// reportPrograms writes the page of a user's own programs, and a trace.
func reportPrograms(cmd *cobra.Command, args []string, out, trace, drawn string) error {
	switch {
	case len(args) > 1:
		return errs.Usagef("name one directory of testbed launch or net, and no other directory; make a report for each one")
	case drawn != "":
		return errs.Usagef("--picture draws runs only, not programs of testbed launch or net; remove it")
	}
	rec, err := programs.Read(args[0])
	if err != nil {
		return err
	}
	if out == "" {
		out = filepath.Join(args[0], "report.html")
	}
	for _, page := range []struct {
		file  string
		write func(io.Writer, *programs.Record) error
	}{{trace, programs.WriteTrace}, {out, programs.WriteHTML}} {
		if page.file == "" {
			continue
		}
		if err := writeFile(page.file, func(w io.Writer) error { return page.write(w, rec) }); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), page.file)
	}
	return nil
}

// isFile reports whether an argument names a file: runs and sweeps are
// directories.
func isFile(name string) bool {
	about, err := os.Stat(name)
	return err == nil && about.Mode().IsRegular()
}

// reportEstimate writes the page of an estimate.
func reportEstimate(cmd *cobra.Command, args []string, out, trace string) error {
	switch {
	case len(args) > 1:
		return errs.Usagef("a report shows one estimate, but %d files are named; make a report for each file of testbed estimate --json", len(args))
	case trace != "":
		return errs.Usagef("--trace needs a run, and an estimate contains none; remove it")
	}
	s, err := estimates.Read(args[0])
	if err != nil {
		return errs.Usage(err)
	}
	if out == "" {
		out = strings.TrimSuffix(args[0], filepath.Ext(args[0])) + ".html"
	}
	return writeEstimate(cmd, out, s)
}

// writeEstimate writes the page of a sweep of estimates, and prints its name.
func writeEstimate(cmd *cobra.Command, out string, s *estimate.Sweep) error {
	if err := writeFile(out, func(w io.Writer) error { return estimates.WriteHTML(w, s) }); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), out)
	return nil
}

// writeFile writes a file, and leaves no incomplete one behind.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, errs.Cause(err))
	}
	err = write(f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(name)
		return fmt.Errorf("writing %s: %w", name, errs.Cause(err))
	}
	return nil
}
