package probe

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"testbed/internal/stats"
	"testbed/shaping"
)

// Report compares a network with its plan.
type Report struct {
	OK    bool   `json:"ok"`
	Links string `json:"links"` // the backend
	// Whole reports that all pairs were measured rather than a sample.
	Whole bool `json:"whole"`
	// Notes are further remarks, good or bad.
	Notes []string     `json:"notes"`
	Pairs []PairReport `json:"pairs"`
	// Hosts are the hosts of a network over several.
	Hosts []Host `json:"hosts,omitempty"`
}

// Host is a host of a network over several. The first host leads.
type Host struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
	// ClockOffset is its clock less the leader's, as last compared. ClockBound is
	// the bound of its error. Both clocks count since the start of their machine.
	ClockOffset float64 `json:"clock_offset_us"`
	ClockBound  float64 `json:"clock_bound_us"`
}

// PairReport is the result for the way from one node to another. An absent
// property was not measured: no rate was planned, or too little was requested.
type PairReport struct {
	From string `json:"from"`
	To   string `json:"to"`

	RTT            *Property `json:"rtt_ms,omitempty"`               // there and back, the median
	RTTP99         *Property `json:"rtt_p99_ms,omitempty"`           // its 99th percentile
	OneWayDelay    *Property `json:"one_way_delay_ms,omitempty"`     // the median
	OneWayDelayP99 *Property `json:"one_way_delay_p99_ms,omitempty"` // its 99th percentile
	Jitter         *Property `json:"jitter_ms,omitempty"`            // the half-width
	Loss           *Property `json:"loss,omitempty"`                 // a share, 0 to 1, including corruption
	Reorder        *Property `json:"reorder,omitempty"`              // the share that overtook
	Goodput        *Property `json:"goodput_mbit,omitempty"`         // payload of UDP, the pair alone
	GoodputAll     *Property `json:"goodput_all_mbit,omitempty"`     // all pairs at once
	// The one-way delay while every link carries half its rate.
	BusyDelay    *Property `json:"busy_one_way_delay_ms,omitempty"`
	BusyDelayP99 *Property `json:"busy_one_way_delay_p99_ms,omitempty"`
}

// Property is one property of a pair: planned and measured.
type Property struct {
	Planned  float64 `json:"planned"`
	Measured float64 `json:"measured"`
	// Tolerance is the range of acceptable values.
	Tolerance [2]float64 `json:"tolerance"`
	OK        bool       `json:"ok"`
	// Samples is the number of probes, or frames, behind the value.
	Samples int `json:"samples"`
	// Interval is the 99 % confidence interval of a loss.
	Interval *[2]float64 `json:"interval,omitempty"`
}

// Properties returns the measured properties in order, with their names in
// JSON.
func (p PairReport) Properties() (names []string, all []*Property) {
	for _, e := range []struct {
		name string
		p    *Property
	}{
		{"rtt_ms", p.RTT}, {"rtt_p99_ms", p.RTTP99}, {"one_way_delay_ms", p.OneWayDelay}, {"one_way_delay_p99_ms", p.OneWayDelayP99},
		{"jitter_ms", p.Jitter}, {"loss", p.Loss}, {"reorder", p.Reorder}, {"goodput_mbit", p.Goodput}, {"goodput_all_mbit", p.GoodputAll},
		{"busy_one_way_delay_ms", p.BusyDelay}, {"busy_one_way_delay_p99_ms", p.BusyDelayP99},
	} {
		if e.p != nil {
			names, all = append(names, e.name), append(all, e.p)
		}
	}
	return names, all
}

// Undilate converts figures by the machine's clock to those of a network that
// was dilated by x (shaping.Plan.Dilated), and adds a note.
func (r *Report) Undilate(x float64) {
	if x == 1 {
		return
	}
	for _, pair := range r.Pairs {
		names, all := pair.Properties()
		for k, p := range all {
			by := 1.0
			switch {
			case strings.HasSuffix(names[k], "_ms"):
				by = 1 / x
			case strings.HasSuffix(names[k], "_mbit"):
				by = x
			}
			p.Planned, p.Measured = by*p.Planned, by*p.Measured
			p.Tolerance[0], p.Tolerance[1] = by*p.Tolerance[0], by*p.Tolerance[1]
		}
	}
	r.Notes = append(r.Notes, fmt.Sprintf("dilation %g: by the machine's clock, times are multiplied by %g, and rates divided by %g", x, x, x))
}

