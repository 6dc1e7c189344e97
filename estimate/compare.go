package estimate

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Comparison is a run computed in three ways: as the page does, as the document
// does, and as the page does with measured terms.
type Comparison struct {
	Page         Estimate     `json:"page"`
	Document     Estimate     `json:"document"`
	Measured     Estimate     `json:"measured"`
	Further      Further      `json:"further"`
	Measurements Measurements `json:"measurements"`
	Ratios       []Ratio      `json:"ratios"`
	Changes      []Change     `json:"changes"`
}

// Ratio is a quantity of all three.
type Ratio struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	Page     float64 `json:"page"`
	Document float64 `json:"document"`
	Measured float64 `json:"measured"`
	Ratio    float64 `json:"ratio"` // measured ÷ page; 0 where the page has 0
}

// Change is the effect of replacing one term by its measured estimate, with all
// other terms as on the page.
type Change struct {
	Term       string  `json:"term"`
	What       string  `json:"what"`
	Source     string  `json:"source"`
	Page       float64 `json:"page"`     // the document has the same
	Measured   float64 `json:"measured"` // with all terms replaced
	Ratio      float64 `json:"ratio"`    // measured ÷ page; 0 where the page has 0
	Days       float64 `json:"days"`
	DaysChange float64 `json:"days_change"` // against the page's
}

// Compare computes a run three times. Run and measurements must have passed
// Check.
func Compare(r Run, m Measurements) Comparison {
	all := corrected(everyCorrection, &m, &r.Further)
	c := Comparison{Page: Explain(r.Inputs, Page), Document: Explain(r.Inputs, Document), Measured: explain(r.Inputs, all), Further: r.Further, Measurements: m}
	for _, x := range c.Measured.Terms {
		page, ok := value(c.Page.Terms, x.Name)
		document, ok2 := value(c.Document.Terms, x.Name)
		if ok && ok2 {
			c.Ratios = append(c.Ratios, Ratio{x.Name, x.Unit, page, document, x.Value, ratio(x.Value, page)})
		}
	}
	c.Changes = changes(&r, &m)
	return c
}

