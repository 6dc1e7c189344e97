package probe

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/internal/stats"
	"testbed/shaping"
)

const milli = time.Millisecond

// network is a plan of n nodes with these links.
func network(t interface{ Fatal(...any) }, n int, spec shaping.Spec) *shaping.Plan {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i)
	}
	plan, err := shaping.NewPlan(spec, names, 10*milli, 42)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func access(up, down shaping.Rate) shaping.Access {
	return shaping.Access{RateUp: &up, RateDown: &down}
}

func TestHalfWidthFindsAUniformJitterBehindStragglers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var d []time.Duration
	for range 2000 {
		d = append(d, 20*milli+time.Duration((2*random.Float64()-1)*float64(3*milli)))
	}
	for range 20 {
		d = append(d, 80*milli)
	}
	if got := HalfWidth(sorted(d)); got < 2800*time.Microsecond || got > 3200*time.Microsecond {
		t.Errorf("half-width %v, want 3 ms", got)
	}
}

// TestWilson compares with values worked out by hand.
func TestWilson(t *testing.T) {
	for _, c := range []struct {
		k, n      int
		low, high float64
	}{{0, 100, 0, 0.0622}, {10, 100, 0.0460, 0.2038}, {100, 100, 0.9378, 1}, {0, 0, 0, 1}} {
		low, high := Wilson(c.k, c.n)
		if math.Abs(low-c.low) > 1e-3 || math.Abs(high-c.high) > 1e-3 {
			t.Errorf("Wilson(%d, %d) = %.4f, %.4f, want %.4f, %.4f", c.k, c.n, low, high, c.low, c.high)
		}
	}
}

// TestBinomialRangeCovers: what a right network shows lies in the range as
// often as it should, exactly.
func TestBinomialRangeCovers(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 400).Draw(t, "n")
		p := rapid.Float64Range(0, 1).Draw(t, "p")
		alpha := rapid.SampledFrom([]float64{0.05, 0.01, 0.0005}).Draw(t, "alpha")
		low, high := BinomialRange(n, p, alpha)
		inside := 0.0
		for k := low; k <= high; k++ {
			inside += binomial(n, k, p)
		}
		if p > 0 && p < 1 && inside < 1-alpha-1e-9 {
			t.Errorf("[%d, %d] of %d at %v covers %v", low, high, n, p, inside)
		}
	})
	if low, high := BinomialRange(1000, 0, 0.01); low != 0 || high != 0 {
		t.Errorf("without loss [%d, %d] may be lost", low, high)
	}
	if low, high := BinomialRange(50, 1, 0.01); low != 50 || high != 50 {
		t.Errorf("without a link [%d, %d] may be lost", low, high)
	}
}

func TestSwayP99(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, c := range [][2]time.Duration{{0, 0}, {10 * milli, 0}, {10 * milli, 10 * milli}, {milli, 10 * milli}, {10 * milli, 100 * time.Microsecond}} {
		var sums []time.Duration
		for range 100_000 {
			sums = append(sums, time.Duration((2*random.Float64()-1)*float64(c[0])+(2*random.Float64()-1)*float64(c[1])))
		}
		if got, want := jitterP99(c[0], c[1]), stats.Quantile(sorted(sums), 0.99); (got - want).Abs() > 100*time.Microsecond {
			t.Errorf("%v: %v, but %v of 100,000", c, got, want)
		}
	}
}

func TestAllPairs(t *testing.T) {
	for _, c := range []struct {
		nodes, pairs int
		whole        bool
	}{{1, 0, true}, {2, 2, true}, {5, 20, true}, {9, 72, true}, {10, 20 + sampled, false}, {65, 130 + sampled, false}, {1000, maxPairs, false}} {
		plan := network(t, c.nodes, shaping.Spec{})
		pairs, whole := AllPairs(plan)
		if whole != c.whole || len(pairs) > c.pairs || c.whole && len(pairs) != c.pairs || !c.whole && len(pairs) < min(2*c.nodes, 200) {
			t.Errorf("%d nodes have %d pairs (whole %v), want %d (%v)", c.nodes, len(pairs), whole, c.pairs, c.whole)
		}
		again, _ := AllPairs(plan)
		if !slices.Equal(pairs, again) {
			t.Errorf("%d nodes: the sample is another one each time", c.nodes)
		}
		seen := map[Pair]bool{}
		for _, p := range pairs {
			if p.From == p.To || seen[p] {
				t.Errorf("%d nodes: pair %v is given twice or to itself", c.nodes, p)
			}
			seen[p] = true
		}
	}
}

