package runlog

import (
	"math"

	"testbed/policy"
	"testbed/scenarios"
)

// RoundLoss is how well the model does around one outer step, in nats a token.
type RoundLoss struct {
	// Train is the mean over the inner steps of the round's participants, each
	// on its batch before the step.
	Train *float64 `json:"train,omitempty"`
	// Validation is that of the outer state after the outer step, on what nobody
	// trains on.
	Validation *float64 `json:"validation,omitempty"`
}

// TimeToLoss is when a validation loss was first reached.
type TimeToLoss struct {
	Loss      float64     `json:"loss"`
	WallClock policy.Time `json:"wall_clock_us"`
}

// Learnt gathers what a run learns from its events.
type Learnt struct {
	tokensPerStep int
	hashes        map[int]string // of outer states, by outer step
	validation    map[int]float64
	training      map[int]map[string]mean // by round and worker
}

type mean struct {
	sum float64
	n   int
}

// NewLearnt returns one that has seen no event of a run of the scenario.
func NewLearnt(s *scenarios.Scenario) *Learnt {
	return &Learnt{
		tokensPerStep: s.Train.TokensPerStep(),
		hashes:        map[int]string{}, validation: map[int]float64{}, training: map[int]map[string]mean{},
	}
}

// Add takes the next event.
func (l *Learnt) Add(e *Event) {
	switch {
	case e.Type == State:
		l.hashes[e.Round] = e.Hash
	case e.Type == Validated && e.Loss != nil && math.Abs(*e.Loss) < maxLoss:
		l.validation[e.Round] = *e.Loss
	case e.Type == Step && e.Loss != nil:
		if l.training[e.Round] == nil {
			l.training[e.Round] = map[string]mean{}
		}
		m := l.training[e.Round][e.Node]
		l.training[e.Round][e.Node] = mean{m.sum + *e.Loss, m.n + 1}
	}
}

// Into completes a summary of the same run.
func (l *Learnt) Into(sum *Summary) {
	for i := range sum.Rounds {
		r := &sum.Rounds[i]
		r.ModelHash = l.hashes[r.Round]
		var loss RoundLoss
		if v, ok := l.validation[r.Round]; ok {
			loss.Validation = &v
		}
		var all mean
		for _, id := range r.Participants {
			m := l.training[r.Round][node(id)]
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
