package calibrate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/shaping/fidelity"
	"testbed/sim"

	"testbed/internal/stats"
)

// Schema is the version of the calibration file's format.
const Schema = 1

// Calibration is the result of calibrate, with its sources.
type Calibration struct {
	File   string `json:"-"` // where Load has read it
	Schema int    `json:"schema"`
	Made   string `json:"made"` // RFC 3339
	// Machine and Versions are those of the runs. The values hold for them only.
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Links    string            `json:"links"`
	// Mixed lists the differences between the machines and links of the runs, a
	// line each.
	Mixed []string `json:"mixed,omitempty"`
	// Costs are the times that the machine adds to the links' times.
	Costs CostEstimates `json:"costs"`
	// Churn are the prices of churn's network on the links of the experiments
	// that vary the payload.
	Churn ChurnEstimates `json:"churn"`
	// Measured are times that the simulator predicts by itself.
	Measured MeasuredEstimates `json:"measured"`
	// Document holds the assumptions of the analytic model, compared with
	// measurements.
	Document DocumentEstimates `json:"document"`
	Fits     []Residuals       `json:"fits"`
	Runs     []RunResult       `json:"runs"`
	// HeldOut is the size of the simulator's error, as a share of the measured
	// wall-clock, on runs that the costs were not fitted to. Each run, with its
	// repeats, is held out in turn. It is absent for fewer than two runs.
	HeldOut *stats.Estimate `json:"held_out,omitempty"`
	// Steps are the shapes of inner steps, by scenario.
	Steps []StepShape `json:"steps,omitempty"`
	// Reductions in which codes were shortened, and rounds that were left out.
	Coded   int       `json:"coded,omitempty"`
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// Untold are the costs that the runs do not determine. They are at their
	// defaults.
	Untold []Untold `json:"untold,omitempty"`
	// Scenarios are the prices of the calibrated scenarios, if there are any.
	Scenarios []Prices `json:"scenarios,omitempty"`
}

// Machine describes what the costs depend on.
type Machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	Kernel    string `json:"kernel"`
	Go        string `json:"go"`
}

// Differs lists the differences from another machine, a line each, as far as
// both are known.
func (m Machine) Differs(other Machine) (lines []string) {
	for _, of := range []struct{ what, was, is string }{
		{"processor", m.Processor, other.Processor},
		{"number of cores", cores(m.Cores), cores(other.Cores)},
		{"kernel", m.Kernel, other.Kernel},
	} {
		if of.was != "" && of.is != "" && of.was != of.is {
			lines = append(lines, fmt.Sprintf("another %s (%s, not %s)", of.what, of.was, of.is))
		}
	}
	return lines
}

func cores(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Warnings list, a line each, what users should know before they use the
// calibration.
func (c *Calibration) Warnings() (lines []string) {
	lines = slices.Clone(c.Mixed)
	for _, s := range c.Steps {
		if !s.Good() && slices.ContainsFunc(c.Scenarios, func(p Prices) bool { return p.Scenario == s.Scenario }) {
			lines = append(lines, fmt.Sprintf("the inner steps of %s follow none of the known distributions, so the calibrated copy of the scenario keeps them unchanged; the closest distribution is %s", s.Scenario, &s))
		}
	}
	return lines
}

// place records where the runs were made.
func (c *Calibration) place(runs []*Run) {
	c.Machine, c.Links = runs[0].Machine, runs[0].Summary.Links
	seen := map[string]bool{}
	for _, r := range runs[1:] {
		lines := r.Machine.Differs(c.Machine)
		if r.Summary.Links != c.Links {
			lines = append(lines, fmt.Sprintf("other links (%s, not %s)", r.Summary.Links, c.Links))
		}
		for _, line := range lines {
			if !seen[line] {
				c.Mixed = append(c.Mixed, fmt.Sprintf("the run %s differs from the first run: it was made with %s", r.Name, line))
			}
			seen[line] = true
		}
	}
}

// LeftOut are rounds that the fit does not use.
type LeftOut struct {
	Rounds int    `json:"rounds"`
	Why    string `json:"why"`
}

// Untold is a cost that the runs do not determine.
type Untold struct {
	Cost string `json:"cost"` // its field of costs
	Why  string `json:"why"`
}

// CostEstimates are the fields of timing.Costs.
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

// ChurnEstimates are the fields of a scenario that churn's network uses, for a
// time scale of 1.
type ChurnEstimates struct {
	BaseLatency  Estimate `json:"base_latency"`
	BandwidthBps Estimate `json:"bandwidth_bpus"`
}

// MeasuredEstimates are medians of measurements.
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

// Residuals measure how good a fit is: the remaining errors of single times.
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

// RunResult is a run that the fit uses.
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
		return nil, fmt.Errorf("the calibration %s has schema %d, but this version reads schema %d; make a new calibration with testbed calibrate", file, c.Schema, Schema)
	}
	if e := c.Costs.Efficiency.Value; !(e > 0 && e <= 1) {
		return nil, fmt.Errorf("the calibration %s: costs.efficiency.value is %v: it must lie in (0, 1]", file, e)
	}
	c.File = file
	return &c, nil
}

