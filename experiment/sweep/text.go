package sweep

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"testbed/internal/stats"
	"testbed/report/learning"
	"testbed/report/words"
)

// maxShown is the number of rows that are printed; all are in the files.
const maxShown = 60

// WriteText writes a sweep as text: a matrix for each figure if two fields
// vary, and otherwise a line per cell.
func WriteText(out io.Writer, s Summary) error {
	fmt.Fprintf(out, "%s, %s: %d of %d points. ", s.Scenario, worldName(s.World), s.Done, s.Points)
	if n := len(s.Seeds) * s.Repeats; n == 1 {
		fmt.Fprint(out, "Each figure is of one run")
	} else {
		fmt.Fprintf(out, "A figure is the median of %d runs", n)
	}
	if len(s.Seeds)*s.Repeats >= stats.LeastRepeats {
		fmt.Fprintf(out, ", with its %.3g %% interval where the seeds change the result", 100*stats.Level(len(s.Seeds)*s.Repeats))
	}
	if fixed := s.Fixed(); len(fixed) > 0 {
		fmt.Fprintf(out, "\nall points have %s", fixed)
	}
	fmt.Fprintln(out, "\n\"=\" marks a speed-up that shows no difference. \"!N\" means that N runs were incomplete and do not count.")
	if s.pairsWork() {
		fmt.Fprintln(out, "The effective wall-clock is the wall-clock divided by the share of work that was not lost.")
	}
	write := writeList
	if f := s.Varied(); len(f) == 2 && len(s.Cells) == len(f[0].Values)*len(f[1].Values) {
		write = writeMatrices
	}
	if err := errors.Join(writeLearning(out, s), write(out, s)); err != nil { // the loss first, if there is one
		return err
	}
	fmt.Fprintf(out, "\nresults: %s\n", s.Dir)
	return nil
}

func worldName(world string) string {
	if world == "sim" {
		return "simulated"
	}
	return "measured"
}

func writeList(out io.Writer, s Summary) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w)
	fields := s.Varied()
	for _, f := range fields {
		fmt.Fprint(w, f.Field, "\t")
	}
	for _, name := range s.Policies {
		fmt.Fprintf(w, "%s µs\t", name)
		if s.loses(name) {
			fmt.Fprint(w, "effective\tlost\t")
		}
	}
	for _, name := range s.Compared() {
		fmt.Fprintf(w, "%s\t", s.speedupTitle(name))
		if s.pairsWork() {
			fmt.Fprint(w, "effective\t")
		}
	}
	rows := len(s.Policies) == 1 && len(s.Cells) > 1
	if rows {
		fmt.Fprint(w, "speed-up over the first row\t")
		if s.pairsWork() {
			fmt.Fprint(w, "effective\t")
		}
	}
	fmt.Fprintln(w)
	for i, c := range s.Cells {
		if i == maxShown {
			break
		}
		writeValues(w, c, fields)
		for _, name := range s.Policies {
			fmt.Fprint(w, c.wall(name), "\t")
			if s.loses(name) {
				fmt.Fprint(w, interval(c.Effective[name]), "\t", percent(c.Lost[name]), "\t")
			}
		}
		for k, name := range s.Compared() {
			fmt.Fprint(w, c.speedup(name), "\t")
			if s.pairsWork() {
				fmt.Fprint(w, ratio(c.Comparisons[k].Effective), "\t")
			}
		}
		if rows {
			of := c.Against[s.Policies[0]] // nothing for the first
			fmt.Fprint(w, ratio(&of.WallClock), "\t")
			if s.pairsWork() {
				fmt.Fprint(w, ratio(of.Effective), "\t")
			}
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if n := len(s.Cells) - maxShown; n > 0 {
		fmt.Fprintf(out, "… and %s\n", words.Count(n, "more row"))
	}
	return nil
}

// writeValues writes a cell's values of the fields.
func writeValues(out io.Writer, c Cell, fields []Axis) {
	for _, f := range fields {
		fmt.Fprint(out, cmp.Or(c.Set.Value(f.Field), "–"), "\t")
	}
}

// writeLearning writes the training results, a line for each cell and policy.
func writeLearning(out io.Writer, s Summary) error {
	if s.Target == nil {
		return nil
	}
	against, fields := "", s.Varied()
	switch {
	case len(s.Policies) > 1 && len(s.Cells) > 1:
		against = fmt.Sprintf(". Seed by seed, each policy is compared with %[1]s in the same cell, and %[1]s with its own run in the first cell", s.Policies[0])
	case len(s.Policies) > 1:
		against = fmt.Sprintf(". Each policy is compared with %s, seed by seed", s.Policies[0])
	case len(s.Cells) > 1:
		against = ". Each cell is compared with the first cell, seed by seed"
	}
	fmt.Fprintf(out, "\nlearning: the time of a run ends at a validation loss of %s%s\n\n", learning.LossText(*s.Target), against)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	for _, f := range fields {
		fmt.Fprint(w, f.Field, "\t")
	}
	fmt.Fprintln(w, "policy\tvalidation loss\ttime, s\tsooner\tat equal tokens\tat equal rounds\tthrown away\t")
	for i, c := range s.Cells {
		if i == maxShown {
			break
		}
		for _, name := range s.Policies {
			o := c.Learning[name]
			if o.Final.N == 0 {
				continue
			}
			writeValues(w, c, fields)
			_, lost := o.TokensText()
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, bounded(o.Final, "%.3f", 1, ""), reached(o),
				bounded(o.Sooner, "%.2f", 1, "×"), bounded(o.EqualTokens, "%+.2f", 100, " %"), bounded(o.EqualRounds, "%+.2f", 100, " %"), lost)
		}
	}
	return w.Flush()
}

