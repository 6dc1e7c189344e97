package probe

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"testbed/shaping"
)

// How long and how much.
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

	mostProbes = 4000  // a second, in all, where delays are measured
	mostLosses = 15000 // a second, in all, where losses are
	probeShare = 0.1   // of a link's rate, at most
	probeFrame = messageSize + shaping.UDPHeaders

	// flowBudget is the sum of the rates of pairs that are measured side by
	// side, each as if alone: a quarter of what two processors carry.
	flowBudget = 300e6
)

// Estimate says how long Verify takes.
func Estimate(plan *shaping.Plan, pairs []Pair) time.Duration {
	flights := 4 + len(flowRounds(plan, pairs))
	took := lossTime + sharedTime + busyTime + time.Duration(len(flowRounds(plan, pairs)))*flowTime
	longest, far := delayTime, time.Duration(0)
	for _, p := range pairs {
		longest = max(longest, leastEach*gap(plan, p, len(pairs), delayGap))
		far = max(far, flight(plan, p))
	}
	return took + longest + time.Duration(flights)*(far+settle)
}

// flight is how long a round trip of the pair may take.
func flight(plan *shaping.Plan, p Pair) time.Duration {
	there, back := plan.Paths[p.From][p.To], plan.Paths[p.To][p.From]
	return time.Duration(there.Slowest() + back.Slowest())
}

// gap is the time between two probes of a pair: beyond the jitter's range, so
// that none waits behind the one before, and a small share of the rate.
func gap(plan *shaping.Plan, p Pair, pairs int, least time.Duration) time.Duration {
	path := plan.Paths[p.From][p.To]
	g := max(least, time.Duration(path.Slowest()-path.Fastest()), time.Duration(pairs)*time.Second/mostProbes)
	return max(g, thrift(plan, p))
}

