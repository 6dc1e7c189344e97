package ringorder_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/allreduce/reduction"
	"testbed/allreduce/ringorder"
	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/shaping"
)

// orders calls f with every order of the participants that begins with the
// first.
func orders(participants []policy.ID, f func([]policy.ID)) {
	var extend func(order, left []policy.ID)
	extend = func(order, left []policy.ID) {
		if len(left) == 0 {
			f(order)
		}
		for i, id := range left {
			extend(append(slices.Clone(order), id), slices.Delete(slices.Clone(left), i, i+1))
		}
	}
	extend(participants[:1], participants[1:])
}

// slowest is the lowest rate around the ring, +Inf where none is limited.
func slowest(w ringorder.Ways, order []policy.ID) float64 {
	lowest := math.Inf(1)
	for k, id := range order {
		next := order[(k+1)%len(order)]
		if r := w.Rates[slices.Index(w.Workers, id)][slices.Index(w.Workers, next)]; id != next && r > 0 {
			lowest = min(lowest, float64(r))
		}
	}
	return lowest
}

// TestOrderByRates finds, for whoever takes part, the ring whose slowest hop is
// as fast as in any order, and says how fast that is.
func TestOrderByRates(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "workers")
		var w ringorder.Ways
		var participants []policy.ID
		rate := rapid.SampledFrom([]shaping.Rate{0, 1000, 10e6, 10e6 + 1, 24e6, 100e6, 1e12})
		for i := range n {
			id := policy.ID(3 * i)
			w.Workers = append(w.Workers, id)
			w.Rates = append(w.Rates, rapid.SliceOfN(rate, n, n).Draw(t, "rates"))
			w.Delays = append(w.Delays, make([]float64, n))
			if i == 0 || rapid.IntRange(0, 3).Draw(t, "takes part") > 0 {
				participants = append(participants, id)
			}
		}
		best := 0.0
		orders(participants, func(order []policy.ID) { best = max(best, slowest(w, order)) })
		r, err := w.Order(participants)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(slices.Sorted(slices.Values(r.Order)), participants) {
			t.Fatalf("%v is not an order of %v", r.Order, participants)
		}
		said := func(r shaping.Rate) float64 {
			if r == 0 {
				return math.Inf(1)
			}
			return float64(r)
		}
		if got := slowest(w, r.Order); got != best || said(r.Rate) != best || said(r.NaiveRate) != slowest(w, participants) {
			t.Fatalf("%+v has a slowest hop of %v, the best of all orders %v, that of the ids %v", r, got, best, slowest(w, participants))
		}
	})
}

// TestOrderOfManyByRates: above 12 workers the order is not proven to be the
// best, and never worse than that of the ids.
func TestOrderOfManyByRates(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(13, 20).Draw(t, "workers")
		var w ringorder.Ways
		for i := range n {
			w.Workers = append(w.Workers, policy.ID(i))
			w.Delays = append(w.Delays, make([]float64, n))
			row := make([]shaping.Rate, n)
			for j := range row {
				row[j] = shaping.Rate(rapid.IntRange(1, 50).Draw(t, "rate")) * 1e6
			}
			w.Rates = append(w.Rates, row)
		}
		r, err := w.Order(w.Workers)
		if err != nil || r.Rate < r.NaiveRate || !slices.Equal(slices.Sorted(slices.Values(r.Order)), w.Workers) {
			t.Fatalf("%+v, %v", r, err)
		}
	})
}

// TestPlanned: which order is asked for says what of the plan counts.
func TestPlanned(t *testing.T) {
	fast, slow, far := shaping.Rate(200e6), shaping.Rate(10e6), shaping.Duration(50e6)
	var spec shaping.Spec
	spec.Default.RateUp, spec.Default.RateDown = &fast, &fast
	spec.Pairs = []shaping.Pair{
		{From: "w0", To: "w1", Path: shaping.Path{Rate: &slow}},
		{From: "w1", To: "w2", Path: shaping.Path{OneWayDelay: &far}},
	}
	workers, nodes := []policy.ID{0, 1, 2, 3}, []string{"w0", "w1", "w2", "w3"}
	plan, err := shaping.NewPlan(spec, append([]string{"coordinator"}, nodes...), 15*time.Millisecond, 1)
	if err != nil {
		t.Fatal(err)
	}
	given := [][]shaping.Rate{{0, 9, 9, 1}, {9, 0, 1, 9}, {1, 9, 0, 9}, {9, 1, 9, 0}}
	for order, want := range map[string]struct{ avoids, rate string }{
		"naive":          {"", ""},
		"planned":        {"w1w2", ""},
		"measured":       {"w1w2", ""},
		"planned_rates":  {"w0w1", "200mbit"},
		"measured_rates": {"w0w1", "200mbit"},
		"given_rates":    {"w0w3 w1w2 w2w0 w3w1", "9bit"},
	} {
		w := ringorder.Planned(reduction.Spec{Order: order, Rates: given}, workers, plan)
		r, err := w.OfAll()
		if err != nil {
			t.Fatal(err)
		}
		if order == "naive" {
			if r != nil {
				t.Errorf("in the order of the ids it is %+v", r)
			}
			continue
		}
		for k, id := range r.Order {
			hop := nodes[id] + nodes[r.Order[(k+1)%4]]
			if strings.Contains(want.avoids, hop) {
				t.Errorf("%s: the ring %v goes %s", order, r.Order, hop)
			}
		}
		if (r.Rate == 0) != (want.rate == "") || r.Rate > 0 && r.Rate.String() != want.rate || r.Latency > r.NaiveLatency {
			t.Errorf("%s: %+v", order, r)
		}
	}
}

// TestWaysPassAsJSON, from process to process.
func TestWaysPassAsJSON(t *testing.T) {
	w := ringorder.Ways{Workers: []policy.ID{0, 4}, Delays: [][]float64{{0, 0.1}, {0.2, 0}}, Rates: [][]shaping.Rate{{0, 12_345_678}, {1000, 0}}}
	text, err := json.Marshal(w)
	var back ringorder.Ways
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || !cmp.Equal(w, back) {
		t.Errorf("%s: %v\n%s", text, err, cmp.Diff(w, back))
	}
}

func TestNothingKnownOfAWorker(t *testing.T) {
	w := ringorder.Ways{Workers: []policy.ID{0}, Delays: [][]float64{{0}}}
	if _, err := w.Order([]policy.ID{0, 7}); err == nil || !strings.Contains(err.Error(), "worker 7") {
		t.Errorf("the error is %v", err)
	}
}
