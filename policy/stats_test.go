package policy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
)

var times = rapid.SliceOfN(rapid.Map(rapid.Int64Range(-1e6, 1e6), func(v int64) Time { return Time(v) }), 1, 40)

// TestMedianHasHalfOnEachSide compares with the definition: at most half of
// the values lie below the median and at most half above it.
func TestMedianHasHalfOnEachSide(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		values := times.Draw(t, "values")
		m := Median(slices.Clone(values))
		below, above := 0, 0
		for _, v := range values {
			if v < m {
				below++
			}
			if v > m {
				above++
			}
		}
		if 2*below > len(values) || 2*above > len(values) {
			t.Fatalf("median of %v is %d, with %d below and %d above", values, m, below, above)
		}
	})
}

func TestMedianAndMAD(t *testing.T) {
	for _, c := range []struct {
		values      []Time
		median, mad Time
	}{
		{[]Time{7}, 7, 0},
		{[]Time{3, 1, 2}, 2, 1},
		{[]Time{0, 10, 20, 70}, 15, 10},
		{[]Time{4, 1}, 2, 1}, // the mean of 1 and 4 is 2.5, of the deviations 1 and 2 it is 1.5
		{[]Time{0, 0, 0, 18_000}, 0, 0},
	} {
		m := Median(slices.Clone(c.values))
		mad := MAD(slices.Clone(c.values), m)
		if m != c.median || mad != c.mad {
			t.Errorf("%v: median %d and MAD %d, want %d and %d", c.values, m, mad, c.median, c.mad)
		}
	}
}

// TestMADIsTheMedianDeviation compares with the definition.
func TestMADIsTheMedianDeviation(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		values := times.Draw(t, "values")
		centre := Median(slices.Clone(values))
		var deviations []Time
		for _, v := range values {
			if v < centre {
				deviations = append(deviations, centre-v)
			} else {
				deviations = append(deviations, v-centre)
			}
		}
		if got, want := MAD(slices.Clone(values), centre), Median(deviations); got != want {
			t.Fatalf("MAD of %v is %d, want %d", values, got, want)
		}
	})
}

// TestHistoryKeepsWholeRoundsThatCoverTheWindow: dropping the oldest round it
// has kept would leave fewer samples than the window.
func TestHistoryKeepsWholeRoundsThatCoverTheWindow(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		window := rapid.IntRange(1, 20).Draw(t, "window")
		var h history
		var all [][]Time
		for range rapid.IntRange(1, 20).Draw(t, "rounds") {
			round := times.Draw(t, "offsets")
			all = append(all, round)
			h.add(round, window)

			kept, samples := 0, 0
			for kept < len(all) && samples < window {
				kept++
				samples += len(all[len(all)-kept])
			}
			if len(h.rounds) != kept || h.total != samples {
				t.Fatalf("%d rounds of %d samples kept, want %d of %d", len(h.rounds), h.total, kept, samples)
			}
			var flat []Time
			for _, r := range all[len(all)-kept:] {
				flat = append(flat, r...)
			}
			d := (&Straggler{K: 2, MinSlack: 5, history: h}).Deadline(&Round{Arrived: 1})
			median := Median(slices.Clone(flat))
			if want := max(5, median+2*MAD(slices.Clone(flat), median)); d.Samples != samples || d.Median != median || d.At != want {
				t.Fatalf("deadline %+v of %v, want median %d and offset %d", d, flat, median, want)
			}
		}
	})
}