// enough is the number of samples from which a 99th percentile, or a
// half-width, is meaningful.
const enough = 100

// Tolerances. docs/notes/links.md has the measurements behind them.
const (
	early        = 100 * time.Microsecond // nothing arrives before its time; clocks have a limited resolution
	medianSlack  = 500 * time.Microsecond // wake-ups, and the machine's timers
	medianShare  = 0.01
	tailSlack    = 5 * time.Millisecond // a preemption by another program
	tailShare    = 0.05
	jitterSlack  = 300 * time.Microsecond
	rateBelow    = 0.02
	rateAbove    = 0.01
	sharedBelow  = 0.05 // queues that fill together are not quite fair
	lossyErrors  = 4    // standard errors of a rate behind a lossy path
	familyErrors = 0.01 // how often a correct network may fail by its losses
)

// Found is a Prober's result for one ordered pair.
type Found struct {
	Pair     Pair
	Delays   []time.Duration // one-way, unloaded
	RTTs     []time.Duration
	Asked    int // probes that should have come back
	Sent     int // probes for the loss
	Lost     int
	Rate     Flow            // alone
	Together Flow            // all pairs at once
	Busy     []time.Duration // one-way, all links busy
	// Clock is the bound of the error of Delays and Busy that comes from comparing
	// two hosts' clocks.
	Clock time.Duration
}

// Flow is a stream of full frames.
type Flow struct {
	Planned  float64 // bit/s in frames; 0: none
	Measured float64
	Frames   int
}

// AsPlanned reports whether the flow of a pair alone has its planned rate, by
// the tolerance of Judge for lossless paths.
func (f Flow) AsPlanned() bool {
	return f.Measured >= f.Planned*(1-rateBelow) && f.Measured <= f.Planned*(1+rateAbove)
}

