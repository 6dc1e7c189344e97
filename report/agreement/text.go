package agreement

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// WriteText writes the table as text, and the verdict below it.
func (t *Table) WriteText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "\nlinks side by side\twall-clock\tdifference from %s links\tdecisions\tsame bytes\tfidelity\n", t.Links[0])
	for _, r := range t.Rows {
		fmt.Fprintf(w, "%s, %s\t%s\t%s\t%s\t%s\t%s\n", r.Policy, r.Links, r.WallText(), r.Comparison.RatioText(), r.Comparison.DecisionsText(), r.Comparison.BytesText(), r.FidelityText())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "\n"+t.Verdict)
	return err
}
