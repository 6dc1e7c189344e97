package userlink_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/shaping"
	"testbed/shaping/userlink"
)

// limited is a plan whose nodes have those rates, and a queue of 68 kB.
func limited(up, down shaping.Rate, path shaping.PathPlan, names ...string) *shaping.Plan {
	p := plan(1, path, names...)
	for i := range p.Nodes {
		p.Nodes[i].RateUp, p.Nodes[i].RateDown = up, down
		p.Nodes[i].Queue = shaping.Queue{Bytes: shaping.MinQueueBytes}
	}
	return p
}

// frame is a packet of a test.
type frame struct {
	n, from, to, size int
	at                time.Duration
}

// arrival is a frame that came out.
type arrival struct {
	frame
	due time.Duration
}

// drain takes out all that is due by a time.
func drain(l *userlink.Links[frame], now time.Duration) (all []arrival) {
	for {
		f, _, due, ok := l.Pop(now)
		if !ok {
			return all
		}
		all = append(all, arrival{f, due})
	}
}

func drawFrames(t *rapid.T, nodes int) (all []frame) {
	var now time.Duration
	for n := range rapid.IntRange(1, 150).Draw(t, "frames") {
		now += time.Duration(rapid.SampledFrom([]int{0, 0, 0, 50, 500, 3000}).Draw(t, "gap µs")) * time.Microsecond
		from := rapid.IntRange(0, nodes-1).Draw(t, "from")
		to := (from + rapid.IntRange(1, nodes-1).Draw(t, "on")) % nodes
		all = append(all, frame{n, from, to, rapid.SampledFrom([]int{60, 700, shaping.FrameSize}).Draw(t, "size"), now})
	}
	return all
}

// TestLinksDoNotDependOnWhoLooks: with packets stamped as they come, those who
// look seldom find what those find who look all the time.
func TestLinksDoNotDependOnWhoLooks(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		rates := rapid.SampledFrom([]shaping.Rate{0, 1e6, 20e6, 100e6})
		p := limited(rates.Draw(t, "up"), rates.Draw(t, "down"), rough, "a", "b", "c")
		frames := drawFrames(t, 3)
		play := func(look func(l *userlink.Links[frame], now time.Duration) []arrival) (all []arrival, drops []int) {
			l := userlink.NewLinks[frame](p, 1000)
			l.Drop = func(f frame, _ userlink.Fate) { drops = append(drops, f.n) }
			for _, f := range frames {
				all = append(all, look(l, f.at)...)
				l.Push(f.at, f.from, f.to, f.size, f)
			}
			return append(all, drain(l, math.MaxInt64)...), drops
		}
		all, drops := play(drain)
		for _, a := range all {
			if a.due < a.at {
				t.Fatalf("a packet sent at %v came out at %v", a.at, a.due)
			}
		}
		if len(all)+len(drops) != len(frames) {
			t.Fatalf("of %d packets %d came out and %d were dropped", len(frames), len(all), len(drops))
		}
		seldom, same := play(func(l *userlink.Links[frame], now time.Duration) []arrival {
			if rapid.IntRange(0, 3).Draw(t, "look") > 0 {
				now = max(0, now-time.Duration(rapid.IntRange(0, 3000).Draw(t, "late µs"))*time.Microsecond)
			}
			return drain(l, now)
		})
		slices.Sort(drops)
		slices.Sort(same)
		if !slices.Equal(all, seldom) || !slices.Equal(drops, same) {
			t.Fatalf("looking seldom:\n%v, without %v\nwant\n%v, without %v", seldom, same, all, drops)
		}
	})
}

// TestALinkIsASchedule: in whatever order packets leave, each leaves when the
// one before has, or when it came, plus its bytes ÷ rate; and the link is never
// idle while one waits.
func TestALinkIsASchedule(t *testing.T) {
	const rate = 10e6
	rapidtest.Check(t, func(t *rapid.T) {
		up := rapid.Bool().Draw(t, "up")
		p := limited(rate, 0, shaping.PathPlan{}, "a", "b", "c", "d")
		if !up {
			p = limited(0, rate, shaping.PathPlan{}, "a", "b", "c", "d")
		}
		l := userlink.NewLinks[frame](p, 1000)
		var lost []frame
		l.Drop = func(f frame, fate userlink.Fate) {
			if fate != userlink.QueueFull {
				t.Fatalf("packet %d has the fate %d", f.n, fate)
			}
			lost = append(lost, f)
		}
		var out []arrival
		waiting := map[int]int{} // bytes taken in and not out, by peer
		for _, f := range drawFrames(t, 4) {
			node, peer := f.from, f.to
			if !up {
				node, peer = f.to, f.from
			}
			if node != 0 { // one line is under test
				continue
			}
			for _, a := range drain(l, f.at) {
				out = append(out, a)
				waiting[a.from+a.to] -= a.size // one of the two is 0
			}
			before := len(lost)
			l.Push(f.at, f.from, f.to, f.size, f)
			if len(lost) == before {
				waiting[peer] += f.size
			} else if waiting[peer]+f.size <= shaping.MinQueueBytes {
				t.Fatalf("a packet of %d bytes was dropped beside %d that wait", f.size, waiting[peer])
			}
			if waiting[peer] > shaping.MinQueueBytes+shaping.FrameSize {
				t.Fatalf("%d bytes wait", waiting[peer])
			}
		}
		out = append(out, drain(l, math.MaxInt64)...)
		var last time.Duration
		for k, a := range out {
			start := max(last, a.at)
			want := start + time.Duration(float64(a.size)*8/rate*1e9)
			if (a.due - want).Abs() > time.Nanosecond {
				t.Fatalf("packet %d of %d bytes came at %v, the one before left at %v, and it at %v", a.n, a.size, a.at, last, a.due)
			}
			for _, b := range out[k:] {
				if b.at < start && a.at > b.at && a.at >= last {
					t.Fatalf("the link was idle until %v, though packet %d had come at %v", start, b.n, b.at)
				}
			}
			last = a.due
		}
	})
}

