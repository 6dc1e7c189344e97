package estimate

import (
	"math"

	"testbed/allreduce"
	"testbed/internal/errs"
	"testbed/shaping"
)

// Measurements are a calibration's results for terms of an estimate.
type Measurements struct {
	Efficiency float64     `json:"efficiency"` // share of its goodput that a link reaches
	Hop        float64     `json:"hop_s"`      // that every hop of a reduction takes besides its delay, s
	Reduce     float64     `json:"reduce_s"`   // that every reduction takes besides, s
	Stragglers []Straggler `json:"stragglers"` // sorted by Sigma
	// ReduceByte is the time per byte that all nodes of a reduction send together,
	// s. It is 0 if nodes have processors of their own.
	ReduceByte float64 `json:"reduce_byte_s,omitempty"`
}

// Straggler is the coefficient c of 1 + c · log2(nodes) for nodes whose step
// times are log-normal.
type Straggler struct {
	Sigma       float64 `json:"sigma"` // standard deviation of a step time's logarithm
	Coefficient float64 `json:"coefficient"`
}

// Check reports a value that estimates cannot use.
func (m Measurements) Check() error {
	if p := outside(m.Efficiency, 1e-3, 1, false); p != "" {
		return &errs.FieldError{Field: "efficiency", Problem: p}
	}
	if len(m.Stragglers) == 0 {
		return &errs.FieldError{Field: "straggler", Problem: "has no coefficient: calibrate again"}
	}
	last := 0.0
	for _, s := range m.Stragglers {
		if !(s.Sigma > last) {
			return errs.Fieldf("straggler", "has a sigma of %v after %v: the sigmas must be above 0 and in ascending order", s.Sigma, last)
		}
		last = s.Sigma
	}
	return nil
}

// coefficient is the coefficient for a spread: 0 for none, interpolated between
// two fitted spreads, extrapolated beyond the last.
func (m *Measurements) coefficient(sigma float64) float64 {
	var low, high Straggler
	for _, s := range m.Stragglers {
		low, high = high, s
		if sigma <= s.Sigma {
			break
		}
	}
	return low.Coefficient + (high.Coefficient-low.Coefficient)*(sigma-low.Sigma)/(high.Sigma-low.Sigma)
}

// Further has the values of a run that measured terms need, and the page does
// not ask for.
type Further struct {
	NodeSpread   float64 `json:"nodeSpread" yaml:"nodeSpread"`     // standard deviation of the logarithm of nodes' speeds, which they keep
	StepSpread   float64 `json:"stepSpread" yaml:"stepSpread"`     // of single steps' times, drawn anew for each
	Fragments    float64 `json:"fragments" yaml:"fragments"`       // number of parts of a streamed sync, sent one after the other
	OverlapSteps float64 `json:"overlapSteps" yaml:"overlapSteps"` // local steps that go on during the transfer of a fragment
}

// DefaultFurther returns the spread of nodes for which the published straggler
// coefficient is about right. It streams in eight fragments, with the overlap
// that the Streaming DiLoCo paper advises.
func DefaultFurther() Further { return Further{NodeSpread: 0.1, Fragments: 8, OverlapSteps: 5} }

// Run is the input of all three variants.
type Run struct {
	Inputs  `yaml:",inline"`
	Further `yaml:",inline"`
}

// Check returns a *errs.FieldError for the first value that is impossible.
func (r Run) Check() error {
	if err := r.Inputs.Check(); err != nil {
		return err
	}
	for _, n := range []struct {
		name               string
		value, least, most float64
		whole              bool
	}{
		// Spreads up to the largest that calibrate fits.
		{"nodeSpread", r.NodeSpread, 0, 0.4, false}, {"stepSpread", r.StepSpread, 0, 0.4, false},
		{"fragments", r.Fragments, 1, 1e4, true}, {"overlapSteps", r.OverlapSteps, 0, 1e7, true},
	} {
		if p := outside(n.value, n.least, n.most, n.whole); p != "" {
			return &errs.FieldError{Field: n.name, Problem: p}
		}
	}
	return nil
}

// correction is a set of the page's terms that measured ones replace.
type correction uint

const (
	ringVolume correction = 1 << iota
	ringHops
	pipelinedPieces
	wireBytes
	machineCosts
	loneNode
	measuredSpread
	waitingNodes
	fragmentOverlap
	stageShare
	everyCorrection correction = 1<<iota - 1
)

// formulas are the formulas of an estimate.
type formulas struct {
	variant  Variant
	corrects correction // none but in Measured
	measured *Measurements
	further  *Further
}

func published(v Variant) formulas { return formulas{variant: v} }

func corrected(c correction, m *Measurements, r *Further) formulas {
	return formulas{Measured, c, m, r}
}

func (f formulas) uses(c correction) bool { return f.corrects&c != 0 }

// coefficient is the coefficient of log2 in the straggler factor. Differences
// between single steps average out over the steps between two syncs.
func (f formulas) coefficient(in *Inputs) float64 {
	if !f.uses(measuredSpread) {
		return straggler
	}
	return f.measured.coefficient(math.Sqrt(f.further.NodeSpread*f.further.NodeSpread + f.further.StepSpread*f.further.StepSpread/in.InnerSteps))
}