// Judge compares the results with the plan.
func Judge(plan *shaping.Plan, links string, whole bool, found []Found) Report {
	r := Report{OK: true, Links: links, Whole: whole, Notes: []string{}, Pairs: []PairReport{}}
	for _, f := range found {
		there, back := plan.Paths[f.Pair.From][f.Pair.To], plan.Paths[f.Pair.To][f.Pair.From]
		p := PairReport{From: plan.Nodes[f.Pair.From].Name, To: plan.Nodes[f.Pair.To].Name}
		to, fro := vary(there), vary(back)
		delay, jitter := time.Duration(there.OneWayDelay)+to.median, to.width
		sending := plan.Sending(f.Pair.From, f.Pair.To, Frame) // none if rates are buckets
		alpha := familyErrors / float64(len(found))
		slow, overtook := overtaken(there, f.Delays)
		if overtook != nil {
			p.Reorder = shareOf(float64(there.Reorder), *overtook, len(f.Delays), 1, alpha)
		}
		asked := cmp.Or(f.Asked, f.Sent) // probes whose delays are known, if they arrive
		if n := len(slow); n > 0 || f.Sent > 0 && expects(there, asked) {
			d := sorted(slow)
			p.OneWayDelay, p.OneWayDelayP99 = delays(d, delay, to, variation{}, sending)
			width := HalfWidth(d)
			// With n samples the half-width is known to 2.5 standard errors of 0.2/√n.
			slack := jitterSlack + time.Duration(0.5/math.Sqrt(float64(max(n, 1)))*float64(jitter))
			if n == 0 || n >= enough {
				p.Jitter = within(ms(jitter), ms(width), ms(max(jitter-slack, 0)), ms(jitter+slack), n)
			}
		}
		expected := expects(there, asked)
		if rtts := roundTrips(there, back, f.RTTs); len(rtts) > 0 || rtts != nil && expected && expects(back, asked) {
			p.RTT, p.RTTP99 = delays(sorted(rtts), delay+time.Duration(back.OneWayDelay)+fro.median, to, fro, sending+plan.Sending(f.Pair.To, f.Pair.From, Frame))
		}
		if f.Sent > 0 {
			p.Loss = loss(there, f.Lost, f.Sent, alpha)
		}
		p.Goodput = goodput(f.Rate, there, rateBelow)
		p.GoodputAll = goodput(f.Together, there, sharedBelow)
		if busy, _ := overtaken(there, f.Busy); len(busy) > 0 || busy != nil && expected {
			// If packets follow closely, each waits for a slower one before it: none
			// overtakes, and the jitter becomes delay.
			p.BusyDelay, p.BusyDelayP99 = delays(sorted(busy), delay, to, variation{}, to.longest+sending+queueing(plan, f.Pair))
		}
		for _, q := range []*Property{p.OneWayDelay, p.OneWayDelayP99, p.BusyDelay, p.BusyDelayP99} {
			q.allow(ms(f.Clock))
		}
		_, all := p.Properties()
		for _, q := range all {
			r.OK = r.OK && q.OK
		}
		r.Pairs = append(r.Pairs, p)
	}
	return r
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

func within(planned, measured, low, high float64, samples int) *Property {
	return &Property{Planned: planned, Measured: measured, Tolerance: [2]float64{low, high}, Samples: samples,
		OK: samples > 0 && measured >= low && measured <= high}
}

// allow widens the tolerance.
func (p *Property) allow(more float64) {
	if p == nil || more == 0 {
		return
	}
	p.Tolerance[0], p.Tolerance[1] = max(p.Tolerance[0]-more, 0), p.Tolerance[1]+more
	p.OK = p.Samples > 0 && p.Measured >= p.Tolerance[0] && p.Measured <= p.Tolerance[1]
}

// delays judges the median and the 99th percentile of delays with the jitter of
// one or two ways. Jitter does not move the median, but few samples do. wait is
// the time that rates and queues may add.
func delays(d []time.Duration, planned time.Duration, there, back variation, wait time.Duration) (median, tail *Property) {
	n, jitter := len(d), there.width+back.width
	noise := time.Duration(float64(jitter) * 3 / math.Sqrt(float64(max(n, 1)))) // 3 standard errors: 2J × ½/√n each
	slack := func(fixed time.Duration, share float64) time.Duration {
		return fixed + time.Duration(share*float64(planned)) + noise + wait
	}
	median = within(ms(planned), ms(stats.Quantile(d, 0.5)), ms(max(planned-early-noise, 0)), ms(planned+slack(medianSlack, medianShare)), n)
	late := planned + jitterP99(there.width, back.width)
	if skewed := there.uneven || back.uneven; n > 0 && n < enough || skewed {
		return median, nil
	}
	tail = within(ms(late), ms(stats.Quantile(d, 0.99)), ms(max(late-early-noise-jitter/4, 0)), ms(late+slack(tailSlack, tailShare)), n)
	return median, tail
}

// variation is the effect of a path's jitter on its delays.
type variation struct {
	median  time.Duration // above the one-way delay
	width   time.Duration // as HalfWidth estimates it
	longest time.Duration // the farthest above the one-way delay
	uneven  bool          // not uniform: a few samples do not show the tail
}

func vary(p shaping.PathPlan) variation {
	if p.JitterDistribution == shaping.Uniform {
		return variation{width: time.Duration(p.Jitter), longest: time.Duration(p.Jitter)}
	}
	table := p.JitterDistribution.Table()
	deviations := make([]time.Duration, len(table))
	for i, v := range table {
		deviations[i] = time.Duration(p.Jitter.Deviation(v))
	}
	slices.Sort(deviations)
	return variation{median: stats.Quantile(deviations, 0.5), width: HalfWidth(deviations), longest: time.Duration(p.Slowest() - p.OneWayDelay), uneven: p.Jitter > 0}
}

// jitterP99 is the 99th percentile of the sum of two uniform variations of
// these half-widths. It lies x below the largest sum, at which the chance of
// exceeding it is x²/8ab. Beyond the narrower of the two it is a straight line.
func jitterP99(a, b time.Duration) time.Duration {
	const beyond = 0.01
	narrow, wide := float64(min(a, b)), float64(max(a, b))
	x := math.Sqrt(8 * beyond * narrow * wide)
	if x >= 2*narrow {
		x = narrow + 2*beyond*wide
	}
	return time.Duration(narrow + wide - x)
}

// queueing is the longest wait of a probe behind full frames of the same links:
// two in each queue.
func queueing(plan *shaping.Plan, p Pair) time.Duration {
	return plan.Sending(p.From, p.To, 2*shaping.FrameSize)
}

// expects reports whether so many probes arrive, without overtaking, that none
// at all is a fault.
func expects(there shaping.PathPlan, asked int) bool {
	const enoughToMiss = 20 // none of these is a chance of 2e-9
	return float64(asked)*pass(there).seen*(1-float64(there.Reorder)) >= enoughToMiss
}

// overtaken removes the delays of packets that overtook, and counts them. The
// result is nil if the path has no overtaking, or delays so little that both
// look alike.
func overtaken(there shaping.PathPlan, all []time.Duration) (slow []time.Duration, count *int) {
	least := time.Duration(there.Fastest())
	if there.Reorder == 0 || least < 2*medianSlack || len(all) == 0 {
		return all, nil
	}
	slow = slices.DeleteFunc(slices.Clone(all), func(d time.Duration) bool { return d < least-early })
	count = new(len(all) - len(slow))
	if len(slow) == 0 {
		slow = nil
	}
	return slow, count
}

// roundTrips removes the round trips of packets that overtook on either way.
func roundTrips(there, back shaping.PathPlan, all []time.Duration) []time.Duration {
	if there.Reorder == 0 && back.Reorder == 0 {
		return all
	}
	least := time.Duration(there.Fastest() + back.Fastest())
	all = slices.DeleteFunc(slices.Clone(all), func(d time.Duration) bool { return d < least-early })
	if len(all) == 0 {
		return nil
	}
	return all
}

// sourceShare is the share of a probe's frame whose corruption goes unnoticed:
// its sender's hardware address. netem corrupts it like the rest, and the
// router never does.
const sourceShare = 6.0 / Frame

func loss(there shaping.PathPlan, lost, sent int, alpha float64) *Property {
	p := shareOf(1-pass(there).seen, lost, sent, there.Clumping(), alpha)
	if there.Corrupt > 0 {
		milder := there
		milder.Corrupt *= 1 - sourceShare
		p.Tolerance[0] = min(p.Tolerance[0], shareOf(1-pass(milder).seen, lost, sent, there.Clumping(), alpha).Tolerance[0])
		p.OK = p.Samples > 0 && p.Measured >= p.Tolerance[0] && p.Measured <= p.Tolerance[1]
	}
	from, to := Wilson(lost, sent)
	p.Interval = &[2]float64{from, to}
	return p
}

// shareOf judges a share of n packets by a binomial distribution. Packets come
// in groups of alike with the same fate, which carry as much information as
// fewer single ones.
func shareOf(planned float64, count, n int, alike, alpha float64) *Property {
	planned = math.Round(min(max(planned, 0), 1)*1e12) / 1e12 // 0.2 rather than 1 - 0.8
	independent := max(1, int(float64(n)/alike))
	low, high := BinomialRange(independent, planned, alpha)
	return within(planned, float64(count)/float64(n), float64(low)/float64(independent), float64(high)/float64(independent), n)
}

func goodput(f Flow, there shaping.PathPlan, below float64) *Property {
	if f.Planned == 0 {
		return nil
	}
	const mbit = Ceiling / 1e6
	noise, through := 0.0, pass(there)
	if missed := 1 - through.seen; missed > 0 && missed < 1 || there.Duplicate > 0 {
		noise = lossyErrors * math.Sqrt((missed/max(through.seen, 1e-9)+float64(there.Duplicate))/float64(max(f.Frames, 1)))
	}
	p := within(f.Planned*mbit, f.Measured*mbit, f.Planned*mbit*(1-below-noise-float64(there.Corrupt)*sourceShare), f.Planned*mbit*(1+rateAbove+noise+float64(there.Corrupt)*sourceShare), f.Frames)
	if through.whole == 0 {
		p.OK = f.Frames == 0
	}
	return p
}

// String describes a failed property in words.
func (p Property) String() string {
	return fmt.Sprintf("%.4g, planned %.4g (%.4g to %.4g allowed)", p.Measured, p.Planned, p.Tolerance[0], p.Tolerance[1])
}