// thrift is the gap at which probes to all peers take probeShare of a rate.
func thrift(plan *shaping.Plan, p Pair) time.Duration {
	share := probeShare * alone(plan, p) / float64(len(plan.Nodes)-1)
	if math.IsInf(share, 1) {
		return 0
	}
	return time.Duration(float64(probeFrame*8) / share * 1e9)
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

// Check measures the round trips of the pairs without load, in a second and
// the longest round trip, and in as long again what was not as planned.
func (p *Prober) Check() []Found {
	return p.inOrder(asPlanned(p.plan, p.every(), func(string) {}, "", func([]Pair) []Found {
		p.probes(kindAsk, func(q *pair) (int, time.Duration) {
			g := gap(p.plan, q.Pair, len(p.pairs), checkGap)
			return max(int(checkTime/g), leastEach), min(g, 2*checkTime/leastEach)
		})
		return p.found()
	}))
}

// every is every pair from a node of this host, in order.
func (p *Prober) every() (pairs []Pair) {
	for _, q := range p.pairs {
		if q.from.probe != nil {
			pairs = append(pairs, q.Pair)
		}
	}
	return pairs
}

// inOrder puts what was found of every pair into their order.
func (p *Prober) inOrder(seen map[Pair]Found) []Found {
	found := make([]Found, len(p.pairs))
	for k, q := range p.pairs {
		found[k] = seen[q.Pair]
	}
	return found
}

// Verify measures everything about the pairs and tells what it does.
func (p *Prober) Verify(tell func(string)) ([]Found, []string) {
	began := clocks()
	pairs := p.every()
	found := p.verifyDelays(pairs, tell)

	tell("losses")
	p.probes(kindProbe, func(q *pair) (int, time.Duration) {
		g := max(time.Duration(len(p.pairs))*time.Second/mostLosses, thrift(p.plan, q.Pair))
		return max(int(lossTime/g), leastEach), min(g, lossTime/leastEach)
	})
	for k, q := range p.pairs {
		found[k].Sent, found[k].Lost = len(q.seen), q.lost
	}

	if len(flowRounds(p.plan, pairs)) == 0 {
		tell("no rates are planned")
		return found, p.conclude(began)
	}
	p.verifyAlone(found, pairs, flowTime, tell, "goodput of each pair alone")
	shares := p.verifyTogether(found, pairs, tell)
	p.verifyBusy(found, pairs, shares, tell)
	return found, p.conclude(began)
}

// Tries is how often something is measured, at the most, before a link is judged
// by it: only the machine makes a right link wrong in passing.
const Tries = 4

// asPlanned measures pairs, and those again that were not as planned.
func asPlanned(plan *shaping.Plan, pairs []Pair, tell func(string), what string, measure func([]Pair) []Found) map[Pair]Found {
	tell(what)
	all := map[Pair]Found{}
	for try := 1; ; try++ {
		for _, f := range measure(pairs) {
			if slices.Contains(pairs, f.Pair) {
				all[f.Pair] = f
			}
		}
		pairs = slices.DeleteFunc(slices.Clone(pairs), func(p Pair) bool {
			return Judge(plan, "", false, []Found{all[p]}).OK
		})
		if len(pairs) == 0 || try == Tries {
			return all
		}
		tell(fmt.Sprintf("%s: %d pairs once more", what, len(pairs)))
	}
}

// verifyDelays measures delays without load.
func (p *Prober) verifyDelays(pairs []Pair, tell func(string)) []Found {
	return p.inOrder(asPlanned(p.plan, pairs, tell, "round trips, one-way delays, jitter", func([]Pair) []Found {
		p.probes(kindAsk, func(q *pair) (int, time.Duration) {
			g := gap(p.plan, q.Pair, len(p.pairs), delayGap)
			return max(int(delayTime/g), leastEach), g
		})
		return p.found()
	}))
}

// rateFrames is how many frames a flow is long at the least where Rates measures:
// the rate is that of about two thirds of them.
const rateFrames = 20

// rateFlow is how long the flows of Rates last.
func rateFlow(plan *shaping.Plan, pairs []Pair) time.Duration {
	d := rateTime
	for _, p := range pairs {
		d = max(d, plan.Rate(p.From, p.To).Sending(rateFrames*shaping.FrameSize))
	}
	return d
}

// EstimateRates says how long Rates takes if nothing has to be measured again.
func EstimateRates(plan *shaping.Plan, pairs []Pair) time.Duration {
	var far time.Duration
	for _, p := range pairs {
		far = max(far, flight(plan, p))
	}
	return time.Duration(len(flowRounds(plan, pairs))) * (rateFlow(plan, pairs) + far + settle)
}

// Rates measures the goodput of pairs as Verify does of each pair alone, but in
// less time, and enters it in found. Pairs without a planned rate are left out.
func (p *Prober) Rates(found []Found, pairs []Pair, tell func(string)) {
	took := EstimateRates(p.plan, pairs)
	if took == 0 {
		return
	}
	p.verifyAlone(found, pairs, rateFlow(p.plan, pairs), tell,
		fmt.Sprintf("measuring the rates of %d pairs takes about %v", len(pairs), took.Round(time.Second/10)))
}

// verifyAlone measures the goodput of each pair while all others are quiet, for
// so long.
func (p *Prober) verifyAlone(found []Found, pairs []Pair, d time.Duration, tell func(string), what string) {
	seen := asPlanned(p.plan, pairs, tell, what, func(wanted []Pair) []Found {
		var all []Found
		for _, round := range flowRounds(p.plan, wanted) {
			for k, f := range p.alone(round, d) {
				all = append(all, Found{Pair: round[k], Rate: f})
			}
		}
		return all
	})
	for k := range found {
		if f, ok := seen[found[k].Pair]; ok {
			found[k].Rate = f.Rate
		}
	}
}

// verifyTogether measures the goodput of all pairs at once, and returns what each
// should get of it.
func (p *Prober) verifyTogether(found []Found, pairs []Pair, tell func(string)) (shares []float64) {
	offered := offers(p.plan, pairs)
	shares = together(p.plan, pairs, offered)
	seen := asPlanned(p.plan, pairs, tell, "goodput of all pairs at once", func([]Pair) []Found {
		all := make([]Found, len(pairs))
		for k, f := range p.flows(p.pairs, offered, shares, sharedTime, true) {
			all[k] = Found{Pair: pairs[k], Together: f}
		}
		return all
	})
	for k, pair := range pairs {
		found[k].Together = seen[pair].Together
	}
	return shares
}

// verifyBusy measures delays while every pair sends half of what it can.
func (p *Prober) verifyBusy(found []Found, pairs []Pair, shares []float64, tell func(string)) {
	half := make([]float64, len(shares))
	for k := range shares {
		half[k] = shares[k] / 2
	}
	seen := asPlanned(p.plan, pairs, tell, "one-way delays with all links half busy", func([]Pair) []Found { return p.busy(half) })
	for k, pair := range pairs {
		found[k].Busy = seen[pair].Busy
	}
}

// busy measures delays while the pairs send at these rates.
func (p *Prober) busy(rates []float64) []Found {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.flows(p.pairs, rates, rates, busyTime+settle, true)
	}()
	time.Sleep(settle)
	p.samples(kindProbe, func(q *pair) (int, time.Duration) {
		g := gap(p.plan, q.Pair, len(p.pairs), delayGap)
		return int(busyTime / g), g
	})
	<-done
	all := make([]Found, len(p.pairs))
	for k, f := range p.found() {
		all[k] = Found{Pair: f.Pair, Busy: f.Delays}
	}
	return all
}

