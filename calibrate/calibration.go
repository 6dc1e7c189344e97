package calibrate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"testbed/shaping/fidelity"
	"testbed/sim"
	"testbed/stats"
)

// Schema is the version of the calibration file's format.
const Schema = 1

// Calibration is what calibrate has found out, and from what.
type Calibration struct {
	Schema int    `json:"schema"`
	Made   string `json:"made"` // RFC 3339
	// Machine and Versions are where and with what the runs were made. The
	// values hold for these only.
	Machine  any               `json:"machine"`
	Versions map[string]string `json:"versions"`
	Links    string            `json:"links"`
	// Costs is what the machine adds to the links' times.
	Costs CostEstimates `json:"costs"`
	// Churn are the prices of churn's network on the links of the experiments
	// that vary the payload.
	Churn ChurnEstimates `json:"churn"`
	// Measured are times that the simulator predicts by itself.
	Measured MeasuredEstimates `json:"measured"`
	// Document holds the assumptions of the analytic model beside what was
	// measured.
	Document DocumentEstimates `json:"document"`
	Fits     []Residuals       `json:"fits"`
	Runs     []RunResult       `json:"runs"`
	// Scenarios are the prices of the calibrated scenarios, if there are any.
	Scenarios []Prices `json:"scenarios,omitempty"`
}

// CostEstimates are the fields of sim.Costs.
type CostEstimates struct {
	Step       Estimate `json:"step"`
	Message    Estimate `json:"message"`
	Join       Estimate `json:"join"`
	Reduce     Estimate `json:"reduce"`
	Hop        Estimate `json:"hop"`
	ReduceByte Estimate `json:"reduce_byte"`
	Dial       Estimate `json:"dial"`
	Fetch      Estimate `json:"fetch"`
	FetchByte  Estimate `json:"fetch_byte"`
	Efficiency Estimate `json:"efficiency"`
}

// ChurnEstimates are the fields of a scenario that churn's network knows, for
// a time scale of 1.
type ChurnEstimates struct {
	BaseLatency  Estimate `json:"base_latency"`
	BandwidthBps Estimate `json:"bandwidth_bpus"`
}

// MeasuredEstimates are medians of what was measured.
type MeasuredEstimates struct {
	StepTime            Estimate `json:"inner_step_mean"`
	StepJitter          Estimate `json:"inner_step_jitter"` // standard deviation
	CoordinatorPerRound Estimate `json:"coordinator_per_round"`
	JoinerStall         Estimate `json:"joiner_stall"`
	Detection           Estimate `json:"detection"`
	DetectionPredicted  Estimate `json:"detection_predicted"`
}

// DocumentEstimates are the constants of the analytic model: T_sync =
// Volume·V/bandwidth + Latency·latency, and 1 + Straggler·log2(n).
type DocumentEstimates struct {
	Volume  Estimate `json:"volume_factor"`  // the document has 2
	Latency Estimate `json:"latency_factor"` // the document has 1 round trip
	// Straggler is the coefficient for log-normal step times, one for each
	// standard deviation of their logarithm; the document has 0.05.
	Straggler []Straggler `json:"straggler"`
}

// Residuals say how good a fit is: what is left of single times.
type Residuals struct {
	What         string `json:"what"`
	Observations int    `json:"observations"`
	// Median and P90 are of absolute residuals, Relative is the median of
	// residuals divided by measured times.
	Median   float64 `json:"median_ms"`
	P90      float64 `json:"p90_ms"`
	Relative float64 `json:"relative_median"`
	// Before is Median without any calibration.
	Before float64 `json:"before_median_ms"`
}

// RunResult is a run that the fit rests on.
type RunResult struct {
	Name     string         `json:"name"`
	Dir      string         `json:"dir"`
	Policy   string         `json:"policy"`
	Fidelity fidelity.Level `json:"fidelity"`
	// Wall-clocks in seconds of real time: measured, and by the simulator on
	// the links, without and with the calibration.
	Measured float64 `json:"measured_s"`
	Links    float64 `json:"links_s"`
	Fitted   float64 `json:"fitted_s"`
}

// Load reads a calibration file.
func Load(file string) (*Calibration, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the calibration: %w", err)
	}
	var c Calibration
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("reading the calibration %s: %w; write it with testbed calibrate", file, err)
	}
	if c.Schema != Schema {
		return nil, fmt.Errorf("the calibration %s has schema %d, this version reads %d; write it anew with testbed calibrate", file, c.Schema, Schema)
	}
	if e := c.Costs.Efficiency.Value; !(e > 0 && e <= 1) {
		return nil, fmt.Errorf("the calibration %s: costs.efficiency.value is %v; it must lie in (0, 1]", file, e)
	}
	return &c, nil
}