// delay is the factor by which n participants that wait for each other take
// longer than one. As published it is below 1 for fewer than one participant.
func (f formulas) delay(in *Inputs, n float64) float64 {
	if f.uses(loneNode) {
		n = max(1, n)
	}
	switch in.StragglerStrategy {
	case "threshold":
		return 1
	case "redundancy":
		return 1 + spareDelay*f.coefficient(in)*math.Log2(n)
	}
	return 1 + f.coefficient(in)*math.Log2(n)
}

// syncing and computing are the factors by which each is delayed. As published,
// slow nodes delay syncs alone.
func (f formulas) syncing(in *Inputs, n float64) float64 {
	if f.uses(waitingNodes) {
		return 1
	}
	return f.delay(in, n)
}

func (f formulas) computing(in *Inputs, n float64) float64 {
	if f.uses(waitingNodes) {
		return f.delay(in, n)
	}
	return 1
}

// overlap is the share of the computing between two syncs that hides the sync.
func (f formulas) overlap(in *Inputs, steps float64) float64 {
	switch {
	case !in.StreamingEnabled:
		return 0
	case f.uses(fragmentOverlap):
		return min(1, f.further.Fragments*f.further.OverlapSteps/steps)
	}
	return 1
}

// together is the time of so many steps, with the given computing time, and a
// sync.
func (f formulas) together(in *Inputs, compute, sync, steps float64) float64 {
	if hidden := f.overlap(in, steps); hidden < 1 {
		return compute + max(0, sync-hidden*compute)
	}
	return max(compute, sync)
}

// parts is the number of reductions in a sync.
func (f formulas) parts(in *Inputs) float64 {
	if in.StreamingEnabled && f.uses(fragmentOverlap) {
		return f.further.Fragments
	}
	return 1
}

// sync is the time in s that n participants need for a sync, without the delay
// by slow ones: rate in 10⁶ bit/s, round trip in s.
func (f formulas) sync(in *Inputs, n, mbps, rtt float64) float64 {
	if f.uses(loneNode) && n <= 1 {
		return 0
	}
	parts := f.parts(in)
	return parts * f.reduction(in, n, in.Parameters/parts, mbps, rtt).seconds
}

// reduction is a participant's work for the mean of so many values.
type reduction struct {
	volume, hops float64 // vectors that it sends, and consecutive delays
	bits         float64 // that it sends
	shown        float64 // delays that no transfer hides
	seconds      float64
}

func (f formulas) reduction(in *Inputs, n, values, mbps, rtt float64) reduction {
	r := reduction{volume: 2, hops: 2}
	if f.uses(ringVolume) {
		r.volume = 2 * max(0, n-1) / n
	}
	if f.uses(ringHops) {
		r.hops = 2 * max(0, n-1)
	}
	r.bits = r.volume * (gradientBits * values / in.Compression)
	turns := max(1, r.hops)
	chunk := values * r.volume / turns
	piece := pieceValues(chunk, rtt)
	data := r.bits / 8 // bytes
	if f.uses(wireBytes) {
		data = turns * allreduce.FramesLen(chunk, piece, allreduce.DefaultBlock, gradientBits/in.Compression)
		r.bits = 8 * data * FramesPerData
	}
	transfer, hop := r.bits/(mbps*1e6), rtt/2
	if f.uses(machineCosts) {
		transfer /= f.measured.Efficiency
		hop += f.measured.Hop
	}
	r.shown = r.hops
	if f.uses(pipelinedPieces) && r.hops >= 1 {
		// A hop passes the chunk's first piece on while the others arrive. Either it
		// waits for them, or they wait for it.
		busy := transfer / r.hops
		first := busy * min(1, float64(piece)/max(1, chunk))
		r.shown = 1
		if hop > 0 {
			r.shown += (r.hops - 1) * max(0, first+hop-busy) / hop
		}
		r.seconds = busy + hop + (r.hops-1)*max(busy, first+hop)
	} else {
		r.seconds = transfer + r.hops*hop
	}
	if f.uses(machineCosts) {
		r.seconds += f.measured.Reduce + f.measured.ReduceByte*n*data
	}
	return r
}

// FramesPerData is the number of bytes on a link per byte of the all-reduce.
const FramesPerData = float64(allreduce.PacketSize+shaping.UDPHeaders) / allreduce.StreamData

// pieceValues is the number of values in a piece, the unit in which the
// all-reduce passes a chunk on.
func pieceValues(chunk, rtt float64) int {
	const longChunk = 1 << 22 // longer ones have the largest pieces
	return allreduce.DefaultPieceValues(int(min(chunk, longChunk)), 1, allreduce.DefaultBlock, rtt < allreduce.ShortRTT.Seconds())
}

// ComputeMeasured estimates a run with measured terms. Run and measurements
// must have passed Check.
func ComputeMeasured(r Run, m *Measurements) Results {
	q := quantify(&r.Inputs, corrected(everyCorrection, m, &r.Further))
	return q.results(&r.Inputs)
}
