package probe

import (
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/shaping"
)

// Durations and amounts.
const (
	delayTime  = 2500 * time.Millisecond
	lossTime   = 5 * time.Second
	flowTime   = 800 * time.Millisecond
	rateTime   = 250 * time.Millisecond
	sharedTime = 2 * time.Second
	busyTime   = 2500 * time.Millisecond
	checkTime  = 600 * time.Millisecond

	delayGap  = 10 * time.Millisecond // between probes of a pair
	checkGap  = 30 * time.Millisecond
	leastEach = 10 // probes of a pair, even if that takes longer
	settle    = 100 * time.Millisecond

	mostProbes = 4000  // a second, in all, to measure delays
	mostLosses = 15000 // a second, in all, to measure losses
	probeShare = 0.1   // of a link's rate, at most

	// flowBudget is the sum of the rates of pairs that are measured side by side,
	// each as if alone: a quarter of the capacity of two processors.
	flowBudget = 300e6

	// Send buffers of flows. At a full queue's rate, buffered is some ten
	// milliseconds.
	buffered    = 10 * time.Millisecond
	leastBuffer = 16 << 10
	mostBuffer  = 4 << 20
)

// Step is a step that probers do at the same time: each sends the packets from
// its own nodes.
type Step struct {
	Number uint32
	// Echo requests that probes are sent back.
	Echo   bool     `json:",omitempty"`
	Probes []Series `json:",omitempty"`
	// Flows last for Time. If there are any, probes begin when the flows have
	// settled.
	Flows []Stream      `json:",omitempty"`
	Time  time.Duration `json:",omitempty"`
	// Far is the longest round trip of all pairs that take part.
	Far time.Duration
}

// Series is so many probes of the pair at that place, a gap apart.
type Series struct {
	Pair, Count int
	Gap         time.Duration
}

// Stream is a flow of full frames of the pair at that place. It has a maximum
// rate in frames, and a send buffer of so many bytes. Its first Lead frames are
// sent at once.
type Stream struct {
	Pair   int
	Rate   float64
	Buffer int
	Lead   int `json:",omitempty"`
}

// Saw is the outcome of a step for one pair, as observed by all probers
// together.
type Saw struct {
	Delays []time.Duration // one-way
	RTTs   []time.Duration
	Lost   int           // of its Series
	Clock  time.Duration // bound of the error of Delays that comes from two hosts' clocks
	Rate   float64       // of its Stream, in frames, without its beginning and its end
	Frames int           // behind Rate
}

// Crew makes all probers do a step and returns their observations for each
// pair.
type Crew func(Step) ([]Saw, error)

// Survey measures pairs with the help of a crew.
type Survey struct {
	plan   *shaping.Plan
	pairs  []Pair
	crew   Crew
	tell   func(string)
	number uint32
}

// NewSurvey returns a survey of the pairs. It calls tell with its progress.
func NewSurvey(plan *shaping.Plan, pairs []Pair, crew Crew, tell func(string)) *Survey {
	return &Survey{plan: plan, pairs: pairs, crew: crew, tell: tell}
}

// Estimate is the expected duration of Verify.
func Estimate(plan *shaping.Plan, pairs []Pair) time.Duration {
	took := lossTime + sharedTime + busyTime + estimateFlows(plan, pairs, longEnough(plan, pairs, flowTime, flowFrames))
	longest, far := delayTime, time.Duration(0)
	for _, p := range pairs {
		longest = max(longest, leastEach*gap(plan, p, len(pairs), delayGap))
		far = max(far, flight(plan, p))
	}
	return took + longest + 4*(far+settle)
}

// flight is the longest expected round trip of the pair.
func flight(plan *shaping.Plan, p Pair) time.Duration {
	there, back := plan.Paths[p.From][p.To], plan.Paths[p.To][p.From]
	return time.Duration(there.Slowest() + back.Slowest())
}

// gap is the time between two probes of a pair. It is twice the jitter's range
// there or back, because a path has the probes of one pair and the echoes of
// the other, which should not wait behind one another. And it keeps probes to a
// small share of the rate.
func gap(plan *shaping.Plan, p Pair, pairs int, least time.Duration) time.Duration {
	there, back := plan.Paths[p.From][p.To], plan.Paths[p.To][p.From]
	spread := max(there.Slowest()-there.Fastest(), back.Slowest()-back.Fastest())
	g := max(least, 2*time.Duration(spread), time.Duration(pairs)*time.Second/mostProbes)
	return max(g, thrift(plan, p))
}