// SimCosts are the costs for the simulator. What the fit found to be negative,
// within its error, counts as nothing.
func (c *Calibration) SimCosts() sim.Costs {
	k := c.Costs
	ms := func(e Estimate) time.Duration { return time.Duration(max(0, e.Value) * float64(time.Millisecond)) }
	return sim.Costs{
		Step: ms(k.Step), Message: ms(k.Message), Join: ms(k.Join), Reduce: ms(k.Reduce), Hop: ms(k.Hop),
		ReduceByte: max(0, k.ReduceByte.Value), Dial: ms(k.Dial), Fetch: ms(k.Fetch), FetchByte: max(0, k.FetchByte.Value),
		Efficiency: k.Efficiency.Value,
	}
}

// Fit calibrates with the observations of the runs.
func Fit(runs []*Run) (*Calibration, error) {
	var o Observations
	for _, r := range runs {
		if err := o.Observe(r); err != nil {
			return nil, err
		}
	}
	if len(o.Reductions) == 0 {
		return nil, errors.New("no round of these runs was valid; run calibrate on a machine that does nothing else")
	}
	c := &Calibration{Schema: Schema}
	c.fitSteps(o.Steps)
	c.fitControl(o.Rounds, o.Orders)
	c.fitReductions(o.Reductions)
	c.fitFetches(o)
	c.fitChurn(runs)
	c.Document = fitDocument(runs, o.Reductions)
	var err error
	if c.Document.Straggler, err = Stragglers(c.SimCosts()); err != nil {
		return nil, err
	}
	return c, c.predict(runs)
}

const toMs = 1000 // from seconds

// fitMedian estimates the median of something, in milliseconds.
func fitMedian(rows []row, unit string, times float64) Estimate {
	if len(rows) == 0 {
		return Estimate{Unit: unit}
	}
	fit := func(rows []row) []float64 {
		values := make([]float64, len(rows))
		for i, r := range rows {
			values[i] = r.y
		}
		return []float64{stats.Median(values)}
	}
	low, high := bootstrap(rows, fit)
	return Estimate{Value: fit(rows)[0] * times, Low: low[0] * times, High: high[0] * times, Unit: unit, Observations: len(rows)}
}

// over are the rows of what was measured over what links explain.
func over(all []Observation) []row {
	rows := make([]row, len(all))
	for i, o := range all {
		rows[i] = row{y: o.Measured - o.Links, group: o.Run}
	}
	return rows
}

func measured(all []Observation) []row {
	rows := over(all)
	for i := range rows {
		rows[i].y = all[i].Measured
	}
	return rows
}

func (c *Calibration) residuals(what string, all []Observation, explained func(Observation) float64) {
	if len(all) == 0 {
		return
	}
	var after, before, relative []float64
	for _, o := range all {
		r := o.Measured - explained(o)
		after, before = append(after, toMs*math.Abs(r)), append(before, toMs*math.Abs(o.Measured-o.Links))
		relative = append(relative, r/o.Measured)
	}
	slices.Sort(after)
	c.Fits = append(c.Fits, Residuals{What: what, Observations: len(all), Median: stats.Median(after), P90: stats.Quantile(after, 0.9),
		Relative: stats.Median(relative), Before: stats.Median(before)})
}

func (c *Calibration) fitSteps(steps []Observation) {
	c.Costs.Step = fitMedian(over(steps), "ms", toMs)
	c.Measured.StepTime = fitMedian(measured(steps), "ms", toMs)
	rows := over(steps)
	fit := func(rows []row) []float64 {
		values := make([]float64, len(rows))
		for i, r := range rows {
			values[i] = r.y
		}
		m := stats.Median(values)
		for i := range values {
			values[i] -= m
		}
		return []float64{spread(values)}
	}
	if len(rows) > 0 {
		low, high := bootstrap(rows, fit)
		c.Measured.StepJitter = Estimate{Value: fit(rows)[0] * toMs, Low: low[0] * toMs, High: high[0] * toMs, Unit: "ms", Observations: len(rows)}
	}
	c.residuals("inner steps", steps, func(o Observation) float64 { return o.Links + c.Costs.Step.Value/toMs })
}

// fitControl: a round has a message each way around its inner steps, and
// another pair around its reduction.
func (c *Calibration) fitControl(rounds, orders []Observation) {
	all := append(slices.Clone(rounds), orders...)
	rows := over(all)
	for i := range rows {
		rows[i].y /= 2
	}
	c.Costs.Message = fitMedian(rows, "ms", toMs)
	c.Measured.CoordinatorPerRound = fitMedian(over(orders), "ms", toMs)
	c.residuals("control messages", all, func(o Observation) float64 { return o.Links + 2*c.Costs.Message.Value/toMs })
}

