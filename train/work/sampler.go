package work

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"testbed/policy"
)

// Stream is a worker's own stream of randomness for a purpose, of at most 16
// bytes. Processes cannot share the single stream of churn's model.
func Stream(seed uint64, id policy.ID, purpose string) *rand.Rand {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(id))
	copy(key[16:], purpose)
	return rand.New(rand.NewChaCha8(key))
}

// Sampler draws the durations of a worker's inner steps, one after the other.
type Sampler struct {
	mean, jitter policy.Time
	rng          *rand.Rand
	steps        *Steps // nil: there is no section `work`
	speed        *Speed
	alpha        float64 // Pareto's exponent; 0: no variation
	minimum      float64 // of Pareto, divided by the mean
}

// NewSampler returns the sampler of a worker with this mean and jitter in µs.
// It draws from rng, and only if durations vary. Without a spec they vary
// uniformly, by the jitter. The spec must have been validated.
func NewSampler(spec *Spec, seed uint64, id policy.ID, mean, jitter policy.Time, rng *rand.Rand) Sampler {
	s := Sampler{mean: mean, jitter: jitter, rng: rng}
	if spec == nil {
		return s
	}
	s.steps, s.speed = &spec.Steps, NewSpeed(spec, seed, id)
	s.alpha, s.minimum = s.steps.pareto()
	return s
}

// Sampler returns a sampler of the durations of a worker's inner steps. It
// accepts a nil section. Each incarnation of a worker has a stream of
// randomness of its own. Without a section, a non-nil shared stream takes its
// place, as in churn's model.
func (s *Spec) Sampler(seed uint64, id policy.ID, mean, jitter policy.Time, incarnation int, shared *rand.Rand) Sampler {
	rng := shared
	if rng == nil || s != nil {
		purpose := "inner step"
		if incarnation > 0 {
			purpose += strconv.Itoa(incarnation)
		}
		rng = Stream(seed, id, purpose)
	}
	return NewSampler(s, seed, id, mean, jitter, rng)
}

// Step draws the duration in µs of the inner step that begins at a scenario
// time, while an inject makes steps take factor times as long. Later changes do
// not affect a step under way.
func (s *Sampler) Step(t policy.Time, factor float64) policy.Time {
	if s.steps == nil {
		d := s.mean
		if j := int64(s.jitter); j > 0 {
			d += policy.Time(s.rng.Int64N(2*j+1) - j)
		}
		if factor != 1 {
			d = policy.Time(float64(d) * factor)
		}
		return max(d, 0)
	}
	d := float64(s.mean) * s.ratio() * s.speed.At(t) * factor
	return policy.Time(math.Round(min(max(d, 1), float64(maxTime))))
}

// ratio draws a duration divided by the mean. Its last bit may differ between
// architectures. Durations are rounded to whole microseconds, in which that
// shows once in some 10¹² draws. The conversions keep compilers from fusing
// multiplications with additions, which would make it show more often.
func (s *Sampler) ratio() float64 {
	st := s.steps
	sigma := 0.0
	if st.Sigma != nil {
		sigma = *st.Sigma
	}
	switch st.kind() {
	case Trace:
		return st.Ratios[s.rng.IntN(len(st.Ratios))]
	case Normal:
		for {
			if x := float64(sigma * s.rng.NormFloat64()); math.Abs(x) < 1 {
				return 1 + x
			}
		}
	case LogNormal:
		return math.Exp(float64(sigma*s.rng.NormFloat64()) - float64(sigma*sigma/2))
	case Pareto:
		if s.alpha == 0 {
			return 1
		}
		u := float64(s.rng.Float64() * (1 - math.Pow(paretoBound, -s.alpha)))
		return s.minimum * math.Pow(1-u, -1/s.alpha)
	}
	if st.TakesJitter() {
		if j := int64(s.jitter); j > 0 {
			return 1 + float64(s.rng.Int64N(2*j+1)-j)/float64(s.mean)
		}
		return 1
	}
	return 1 + float64(sigma/widest*float64(2*s.rng.Float64()-1))
}