// SimCosts are the costs for the simulator. Costs that the fit found to be
// negative, within its error, become 0.
func (c *Calibration) SimCosts() sim.Costs {
	k := c.Costs
	ms := func(e Estimate) time.Duration { return time.Duration(max(0, e.Value) * float64(time.Millisecond)) }
	return sim.Costs{
		Step: ms(k.Step), Message: ms(k.Message), Join: ms(k.Join), Reduce: ms(k.Reduce), Hop: ms(k.Hop),
		ReduceByte: max(0, k.ReduceByte.Value), Dial: ms(k.Dial), Fetch: ms(k.Fetch), FetchByte: max(0, k.FetchByte.Value),
		Efficiency: k.Efficiency.Value,
	}
}

// ErrNoRounds says that none of the runs is valid, so that nothing can be fitted.
var ErrNoRounds = errors.New("no round of the runs can be used for a calibration")

// Fit calibrates with the observations of the runs. If there are none, the error wraps
// ErrNoRounds.
func Fit(runs []*Run) (*Calibration, error) {
	var o Observations
	for _, r := range runs {
		if err := o.Observe(r); err != nil {
			return nil, err
		}
	}
	if len(o.Reductions) == 0 {
		fix := "calibrate with other runs"
		if o.left[leftInvalid] > 0 {
			fix = "calibrate on a machine that does nothing else"
		}
		return nil, fmt.Errorf("%w%s; %s", ErrNoRounds, o.leftOut(), fix)
	}
	c := &Calibration{Schema: Schema, Coded: o.Coded}
	c.place(runs)
	for _, why := range slices.Sorted(maps.Keys(o.left)) {
		c.LeftOut = append(c.LeftOut, LeftOut{o.left[why], why})
	}
	c.fitSteps(o.Steps)
	c.fitControl(o.Rounds, o.Orders)
	c.fitReductions(o.Reductions)
	c.fitFetches(o)
	c.fitChurn(runs)
	c.Document = fitDocument(runs, o.Reductions)
	c.fitShapes(o.ratios)
	c.unseen()
	var err error
	if c.Document.Straggler, err = Stragglers(c.SimCosts()); err != nil {
		return nil, err
	}
	if err := c.predict(runs); err != nil {
		return nil, err
	}
	c.HeldOut, err = heldOut(runs)
	return c, err
}

// heldOut is the error of the simulator on each run when it is fitted to the
// others; nil if there are no others.
func heldOut(runs []*Run) (*stats.Estimate, error) {
	var errors []float64
	for _, r := range runs {
		var o Observations
		for _, other := range runs {
			if other.Scenario.Name == r.Scenario.Name && other.Policy == r.Policy {
				continue
			}
			if err := o.Observe(other); err != nil {
				return nil, err
			}
		}
		if measured := r.seconds(r.Summary.WallClock); len(o.Reductions) > 0 && measured > 0 {
			var c Calibration
			c.fitSteps(o.Steps)
			c.fitControl(o.Rounds, o.Orders)
			c.fitReductions(o.Reductions)
			c.fitFetches(o)
			resolved, err := r.Scenario.Resolve(r.Policy)
			if err != nil {
				return nil, err
			}
			sum, err := sim.RunLinks(resolved, c.SimCosts(), nil)
			if err != nil {
				return nil, err
			}
			errors = append(errors, math.Abs(r.seconds(sum.WallClock)/measured-1))
		}
	}
	if len(errors) < 2 {
		return nil, nil
	}
	return new(stats.Estimated(errors)), nil
}

