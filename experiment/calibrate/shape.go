package calibrate

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"testbed/policy"
	"testbed/scenarios"
	"testbed/train/work"
)

// StepShape is how the inner steps of a scenario's runs vary.
type StepShape struct {
	Scenario string `json:"scenario"`
	// Distribution is the scenario's own if that is within Limit, otherwise the
	// closest of all distributions.
	Distribution work.Distribution `json:"distribution"`
	// Parameter is work.steps.sigma or, of a Pareto, work.steps.shape.
	Parameter Estimate `json:"parameter"`
	// Deviation is the standard deviation over the mean, whatever the
	// distribution.
	Deviation float64 `json:"deviation"`
	// KS is the Kolmogorov-Smirnov distance: the largest difference between the
	// share of steps up to some duration and the distribution's share. A distance
	// above Limit, 1.36/√n, is due to chance in less than one case of twenty. Runs
	// with one seed draw the same steps and count once in n.
	KS    float64 `json:"ks"`
	Limit float64 `json:"ks_limit"`
	// Others are the distances of the closest other distributions.
	Others  map[work.Distribution]float64 `json:"others_ks"`
	Classes []ClassShape                  `json:"classes"`
}

// ClassShape is how the inner steps of a class of workers vary.
type ClassShape struct {
	Name string `json:"name"` // empty: workers in no class
	// Ratio is the duration of steps divided by the scenario's.
	Ratio     Estimate `json:"ratio"`
	Parameter float64  `json:"parameter"`
	// KS is the distance from the distribution of all classes.
	KS float64 `json:"ks"`
}

// stepRatio is the duration of an inner step divided by the scenario's.
type stepRatio struct {
	scenario, class, run string
	own                  work.Distribution // of the scenario
	seed                 uint64
	ratio                float64
}

// ratio adds a step to the steps that the shape is fitted to. Records have
// whole microseconds. The part that is cut off is drawn at random, so that no
// two steps are equally long.
func (w *observer) ratio(id policy.ID, mean, begin, took policy.Time) {
	s := w.run.Scenario
	if s.Work != nil && s.Work.Steps.Distribution == work.Trace {
		return
	}
	speed, ok := w.speeds[id]
	if !ok {
		speed = work.NewSpeed(s.Work, s.Seed, id)
		w.speeds[id] = speed
	}
	class := ""
	if c := s.Work.Of(id); c != nil {
		class = c.Name
	}
	own := work.Uniform
	if s.Work != nil && s.Work.Steps.Distribution != "" {
		own = s.Work.Steps.Distribution
	}
	w.o.ratios = append(w.o.ratios, stepRatio{s.Name, class, w.run.Name, own, s.Seed, (float64(took) + w.rng.Float64()) / (float64(mean) * speed.At(begin))})
}

// stepsOf begins the name of the steps of a scenario in Untold.
const stepsOf = "steps of "

// leastSteps is the number of inner steps below which no shape is fitted.
const leastSteps = 30

// fitShapes fits the shape of the inner steps of every scenario.
func (c *Calibration) fitShapes(all []stepRatio) {
	of := map[string][]stepRatio{}
	for _, r := range all {
		of[r.scenario] = append(of[r.scenario], r)
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if len(of[name]) < leastSteps {
			c.Untold = append(c.Untold, Untold{stepsOf + name, fmt.Sprintf("too few usable inner steps: %d of the %d that a shape needs", len(of[name]), leastSteps)})
			continue
		}
		if s, ok := fitShape(name, of[name]); ok {
			c.Steps = append(c.Steps, s)
		}
	}
}

