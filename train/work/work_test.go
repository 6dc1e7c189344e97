package work_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/train/work"
)

const mean = 100_000 // µs: rounding to whole ones does not show

func draws(spec *work.Spec, jitter policy.Time, n int) []float64 {
	s := work.NewSampler(spec, 1, 0, mean, jitter, work.Stream(1, 0, "inner step"))
	all := make([]float64, n)
	for i := range all {
		all[i] = float64(s.Step(0, 1)) / mean
	}
	return all
}

// moments returns the mean and the standard deviation.
func moments(all []float64) (m, sigma float64) {
	for _, x := range all {
		m += x / float64(len(all))
	}
	for _, x := range all {
		sigma += (x - m) * (x - m) / float64(len(all))
	}
	return m, math.Sqrt(sigma)
}

// TestDistributions holds a hundred thousand draws against what each
// distribution promises. The seed is fixed.
func TestDistributions(t *testing.T) {
	steps := func(d work.Distribution, sigma float64) *work.Spec {
		return &work.Spec{Steps: work.Steps{Distribution: d, Sigma: &sigma}}
	}
	for _, c := range []struct {
		name             string
		spec             *work.Spec
		jitter           policy.Time
		sigma, low, high float64
	}{
		{"uniform, by the jitter", &work.Spec{}, mean / 2, 0.5 / math.Sqrt(3), 0.5, 1.5},
		{"uniform", steps(work.Uniform, 0.3), 0, 0.3, 1 - 0.3*math.Sqrt(3), 1 + 0.3*math.Sqrt(3)},
		{"normal", steps(work.Normal, 0.2), 0, 0.2, 0, 2},
		{"normal, cut off", steps(work.Normal, 0.9), 0, 0.51, 0, 2},
		{"lognormal", steps(work.LogNormal, 0.3), 0, math.Sqrt(math.Exp(0.09) - 1), 0, 5},
		{"pareto", steps(work.Pareto, 0.3), 0, 0.3, 0.77, 770},
		{"pareto of a shape without a variance", &work.Spec{Steps: work.Steps{Distribution: work.Pareto, Shape: new(1.5)}}, 0, -1, 0.34, 345},
		{"measured", &work.Spec{Steps: work.Steps{Distribution: work.Trace, Ratios: []float64{0.5, 1, 1.5}}}, 0, math.Sqrt(0.5 / 3), 0.5, 1.5},
		{"no deviation", steps(work.Pareto, 0), 0, 0, 1, 1},
	} {
		all := draws(c.spec, c.jitter, 100_000)
		m, sigma := moments(all)
		if math.Abs(m-1) > 0.02 {
			t.Errorf("%s: the mean is %.3f times what it should be", c.name, m)
		}
		if c.sigma >= 0 && math.Abs(sigma-c.sigma) > 0.02 {
			t.Errorf("%s: sigma %.3f, want %.3f", c.name, sigma, c.sigma)
		}
		if low, high := slices.Min(all), slices.Max(all); low < c.low-1e-5 || high > c.high+1e-5 {
			t.Errorf("%s: from %v to %v, beyond %v to %v", c.name, low, high, c.low, c.high)
		}
	}
}

// TestWithoutASpec: steps vary as churn's do, from the same stream.
func TestWithoutASpec(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		seed, m := rapid.Uint64().Draw(t, "seed"), policy.Time(rapid.Int64Range(1, 5000).Draw(t, "mean"))
		j := rapid.Int64Range(0, int64(m)).Draw(t, "jitter")
		factor := rapid.SampledFrom([]float64{1, 0.3, 10}).Draw(t, "factor")
		a, b := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 0))
		s := work.NewSampler(nil, seed, 3, m, policy.Time(j), a)
		for at := range policy.Time(5) {
			want := m
			if j > 0 {
				want += policy.Time(b.Int64N(2*j+1) - j)
			}
			if factor != 1 {
				want = policy.Time(float64(want) * factor)
			}
			if got := s.Step(at*1000, factor); got != want {
				t.Fatalf("%d, want %d", got, want)
			}
		}
	})
}

