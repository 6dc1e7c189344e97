package sweep

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"testbed/stats"
)

// maxShown is the number of rows that are printed; all are in the files.
const maxShown = 60

// WriteText writes a sweep as text: of two fields a matrix for each figure, and
// otherwise a line a cell.
func WriteText(out io.Writer, s Summary) error {
	fmt.Fprintf(out, "%s, %s: %d of %d points; medians over %d runs each", s.Scenario, worldName(s.World), s.Done, s.Points, len(s.Seeds)*s.Repeats)
	if len(s.Seeds)*s.Repeats >= stats.LeastRepeats {
		level := stats.Estimated(make([]float64, len(s.Seeds)*s.Repeats)).Interval.Level
		fmt.Fprintf(out, ", with %.3g %% intervals", 100*level)
	}
	fmt.Fprintln(out, "\n= means that no difference between the policies has been shown, ! that runs were incomplete and do not count")
	write := writeList
	if len(s.Fields) == 2 && len(s.Cells) == len(s.Fields[0].Values)*len(s.Fields[1].Values) {
		write = writeMatrices
	}
	if err := write(out, s); err != nil {
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
	for _, f := range s.Fields {
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
	}
	fmt.Fprintln(w)
	for i, c := range s.Cells {
		if i == maxShown {
			break
		}
		for _, f := range s.Fields {
			v := c.Set.Value(f.Field)
			if v == "" {
				v = "–"
			}
			fmt.Fprint(w, v, "\t")
		}
		for _, name := range s.Policies {
			fmt.Fprint(w, c.wall(name), "\t")
			if s.loses(name) {
				fmt.Fprint(w, interval(c.Effective[name]), "\t", percent(c.Lost[name]), "\t")
			}
		}
		for _, name := range s.Compared() {
			fmt.Fprint(w, c.speedup(name), "\t")
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if n := len(s.Cells) - maxShown; n > 0 {
		fmt.Fprintf(out, "… and %d more\n", n)
	}
	return nil
}

func writeMatrices(out io.Writer, s Summary) error {
	rows, cols := s.Fields[0], s.Fields[1]
	matrix := func(title string, text func(Cell) string) error {
		fmt.Fprintf(out, "\n%s: %s down, %s across\n", title, rows.Field, cols.Field)
		w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "\t"+strings.Join(cols.Values, "\t")+"\t")
		for i, v := range rows.Values {
			if i == maxShown {
				fmt.Fprintf(w, "… and %d more\t\n", len(rows.Values)-i)
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

// speedupTitle names the speed-up of a policy, over the first.
func (s Summary) speedupTitle(name string) string {
	if len(s.Policies) == 2 {
		return "speed-up"
	}
	return "speed-up of " + name
}

func (c Cell) speedup(name string) string {
	e := c.SpeedupOf(name)
	if e == nil || e.N == 0 {
		return "–"
	}
	text := fmt.Sprintf("%.3f×", e.Median)
	if i := e.Interval; i != nil {
		text += fmt.Sprintf(" (%.3f–%.3f)", i.Low, i.High)
		if i.Contains(1) {
			text += " ="
		}
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

// loses says whether a policy lost any work: else its wall-clock says it all.
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