// thrift is the gap at which probes to all peers together use probeShare of a
// rate.
func thrift(plan *shaping.Plan, p Pair) time.Duration {
	share := probeShare * alone(plan, p) / float64(len(plan.Nodes)-1)
	if math.IsInf(share, 1) {
		return 0
	}
	return time.Duration(float64(Frame*8) / share * 1e9)
}

func flowRounds(plan *shaping.Plan, pairs []Pair) [][]Pair {
	var limited []Pair
	for _, p := range pairs {
		if !math.IsInf(alone(plan, p), 1) {
			limited = append(limited, p)
		}
	}
	return rounds(limited, func(p Pair) float64 { return alone(plan, p) }, flowBudget)
}

// Check measures the round trips of the pairs without load, in a second and the
// longest round trip. Pairs that deviate from the plan are measured again,
// which takes as long.
func (s *Survey) Check() ([]Found, error) {
	quiet := *s
	quiet.tell = func(string) {}
	return quiet.delays("", func(p Pair) (int, time.Duration) {
		g := gap(s.plan, p, len(s.pairs), checkGap)
		return max(int(checkTime/g), leastEach), min(g, 2*checkTime/leastEach)
	})
}

// Verify measures everything about the pairs.
func (s *Survey) Verify() ([]Found, error) {
	found, err := s.delays("round trips, one-way delays, jitter", func(p Pair) (int, time.Duration) {
		g := gap(s.plan, p, len(s.pairs), delayGap)
		return max(int(delayTime/g), leastEach), g
	})
	if err != nil {
		return nil, err
	}
	if err := s.losses(found); err != nil {
		return nil, err
	}
	if len(flowRounds(s.plan, s.pairs)) == 0 {
		s.tell("the plan limits no rates, so goodput is not measured")
		return found, nil
	}
	if err := s.alone(found, s.pairs, longEnough(s.plan, s.pairs, flowTime, flowFrames), "goodput of each pair alone"); err != nil {
		return nil, err
	}
	offered := offers(s.plan, s.pairs)
	shares := together(s.plan, s.pairs, offered)
	if err := s.together(found, offered, shares); err != nil {
		return nil, err
	}
	return found, s.busy(found, shares)
}

// Tries is the largest number of measurements before a link is judged: a
// correct link can only seem wrong temporarily, because of the machine.
const Tries = 4

// asPlanned measures pairs, and repeats the measurement for pairs that deviate
// from the plan.
func asPlanned(plan *shaping.Plan, pairs []Pair, tell func(string), what string, measure func([]Pair) ([]Found, error)) (map[Pair]Found, error) {
	tell(what)
	all := map[Pair]Found{}
	for try := 1; ; try++ {
		found, err := measure(pairs)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if slices.Contains(pairs, f.Pair) {
				all[f.Pair] = f
			}
		}
		pairs = slices.DeleteFunc(slices.Clone(pairs), func(p Pair) bool {
			return Judge(plan, "", false, []Found{all[p]}).OK
		})
		if len(pairs) == 0 || try == Tries {
			return all, nil
		}
		tell(fmt.Sprintf("%s: measuring %s again", what, count(pairs)))
	}
}

// count is the number of pairs in words.
func count(pairs []Pair) string {
	if len(pairs) == 1 {
		return "1 pair"
	}
	return fmt.Sprintf("%d pairs", len(pairs))
}

// asPlanned measures all pairs, and repeats the measurement if a pair deviates
// from the plan.
func (s *Survey) asPlanned(what string, measure func() ([]Found, error)) (map[Pair]Found, error) {
	return asPlanned(s.plan, s.pairs, s.tell, what, func([]Pair) ([]Found, error) { return measure() })
}

// delays measures delays and round trips without load, with so many probes per
// pair at that gap.
func (s *Survey) delays(what string, series func(Pair) (count int, gap time.Duration)) ([]Found, error) {
	seen, err := s.asPlanned(what, func() ([]Found, error) {
		step := Step{Echo: true, Probes: s.series(series)}
		saw, err := s.do(step, s.pairs)
		if err != nil {
			return nil, err
		}
		found := make([]Found, len(s.pairs))
		for k, w := range saw {
			found[k] = Found{Pair: s.pairs[k], Delays: w.Delays, RTTs: w.RTTs, Clock: w.Clock, Asked: step.Probes[k].Count}
		}
		return found, nil
	})
	if err != nil {
		return nil, err
	}
	found := make([]Found, len(s.pairs))
	for k, p := range s.pairs {
		found[k] = seen[p]
	}
	return found, nil
}