// TestPeersShareALink: as long as all have something waiting, none is more than
// a frame and a turn ahead of another, and who sends little is served at once.
func TestPeersShareALink(t *testing.T) {
	l := userlink.NewLinks[frame](limited(10e6, 0, shaping.PathPlan{}, "a", "b", "c", "d"), 1000)
	for n := range 40 { // b gets full frames, c halves, one after the other
		l.Push(0, 0, 1, shaping.FrameSize, frame{n: n, to: 1, size: shaping.FrameSize})
		l.Push(0, 0, 2, 700, frame{n: n, to: 2, size: 700})
	}
	l.Push(1, 0, 3, 60, frame{to: 3, size: 60})
	sent := map[int]int{}
	for k, a := range drain(l, 20*ms) {
		sent[a.to] += a.size
		if d := sent[1] - sent[2]; d > 2*shaping.FrameSize || d < -2*shaping.FrameSize {
			t.Fatalf("after %d packets one peer was sent %d bytes, the other %d", k, sent[1], sent[2])
		}
		if k > 3 && sent[3] == 0 {
			t.Fatalf("a single small packet waits for %d others", k)
		}
	}
	if total := sent[1] + sent[2] + sent[3]; math.Abs(float64(total)-10e6/8*0.020) > shaping.FrameSize {
		t.Errorf("20 ms at 10 Mbit/s carried %d bytes", total)
	}
}

// TestAChangeOfRate holds from the next packet, and what waits goes at once when
// the rate is not limited any more.
func TestAChangeOfRate(t *testing.T) {
	slow, fast := limited(1e6, 0, shaping.PathPlan{}, "a", "b"), limited(2e6, 0, shaping.PathPlan{}, "a", "b")
	free := limited(0, 0, shaping.PathPlan{}, "a", "b")
	l := userlink.NewLinks[frame](slow, 100)
	for n := range 6 {
		l.Push(0, 0, 1, 1000, frame{n: n})
	}
	var times []string
	for _, step := range []struct {
		until time.Duration
		next  *shaping.Plan
	}{{9 * ms, fast}, {17 * ms, free}, {time.Second, slow}} {
		for _, a := range drain(l, step.until) {
			times = append(times, fmt.Sprint(a.n, " ", a.due))
		}
		l.Change(step.next, 100)
	}
	if want := []string{"0 8ms", "1 16ms", "2 20ms", "3 20ms", "4 20ms", "5 20ms"}; !slices.Equal(times, want) {
		t.Errorf("packets left at %v, want %v", times, want)
	}
	if up, _ := l.Load(0); up != (userlink.Load{Bytes: 6000}) {
		t.Errorf("the link says %+v", up)
	}
}

// TestNextWaitsForASender: what has only left its sender need not be looked at
// before slack is over; what is due at its receiver is.
func TestNextWaitsForASender(t *testing.T) {
	l := userlink.NewLinks[frame](limited(1e6, 1e6, shaping.PathPlan{OneWayDelay: shaping.Duration(20 * ms)}, "a", "b"), 100)
	if _, ok := l.Next(0); ok {
		t.Error("empty links want to be looked at")
	}
	next := func(want time.Duration) {
		t.Helper()
		if due, ok := l.Next(5 * ms); !ok || due != want {
			t.Errorf("next is %v, %v; want %v", due, ok, want)
		}
	}
	l.Push(0, 0, 1, 1000, frame{})
	next(13 * ms)
	drain(l, 13*ms)
	next(28 * ms)
	drain(l, 28*ms)
	next(36 * ms)
	if all := drain(l, time.Second); len(all) != 1 || all[0].due != 36*ms {
		t.Errorf("came out: %v", all)
	}
}

// BenchmarkLinks carries full frames of 12 pairs at 100 Mbit/s for each node.
func BenchmarkLinks(b *testing.B) {
	l := userlink.NewLinks[int](limited(100e6, 100e6, shaping.PathPlan{OneWayDelay: shaping.Duration(10 * ms)}, "a", "b", "c", "d"), 1000)
	var now time.Duration
	for i := range b.N {
		now += 33 * time.Microsecond
		l.Push(now, i%4, (i+1+i/4%3)%4, shaping.FrameSize, i)
		for {
			if _, _, _, ok := l.Pop(now); !ok {
				break
			}
		}
	}
}
