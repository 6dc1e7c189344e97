package record

import (
	"math"
	"slices"

	"testbed/policy"
)

// RoundLoss is how well the model does around one outer step: in nats a byte for the
// embedded language model, in whatever its own program says otherwise.
type RoundLoss struct {
	// Train is the mean over the inner steps of the round's participants, each
	// on its batch before the step.
	Train *float64 `json:"train,omitempty"`
	// Validation is that of the outer state after the outer step, on what nobody
	// trains on.
	Validation *float64 `json:"validation,omitempty"`
}

// PseudoGradient is what a worker contributed to an outer step: its pseudo-gradient,
// and whatever it added to that.
type PseudoGradient struct {
	ID policy.ID `json:"id"`
	// Norm is L2, Cosine that of the angle to the outcome, and QuantisationError the
	// norm of what quantisation takes from it, relative to Norm.
	Norm              float64 `json:"norm"`
	Cosine            float64 `json:"cosine"`
	QuantisationError float64 `json:"quantisation_error"`
}

// TimeToLoss is when a validation loss was first reached.
type TimeToLoss struct {
	Loss      float64     `json:"loss"`
	WallClock policy.Time `json:"wall_clock_us"`
}

// Learnt gathers what a run learns from its events.
type Learnt struct {
	tokensPerStep int
	hashes        map[int]string       // of outer states, by outer step
	regions       map[int][]RegionHash // the same, where they differ between regions
	validation    map[int]float64
	training      map[int]map[string]mean // by round and worker
	contributions map[int]map[string]*Contribution
}

type mean struct {
	sum float64
	n   int
}

// NewLearnt returns one that has seen no event of a run; Setup.TokensPerStep has
// the tokens.
func NewLearnt(tokensPerStep int) *Learnt {
	return &Learnt{
		tokensPerStep: tokensPerStep,
		hashes:        map[int]string{}, regions: map[int][]RegionHash{}, validation: map[int]float64{}, training: map[int]map[string]mean{}, contributions: map[int]map[string]*Contribution{},
	}
}

// Add takes the next event.
func (l *Learnt) Add(e *Event) {
	switch {
	case e.Type == State:
		l.hashes[e.Round], l.regions[e.Round] = e.Hash, e.Regions
	case e.Type == Validated && e.Loss != nil && math.Abs(*e.Loss) < maxLoss:
		l.validation[e.Round] = *e.Loss
	case e.Type == Contributed && e.Contribution != nil:
		if l.contributions[e.Round] == nil {
			l.contributions[e.Round] = map[string]*Contribution{}
		}
		l.contributions[e.Round][e.Node] = e.Contribution
	case e.Type == Step && e.Loss != nil:
		if l.training[e.Round] == nil {
			l.training[e.Round] = map[string]mean{}
		}
		m := l.training[e.Round][e.Node]
		if e.Step == 1 { // once more, in another process perhaps
			m = mean{}
		}
		l.training[e.Round][e.Node] = mean{m.sum + *e.Loss, m.n + 1}
	}
}

// Into completes a summary of the same run.
func (l *Learnt) Into(sum *Summary) {
	for i := range sum.Rounds {
		r := &sum.Rounds[i]
		r.ModelHash = l.hashes[r.Round]
		for k := range r.Regions {
			for _, h := range l.regions[r.Round] {
				if h.Region == r.Regions[k].Region {
					r.Regions[k].ModelHash = h.Hash
				}
			}
		}
		var loss RoundLoss
		if v, ok := l.validation[r.Round]; ok {
			loss.Validation = &v
		}
		var all mean
		for _, id := range r.Participants {
			if c, ok := l.contributions[r.Round][id.Node()]; ok {
				r.PseudoGradients = append(r.PseudoGradients, PseudoGradient{id, c.Norm, c.Cosine, c.QuantisationError})
			}
			m := l.training[r.Round][id.Node()]
			all.sum, all.n = all.sum+m.sum, all.n+m.n
		}
		if all.n > 0 {
			loss.Train = new(all.sum / float64(all.n))
		}
		if loss != (RoundLoss{}) {
			r.Loss = &loss
		}
	}
	if l.tokensPerStep == 0 {
		return
	}
	if w := sum.Work; w != nil {
		sum.TokensSeen = new((w.StepsDone - w.StepsLost - w.StepsOpen) * l.tokensPerStep)
		sum.TokensLost = new(w.StepsLost * l.tokensPerStep)
	}
	sum.TimeToLoss = timesTo(sum.Rounds)
	sum.LayerErrors = l.layers(sum.Rounds)
}

// layers are the means of the layers' quantisation errors over the rounds of which
// they are known, in the order of the layers.
func (l *Learnt) layers(rounds []Round) (all []LayerError) {
	var known []int // rounds, for each layer
	for _, r := range rounds {
		for _, id := range r.Participants {
			c, ok := l.contributions[r.Round][id.Node()]
			if !ok {
				continue
			}
			for _, layer := range c.Layers {
				k := slices.IndexFunc(all, func(e LayerError) bool { return e.Name == layer.Name })
				if k < 0 {
					k, all, known = len(all), append(all, LayerError{Name: layer.Name}), append(known, 0)
				}
				all[k].Error += layer.Error
				known[k]++
			}
		}
	}
	for k := range all {
		all[k].Error /= float64(known[k])
	}
	return all
}

// maxLoss is beyond any loss of a model that learns, and bounds what a damaged
// record can ask for.
const maxLoss = 1000

// perNat is how many losses TimeToLoss has for each nat.
const perNat = 10

// timesTo returns when each tenth of a nat was reached, from that of the
// first round on.
func timesTo(rounds []Round) []TimeToLoss {
	times := []TimeToLoss{}
	var next int // the multiple to be reached
	for _, r := range rounds {
		if r.Loss == nil || r.Loss.Validation == nil {
			continue
		}
		reached := int(math.Ceil(*r.Loss.Validation * perNat))
		if len(times) == 0 {
			next = reached
		}
		for ; next >= reached; next-- {
			times = append(times, TimeToLoss{float64(next) / perNat, r.End})
		}
	}
	return times
}
