package userlink_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"testbed/shaping"
	"testbed/shaping/userlink"
)

// near fails unless k of n is the share p within 4 standard deviations.
func near(t *testing.T, what string, k, n int, p float64) {
	t.Helper()
	if sigma := math.Sqrt(float64(n) * p * (1 - p)); math.Abs(float64(k)-float64(n)*p) > 4*sigma {
		t.Errorf("%s: %d of %d, want %.0f ± %.0f", what, k, n, float64(n)*p, 4*sigma)
	}
}

func TestBurstsHaveTheirMeanLossAndLength(t *testing.T) {
	burst := shaping.LossBurst{Enter: 0.01, Leave: 0.25, LossInside: 1}
	const n = 200_000
	lost, bursts := 0, 0
	all := pattern(plan(3, shaping.PathPlan{LossBurst: burst}, "a", "b"), 0, 1, n)
	for i, d := range all {
		if d >= 0 {
			continue
		}
		lost++
		if i == 0 || all[i-1] >= 0 {
			bursts++
		}
	}
	// Losses come in clumps of 4, so their number varies twice as much and
	// more than if each were independent.
	mean := float64(burst.Mean()) * n
	if math.Abs(float64(lost)-mean) > 0.06*mean {
		t.Errorf("lost %d of %d, want %.0f", lost, n, mean)
	}
	if length := float64(lost) / float64(bursts); math.Abs(length-4) > 0.2 {
		t.Errorf("bursts are %.2f packets long, want 1/leave = 4", length)
	}
	mild := shaping.LossBurst{Enter: 0.05, Leave: 0.05, LossInside: 0.3, LossOutside: 0.1}
	lost = 0
	for _, d := range pattern(plan(3, shaping.PathPlan{LossBurst: mild}, "a", "b"), 0, 1, n) {
		if d < 0 {
			lost++
		}
	}
	if math.Abs(float64(lost)-0.2*n) > 0.03*n {
		t.Errorf("half of the time 30 %% and half 10 %%: lost %d of %d", lost, n)
	}
}

func TestDuplicatesAndCorruption(t *testing.T) {
	type packet struct{ n, flips int }
	const n = 20_000
	p := plan(5, shaping.PathPlan{OneWayDelay: shaping.Duration(ms), Duplicate: 0.2, Corrupt: 0.1}, "a", "b")
	q := userlink.NewQueue[*packet](p, 2*n)
	q.Corrupt = func(p *packet, _ uint64) { p.flips++ }
	q.Clone = func(p *packet) *packet { return new(*p) }
	for i := range n {
		if fate := q.Push(time.Duration(i)*ms, 0, 1, 100, &packet{n: i}); fate != userlink.Queued {
			t.Fatalf("packet %d: fate %d", i, fate)
		}
	}
	twice, flips := q.Len()-n, 0
	for {
		p, _, _, ok := q.Pop(math.MaxInt64)
		if !ok {
			break
		}
		if flips += p.flips; p.flips > 1 {
			t.Fatalf("packet %d was corrupted %d times", p.n, p.flips)
		}
	}
	near(t, "duplicates", twice, n, 0.2)
	near(t, "corrupted", flips, n+twice, 0.1)
}

func TestADuplicateMakesUpForALoss(t *testing.T) {
	const n = 20_000
	q := userlink.NewQueue[int](plan(5, shaping.PathPlan{Duplicate: 0.5, Loss: 0.5}, "a", "b"), 2*n)
	fates := map[userlink.Fate]int{}
	for range n {
		fates[q.Push(0, 0, 1, 100, 0)]++
	}
	near(t, "lost with netem's rule", fates[userlink.Lost], n, 0.25)
	// Of the quarter that has a second packet, half keep it.
	near(t, "arrived twice", q.Len()-fates[userlink.Queued], n, 0.125)
}