// reading is both clocks at once.
type reading struct{ wall, steady time.Duration }

func clocks() reading {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
	return reading{time.Duration(now()), time.Duration(ts.Nano())}
}

// conclude returns the notes. Delays are differences of the wall clock, which
// somebody may set meanwhile.
func (p *Prober) conclude(began reading) []string {
	end := clocks()
	if step := (end.wall - began.wall) - (end.steady - began.steady); step.Abs() > 5*time.Millisecond {
		return []string{fmt.Sprintf("the machine's clock was set by %v during the measurement: delays are wrong by as much", step)}
	}
	return nil
}

// probes sends a stream of probes on every pair and waits for the last of
// them.
func (p *Prober) probes(kind uint32, plan func(*pair) (count int, gap time.Duration)) {
	p.begin(p.pairs)
	p.samples(kind, plan)
	var far time.Duration
	for _, q := range p.pairs {
		far = max(far, flight(p.plan, q.Pair))
	}
	time.Sleep(far + settle)
}

// begin opens a new stream on the pairs.
func (p *Prober) begin(pairs []*pair) {
	p.stream++
	for _, q := range pairs {
		q.mu.Lock()
		q.stream, q.seen, q.lost, q.delays, q.rtts, q.frames = p.stream, nil, 0, nil, nil, nil
		q.mu.Unlock()
	}
}

func (p *Prober) samples(kind uint32, plan func(*pair) (count int, gap time.Duration)) {
	var all sync.WaitGroup
	for _, q := range p.pairs {
		if q.from.probe == nil {
			continue
		}
		count, gap := plan(q)
		q.mu.Lock()
		q.seen, q.lost = make([]bool, count), count
		q.mu.Unlock()
		all.Go(func() { q.send(kind, count, gap) })
	}
	all.Wait()
}

// leastSleep is the least time that it is worth to sleep.
const leastSleep = time.Millisecond

// send sends probes a gap apart, with a random start, so that those of all
// pairs do not meet.
func (q *pair) send(kind uint32, count int, gap time.Duration) {
	start := time.Now().Add(rand.N(gap))
	for seq := range count {
		if wait := time.Until(start.Add(time.Duration(seq) * gap)); wait > leastSleep {
			time.Sleep(wait)
		}
		m := message{Kind: kind, Pair: q.key, Seq: uint32(seq), Stream: q.stream}
		m.Sent = now()
		_, _ = q.from.probe.WriteToUDPAddrPort(m.bytes(), q.to.peer) // one that is not sent is lost
	}
}