// reached is the time to the target loss.
func reached(o learning.Outcome) string {
	text := bounded(o.Time, "%.3g", 1e-6, "")
	if o.Unreached > 0 {
		text += ", never in " + words.Count(o.Unreached, "run")
	}
	return text
}

// bounded writes an estimate with its interval in a unit, after multiplying it
// by times.
func bounded(e stats.Estimate, format string, times float64, unit string) string {
	if e.N == 0 {
		return "–"
	}
	text := fmt.Sprintf(format+"%s", times*e.Median, unit)
	if i := e.Interval; i != nil {
		text += fmt.Sprintf(" ("+format+" to "+format+")", times*i.Low, times*i.High)
	}
	return text
}

func writeMatrices(out io.Writer, s Summary) error {
	rows, cols := s.Varied()[0], s.Varied()[1]
	matrix := func(title string, text func(Cell) string) error {
		fmt.Fprintf(out, "\n%s: %s down, %s across\n", title, rows.Field, cols.Field)
		w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "\t"+strings.Join(cols.Values, "\t")+"\t")
		for i, v := range rows.Values {
			if i == maxShown {
				fmt.Fprintf(w, "… and %s\t\n", words.Count(len(rows.Values)-i, "more row"))
				break
			}
			fmt.Fprint(w, v, "\t")
			for j := range cols.Values { // the second field varies first
				fmt.Fprint(w, text(s.Cells[i*len(cols.Values)+j]), "\t")
			}
			fmt.Fprintln(w)
		}
		return w.Flush()
	}
	for _, name := range s.Compared() {
		if err := matrix(s.speedupTitle(name), func(c Cell) string { return c.speedup(name) }); err != nil {
			return err
		}
	}
	for _, name := range s.Policies {
		if err := matrix(name+", wall-clock in µs", func(c Cell) string { return c.wall(name) }); err != nil {
			return err
		}
		if !s.loses(name) {
			continue
		}
		if err := matrix(name+", effective wall-clock in µs", func(c Cell) string { return interval(c.Effective[name]) }); err != nil {
			return err
		}
	}
	return nil
}

// speedupTitle is the title of a policy's speed-up over the first.
func (s Summary) speedupTitle(name string) string {
	if len(s.Policies) == 2 {
		return "speed-up"
	}
	return "speed-up of " + name
}

// pairsWork reports whether work was lost, so that effective times say more
// than wall-clocks.
func (s Summary) pairsWork() bool { return slices.ContainsFunc(s.Policies, s.loses) }

func (c Cell) speedup(name string) string { return ratio(c.SpeedupOf(name)) }

// ratio writes an estimate of a speed-up.
func ratio(e *stats.Estimate) string {
	if e == nil || e.N == 0 {
		return "–"
	}
	text := fmt.Sprintf("%.3f×", e.Median)
	if i := e.Interval; i != nil {
		text += fmt.Sprintf(" (%.3f–%.3f)", i.Low, i.High)
	}
	if e.NoDifference() {
		text += " ="
	}
	return text
}

func (c Cell) wall(name string) string {
	text := interval(c.WallClock[name])
	if n := c.Incomplete[name]; n > 0 {
		text += fmt.Sprintf(" !%d", n)
	}
	return text
}

// interval is an estimate of times in µs.
func interval(e stats.Estimate) string {
	if e.N == 0 {
		return "–"
	}
	text := thousands(e.Median)
	if i := e.Interval; i != nil {
		text += " (" + thousands(i.Low) + "–" + thousands(i.High) + ")"
	}
	return text
}

// percent is an estimate of a share.
func percent(e stats.Estimate) string {
	if e.N == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*e.Median)
}

// loses reports whether a policy lost any work. Otherwise its wall-clock is
// enough.
func (s Summary) loses(name string) bool {
	return slices.ContainsFunc(s.Cells, func(c Cell) bool { return c.Lost[name].Median > 0 })
}

func thousands(f float64) string {
	digits := fmt.Sprint(int64(math.Round(f)))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