func TestRoundsDisturbNobody(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		plan := network(t, rapid.IntRange(2, 9).Draw(t, "nodes"), shaping.Spec{Default: shaping.Properties{Access: access(100e6, 100e6)}})
		pairs, _ := AllPairs(plan)
		rate := func(p Pair) float64 { return alone(plan, p) }
		budget := rapid.Float64Range(50e6, 1e9).Draw(t, "budget")
		total := 0
		for _, round := range rounds(pairs, rate, budget) {
			total += len(round)
			sends, receives, sum := map[int]bool{}, map[int]bool{}, 0.0
			for _, p := range round {
				if sends[p.From] || receives[p.To] {
					t.Errorf("a node has two flows in round %v", round)
				}
				sends[p.From], receives[p.To], sum = true, true, sum+rate(p)
			}
			if sum > budget && len(round) > 1 {
				t.Errorf("round %v takes %v of %v", round, sum, budget)
			}
		}
		if total != len(pairs) {
			t.Errorf("%d pairs of %d have a round", total, len(pairs))
		}
	})
}

func TestTogether(t *testing.T) {
	equal := network(t, 4, shaping.Spec{Default: shaping.Properties{Access: access(90e6, 90e6)}})
	slowReceiver := network(t, 3, shaping.Spec{
		Default: shaping.Properties{Access: access(90e6, 90e6)},
		Nodes:   map[string]shaping.Access{"n0": {RateDown: new(shaping.Rate(10e6))}, "n2": {RateDown: new(shaping.Rate(200e6))}},
	})
	free := network(t, 3, shaping.Spec{Default: shaping.Properties{Access: shaping.Access{RateDown: new(shaping.Rate(10e6))}}})
	for _, c := range []struct {
		name string
		plan *shaping.Plan
		pair Pair
		want float64
	}{
		{"equal shares", equal, Pair{0, 1}, 30e6},
		{"what a slow receiver cannot take goes to others", slowReceiver, Pair{1, 2}, 79e6},
		{"a slow receiver shares its rate", slowReceiver, Pair{1, 0}, 5e6},
		{"a fast sender", slowReceiver, Pair{0, 1}, 45e6},
		{"senders without a rate", free, Pair{0, 1}, 5e6},
	} {
		pairs, _ := AllPairs(c.plan)
		rates := together(c.plan, pairs, offers(c.plan, pairs))
		if got := rates[slices.Index(pairs, c.pair)]; math.Abs(got-c.want) > 1 {
			t.Errorf("%s: %v gets %v, want %v (all: %v)", c.name, c.pair, got, c.want, rates)
		}
	}
}

// perfect is what a Prober finds on a network that does as planned.
func perfect(plan *shaping.Plan, p Pair) Found {
	f := Found{Pair: p, Sent: 4000}
	path, back := plan.Paths[p.From][p.To], plan.Paths[p.To][p.From]
	random := rand.New(rand.NewPCG(3, 4))
	for k := range 250 {
		jitter := time.Duration((2*(float64(k)+0.5)/250 - 1) * float64(path.Jitter))
		d := time.Duration(path.OneWayDelay) + jitter + 50*time.Microsecond
		f.Delays = append(f.Delays, d)
		f.Busy = append(f.Busy, d)
		f.RTTs = append(f.RTTs, d+time.Duration(back.OneWayDelay)+time.Duration((2*random.Float64()-1)*float64(back.Jitter)))
	}
	f.Lost = int(math.Round(float64(path.Loss) * 4000))
	f.Rate = Flow{Planned: 100e6, Measured: 100e6, Frames: 6000}
	f.Together = Flow{Planned: 25e6, Measured: 25e6, Frames: 3000}
	return f
}