// Speed is the factor by which the inner steps of a worker take longer, as a
// function of scenario time: its class, times noise, heat and the time of day.
// It does not depend on the order of calls.
type Speed struct {
	class   float64
	phase   float64 // of the day
	diurnal *Diurnal
	noise   *chain
	slow    float64 // factor of noise
	thermal *Thermal
	begin   policy.Time // place in the thermal cycle at which the worker begins
}

// NewSpeed returns the speed of a worker. A nil spec has no effect.
func NewSpeed(spec *Spec, seed uint64, id policy.ID) *Speed {
	s := &Speed{class: 1}
	if spec == nil {
		return s
	}
	if c := spec.Of(id); c != nil {
		s.class, s.phase = c.Factor, c.Phase
	}
	if d := spec.Diurnal; d != nil {
		s.diurnal, s.phase = d, s.phase+d.Phase
	}
	if n := spec.Noise; n != nil {
		s.noise, s.slow = newChain(n, Stream(seed, id, "noise")), n.SlowFactor
	}
	if h := spec.Thermal; h != nil {
		s.thermal = h
		s.begin = policy.Time(Stream(seed, id, "thermal").Int64N(int64(h.Heat + h.Cool)))
	}
	return s
}

// At returns the factor at a time.
func (s *Speed) At(t policy.Time) float64 {
	f, _ := s.Until(t)
	return f
}

// dayParts is the number of parts of a day, in each of which the factor is
// constant, so that frequent calls need not compute it again each time. The
// factor is off by 2π/dayParts of the amplitude at most, two thirds of a
// percent.
const dayParts = 1000

// Until returns the factor at a time, and a later time until which it holds.
func (s *Speed) Until(t policy.Time) (factor float64, until policy.Time) {
	factor, until = s.class, math.MaxInt64
	if s.noise != nil {
		slow, end := s.noise.at(t)
		if slow {
			factor *= s.slow
		}
		until = end
	}
	if h := s.thermal; h != nil {
		in := (max(t, 0) + s.begin) % (h.Heat + h.Cool)
		if in >= h.Heat {
			factor *= h.SlowFactor
			until = min(until, t+h.Heat+h.Cool-in)
		} else {
			until = min(until, t+h.Heat-in)
		}
	}
	if d := s.diurnal; d != nil {
		part := max(d.Period/dayParts, 1)
		at := max(t, 0) / part * part
		day := float64(at%d.Period)/float64(d.Period) + s.phase
		factor *= 1 + float64(d.Amplitude*math.Sin(2*math.Pi*day))
		until = min(until, at+part)
	}
	return factor, until
}

// chain is a Markov chain of two states in time.
type chain struct {
	rng      *rand.Rand
	means    [2]float64 // mean times in the states ok and slow
	state    int        // at time 0
	switches []policy.Time
}

// newChain begins in either state with the probability of that state.
func newChain(n *Noise, rng *rand.Rand) *chain {
	c := &chain{rng: rng, means: [2]float64{float64(n.MeanOK), float64(n.MeanSlow)}}
	if float64(rng.Float64()*(c.means[0]+c.means[1])) < c.means[1] {
		c.state = 1
	}
	return c
}

// at reports whether the chain is slow at a time, and until when.
func (c *chain) at(t policy.Time) (slow bool, until policy.Time) {
	for n := len(c.switches); n == 0 || c.switches[n-1] <= t; n++ {
		last := policy.Time(0)
		if n > 0 {
			last = c.switches[n-1]
		}
		d := math.Round(min(max(float64(c.rng.ExpFloat64()*c.means[(c.state+n)%2]), 1), float64(maxTime)))
		c.switches = append(c.switches, last+policy.Time(d))
	}
	n, on := slices.BinarySearch(c.switches, t)
	if on {
		n++
	}
	return (c.state+n)%2 == 1, c.switches[n]
}
