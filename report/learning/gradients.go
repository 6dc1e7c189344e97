package learning

import (
	"cmp"
	"fmt"
	"slices"

	"testbed/internal/stats"
	"testbed/record"
)

// Gradients are the contributions of a run's workers to its outer steps.
type Gradients struct {
	Policy  string              `json:"policy"`
	Workers []WorkerGradients   `json:"workers"`
	Layers  []record.LayerError `json:"-"`
}

// WorkerGradients are one worker's, by round.
type WorkerGradients struct {
	ID     int             `json:"id"`
	Points []GradientPoint `json:"points"`
}

// GradientPoint is a contribution, from record.PseudoGradient.
type GradientPoint struct {
	Round  int     `json:"round"`
	Norm   float64 `json:"norm"`
	Cosine float64 `json:"cosine"`
}

// NewGradients is nil if nothing is known of the contributions.
func NewGradients(policyName string, sum record.Summary) *Gradients {
	g := &Gradients{Policy: policyName, Layers: sum.LayerErrors}
	for _, r := range sum.Rounds {
		for _, c := range r.PseudoGradients {
			k, found := slices.BinarySearchFunc(g.Workers, int(c.ID), func(w WorkerGradients, id int) int { return cmp.Compare(w.ID, id) })
			if !found {
				g.Workers = slices.Insert(g.Workers, k, WorkerGradients{ID: int(c.ID)})
			}
			g.Workers[k].Points = append(g.Workers[k].Points, GradientPoint{r.Round, c.Norm, c.Cosine})
		}
	}
	if len(g.Workers) == 0 {
		return nil
	}
	return g
}

// OfGradients describes the contributions of a run in words. It is empty if
// they are not known.
func OfGradients(sum record.Summary) string {
	rounds := slices.DeleteFunc(slices.Clone(sum.Rounds), func(r record.Round) bool { return len(r.PseudoGradients) == 0 })
	if len(rounds) == 0 {
		return ""
	}
	median := func(r record.Round, of func(record.PseudoGradient) float64) float64 {
		var all []float64
		for _, g := range r.PseudoGradients {
			all = append(all, of(g))
		}
		return stats.Median(all)
	}
	cosine := func(g record.PseudoGradient) float64 { return g.Cosine }
	var errors []float64
	for _, r := range rounds {
		errors = append(errors, median(r, func(g record.PseudoGradient) float64 { return g.QuantisationError }))
	}
	first, last := rounds[0], rounds[len(rounds)-1]
	text := fmt.Sprintf("pseudo-gradients: median cosine to the mean %.2f in round %d", median(first, cosine), first.Round)
	if last.Round != first.Round {
		text += fmt.Sprintf(" and %.2f in round %d", median(last, cosine), last.Round)
	}
	text += ", median quantisation error " + Share(stats.Median(errors))
	if len(sum.LayerErrors) > 0 {
		most := slices.MaxFunc(sum.LayerErrors, func(a, b record.LayerError) int { return cmp.Compare(a.Error, b.Error) })
		text += fmt.Sprintf(", largest in the layer %q (%s)", most.Name, Share(most.Error))
	}
	return text
}

// Share writes a share in percent, with two significant digits.
func Share(x float64) string { return fmt.Sprintf("%.2g %%", 100*x) }