func (s *Survey) losses(found []Found) error {
	s.tell("losses")
	probes := s.series(func(p Pair) (int, time.Duration) {
		g := max(time.Duration(len(s.pairs))*time.Second/mostLosses, thrift(s.plan, p))
		return max(int(lossTime/g), leastEach), min(g, lossTime/leastEach)
	})
	saw, err := s.do(Step{Probes: probes}, s.pairs)
	for k, w := range saw {
		found[k].Sent, found[k].Lost = probes[k].Count, w.Lost
	}
	return err
}

// rateFrames and flowFrames are the least lengths of a flow, in frames, in
// Rates and in Verify. The rate is measured over about two thirds of them.
const (
	rateFrames = 20
	flowFrames = 12
)

// longEnough is the duration of flows at which each pair has so many frames.
func longEnough(plan *shaping.Plan, pairs []Pair, d time.Duration, frames int) time.Duration {
	for _, p := range pairs {
		d = max(d, plan.Rate(p.From, p.To).Sending(frames*shaping.FrameSize))
	}
	return d
}

// rateFlow is the duration of the flows of Rates.
func rateFlow(plan *shaping.Plan, pairs []Pair) time.Duration {
	return longEnough(plan, pairs, rateTime, rateFrames)
}

// estimateFlows is the expected duration of flows of each pair alone, of that
// length, without repetitions.
func estimateFlows(plan *shaping.Plan, pairs []Pair, d time.Duration) (took time.Duration) {
	for _, round := range flowRounds(plan, pairs) {
		took += d + settle + drained(plan, round, d)
	}
	return took
}

// estimateRates is the expected duration of Rates without repetitions.
func estimateRates(plan *shaping.Plan, pairs []Pair) time.Duration {
	return estimateFlows(plan, pairs, rateFlow(plan, pairs))
}

// lead is the number of frames that a flow of the pair sends at once at its
// beginning, to use up what links save up during a pause. Otherwise a flow
// slightly above a low rate would pass at its own rate for seconds.
func lead(plan *shaping.Plan, p Pair) (frames int) {
	for _, rate := range []shaping.Rate{plan.Nodes[p.From].RateUp, plan.Nodes[p.To].RateDown} {
		if rate > 0 {
			frames += (shaping.BucketBytes(rate)+shaping.FrameSize-1)/shaping.FrameSize + 1
		}
	}
	return frames
}

// drained is the time, after the end of flows of those pairs and that length,
// until their last frames have arrived: the frames that lead, and the excess
// over the rate.
func drained(plan *shaping.Plan, pairs []Pair, d time.Duration) (after time.Duration) {
	for _, p := range pairs {
		rate := plan.Rate(p.From, p.To)
		waiting := rate.Sending(lead(plan, p)*shaping.FrameSize) + time.Duration((over-1)*float64(d))
		waiting = min(waiting, rate.Sending(plan.Nodes[p.From].QueueBytes(rate)+plan.Nodes[p.To].QueueBytes(rate))) // queues hold no more
		after = max(after, flight(plan, p)+waiting)
	}
	return after
}

// Rates measures the goodput of each pair alone, like Verify but in less time,
// and stores it in found. It skips pairs without a planned rate.
func (s *Survey) Rates(found []Found, pairs []Pair) error {
	took := estimateRates(s.plan, pairs)
	if took == 0 {
		return nil
	}
	return s.alone(found, pairs, rateFlow(s.plan, pairs), fmt.Sprintf("measuring the rates between %s of nodes (about %v)", count(pairs), took.Round(time.Second/10)))
}

// alone measures the goodput of each pair while all others are quiet, for
// duration d.
func (s *Survey) alone(found []Found, pairs []Pair, d time.Duration, what string) error {
	seen, err := asPlanned(s.plan, pairs, s.tell, what, func(wanted []Pair) (all []Found, err error) {
		for _, round := range flowRounds(s.plan, wanted) {
			var offered, planned []float64
			for _, p := range round {
				offered = append(offered, over*alone(s.plan, p))
				planned = append(planned, together(s.plan, []Pair{p}, offered[len(offered)-1:])[0])
			}
			streams := s.streams(round, offered, false)
			for k, p := range round {
				streams[k].Lead = lead(s.plan, p)
			}
			saw, err := s.do(Step{Flows: streams, Time: d, Far: drained(s.plan, round, d)}, round)
			if err != nil {
				return nil, err
			}
			for k, p := range round {
				all = append(all, Found{Pair: p, Rate: saw[s.place(p)].flow(planned[k])})
			}
		}
		return all, nil
	})
	for k := range found {
		if f, ok := seen[found[k].Pair]; ok {
			found[k].Rate = f.Rate
		}
	}
	return err
}