// TestJudge: a network as planned passes, and each departure is found and
// named.
func TestJudge(t *testing.T) {
	delay, jitter, loss := shaping.Duration(20*milli), shaping.Duration(2*milli), shaping.Probability(0.01)
	plan := network(t, 2, shaping.Spec{Default: shaping.Properties{
		Access: access(100e6, 100e6), Path: shaping.Path{OneWayDelay: &delay, Jitter: &jitter, Loss: &loss},
	}})
	shift := func(all []time.Duration, by time.Duration) {
		for k := range all {
			all[k] += by
		}
	}
	for _, c := range []struct {
		name, wrong string
		change      func(*Found)
	}{
		{"as planned", "", func(*Found) {}},
		{"a late link", "one_way_delay_ms", func(f *Found) { shift(f.Delays, 2*milli) }},
		{"an early link", "one_way_delay_ms", func(f *Found) { shift(f.Delays, -1*milli) }},
		{"a late way back", "rtt_ms", func(f *Found) { shift(f.RTTs, 3*milli) }},
		{"a tail", "one_way_delay_p99_ms", func(f *Found) { shift(f.Delays[240:], 12*milli) }},
		{"no jitter", "jitter_ms", func(f *Found) {
			for k := range f.Delays {
				f.Delays[k] = 20 * milli
			}
		}},
		{"too little loss", "loss", func(f *Found) { f.Lost = 5 }},
		{"too much loss", "loss", func(f *Found) { f.Lost = 90 }},
		{"a slow link", "goodput_mbit", func(f *Found) { f.Rate.Measured = 95e6 }},
		{"a fast link", "goodput_mbit", func(f *Found) { f.Rate.Measured = 104e6 }},
		{"an unfair link", "goodput_all_mbit", func(f *Found) { f.Together.Measured = 20e6 }},
		{"slow when busy", "busy_one_way_delay_ms", func(f *Found) { shift(f.Busy, 6*milli) }},
		{"dead", "one_way_delay_ms", func(f *Found) { f.Delays, f.RTTs, f.Busy, f.Lost = nil, []time.Duration{}, []time.Duration{}, f.Sent }},
	} {
		f := perfect(plan, Pair{0, 1})
		c.change(&f)
		r := Judge(plan, "user", true, []Found{f})
		names, all := r.Pairs[0].Properties()
		var wrong []string
		for k, p := range all {
			if !p.OK {
				wrong = append(wrong, names[k])
			}
		}
		if r.OK != (c.wrong == "") || c.wrong != "" && !slices.Contains(wrong, c.wrong) {
			t.Errorf("%s: ok %v, wrong %s, want %q", c.name, r.OK, strings.Join(wrong, " "), c.wrong)
		}
	}
}