// value finds a term by its name.
func value(terms []Term, name string) (float64, bool) {
	for _, t := range terms {
		if t.Name == name {
			return t.Value, true
		}
	}
	return 0, false
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// basis is the source of an estimate's terms.
type basis struct {
	in *Inputs
	f  formulas
	q  quantities
	r  reduction // of the global sync
}

func newBasis(in *Inputs, f formulas) basis {
	b := basis{in: in, f: f, q: quantify(in, f)}
	if b.q.mode != onePipeline {
		b.r = f.reduction(in, b.q.groups, in.Parameters/f.parts(in), in.BandwidthMbps, in.LatencyMs/1000)
	}
	return b
}

func syncs(_ *Inputs, q *quantities) bool { return q.mode != onePipeline }

func anyMode(*Inputs, *quantities) bool { return true }

func alone(in *Inputs, q *quantities) bool {
	return syncs(in, q) && (q.groups <= 1 || q.mode == hierarchical && in.NodesPerGroup <= 1)
}

// corrections are the terms that measured estimates replace, in the order in
// which they are shown.
var corrections = []struct {
	is           correction
	term         string
	what, source string
	applies      func(*Inputs, *quantities) bool
	value        func(basis) float64
}{
	{ringVolume, "volume", "vectors that a node sends in a sync", "law of the ring, 2(N − 1) ÷ N", syncs, func(b basis) float64 { return b.r.volume }},
	{ringHops, "hops", "consecutive link delays in a sync", "law of the ring, 2(N − 1)", syncs, func(b basis) float64 { return b.r.hops }},
	{pipelinedPieces, "pieces", "link delays in a sync that transfers do not hide", "law of the ring: pieces of a chunk are forwarded as they arrive", syncs, func(b basis) float64 { return b.r.shown }},
	{wireBytes, "bytes", "bits on the link for each parameter sent", "codes, scales, headers of frames and packets", syncs, func(b basis) float64 { return ratio(b.r.bits*b.f.parts(b.in), b.r.volume*b.in.Parameters) }},
	{machineCosts, "machine", "share of its rate that a link reaches (the days also count the time that hops and reductions cost)", "calibration", syncs, func(b basis) float64 {
		if b.f.uses(machineCosts) {
			return b.f.measured.Efficiency
		}
		return 1
	}},
	{loneNode, "one_node", "syncs of one participant", "one node has no peer to sync with", alone, func(b basis) float64 {
		if b.f.uses(loneNode) {
			return 0
		}
		return 1
	}},
	{measuredSpread, "spread", "straggler coefficient", "calibration, at nodeSpread and stepSpread", anyMode, func(b basis) float64 { return b.f.coefficient(b.in) }},
	{waitingNodes, "waiting", "factor by which slow nodes delay computing", "slow nodes delay computing, not syncs", anyMode, func(b basis) float64 { return b.q.fCompute }},
	{fragmentOverlap, "overlap", "share of the computing that hides a sync", "fragments and overlapSteps", func(_ *Inputs, q *quantities) bool { return q.overlap > 0 }, func(b basis) float64 { return b.q.overlap }},
	{stageShare, "stages", "share of the model that a node computes in a slot of the pipeline", "each of the S stages holds 1 ÷ S of the model", func(_ *Inputs, q *quantities) bool { return q.sharded() }, func(b basis) float64 {
		if b.f.uses(stageShare) {
			return 1 / b.q.stages
		}
		return 1
	}},
}

func changes(r *Run, m *Measurements) []Change {
	var all []Change
	page, measured := newBasis(&r.Inputs, published(Page)), newBasis(&r.Inputs, corrected(everyCorrection, m, &r.Further))
	for _, c := range corrections {
		if !c.applies(page.in, &page.q) {
			continue
		}
		only := quantify(&r.Inputs, corrected(c.is, m, &r.Further))
		p, x := c.value(page), c.value(measured)
		all = append(all, Change{c.term, c.what, c.source, p, x, ratio(x, p), only.days, only.days - page.q.days})
	}
	return all
}

// ofPage writes a ratio to the page's value, which 0 does not have.
func ofPage(ratio, page float64) string {
	if page == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3g", ratio)
}

// signed writes a change.
func signed(x float64) string {
	if x < 0 {
		return "−" + trim(-x)
	}
	return "+" + trim(x)
}

// WriteComparison writes the three columns, and the effect of each measured
// term.
func WriteComparison(w io.Writer, c Comparison) error {
	page, document, measured := c.Page.Results, c.Document.Results, c.Measured.Results
	in := c.Page.Inputs
	fmt.Fprintf(w, "%s days with measured terms, %s days by the formulas of the simulator's page, %s days by the formulas of its document\n", trim(measured.Days), trim(page.Days), trim(document.Days))
	fmt.Fprintf(w, "%s · %s · %s·10⁹ parameters · %s·10¹² tokens · limit for a run: %s days\n\n", measured.Mode, nodes(in.NumNodes), trim(in.Parameters/1e9), trim(in.Tokens/1e12), trim(measured.MaxDays))
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "quantity\tpage\tdocument\tmeasured\tmeasured ÷ page\t")
	for _, r := range c.Ratios {
		if r.Page != r.Document || r.Page != r.Measured {
			unit := r.Unit
			if unit != "" {
				unit = ", " + unit
			}
			fmt.Fprintf(t, "%s%s\t%s\t%s\t%s\t%s\t\n", r.Name, unit, trim(r.Page), trim(r.Document), trim(r.Measured), ofPage(r.Ratio, r.Page))
		}
	}
	fmt.Fprintf(t, "bottleneck\t%s\t%s\t%s\t\t\n", page.Bottleneck, document.Bottleneck, measured.Bottleneck)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nEffect of each measured term alone on the days of the variant page (the effects do not add up)")
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "term\tpage\tmeasured\tratio\tdays\tchange\t")
	for _, x := range c.Changes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", x.Term, trim(x.Page), trim(x.Measured), ofPage(x.Ratio, x.Page), trim(x.Days), signed(x.DaysChange), x.What)
	}
	fmt.Fprintf(t, "all\t\t\t%.3g\t%s\t%s\tall measured terms together\n", measured.Days/page.Days, trim(measured.Days), signed(measured.Days-page.Days))
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nAssumed: nodeSpread %v, stepSpread %v", c.Further.NodeSpread, c.Further.StepSpread)
	if in.StreamingEnabled {
		fmt.Fprintf(w, ", fragments %v, overlapSteps %v", c.Further.Fragments, c.Further.OverlapSteps)
	}
	fmt.Fprintln(w, "; change these inputs with --set")
	writeWarnings(w, c.Measured.Warnings)
	return nil
}