// reduceCosts are the costs that reductions tell of, in the order of their
// coefficients, with the change in which their effect is measured.
var reduceCosts = []struct {
	unit  string
	times float64
	delta float64
	add   func(*sim.Costs, float64)
}{
	{"", 1, -0.02, func(c *sim.Costs, v float64) { c.Efficiency += v }},
	{"ms", toMs, 0.5e-3, func(c *sim.Costs, v float64) { c.Hop += duration(v) }},
	{"ms", toMs, 1e-3, func(c *sim.Costs, v float64) { c.Reduce += duration(v) }},
	{"ns", 1e9, 1e-9, func(c *sim.Costs, v float64) { c.ReduceByte += v * 1e9 }},
	{"ms", toMs, 1e-3, func(c *sim.Costs, v float64) { c.Dial += duration(v) }},
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// fitReductions explains what the links do not by the efficiency, the hops, a
// constant, the bytes that all send together, and the connections to make.
// What a hop costs shows only where links wait for hops, so this is a search:
// each step solves for the change of the costs that the effects of small
// changes ask for (Gauss and Newton). Residuals count relative to what the
// links take.
func (c *Calibration) fitReductions(all []Observation) {
	costs := sim.Costs{Efficiency: 1}
	at := make([]float64, len(reduceCosts))
	at[0] = 1
	var rows []row
	const steps = 6
	for range steps {
		rows = linear(all, costs)
		change := robust(rows)
		if change == nil {
			break
		}
		for j := range at {
			at[j] += change[j]
		}
		at[0] = min(1, max(0.5, at[0]))
		costs = sim.Costs{}
		for j, k := range reduceCosts {
			k.add(&costs, at[j])
		}
	}
	last := robust(rows)
	low, high := bootstrap(rows, robust)
	for j, to := range []*Estimate{&c.Costs.Efficiency, &c.Costs.Hop, &c.Costs.Reduce, &c.Costs.ReduceByte, &c.Costs.Dial} {
		k := reduceCosts[j]
		*to = Estimate{Value: at[j] * k.times, Unit: k.unit}
		if last == nil || low == nil {
			continue // the runs do not determine it
		}
		// The intervals are those of the last step's changes, around its result.
		off := at[j] - last[j]
		to.Low, to.High, to.Observations = (low[j]+off)*k.times, (high[j]+off)*k.times, len(all)
	}
	c.residuals("reductions", all, func(o Observation) float64 { return o.predict(c.SimCosts()) })
}

// linear are the effects of small changes of the costs on each reduction.
func linear(all []Observation, costs sim.Costs) []row {
	rows := make([]row, len(all))
	for i, o := range all {
		now := o.predict(costs)
		x := make([]float64, len(reduceCosts))
		for j, k := range reduceCosts {
			changed := costs
			k.add(&changed, k.delta)
			x[j] = (o.predict(changed) - now) / k.delta / o.Links
		}
		rows[i] = row{x: x, y: (o.Measured - now) / o.Links, group: o.Run}
	}
	return rows
}

func (c *Calibration) fitFetches(o Observations) {
	var rows []row
	for _, f := range o.Fetches {
		// The two control messages have their own cost.
		rows = append(rows, row{x: []float64{1, float64(f.Bytes)}, y: f.Measured - f.Links - 2*c.Costs.Message.Value/toMs, group: f.Run})
	}
	e := estimates(rows, []string{"ms", "ns"}, []float64{toMs, 1e9})
	c.Costs.Fetch, c.Costs.FetchByte = e[0], e[1]
	c.residuals("state fetches", o.Fetches, func(f Observation) float64 {
		return f.Links + 2*c.Costs.Message.Value/toMs + e[0].Value/toMs + e[1].Value/1e9*float64(f.Bytes)
	})
	c.Costs.Join = fitMedian(over(o.Hellos), "ms", toMs)
	c.Measured.JoinerStall = fitMedian(measured(o.Stalls), "ms", toMs)
	c.Measured.Detection = fitMedian(measured(o.Detections), "ms", toMs)
	predicted := make([]row, len(o.Detections))
	for i, d := range o.Detections {
		predicted[i] = row{y: d.Links, group: d.Run}
	}
	c.Measured.DetectionPredicted = fitMedian(predicted, "ms", toMs)
	c.residuals("detections", o.Detections, func(d Observation) float64 { return d.Links })
}

// predict simulates the runs with the calibration and without.
func (c *Calibration) predict(runs []*Run) error {
	for _, r := range runs {
		result := RunResult{Name: r.Name, Dir: r.Summary.Dir, Policy: r.Policy, Fidelity: r.Summary.Fidelity.Verdict, Measured: r.seconds(r.Summary.WallClock)}
		for costs, to := range map[sim.Costs]*float64{{}: &result.Links, c.SimCosts(): &result.Fitted} {
			sum, err := sim.RunLinks(r.Scenario, r.Policy, costs, nil)
			if err != nil {
				return err
			}
			*to = r.seconds(sum.WallClock)
		}
		c.Runs = append(c.Runs, result)
	}
	slices.SortFunc(c.Runs, func(a, b RunResult) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}