func randomSpec(t *rapid.T) *work.Spec {
	long := func(name string) policy.Time { return policy.Time(rapid.Int64Range(1, 3000).Draw(t, name)) }
	s := &work.Spec{Classes: []work.Class{{Name: "a", IDs: []policy.ID{0, 2}, Factor: 2.5}}}
	if rapid.Bool().Draw(t, "noise") {
		s.Noise = &work.Noise{SlowFactor: 3, MeanOK: long("ok"), MeanSlow: long("slow")}
	}
	if rapid.Bool().Draw(t, "thermal") {
		s.Thermal = &work.Thermal{SlowFactor: 1.5, Heat: long("heat"), Cool: long("cool")}
	}
	if rapid.Bool().Draw(t, "diurnal") {
		s.Diurnal = &work.Diurnal{Amplitude: 0.5, Period: long("period"), Phase: 0.25}
		s.Classes[0].Phase = 0.5
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSpeedIsAFunctionOfTime: whoever asks in whatever order hears the same, and
// a factor holds for as long as is said.
func TestSpeedIsAFunctionOfTime(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		spec, seed, id := randomSpec(t), rapid.Uint64().Draw(t, "seed"), policy.ID(rapid.IntRange(0, 3).Draw(t, "id"))
		inOrder, jumping := work.NewSpeed(spec, seed, id), work.NewSpeed(spec, seed, id)
		const end = 10_000
		var all []float64
		for at := policy.Time(0); at < end; {
			f, until := inOrder.Until(at)
			if until <= at {
				t.Fatalf("the factor at %d holds until %d", at, until)
			}
			for ; at < min(until, end); at++ {
				all = append(all, f)
			}
		}
		for _, at := range rapid.SliceOfN(rapid.IntRange(0, end-1), 50, 50).Draw(t, "times") {
			if got := jumping.At(policy.Time(at)); got != all[at] {
				t.Fatalf("at %d: %v, in order %v", at, got, all[at])
			}
		}
	})
}

// TestShares holds how long each state lasts against the section.
func TestShares(t *testing.T) {
	const end = 20_000_000
	share := func(s *work.Speed, slow float64) (share float64, changes int) {
		for at := policy.Time(0); at < end; {
			f, until := s.Until(at)
			if f == slow {
				share += float64(min(until, end)-at) / end
			}
			at, changes = until, changes+1
		}
		return share, changes
	}
	n := &work.Spec{Noise: &work.Noise{SlowFactor: 3, MeanOK: 4000, MeanSlow: 1000}}
	if got, changes := share(work.NewSpeed(n, 7, 0), 3); math.Abs(got-0.2) > 0.01 || math.Abs(float64(changes)/8000-1) > 0.05 {
		t.Errorf("slow for %.3f of the time in %d sojourns, want 0.2 and about 8,000", got, changes)
	}
	h := &work.Spec{Thermal: &work.Thermal{SlowFactor: 1.5, Heat: 3000, Cool: 1000}}
	if got, _ := share(work.NewSpeed(h, 7, 0), 1.5); math.Abs(got-0.25) > 0.001 {
		t.Errorf("throttled for %.3f of the time, want 0.25", got)
	}
	if a, b := work.NewSpeed(n, 7, 0), work.NewSpeed(n, 7, 1); func() bool {
		for at := policy.Time(0); at < 100_000; at += 100 {
			if a.At(at) != b.At(at) {
				return false
			}
		}
		return true
	}() {
		t.Error("two workers are slow at the same times")
	}
}