func TestReorderedPacketsOvertake(t *testing.T) {
	const n = 20_000
	path := shaping.PathPlan{OneWayDelay: shaping.Duration(20 * ms), Jitter: shaping.Duration(ms), Reorder: 0.05}
	early := 0
	for i, d := range pattern(plan(9, path, "a", "b"), 0, 1, n) {
		switch {
		case d == 0:
			early++
		case d < 19*ms || d > 21*ms:
			t.Fatalf("packet %d took %v", i, d)
		}
	}
	near(t, "sent at once", early, n, 0.05)
}

func TestJitterFollowsItsDistribution(t *testing.T) {
	const n = 40_000
	for d, want := range map[shaping.JitterDistribution]float64{shaping.Uniform: 0.577, shaping.Normal: 1, shaping.Pareto: 0.821} {
		// Packets 1 ms apart cannot meet: the widest table ends at 4.
		path := shaping.PathPlan{OneWayDelay: shaping.Duration(10 * ms), Jitter: shaping.Duration(100 * time.Microsecond), JitterDistribution: d}
		all := pattern(plan(1, path, "a", "b"), 0, 1, n)
		var squares float64
		for _, v := range all {
			squares += math.Pow(float64(v-10*ms)/float64(path.Jitter), 2)
		}
		if got := math.Sqrt(squares / n); math.Abs(got-want) > 0.03 {
			t.Errorf("%v: the deviation is %.3f times the jitter, want %.3f", d, got, want)
		}
		if low, high := slices.Min(all), slices.Max(all); low < time.Duration(path.Fastest()) || high > time.Duration(path.Slowest()) {
			t.Errorf("%v: %v to %v, planned %v to %v", d, low, high, path.Fastest(), path.Slowest())
		}
	}
}

// TestPropertiesDoNotDisturbEachOther: with more of one property the pattern
// of the others stays.
func TestPropertiesDoNotDisturbEachOther(t *testing.T) {
	const n = 2000
	base := shaping.PathPlan{OneWayDelay: shaping.Duration(10 * ms), Jitter: shaping.Duration(400 * time.Microsecond)}
	lossy := base
	lossy.Loss, lossy.Corrupt = 0.3, 0.5
	want, got := pattern(plan(1, base, "a", "b"), 0, 1, n), pattern(plan(1, lossy, "a", "b"), 0, 1, n)
	for i := range got {
		if got[i] >= 0 && got[i] != want[i] {
			t.Fatalf("packet %d took %v, and %v without loss", i, got[i], want[i])
		}
	}
}

// TestAPathHasARateOfItsOwn: packets leave it by the schedule from when their
// delay is over, as many wait as its queue holds, and other paths of the same
// nodes know nothing of it.
func TestAPathHasARateOfItsOwn(t *testing.T) {
	const size = 1000
	p := plan(1, shaping.PathPlan{OneWayDelay: shaping.Duration(10 * ms)}, "a", "b", "c")
	p.Paths[0][1].Rate = 8e6 // a packet in 1 ms
	p.Nodes[0].Queue = shaping.Queue{Bytes: shaping.MinQueueBytes}
	q := userlink.NewQueue[int](p, 1000)
	full := 0
	for n := range 100 {
		if fate := q.Push(0, 0, 1, size, n); fate == userlink.QueueFull {
			full++
		} else if fate != userlink.Queued {
			t.Fatalf("packet %d: fate %d", n, fate)
		}
	}
	q.Push(0, 0, 2, size, 1000)
	q.Push(500*ms, 0, 1, size, 1001)
	if most := shaping.MinQueueBytes/size + 1; 100-full != most {
		t.Errorf("%d of 100 packets fit into a queue for %d", 100-full, most)
	}
	next := 1
	for {
		n, _, due, ok := q.Pop(math.MaxInt64)
		if !ok {
			break
		}
		want := time.Duration(10+next) * ms
		switch n {
		case 1000:
			want = 10 * ms
		case 1001:
			want = 511 * ms
		default:
			next++
		}
		if due != want {
			t.Errorf("packet %d came out at %v, want %v", n, due, want)
		}
	}
}