// AddedPerRound is what the machine adds to a round of a few workers, in milliseconds: an
// inner step, a message there and back, and a reduction without its hops and bytes.
func (c *Calibration) AddedPerRound() float64 {
	return c.Costs.Step.Value + 2*c.Costs.Message.Value + c.Costs.Reduce.Value
}

// leftOut explains in words why rounds were left out.
func (o *Observations) leftOut() string {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(o.left)) {
		parts = append(parts, fmt.Sprintf("%d because %s", o.left[why], why))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (rounds left out: " + strings.Join(parts, "; ") + ")"
}

// unseen adds to Untold the costs without observations.
func (c *Calibration) unseen() {
	for _, k := range []struct {
		cost string
		of   Estimate
		why  string
	}{
		{"step", c.Costs.Step, "the inner steps of all workers vary or are slowed by the scenario"},
		{"message", c.Costs.Message, "no usable round has a worker that also took part in the round before"},
		{"fetch", c.Costs.Fetch, "no worker fetched the state"},
		{"join", c.Costs.Join, "no worker joined late"},
	} {
		if k.of.Observations == 0 {
			c.Untold = append(c.Untold, Untold{k.cost, k.why})
		}
	}
}

const toMs = 1000 // from seconds

// fitMedian estimates the median of something, in milliseconds.
func fitMedian(rows []row) Estimate {
	if len(rows) == 0 {
		return Estimate{Unit: "ms"}
	}
	fit := func(rows []row) []float64 {
		values := make([]float64, len(rows))
		for i, r := range rows {
			values[i] = r.y
		}
		return []float64{stats.Median(values)}
	}
	low, high := bootstrap(rows, fit)
	return Estimate{Value: fit(rows)[0] * toMs, Low: low[0] * toMs, High: high[0] * toMs, Unit: "ms", Observations: len(rows)}
}

// over are the rows of the measured times less those that links explain.
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
	c.Costs.Step = fitMedian(over(steps))
	c.Measured.StepTime = fitMedian(measured(steps))
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
	c.Costs.Message = fitMedian(rows)
	c.Measured.CoordinatorPerRound = fitMedian(over(orders))
	c.residuals("control messages", all, func(o Observation) float64 { return o.Links + 2*c.Costs.Message.Value/toMs })
}