// TestDay: the load has its peak a quarter after the phase, and the mean 1.
func TestDay(t *testing.T) {
	spec := &work.Spec{
		Classes: []work.Class{{Name: "east", IDs: []policy.ID{1}, Factor: 1, Phase: 0.5}},
		Diurnal: &work.Diurnal{Amplitude: 0.4, Period: 24_000, Phase: 0.25},
	}
	sum := 0.0
	west, east := work.NewSpeed(spec, 1, 0), work.NewSpeed(spec, 1, 1)
	for at := range policy.Time(24_000) {
		sum += west.At(at) / 24_000
	}
	if math.Abs(sum-1) > 1e-6 || math.Abs(west.At(0)-1.4) > 1e-6 || math.Abs(west.At(12_000)-0.6) > 1e-6 || math.Abs(east.At(0)-0.6) > 1e-6 {
		t.Errorf("mean %v, west %v and %v, east %v", sum, west.At(0), west.At(12_000), east.At(0))
	}
}

// TestStepsFollowTheSpeed: what makes a worker slow multiplies its steps.
func TestStepsFollowTheSpeed(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		spec, seed := randomSpec(t), rapid.Uint64().Draw(t, "seed")
		s := work.NewSampler(spec, seed, 2, mean, 0, work.Stream(seed, 2, "inner step"))
		speed := work.NewSpeed(spec, seed, 2)
		for _, at := range rapid.SliceOfN(rapid.IntRange(0, 10_000), 10, 10).Draw(t, "times") {
			want := math.Round(mean * speed.At(policy.Time(at)) * 10)
			if got := s.Step(policy.Time(at), 10); math.Abs(float64(got)-want) > 1 {
				t.Fatalf("%d at %d, want %v", got, at, want)
			}
		}
	})
}

func TestParseDurations(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "the file has no durations; write one per line",
		"step_ms\n":                    "the file has no durations; write one per line",
		"# x\n\n1\nfast\n":             `line 4: "fast" is not a number; write one duration per line`,
		"1\n0\n":                       "line 2: the duration is 0; it must lie in (0, 1e15]",
		"1,2\n3,-4\n":                  "line 2: the duration is -4; it must lie in (0, 1e15]",
		"NaN\n":                        "line 1: the duration is NaN; it must lie in (0, 1e15]",
		strings.Repeat("1\n", 100_001): "line 100001: there are more than 100000 durations; leave some out",
	} {
		if _, err := work.ParseDurations([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%.20q: %v, want %s", text, err, want)
		}
	}
	got, err := work.ParseDurations([]byte("worker,step_ms\r\nw0,1.5\r\n# pause\nw1, 4.5"))
	if err != nil || !slices.Equal(got, []float64{0.5, 1.5}) {
		t.Errorf("%v %v", got, err)
	}
}

func FuzzParseDurations(f *testing.F) {
	f.Add([]byte("worker,step\n0,1.5\n1,2\n"))
	f.Add([]byte("1e-300\n1e15\n\n#\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		ratios, err := work.ParseDurations(text)
		if err != nil {
			return
		}
		sum := 0.0
		for _, r := range ratios {
			if !(r >= 0) || math.IsInf(r, 0) {
				t.Fatalf("ratio %v", r)
			}
			sum += r
		}
		if n := float64(len(ratios)); math.Abs(sum-n) > 1e-6*n {
			t.Fatalf("the ratios' mean is %v", sum/n)
		}
	})
}

func TestDescribe(t *testing.T) {
	spec := work.Spec{
		Steps:   work.Steps{Distribution: work.Trace, File: "x.csv", Ratios: []float64{1}},
		Classes: []work.Class{{Name: "fast", IDs: []policy.ID{0}, Factor: 1}, {Name: "slow", IDs: []policy.ID{1, 2}, Factor: 2.5}},
	}
	want := []string{
		"steps: trace x.csv, 1 duration",
		"class fast: 1 worker with steps that take as long as usual",
		"class slow: 2 workers with steps that take 2.5 times as long as usual",
	}
	if got := spec.Describe(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	spec.Steps.Ratios = nil // before the file is read
	if got := spec.Steps.String(); got != "trace x.csv" {
		t.Errorf("%q", got)
	}
}
