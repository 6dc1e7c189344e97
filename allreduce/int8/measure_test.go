package int8

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"time"
)

func TestFastest(t *testing.T) {
	const us = time.Microsecond
	for name, test := range map[string]struct {
		times  []func(round int) time.Duration // that a trial of each candidate takes
		best   int
		least  []time.Duration
		rounds int
	}{
		"a tenth is too little":      {fixed(10*us, 9200), 0, []time.Duration{10 * us, 9200}, mostRounds},
		"clearly faster":             {fixed(10*us, 12*us, 8*us), 2, []time.Duration{10 * us, 12 * us, 8 * us}, mostRounds},
		"faster than the one before": {fixed(10*us, 8*us, 7*us), 2, []time.Duration{10 * us, 8 * us, 7 * us}, mostRounds},
		"not clearly faster than it": {fixed(10*us, 8*us, 7500), 1, []time.Duration{10 * us, 8 * us, 7500}, mostRounds},
		"long trials":                {fixed(4000*us, 3000*us), 1, []time.Duration{4000 * us, 3000 * us}, fewestRounds},
		"the first two rounds are disturbed": {[]func(int) time.Duration{
			func(int) time.Duration { return 100 * us },
			func(round int) time.Duration {
				if round < 2 {
					return 10_000 * us
				}
				return 50 * us
			},
		}, 1, []time.Duration{100 * us, 50 * us}, fewestRounds},
		"the clock stops": {fixed(0, 0), 0, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var now time.Duration
			var order []int
			rounds := make([]int, len(test.times))
			prepared := -1
			best, least := fastest(len(test.times), func() time.Duration { return now }, func(i int) { prepared = i }, func(i int) {
				if prepared != i {
					t.Errorf("candidate %d is tried, but %d is prepared", i, prepared)
				}
				now += test.times[i](rounds[i])
				rounds[i]++
				order = append(order, i)
			})
			if best != test.best || !slices.Equal(least, test.least) || rounds[0] != test.rounds {
				t.Errorf("candidate %d, times %v, %d rounds; want %d, %v, %d", best, least, rounds[0], test.best, test.least, test.rounds)
			}
			for k, i := range order {
				if i != k%len(test.times) {
					t.Fatalf("the candidates do not take turns: %v", order)
				}
			}
		})
	}
}

// fixed returns candidates whose trials always take the same time.
func fixed(times ...time.Duration) (all []func(int) time.Duration) {
	for _, d := range times {
		all = append(all, func(int) time.Duration { return d })
	}
	return all
}

// TestChoices: with a clock the rates of all candidates say why; one that stands
// still, and none, lead to the widest instructions.
func TestChoices(t *testing.T) {
	reset := func(now func() time.Duration) {
		choices = [len(operations)][2][len(classes)]choice{}
		clock = now
	}
	was := clock
	defer func() { reset(was) }()
	start := time.Now()
	for name, now := range map[string]func() time.Duration{
		"a clock":                 func() time.Duration { return time.Since(start) },
		"a clock that is stopped": func() time.Duration { return time.Hour },
		"none":                    nil,
	} {
		reset(now)
		all := Choices()
		if len(all) != len(operations)*2*len(classes) {
			t.Fatalf("%d choices", len(all))
		}
		for i, c := range all {
			o, k := operation(slices.Index(operations[:], c.Operation)), i%len(classes)
			from := candidates(o, k)
			if c.FromBytes != classes[k].from || from[0].stream || from[0].route != forms()[len(forms())-1].route {
				t.Errorf("%s: %+v from %v", name, c, from)
			}
			if name != "a clock" || len(from) == 1 {
				if len(c.Rates) > 0 || c.Route != from[0].String() {
					t.Errorf("%s: %+v from %v", name, c, from)
				}
				continue
			}
			var best, taken float64
			for j, r := range c.Rates {
				best = max(best, r.GBs)
				if r.Route == c.Route {
					taken = r.GBs
				}
				if r.Route != from[j].String() || r.GBs <= 0 || math.IsInf(r.GBs, 0) {
					t.Errorf("%s: rate %d of %+v, which are of %v", name, j, c, from)
				}
			}
			if len(c.Rates) != len(from) || taken*gain < best || c.MeasuringUS <= 0 {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
}

// TestTrialsDoWhatCallsDo: in every form.
func TestTrialsDoWhatCallsDo(t *testing.T) {
	const n = 5000
	for _, as := range forms() {
		for _, f := range []Format{{8, DefaultBlock}, {4, DefaultBlock}} {
			codes, sums := f.roomFor(n), valuesFor(n)
			for o := range operations {
				s := newSubject(f, operation(o), n)
				if canFlush() {
					s.flush()
				}
				s.run(as)
				switch operation(o) {
				case encode:
					f.Quantise(codes, s.values, nil)
				case decode:
					f.Dequantise(sums, s.in)
				case decodeAdd:
					f.DequantiseAdd(sums, s.in, s.values)
				case ringStep:
					f.AddRequantise(codes, s.in, s.values, 1, nil)
				}
				if s.out != nil && !bytes.Equal(s.out, codes) || s.sums != nil && !slices.Equal(s.sums, sums) {
					t.Errorf("%v, %d bits: a trial of %s does something else", as, f.Bits, operations[o])
				}
			}
		}
	}
}