// laws are the distributions that are tried, each with its parameter in a class
// and the mean ratio there.
var laws = []struct {
	name work.Distribution
	fit  func(ratios []float64) (parameter, mean float64)
	with func(parameter float64) work.Steps
}{
	{work.Normal, moments, func(p float64) work.Steps { return work.Steps{Distribution: work.Normal, Sigma: &p} }},
	{work.Uniform, moments, func(p float64) work.Steps { return work.Steps{Distribution: work.Uniform, Sigma: &p} }},
	{work.LogNormal, func(ratios []float64) (sigma, mean float64) {
		m, v := meanVariance(logs(ratios))
		return math.Sqrt(v), math.Exp(m + v/2)
	}, func(p float64) work.Steps { return work.Steps{Distribution: work.LogNormal, Sigma: &p} }},
	{work.Pareto, func(ratios []float64) (shape, mean float64) {
		// The most likely exponent, less its bias (Malik 1970). The bound hardly
		// matters.
		least, sum := slices.Min(ratios), 0.0
		for _, r := range ratios {
			sum += math.Log(r / least)
		}
		shape = float64(len(ratios)-2) / sum
		return shape, least * shape / (shape - 1)
	}, func(p float64) work.Steps { return work.Steps{Distribution: work.Pareto, Shape: &p} }},
}

func moments(ratios []float64) (sigma, mean float64) {
	m, v := meanVariance(ratios)
	return math.Sqrt(v) / m, m
}

func logs(values []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = math.Log(v)
	}
	return out
}

func meanVariance(values []float64) (mean, variance float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		variance += (v - mean) * (v - mean) / float64(max(1, len(values)-1))
	}
	return mean, variance
}

// fitShape chooses the closest distribution. ok is false if a scenario must not
// be given any.
func fitShape(name string, all []stepRatio) (shape StepShape, ok bool) {
	shape = StepShape{Scenario: name, KS: math.Inf(1), Limit: 1.36 / math.Sqrt(float64(independent(all))), Others: map[work.Distribution]float64{}}
	var classes []string
	for _, r := range all {
		if !slices.Contains(classes, r.class) {
			classes = append(classes, r.class)
		}
	}
	slices.Sort(classes)
	rows := make([]row, len(all))
	for i, r := range all {
		rows[i] = row{x: []float64{float64(slices.Index(classes, r.class))}, y: r.ratio, group: strconv.FormatUint(r.seed, 10)}
	}
	shape.Deviation, _ = pooled(rows, len(classes), moments)
	best := -1
	for i, law := range laws {
		parameter, means := pooled(rows, len(classes), law.fit)
		steps := law.with(parameter)
		if spec := (work.Spec{Steps: steps}); spec.Validate() != nil || parameter == 0 {
			continue
		}
		d := distance(normed(rows, means, -1), steps)
		shape.Others[law.name] = d
		if d < shape.KS {
			shape.KS, best = d, i
		}
	}
	for i, law := range laws { // shapes that are hardly apart
		if d, tried := shape.Others[law.name]; tried && law.name == all[0].own && d <= shape.Limit {
			shape.KS, best = d, i
		}
	}
	if best < 0 {
		return shape, false
	}
	law := laws[best]
	shape.Distribution = law.name
	delete(shape.Others, law.name)
	fit := func(rows []row) []float64 {
		parameter, means := pooled(rows, len(classes), law.fit)
		return append([]float64{parameter}, means...)
	}
	values := fit(rows)
	low, high := bootstrap(rows, fit)
	estimate := func(i int) Estimate {
		return Estimate{Value: values[i], Low: low[i], High: high[i], Observations: len(rows)}
	}
	shape.Parameter = estimate(0)
	for k, class := range classes {
		of := ClassShape{Name: class, Ratio: estimate(1 + k)}
		own := ofClass(rows, k)
		of.Ratio.Observations = len(own)
		of.Parameter, _ = law.fit(own)
		of.KS = distance(normed(rows, values[1:], k), law.with(values[0]))
		shape.Classes = append(shape.Classes, of)
	}
	return shape, true
}

// independent is the number of steps, counting only the longest run for each
// seed.
func independent(all []stepRatio) (n int) {
	runs := map[uint64]map[string]int{}
	for _, r := range all {
		if runs[r.seed] == nil {
			runs[r.seed] = map[string]int{}
		}
		runs[r.seed][r.run]++
	}
	for _, of := range runs {
		n += slices.Max(slices.Collect(maps.Values(of)))
	}
	return n
}

func ofClass(rows []row, class int) (ratios []float64) {
	for _, r := range rows {
		if int(r.x[0]) == class {
			ratios = append(ratios, r.y)
		}
	}
	return ratios
}

