package probe

import (
	"slices"
	"testing"
	"time"

	"testbed/shaping"
)

// TestWhatIsWrongIsMeasuredAgain has a link that the machine made slow twice, one
// that is too slow and one that is right.
func TestWhatIsWrongIsMeasuredAgain(t *testing.T) {
	plan := network(t, 3, shaping.Spec{Default: shaping.Properties{Access: access(10e6, 10e6)}})
	pairs := []Pair{{0, 1}, {1, 2}, {2, 0}}
	var asked [][]Pair
	seen, err := asPlanned(plan, pairs, func(string) {}, "goodput", func(wanted []Pair) (all []Found, err error) {
		asked = append(asked, wanted)
		for _, p := range wanted {
			f := Found{Pair: p, Rate: Flow{Planned: 10e6, Measured: 10e6, Frames: 1000}}
			if p == pairs[0] && len(asked) < 3 || p == pairs[1] {
				f.Rate.Measured = 9.7e6
			}
			all = append(all, f)
		}
		return all, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]Pair{pairs, pairs[:2], pairs[:2], pairs[1:2]}
	if !slices.EqualFunc(asked, want, slices.Equal[[]Pair]) {
		t.Errorf("measured %v, want %v", asked, want)
	}
	for k, right := range []bool{true, false, true} {
		if got := seen[pairs[k]].Rate.AsPlanned(); got != right {
			t.Errorf("%v as planned: %v, want %v", pairs[k], got, right)
		}
	}
}

// TestEchoesDoNotQueue: where only the way back has jitter, probes there leave its echoes
// as much time.
func TestEchoesDoNotQueue(t *testing.T) {
	jitter := shaping.Duration(20 * time.Millisecond)
	plan, err := shaping.NewPlan(shaping.Spec{
		Default: shaping.Properties{Path: shaping.Path{OneWayDelay: &jitter}},
		Pairs:   []shaping.Pair{{From: "w1", To: "w0", Path: shaping.Path{Jitter: &jitter}}},
	}, []string{"w0", "w1"}, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Pair{{0, 1}, {1, 0}} {
		if g := gap(plan, p, 2, delayGap); g < 79*time.Millisecond || g > 80*time.Millisecond {
			t.Errorf("%v: a gap of %v for a range of 40 ms and two pairs", p, g)
		}
	}
}