// reduceCosts are the costs that reductions determine, and the change by which
// each one's effect is measured. If runs do not separate two costs, the first
// in this order is fitted. Bytes come first: processors do work for each.
var reduceCosts = []struct {
	name    string
	unit    string
	times   float64
	delta   float64
	nothing float64 // its value on a machine that adds nothing
	to      func(*CostEstimates) *Estimate
	add     func(*sim.Costs, float64)
}{
	{"reduce_byte", "ns", 1e9, 1e-9, 0, func(c *CostEstimates) *Estimate { return &c.ReduceByte }, func(c *sim.Costs, v float64) { c.ReduceByte += v * 1e9 }},
	{"dial", "ms", toMs, 1e-3, 0, func(c *CostEstimates) *Estimate { return &c.Dial }, func(c *sim.Costs, v float64) { c.Dial += duration(v) }},
	{"reduce", "ms", toMs, 1e-3, 0, func(c *CostEstimates) *Estimate { return &c.Reduce }, func(c *sim.Costs, v float64) { c.Reduce += duration(v) }},
	{"hop", "ms", toMs, 0.5e-3, 0, func(c *CostEstimates) *Estimate { return &c.Hop }, func(c *sim.Costs, v float64) { c.Hop += duration(v) }},
	{"efficiency", "", 1, -0.02, 1, func(c *CostEstimates) *Estimate { return &c.Efficiency }, func(c *sim.Costs, v float64) { c.Efficiency += v }},
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// fitReductions explains the time beyond the links' time by the efficiency, the
// hops, a constant, the bytes that all send together, and the connections to
// make. The cost of a hop shows only if links wait for hops, so this is a
// search by Gauss-Newton steps: each solves for a change of the costs from the
// effects of small changes. Residuals count relative to the links' time. Costs
// that the runs do not separate from others, or that would be negative, keep
// the values of a machine that adds nothing.
func (c *Calibration) fitReductions(all []Observation) {
	none := make([]float64, len(reduceCosts))
	for j, k := range reduceCosts {
		none[j] = k.nothing
	}
	told := determined(linear(all, costsAt(none)))
	why := map[int]string{}
	var at []float64
	var rows []row
	for {
		at, rows = search(all, none, told)
		i := -1
		for k, j := range told { // the last one is dropped first
			if at[j] == none[j] {
				i = k
			}
		}
		if i < 0 {
			break
		}
		why[told[i]] = "the reductions show no sign of this cost"
		told = slices.Delete(told, i, i+1)
	}
	last := robust(rows)
	low, high := bootstrap(rows, robust)
	for j, k := range reduceCosts {
		to := k.to(&c.Costs)
		*to = Estimate{Value: at[j] * k.times, Unit: k.unit}
		i := slices.Index(told, j)
		if i < 0 || last == nil || low == nil {
			c.Untold = append(c.Untold, Untold{k.name, cmp.Or(why[j], "the reductions do not separate this cost from others")})
			continue
		}
		// The intervals are those of the last step's changes, around its result.
		off := at[j] - last[i]
		to.Low, to.High, to.Observations = (low[i]+off)*k.times, (high[i]+off)*k.times, len(all)
	}
	c.residuals("reductions", all, func(o Observation) float64 { return o.predict(c.SimCosts()) })
}

// search returns the costs of reductions and the effects of their last changes.
// It searches the costs in told.
func search(all []Observation, from []float64, told []int) (at []float64, rows []row) {
	at = slices.Clone(from)
	const steps = 6
	for range steps {
		rows = columns(linear(all, costsAt(at)), told)
		change := robust(rows)
		if change == nil {
			break
		}
		for i, j := range told {
			if at[j] += change[i]; reduceCosts[j].nothing == 0 {
				at[j] = max(0, at[j])
			} else {
				at[j] = min(1, max(0.5, at[j]))
			}
		}
	}
	return at, rows
}

// costsAt are the costs with the values of reduceCosts.
func costsAt(at []float64) (costs sim.Costs) {
	for j, k := range reduceCosts {
		k.add(&costs, at[j])
	}
	return costs
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
		// The two control messages have a cost of their own.
		rows = append(rows, row{x: []float64{1, float64(f.Bytes)}, y: f.Measured - f.Links - 2*c.Costs.Message.Value/toMs, group: f.Run})
	}
	e := []Estimate{{Unit: "ms"}, {Unit: "ns"}}
	why := "all fetches had the same number of bytes, so fetch includes the cost of the bytes"
	told := determined(rows)
	if len(told) == 2 {
		if e = estimates(rows, []string{"ms", "ns"}, []float64{toMs, 1e9}); e[1].Value < 0 {
			told, why = told[:1], "the fetches show no sign of this cost"
		}
	}
	if len(told) == 1 {
		e = append(estimates(columns(rows, told), []string{"ms"}, []float64{toMs}), Estimate{Unit: "ns"})
		c.Untold = append(c.Untold, Untold{"fetch_byte", why})
	}
	c.Costs.Fetch, c.Costs.FetchByte = e[0], e[1]
	c.residuals("state fetches", o.Fetches, func(f Observation) float64 {
		return f.Links + 2*c.Costs.Message.Value/toMs + e[0].Value/toMs + e[1].Value/1e9*float64(f.Bytes)
	})
	c.Costs.Join = fitMedian(over(o.Hellos))
	c.Measured.JoinerStall = fitMedian(measured(o.Stalls))
	c.Measured.Detection = fitMedian(measured(o.Detections))
	predicted := make([]row, len(o.Detections))
	for i, d := range o.Detections {
		predicted[i] = row{y: d.Links, group: d.Run}
	}
	c.Measured.DetectionPredicted = fitMedian(predicted)
	c.residuals("detections", o.Detections, func(d Observation) float64 { return d.Links })
}

// predict simulates the runs with the calibration and without.
func (c *Calibration) predict(runs []*Run) error {
	for _, r := range runs {
		resolved, err := r.Scenario.Resolve(r.Policy)
		if err != nil {
			return err
		}
		result := RunResult{Name: r.Name, Dir: r.Summary.Dir, Policy: r.Policy, Fidelity: r.Summary.Fidelity.Verdict, Measured: r.seconds(r.Summary.WallClock)}
		for costs, to := range map[sim.Costs]*float64{{}: &result.Links, c.SimCosts(): &result.Fitted} {
			sum, err := sim.RunLinks(resolved, costs, nil)
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