// TestJudgeKnowsEveryProperty: what paths do to packets beyond delay and loss is
// expected, at its extremes too, and what departs from it is found.
func TestJudgeKnowsEveryProperty(t *testing.T) {
	probability := func(p float64) *shaping.Probability { return new(shaping.Probability(p)) }
	for _, c := range []struct {
		name string
		path shaping.Path
		// Shares of probes: that are lost, and that overtake; and of frames that arrive.
		lost, overtook, frames float64
		wrong                  string
	}{
		{"corrupt", shaping.Path{Corrupt: probability(0.1)}, 0.1, 0, 0.9, ""},
		{"corrupt, but for hardware addresses", shaping.Path{Corrupt: probability(0.5)}, 0.5 * (1 - 6.0/82), 0, 0.5, ""},
		{"corrupt always", shaping.Path{Corrupt: probability(1)}, 1, 0, 0, ""},
		{"corrupt never", shaping.Path{Corrupt: probability(0.1)}, 0, 0, 1, "loss"},
		{"duplicate", shaping.Path{Duplicate: probability(1)}, 0, 0, 1, ""},
		{"duplicates make up for losses", shaping.Path{Duplicate: probability(1), Loss: probability(0.5)}, 0, 0, 1, ""},
		{"duplicates do not", shaping.Path{Duplicate: probability(1), Loss: probability(0.5)}, 0.5, 0, 1, "loss"},
		{"loss and corruption", shaping.Path{Loss: probability(0.2), Corrupt: probability(0.5)}, 0.6, 0, 0.4, ""},
		{"loss always", shaping.Path{Loss: probability(1)}, 1, 0, 0, ""},
		{"loss always, but once", shaping.Path{Loss: probability(1)}, 0.99, 0, 0, "loss"},
		{"reorder", shaping.Path{Reorder: probability(0.3)}, 0, 0.3, 1, ""},
		{"reorder always", shaping.Path{Reorder: probability(1)}, 0, 1, 1, ""},
		{"reorder never", shaping.Path{Reorder: probability(0.3)}, 0, 0, 1, "reorder"},
	} {
		c.path.OneWayDelay = new(shaping.Duration(20 * milli))
		plan := network(t, 2, shaping.Spec{
			Default: shaping.Properties{Access: access(100e6, 100e6), Path: shaping.Path{OneWayDelay: c.path.OneWayDelay}},
			Pairs:   []shaping.Pair{{From: "n0", To: "n1", Path: c.path}},
		})
		pair := Pair{0, 1}
		f := perfect(plan, pair)
		arrive := func(all []time.Duration) []time.Duration {
			all = all[:int(float64(len(all))*(1-c.lost)+0.5)]
			for k := range int(float64(len(all))*c.overtook + 0.5) {
				all[k] = 200 * time.Microsecond
			}
			return all
		}
		f.Lost = int(float64(f.Sent)*c.lost + 0.5)
		f.Delays, f.RTTs, f.Busy = arrive(f.Delays), arrive(f.RTTs), arrive(f.Busy)
		offered := []float64{110e6}
		planned := together(plan, []Pair{pair}, offered)[0]
		f.Rate = Flow{Planned: planned, Measured: c.frames * 100e6, Frames: int(c.frames * 6000)}
		f.Together = f.Rate
		r := Judge(plan, "user", true, []Found{f})
		names, all := r.Pairs[0].Properties()
		var wrong []string
		for k, p := range all {
			if !p.OK {
				wrong = append(wrong, fmt.Sprintf("%s %v", names[k], p))
			}
		}
		if r.OK != (c.wrong == "") || c.wrong != "" && !strings.Contains(strings.Join(wrong, "; "), c.wrong) {
			t.Errorf("%s: ok %v, wrong %s, want %q", c.name, r.OK, strings.Join(wrong, "; "), c.wrong)
		}
	}
}

func TestEstimateIsBounded(t *testing.T) {
	plan := network(t, 5, shaping.Spec{Default: shaping.Properties{Access: access(100e6, 100e6)}})
	pairs, _ := AllPairs(plan)
	if got := Estimate(plan, pairs); got < 15*time.Second || got > 25*time.Second {
		t.Errorf("four workers take %v, want about 20 s", got)
	}
}

// TestUndilate: what was measured of a dilated network is, not dilated, what was
// planned; shares stay.
func TestUndilate(t *testing.T) {
	plan := network(t, 2, shaping.Spec{Default: shaping.Properties{Access: access(10_000_000, 10_000_000)}})
	slow, err := plan.Dilated(5)
	if err != nil {
		t.Fatal(err)
	}
	r := Judge(slow, "user", true, []Found{{
		Pair: Pair{0, 1}, RTTs: []time.Duration{100 * milli}, Asked: 1, Sent: 1000, Rate: Flow{Planned: 2_000_000, Measured: 1_990_000, Frames: 1000},
	}})
	r.Undilate(5)
	p := r.Pairs[0]
	if p.RTT.Planned != 20 || p.RTT.Measured != 20 || math.Abs(p.Goodput.Measured/p.Goodput.Planned-0.995) > 1e-9 || p.Goodput.Planned < 9 || p.Goodput.Planned > 10 {
		t.Errorf("round trip %+v, goodput %+v", p.RTT, p.Goodput)
	}
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "dilation 5: by the machine") || !p.RTT.OK || p.RTT.Tolerance[0] > 20 || p.RTT.Tolerance[1] < 20 || p.RTT.Tolerance[1] > 21 {
		t.Errorf("%v, %+v", r.Notes, p.RTT)
	}
	before := fmt.Sprint(*p.RTT)
	if r.Undilate(1); len(r.Notes) != 1 || fmt.Sprint(*p.RTT) != before {
		t.Error("dilated once: another report")
	}
}
