package tune_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/experiment/tune"
	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/scenarios"
)

// TestEveryPlaceIsAPolicy: whatever the place, the specification is one that the
// scenario takes, and each axis reaches both ends of its range.
func TestEveryPlaceIsAPolicy(t *testing.T) {
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	rapidtest.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(all).Draw(t, "scenario")
		name := rapid.SampledFrom(policy.Names()).Draw(t, "policy")
		if _, err := s.Machine(name); err != nil {
			t.Skip(err) // as regions are refused by torchft, whatever its parameters
		}
		space, err := tune.NewSpace(s, name)
		if err != nil {
			t.Fatal(err)
		}
		at := make([]float64, len(space.Axes))
		for i := range at {
			at[i] = rapid.SampledFrom([]float64{0, 1, rapid.Float64Range(0, 1).Draw(t, "at")}).Draw(t, "which")
		}
		if _, err := s.Machine(space.Spec(at)); err != nil {
			t.Errorf("%s in %s: %v", space.Spec(at), s.Name, err)
		}
	})
}

func TestSpec(t *testing.T) {
	source, err := scenarios.Find("persistent_straggler")
	if err != nil {
		t.Fatal(err)
	}
	s, err := source.Parse()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]string{
		"baseline": {"baseline", "baseline"},
		"backup":   {"backup:b=0", "backup:b=2"},
		"quorum":   {"quorum:join_timeout=20", "quorum:join_timeout=8000"}, // of two steps of 1,000 µs
		"straggler": {"straggler:quorum=0.3:k=0.5:window=4:min_slack=2:sideline_limit=0:finish_steps=false",
			"straggler:quorum=1:k=20:window=256:min_slack=4000:sideline_limit=8:finish_steps=true"},
	} {
		space, err := tune.NewSpace(s, name)
		if err != nil {
			t.Fatal(err)
		}
		for end, want := range want {
			at := make([]float64, len(space.Axes))
			for i := range at {
				at[i] = float64(end)
			}
			if got := space.Spec(at); got != want {
				t.Errorf("the end %d of %s is %s, want %s", end, name, got, want)
			}
		}
	}
}

// TestSpreadCoversEveryStratum of every axis once.
func TestSpreadCoversEveryStratum(t *testing.T) {
	space := tune.Space{Axes: make([]tune.Axis, 3)}
	places := space.Spread(20, rand.New(rand.NewPCG(1, 2)))
	for axis := range space.Axes {
		seen := map[int]bool{}
		for _, p := range places {
			seen[int(p[axis]*20)] = true
		}
		if len(seen) != 20 {
			t.Errorf("axis %d has places in %d of 20 strata", axis, len(seen))
		}
	}
	for _, p := range space.Near(places, 100, rand.New(rand.NewPCG(1, 2))) {
		for _, at := range p {
			if at < 0 || at > 1 {
				t.Errorf("%v lies outside", p)
			}
		}
	}
}

// TestFront: no point of the front is beaten, and every other one is, or came to
// the same as one of it.
func TestFront(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		points := rapid.SliceOf(rapid.Custom(func(t *rapid.T) tune.Point {
			return tune.Point{Policy: rapid.StringMatching(`[a-z]{3}`).Draw(t, "policy"), Complete: rapid.IntRange(0, 4).Draw(t, "complete") > 0,
				WallClock: float64(rapid.IntRange(1, 6).Draw(t, "wall")), Lost: float64(rapid.IntRange(0, 5).Draw(t, "lost")) / 10}
		})).Draw(t, "points")
		front := tune.Front(points)
		beats := func(a, b tune.Point) bool {
			return a.WallClock <= b.WallClock && a.Lost <= b.Lost && a != b && (a.WallClock < b.WallClock || a.Lost < b.Lost)
		}
		for _, p := range points {
			beaten := slices.ContainsFunc(points, func(o tune.Point) bool { return o.Complete && beats(o, p) })
			on := slices.ContainsFunc(front, func(f tune.Point) bool { return f.WallClock == p.WallClock && f.Lost == p.Lost })
			if p.Complete && on == beaten {
				t.Errorf("%+v is on the front: %v, beaten: %v", p, on, beaten)
			}
		}
		for i := 1; i < len(front); i++ {
			if front[i].WallClock <= front[i-1].WallClock || front[i].Lost >= front[i-1].Lost {
				t.Errorf("%+v follows %+v", front[i], front[i-1])
			}
		}
		n := rapid.IntRange(0, 6).Draw(t, "n")
		chosen := tune.Choose(front, n)
		if len(chosen) != min(n, len(front)) {
			t.Errorf("%d chosen of %d, want %d", len(chosen), len(front), n)
		}
		if n > 0 && len(front) > 0 && chosen[0].WallClock != front[0].WallClock || n > 1 && len(front) > 1 && chosen[len(chosen)-1].Lost != front[len(front)-1].Lost {
			t.Errorf("chosen %+v of %+v", chosen, front)
		}
	})
}

// TestChooseBend: of a front with one bend, the bend is chosen next.
func TestChooseBend(t *testing.T) {
	front := []tune.Point{{Policy: "a", WallClock: 10, Lost: 0.5}, {Policy: "b", WallClock: 11, Lost: 0.49}, {Policy: "c", WallClock: 12, Lost: 0.1}, {Policy: "d", WallClock: 30, Lost: 0}}
	if got := tune.Choose(front, 3); len(got) != 3 || got[1].Policy != "c" {
		t.Errorf("chosen %+v", got)
	}
}

// TestGivenParametersAreNotSearched.
func TestGivenParametersAreNotSearched(t *testing.T) {
	source, err := scenarios.Find("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	s, err := source.Parse()
	if err != nil {
		t.Fatal(err)
	}
	space, err := tune.NewSpace(s, "deadline:factor=2")
	if err != nil || space.Spec([]float64{1}) != "deadline:factor=2:quorum=1" {
		t.Errorf("%+v, %v", space, err)
	}
}
