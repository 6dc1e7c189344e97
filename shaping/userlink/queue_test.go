package userlink_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/shaping"
	"testbed/shaping/userlink"
)

const ms = time.Millisecond

// plan has nodes with those names and the same path between all of them.
func plan(seed uint64, path shaping.PathPlan, names ...string) *shaping.Plan {
	p, err := shaping.NewPlan(shaping.Spec{}, names, 0, seed)
	if err != nil {
		panic(err) // the tests' own plans are good
	}
	for i := range p.Paths {
		for j := range p.Paths[i] {
			if i != j {
				p.Paths[i][j] = path
			}
		}
	}
	return p
}

// pattern is what becomes of n packets sent in steps of 1 ms from node 0 to
// node 1: each one's time on the way, or −1 if it is lost.
func pattern(p *shaping.Plan, from, to, n int) []time.Duration {
	q := userlink.NewQueue[int](p, n)
	out := make([]time.Duration, n)
	for i := range n {
		out[i] = -1
		q.Push(time.Duration(i)*ms, from, to, 100, i)
	}
	for {
		i, _, due, ok := q.Pop(math.MaxInt64)
		if !ok {
			return out
		}
		out[i] = due - time.Duration(i)*ms
	}
}

var rough = shaping.PathPlan{OneWayDelay: shaping.Duration(20 * ms), Jitter: shaping.Duration(2 * ms), Loss: 0.1}

func TestTheSeedFixesThePattern(t *testing.T) {
	same := func(a, b []time.Duration) (n int) {
		for i := range a {
			if a[i] == b[i] {
				n++
			}
		}
		return n
	}
	const n = 1000
	base := pattern(plan(1, rough, "w0", "w1"), 0, 1, n)
	if again := pattern(plan(1, rough, "w0", "w1"), 0, 1, n); same(base, again) != n {
		t.Errorf("the same seed repeats %d of %d packets", same(base, again), n)
	}
	if wider := pattern(plan(1, rough, "coordinator", "w0", "w1"), 1, 2, n); same(base, wider) != n {
		t.Errorf("with one more node in the plan %d of %d packets stay the same", same(base, wider), n)
	}
	for name, other := range map[string][]time.Duration{
		"another seed": pattern(plan(2, rough, "w0", "w1"), 0, 1, n),
		"the way back": pattern(plan(1, rough, "w0", "w1"), 1, 0, n),
	} {
		// Losses coincide by chance.
		if same(base, other) > n/10 {
			t.Errorf("%s repeats %d of %d packets", name, same(base, other), n)
		}
	}
}

func TestJitterIsUniformAndLossIsAsPlanned(t *testing.T) {
	const n = 10000
	lost, sum, low, high := 0, 0.0, time.Hour, time.Duration(0)
	path := rough
	path.Jitter = shaping.Duration(400 * time.Microsecond) // packets 1 ms apart cannot meet
	for _, d := range pattern(plan(7, path, "w0", "w1"), 0, 1, n) {
		if d < 0 {
			lost++
			continue
		}
		sum += d.Seconds()
		low, high = min(low, d), max(high, d)
	}
	if sigma := math.Sqrt(n * 0.1 * 0.9); math.Abs(float64(lost)-n*0.1) > 4*sigma {
		t.Errorf("lost %d of %d, planned 10 %%", lost, n)
	}
	if mean := sum / float64(n-lost); math.Abs(mean-0.020) > 20e-6 {
		t.Errorf("mean of %.6f s, planned 0.020", mean)
	}
	if low < 19600*time.Microsecond || low > 19610*time.Microsecond || high > 20400*time.Microsecond || high < 20390*time.Microsecond {
		t.Errorf("packets took %v to %v, planned 20 ms ± 0.4 ms", low, high)
	}
}

func TestAFullQueueSaysSo(t *testing.T) {
	q := userlink.NewQueue[int](plan(1, shaping.PathPlan{}, "a", "b"), 2)
	fates := []userlink.Fate{q.Push(0, 0, 1, 100, 1), q.Push(0, 0, 1, 100, 2), q.Push(0, 0, 1, 100, 3)}
	if fates[0] != userlink.Queued || fates[1] != userlink.Queued || fates[2] != userlink.Overflow {
		t.Errorf("three packets into a queue for two: %v", fates)
	}
}

// TestQueueAgainstAnObviousOne: packets come out in the order of their due
// times, never before, each pair in the order in which it was sent.
func TestQueueAgainstAnObviousOne(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		type sent struct {
			from, to, n int
			at          time.Duration
		}
		q := userlink.NewQueue[sent](plan(rapid.Uint64().Draw(t, "seed"), shaping.PathPlan{
			OneWayDelay: shaping.Duration(5 * ms), Jitter: shaping.Duration(5 * ms), Loss: 0.05,
		}, "a", "b", "c"), 50)
		var now, lastDue time.Duration
		inside, last := 0, map[[2]int]int{}
		for n := range 200 {
			now += time.Duration(rapid.IntRange(0, int(2*ms)).Draw(t, "step"))
			if rapid.Bool().Draw(t, "push") {
				from := rapid.IntRange(0, 2).Draw(t, "from")
				to := (from + rapid.IntRange(1, 2).Draw(t, "to")) % 3
				if q.Push(now, from, to, 100, sent{from, to, n + 1, now}) == userlink.Queued {
					inside++
				}
			}
			for {
				p, to, due, ok := q.Pop(now)
				if !ok {
					break
				}
				inside--
				pair := [2]int{p.from, p.to}
				switch {
				case to != p.to:
					t.Fatalf("a packet to %d came out for %d", p.to, to)
				case due > now || due < lastDue || due < p.at:
					t.Fatalf("a packet sent at %v, due at %v, came out at %v after one due at %v", p.at, due, now, lastDue)
				case p.n <= last[pair]:
					t.Fatalf("pair %v: packet %d came out after %d", pair, p.n, last[pair])
				}
				lastDue, last[pair] = due, p.n
			}
			if next, ok := q.Next(); ok && next <= now || inside != q.Len() || ok != (inside > 0) {
				t.Fatalf("at %v: next is %v, %v; %d inside, Len is %d", now, next, ok, inside, q.Len())
			}
		}
	})
}

// BenchmarkQueue carries packets of 12 pairs with 100 of them under way.
func BenchmarkQueue(b *testing.B) {
	q := userlink.NewQueue[int](plan(1, rough, "a", "b", "c", "d"), 1000)
	var now time.Duration
	for i := range b.N {
		now += 200 * time.Microsecond
		q.Push(now, i%4, (i+1+i%3)%4, 100, i)
		for {
			if _, _, _, ok := q.Pop(now); !ok {
				break
			}
		}
	}
}