// pooled fits each class. It returns the mean of the parameters, weighted by
// the number of steps (of squares, as variances are pooled), and the mean ratio
// of each class.
func pooled(rows []row, classes int, fit func([]float64) (parameter, mean float64)) (parameter float64, means []float64) {
	squares, count := 0.0, 0.0
	for k := range classes {
		own := ofClass(rows, k)
		if len(own) < 3 { // a sample with replacement, or a class that hardly ran
			means = append(means, 1)
			continue
		}
		p, mean := fit(own)
		squares, count, means = squares+p*p*float64(len(own)), count+float64(len(own)), append(means, mean)
	}
	return math.Sqrt(squares / max(1, count)), means
}

// normed are the sorted ratios of a class, or of all classes if it is negative,
// divided by the means.
func normed(rows []row, means []float64, class int) (ratios []float64) {
	for _, r := range rows {
		if k := int(r.x[0]); class < 0 || k == class {
			ratios = append(ratios, r.y/means[k])
		}
	}
	slices.Sort(ratios)
	return ratios
}

// distance is the Kolmogorov-Smirnov distance of sorted ratios.
func distance(ratios []float64, steps work.Steps) (d float64) {
	n := float64(len(ratios))
	for i, r := range ratios {
		p := steps.CDF(r)
		d = max(d, p-float64(i)/n, float64(i+1)/n-p)
	}
	return d
}

// Good reports whether the durations may plausibly come from the distribution.
func (s *StepShape) Good() bool { return s.KS <= s.Limit }

func (s *StepShape) String() string {
	name := "sigma"
	if s.Distribution == work.Pareto {
		name = "shape"
	}
	p := s.Parameter
	return fmt.Sprintf("%s, %s %.4g (%.4g – %.4g), Kolmogorov–Smirnov distance %.3g over %d steps (by chance below %.3g)", s.Distribution, name, p.Value, p.Low, p.High, s.KS, p.Observations, s.Limit)
}

// apply gives a scenario the shape. If steps vary uniformly and the scenario
// has nothing else about them, it sets the jitter of workers. It does so for
// churn, too, which has nothing else. Otherwise it sets the section work. The
// means of workers are those of the original scenario, times the measured ratio
// if that is not 1.
func (s *StepShape) apply(to, was *scenarios.Scenario, jitter bool) {
	jitter = jitter || was.Work == nil && s.Distribution == work.Uniform
	var spec *work.Spec
	if !jitter {
		spec = new(work.Spec)
		if was.Work != nil {
			*spec = *was.Work
			spec.Classes = slices.Clone(spec.Classes)
		}
		p := digits(s.Parameter.Value)
		spec.Steps = work.Steps{Distribution: s.Distribution}
		if s.Distribution == work.Pareto {
			spec.Steps.Shape = &p
		} else {
			spec.Steps.Sigma = &p
		}
		to.Work = spec
	}
	for _, of := range s.Classes {
		if of.Ratio.Low <= 1 && 1 <= of.Ratio.High {
			of.Ratio.Value = 1
		}
		for i, w := range was.Workers {
			if c := was.Work.Of(w.ID); c == nil && of.Name == "" {
				to.Workers[i].InnerStepMean = policy.Time(math.Round(float64(w.InnerStepMean) * of.Ratio.Value))
			} else if c != nil && c.Name == of.Name {
				to.Workers[i].InnerStepMean = w.InnerStepMean
			}
		}
		if spec == nil {
			continue
		}
		for i := range spec.Classes {
			if c := &spec.Classes[i]; c.Name == of.Name {
				c.Factor = digits(c.Factor * of.Ratio.Value)
			}
		}
	}
	for i := range to.Workers {
		w := &to.Workers[i]
		w.InnerStepJitter = 0
		if jitter {
			w.InnerStepJitter = min(w.InnerStepMean, policy.Time(math.Round(math.Sqrt(3)*s.Deviation*float64(w.InnerStepMean))))
		}
	}
}

// digits rounds to four significant digits.
func digits(x float64) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64)
	return rounded
}