func (p *Prober) found() []Found {
	all := make([]Found, len(p.pairs))
	for k, q := range p.pairs {
		q.mu.Lock()
		all[k] = Found{Pair: q.Pair, Delays: q.delays, RTTs: q.rtts, Asked: len(q.seen)}
		q.mu.Unlock()
	}
	return all
}

// alone has flows of pairs that do not disturb each other, for so long.
func (p *Prober) alone(round []Pair, d time.Duration) []Flow {
	var pairs []*pair
	var offered, planned []float64
	for _, r := range round {
		for _, q := range p.pairs {
			if q.Pair == r {
				pairs = append(pairs, q)
			}
		}
		offered = append(offered, over*alone(p.plan, r))
		planned = append(planned, together(p.plan, []Pair{r}, offered[len(offered)-1:])[0])
	}
	return p.flows(pairs, offered, planned, d, false)
}

// flows sends full frames on the pairs for a time, at the offered rates at
// most, and returns the rates that arrived. Queues in front of the links must
// not run empty while a busy machine takes its time to wake a sender. A lone
// flow therefore keeps its queue full, and what it offers too much is dropped
// there. Flows that share links wait for their turn instead: each of them
// offers the whole rate, and to drop most of it would cost more than to carry.
func (p *Prober) flows(pairs []*pair, offered, planned []float64, d time.Duration, shared bool) []Flow {
	p.begin(pairs)
	var all sync.WaitGroup
	var far time.Duration
	end := time.Now().Add(d)
	for k, q := range pairs {
		far = max(far, flight(p.plan, q.Pair))
		if offered[k] > 0 {
			buffer := mostBuffer
			if shared {
				buffer = int(min(max(offered[k]/8*buffered.Seconds(), leastBuffer), mostBuffer))
			}
			all.Go(func() { p.flow(q, offered[k], buffer, end) })
		}
	}
	all.Wait()
	time.Sleep(far + settle)
	result := make([]Flow, len(pairs))
	for k, q := range pairs {
		q.mu.Lock()
		rate, frames := steady(q.frames, d)
		q.mu.Unlock()
		result[k] = Flow{Planned: planned[k], Measured: rate, Frames: frames}
	}
	return result
}

// steady is the rate of the frames between the first quarter of a flow, in
// which queues fill, and its end, behind which they empty.
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

// flow sends until the end.
func (p *Prober) flow(q *pair, rate float64, buffer int, end time.Time) {
	c, err := p.listen(p.plan.Nodes[q.From].Name, 0)
	if err != nil {
		return // nothing arrives, which shows
	}
	defer c.Close()
	_ = c.SetWriteBuffer(buffer)
	_ = c.SetWriteDeadline(end)
	frame := make([]byte, payload)
	m := message{Kind: kindFrame, Pair: q.key, Stream: q.stream}
	copy(frame, m.bytes())
	begin, each := time.Now(), shaping.FrameSize*8/rate
	for n := 0; ; n++ {
		ahead := time.Duration(float64(n)*each*1e9) - time.Since(begin)
		if ahead > leastSleep {
			time.Sleep(ahead)
		} else if ahead < -catchUp {
			begin = begin.Add(-ahead)
		}
		if _, err := c.WriteToUDPAddrPort(frame, q.to.at); os.IsTimeout(err) || time.Now().After(end) {
			return
		}
	}
}

const (
	// catchUp is the lateness that a sender makes up for.
	catchUp = 20 * time.Millisecond
	// Send buffers. At a full queue's rate buffered is some ten milliseconds.
	buffered    = 10 * time.Millisecond
	leastBuffer = 16 << 10
	mostBuffer  = 4 << 20
)