// together measures the goodput of all pairs at once, each of which should get its
// share of what it offers.
func (s *Survey) together(found []Found, offered, shares []float64) error {
	seen, err := s.asPlanned("goodput of all pairs at once", func() ([]Found, error) {
		saw, err := s.do(Step{Flows: s.streams(s.pairs, offered, true), Time: sharedTime}, s.pairs)
		all := make([]Found, len(saw))
		for k, w := range saw {
			all[k] = Found{Pair: s.pairs[k], Together: w.flow(shares[k])}
		}
		return all, err
	})
	for k, p := range s.pairs {
		found[k].Together = seen[p].Together
	}
	return err
}

// busy measures delays while every pair sends half of what it can.
func (s *Survey) busy(found []Found, shares []float64) error {
	half := make([]float64, len(shares))
	for k, p := range s.pairs {
		half[k] = shares[k] / 2 / max(1, pass(s.plan.Paths[p.From][p.To]).crossed) // duplicates take up room, too
	}
	seen, err := s.asPlanned("one-way delays with all links half busy", func() ([]Found, error) {
		saw, err := s.do(Step{
			Flows: s.streams(s.pairs, half, true), Time: busyTime + settle,
			Probes: s.series(func(p Pair) (int, time.Duration) {
				g := gap(s.plan, p, len(s.pairs), delayGap)
				return int(busyTime / g), g
			}),
		}, s.pairs)
		all := make([]Found, len(saw))
		for k, w := range saw {
			all[k] = Found{Pair: s.pairs[k], Busy: w.Delays, Clock: w.Clock}
		}
		return all, err
	})
	for k, p := range s.pairs {
		found[k].Busy, found[k].Clock = seen[p].Busy, max(found[k].Clock, seen[p].Clock)
	}
	return err
}

// do makes the crew do a step with those pairs.
func (s *Survey) do(step Step, pairs []Pair) ([]Saw, error) {
	s.number++
	step.Number = s.number
	for _, p := range pairs {
		step.Far = max(step.Far, flight(s.plan, p))
	}
	return s.crew(step)
}

func (s *Survey) place(p Pair) int { return slices.Index(s.pairs, p) }

// series is a series of probes on each pair.
func (s *Survey) series(of func(Pair) (count int, gap time.Duration)) []Series {
	all := make([]Series, len(s.pairs))
	for k, p := range s.pairs {
		all[k].Pair = k
		all[k].Count, all[k].Gap = of(p)
	}
	return all
}

// streams are flows of full frames, at most at the offered rates. Queues in
// front of the links must not run empty while a busy machine takes its time to
// wake a sender. So a lone flow keeps its queue full, and the queue drops the
// excess. Flows that share links wait for their turn instead: each of them
// offers the whole rate, and dropping most of it would cost more than carrying
// it.
func (s *Survey) streams(pairs []Pair, offered []float64, shared bool) (all []Stream) {
	for k, p := range pairs {
		if offered[k] == 0 {
			continue
		}
		buffer := mostBuffer
		if shared {
			buffer = int(min(max(offered[k]/8*buffered.Seconds(), leastBuffer), mostBuffer))
		}
		all = append(all, Stream{Pair: s.place(p), Rate: offered[k], Buffer: buffer})
	}
	return all
}

func (w Saw) flow(planned float64) Flow {
	return Flow{Planned: planned, Measured: w.Rate, Frames: w.Frames}
}

// steady is the rate of the frames between the first quarter of a flow, in
// which queues fill, and its end, after which they empty.
func steady(frames []int64, d time.Duration) (rate float64, n int) {
	if len(frames) == 0 {
		return 0, 0
	}
	from, to := frames[0]+int64(d/4), frames[0]+int64(d)*95/100
	var first, last int64
	for _, at := range frames {
		if at < from || at > to {
			continue
		}
		if n == 0 {
			first = at
		}
		last = at
		n++
	}
	if n < 2 || last == first {
		return 0, n
	}
	return float64(n-1) * shaping.FrameSize * 8 / (float64(last-first) / 1e9), n
}
