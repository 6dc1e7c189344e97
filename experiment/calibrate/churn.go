package calibrate

import (
	"fmt"
	"math"
	"reflect"
	"slices"

	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/sim"
)

// fitChurn fits the two prices of churn's network to the rounds of runs that
// differ only in their payload. A round takes 2·base_latency + bytes /
// bandwidth_bpus besides its inner steps, where bytes are those that a
// participant sends.
func (c *Calibration) fitChurn(runs []*Run) {
	var rows []row
	for _, r := range runs {
		if !middleLinks(r.Scenario) {
			continue
		}
		resolved, err := r.Scenario.Resolve(r.Policy)
		if err != nil {
			continue // Observe has refused it before
		}
		times := sim.NewTimes(resolved, sim.Costs{})
		var busy policy.Time
		durations := map[string]policy.Time{}
		start := policy.Time(0)
		for _, e := range r.Events {
			switch e.Type {
			case record.Step:
				durations[e.Node] += e.Duration
			case record.OuterStep:
				for _, d := range durations {
					busy = max(busy, d)
				}
				n := len(e.Participants)
				if e.Round > 1 && r.valid(e.Round) { // the first one connects
					bytes := float64(times.Sent(n)) / float64(n)
					rows = append(rows, row{x: []float64{2, bytes}, y: r.seconds(e.T - start - busy), group: r.Name})
				}
				start, busy = e.T, 0
				clear(durations)
			}
		}
	}
	e := estimates(rows, []string{"µs", "µs per byte"}, []float64{1e6, 1e6})
	c.Churn.BaseLatency = e[0]
	c.Churn.BandwidthBps = Estimate{Unit: "bytes per µs", Observations: e[1].Observations}
	if e[1].Value > 0 {
		c.Churn.BandwidthBps.Value = 1 / e[1].Value
		c.Churn.BandwidthBps.Low, c.Churn.BandwidthBps.High = 1/e[1].High, 1/max(e[1].Low, 1e-9)
	}
}

// middleLinks reports that a run has the links, the workers and the algorithm
// that most experiments share.
func middleLinks(s *scenarios.Scenario) bool {
	first := Experiments()[0]
	m, err := scenarios.Parse(first.Name+".yaml", first.Source)
	if err != nil || len(s.Workers) != len(m.Workers) || len(s.Injects) > 0 || !reflect.DeepEqual(s.Real.AllReduce, m.Real.AllReduce) {
		return false
	}
	a, b := s.Real.Links.Default, m.Real.Links.Default
	return a.RateUp != nil && a.OneWayDelay != nil && *a.RateUp == *b.RateUp && *a.OneWayDelay == *b.OneWayDelay &&
		alike(s) && s.Workers[0].InnerStepJitter == 0 && s.Work == nil
}

// alike reports that all links of a scenario are equal, and do not change.
func alike(s *scenarios.Scenario) bool {
	l := s.Real.Links
	return len(l.Nodes)+len(l.Pairs)+len(l.Paths)+len(l.Groups)+len(s.Real.Injects) == 0
}

// Prices are the values that churn's network needs to match the links of a
// scenario. Times are scenario time.
type Prices struct {
	Scenario      string      `json:"scenario"`
	BaseLatency   policy.Time `json:"base_latency"`   // µs
	BandwidthBpus int64       `json:"bandwidth_bpus"` // bytes per µs
	StateBytes    int64       `json:"state_bytes"`
	// Error is the error of rounding to whole numbers: the additional time of an
	// undisturbed round besides its inner steps, as a share of the correct time.
	Error float64 `json:"error"`
}

// tolerance is the Error above which prices need a warning.
const tolerance = 0.01

// Warnings list, a line each, what users should know before they use the
// prices.
func (p Prices) Warnings() []string {
	if math.Abs(p.Error) <= tolerance {
		return nil
	}
	return []string{fmt.Sprintf("rounding to whole microseconds of scenario time changes the time of a round's messages and transfer by %+.1f %%; lower real.time_scale", 100*p.Error)}
}

// round rounds the prices to whole numbers, which churn needs. A round takes
// 2·base_latency + state_bytes / bandwidth_bpus besides its inner steps. empty
// is that time if nothing is sent, full if bytes are sent; both in µs. A small
// rate is far from a whole number. So state_bytes is not bytes but the multiple
// of the rounded rate that gives the correct time, to half a microsecond.
func round(empty, full, bytes float64) Prices {
	total := math.Round(full)
	latency := min(math.Round(empty/2), math.Floor(total/2))
	rest := total - 2*latency
	rate := min(max(1, math.Round(bytes/max(1, rest))), scenarios.MaxBandwidthBpus)
	p := Prices{BaseLatency: policy.Time(latency), BandwidthBpus: int64(rate), StateBytes: int64(rest * rate)}
	if full > 0 {
		p.Error = (total - full) / full
	}
	return p
}

// Price returns the scenario with the prices of churn's network that this
// calibration derives from its links. base_latency is half the time of an
// undisturbed round of all its workers, besides its inner steps, with next to
// nothing to send. bandwidth_bpus and state_bytes make up the rest. Steps are
// longer by the lateness of their timers.
func (c *Calibration) Price(s *scenarios.Scenario) (*scenarios.Scenario, Prices, error) {
	var ids []policy.ID
	for _, w := range s.Workers {
		ids = append(ids, w.ID)
	}
	undisturbed := func(parameters int) (real float64, bytes int64, err error) {
		of := *s
		of.Real.Parameters = parameters
		resolved, err := of.Resolve("")
		if err != nil {
			return 0, 0, err
		}
		times := sim.NewTimes(resolved, c.SimCosts())
		var control float64
		for _, id := range ids {
			control = max(control, times.Control(id).Seconds())
		}
		return 2*control + times.Reduction(ids, ids).Seconds(), times.Sent(len(ids)) / int64(len(ids)), nil
	}
	empty, little, err := undisturbed(1)
	if err != nil {
		return nil, Prices{}, err
	}
	full, bytes, err := undisturbed(s.Real.Parameters)
	if err != nil {
		return nil, Prices{}, err
	}
	priced := *s
	perMicro := 1e6 / s.Real.TimeScale
	priced.Workers = slices.Clone(s.Workers)
	for i := range priced.Workers {
		priced.Workers[i].InnerStepMean += policy.Time(math.Round(c.SimCosts().Step.Seconds() * perMicro))
	}
	p := round(empty*perMicro, full*perMicro, float64(bytes-little))
	p.Scenario = s.Name
	priced.BaseLatency, priced.BandwidthBpus, priced.StateBytes = p.BaseLatency, p.BandwidthBpus, p.StateBytes
	return &priced, p, nil
}
