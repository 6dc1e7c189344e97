package record

import (
	"math"
	"slices"

	"testbed/policy"
)

// RoundLoss is the model's loss around one outer step: in nats a byte for the
// embedded language model, otherwise in the unit of the training program.
type RoundLoss struct {
	// The mean training loss over the participants' inner steps, each on its batch
	// before the step.
	Train *float64 `json:"train,omitempty"`
	// The loss of the outer state after the outer step, on held-out data.
	Validation *float64 `json:"validation,omitempty"`
}

// PseudoGradient describes a worker's contribution to an outer step: its
// pseudo-gradient, and anything that it added.
type PseudoGradient struct {
	ID     policy.ID `json:"id"`     // The worker's number.
	Norm   float64   `json:"norm"`   // The L2 norm.
	Cosine float64   `json:"cosine"` // The cosine of the angle to the mean.
	// The norm of the quantisation's error, divided by `norm`.
	QuantisationError float64 `json:"quantisation_error"`
}

// TimeToLoss is the time at which a validation loss was first reached.
type TimeToLoss struct {
	Loss      float64     `json:"loss"`          // The validation loss.
	WallClock policy.Time `json:"wall_clock_us"` // When it was first reached or passed.
}

// Training computes a run's training results from its events.
type Training struct {
	tokensPerStep int
	hashes        map[int]string       // of outer states, by outer step
	regions       map[int][]RegionHash // the same, if they differ between regions
	validation    map[int]float64
	losses        map[part]mean // of inner steps
	contributions map[part]*Contribution
	zeros         map[part]bool // contributions of joiners without inner steps
}

// part identifies a worker's part in a round.
type part struct {
	round int
	id    policy.ID
}

type mean struct {
	sum float64
	n   int
}

// NewTraining returns a Training without events. tokensPerStep is
// Setup.TokensPerStep.
func NewTraining(tokensPerStep int) *Training {
	return &Training{
		tokensPerStep: tokensPerStep, hashes: map[int]string{}, regions: map[int][]RegionHash{},
		validation: map[int]float64{}, losses: map[part]mean{}, contributions: map[part]*Contribution{}, zeros: map[part]bool{},
	}
}

// Add takes the next event.
func (t *Training) Add(e *Event) {
	id, _ := e.Worker()
	of := part{e.Round, id}
	switch {
	case e.Type == State:
		t.hashes[e.Round], t.regions[e.Round] = e.Hash, e.Regions
	case e.Type == Validated && e.Loss != nil && math.Abs(*e.Loss) < maxLoss:
		t.validation[e.Round] = *e.Loss
	case e.Type == Contributed && e.Contribution != nil:
		t.contributions[of] = e.Contribution
	case e.Type == ReduceStart:
		for _, id := range e.Zero {
			t.zeros[part{e.Round, id}] = true
		}
	case e.Type == Step && e.Loss != nil:
		m := t.losses[of]
		if e.Step == 1 { // again, perhaps in another process
			m = mean{}
		}
		t.losses[of] = mean{m.sum + *e.Loss, m.n + 1}
	}
}

// Complete adds the training results to a summary of the same run.
func (t *Training) Complete(sum *Summary) {
	for i := range sum.Rounds {
		r := &sum.Rounds[i]
		r.ModelHash = t.hashes[r.Round]
		for k := range r.Regions {
			for _, h := range t.regions[r.Round] {
				if h.Region == r.Regions[k].Region {
					r.Regions[k].ModelHash = h.Hash
				}
			}
		}
		var loss RoundLoss
		if v, ok := t.validation[r.Round]; ok {
			loss.Validation = &v
		}
		var all mean
		for _, id := range r.Participants {
			if c, ok := t.contributions[part{r.Round, id}]; ok && !(c.Norm == 0 && t.zeros[part{r.Round, id}]) {
				r.PseudoGradients = append(r.PseudoGradients, PseudoGradient{id, c.Norm, c.Cosine, c.QuantisationError})
			}
			m := t.losses[part{r.Round, id}]
			all.sum, all.n = all.sum+m.sum, all.n+m.n
		}
		if all.n > 0 {
			loss.Train = new(all.sum / float64(all.n))
		}
		if loss != (RoundLoss{}) {
			r.Loss = &loss
		}
	}
	if v, ok := t.validation[0]; ok {
		sum.InitialLoss = &v
	}
	sum.ContributedNothing = t.nothing()
	if t.tokensPerStep == 0 {
		return
	}
	if w := sum.Work; w != nil {
		sum.TokensSeen = new((w.StepsDone - w.StepsLost - w.StepsOpen) * t.tokensPerStep)
		sum.TokensLost = new(w.StepsLost * t.tokensPerStep)
	}
	sum.TimeToLoss = timesTo(sum.Rounds)
	sum.LayerErrors = t.layers(sum.Rounds)
}

// nothing returns the workers whose contributions were all zeros, though they
// had done inner steps: their trainers have returned no parameters.
func (t *Training) nothing() (ids []policy.ID) {
	gave := map[policy.ID]bool{}
	for of, c := range t.contributions {
		if !t.zeros[of] {
			gave[of.id] = gave[of.id] || c.Norm > 0
		}
	}
	for id, something := range gave {
		if !something {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// layers are the means of the layers' quantisation errors over the rounds in
// which they are known, in the order of the layers.
func (t *Training) layers(rounds []Round) (all []LayerError) {
	var known []int // rounds, for each layer
	for _, r := range rounds {
		for _, id := range r.Participants {
			c, ok := t.contributions[part{r.Round, id}]
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

// maxLoss is above any loss of a model that learns. It limits the work that a
// damaged record can cause.
const maxLoss = 1000

// perNat is the number of TimeToLoss entries per nat.
const perNat = 10

// timesTo returns the time at which each tenth of a nat was reached, from the
// loss of the first round on.
func timesTo(rounds []Round) []TimeToLoss {
	times := []TimeToLoss{}
	var next int // the next multiple to be reached
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
