package kernel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/shaping"
)

func planOf(t *testing.T, n int, spec shaping.Spec) *shaping.Plan {
	t.Helper()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("w%d", i)
	}
	plan, err := shaping.NewPlan(spec, names, 10*time.Millisecond, 1)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func access(mbit int64) shaping.Access {
	return shaping.Access{RateUp: new(shaping.Rate(mbit * 1e6)), RateDown: new(shaping.Rate(mbit * 1e6))}
}

// TestAPathWithARate has a netem of its own, whose limit is the queue.
func TestAPathWithARate(t *testing.T) {
	spec := shaping.Spec{Default: shaping.Properties{Access: access(100)}, Pairs: []shaping.Pair{{From: "w1", To: "w0", Path: shaping.Path{Rate: new(shaping.Rate(8e6))}}}}
	// 8 Mbit/s × 10 ms and 68 kB are 79,632 bytes.
	const want = "class 1:2 netem limit 52 packets one_way_delay 10ms jitter 0s loss 00000000 rate 1000000 B/s"
	if lines := pathTree(planOf(t, 3, spec), 1, BackendNetem).lines(false); !slices.Contains(lines, want) {
		t.Errorf("no %q in\n%s", want, strings.Join(lines, "\n"))
	}
	spec.Default.Rate = new(shaping.Rate(8e6))
	if got := len(pathTree(planOf(t, 200, spec), 0, BackendNetem).classes); got != 199 {
		t.Errorf("199 paths with a rate have %d classes", got)
	}
}

func TestTrees(t *testing.T) {
	spec := shaping.Spec{
		Default: shaping.Properties{Access: access(100)},
		Nodes:   map[string]shaping.Access{"w2": {RateDown: new(shaping.Rate(0))}},
		Pairs: []shaping.Pair{{From: "w1", To: "w0", Path: shaping.Path{
			OneWayDelay: new(shaping.Duration(50 * time.Millisecond)),
			Jitter:      new(shaping.Duration(time.Millisecond)),
			Loss:        new(shaping.Probability(0.5)),
		}}},
	}
	plan := planOf(t, 3, spec)
	for _, c := range []struct {
		name string
		tree tree
		want string
	}{
		{"up", upTree(plan, 0, BackendHTB), `
root htb default 1:2
class 1:1 rate 12500000 B/s ceil 12500000 B/s quantum 1514 B
class 1:2 rate 6250000 B/s ceil 12500000 B/s quantum 1514 B
class 1:2 bfifo limit 250000 B
filter at 16 match 0a000002/ffffffff to 1:2
class 1:3 rate 6250000 B/s ceil 12500000 B/s quantum 1514 B
class 1:3 bfifo limit 250000 B
filter at 16 match 0a000003/ffffffff to 1:3`},
		{"up with netem", upTree(plan, 0, BackendNetem), `
root hfsc default 1:2
class 1:1 share 12500000 B/s limit 12500000 B/s
class 1:2 share 6250000 B/s
class 1:2 bfifo limit 250000 B
filter at 16 match 0a000002/ffffffff to 1:2
class 1:3 share 6250000 B/s
class 1:3 bfifo limit 250000 B
filter at 16 match 0a000003/ffffffff to 1:3`},
		// 100 Mbit/s × 151 ms are 1,887,500 bytes, 44,940 of the smallest frames.
		{"paths with netem", pathTree(plan, 1, BackendNetem), `
root htb default 1:2
class 1:1 rate 4000000000 B/s ceil 4000000000 B/s quantum 1514 B
class 1:2 rate 2000000000 B/s ceil 4000000000 B/s quantum 1514 B
class 1:2 netem limit 44940 packets one_way_delay 50ms jitter 1ms loss 7fffffff
filter at 16 match 0a000001/ffffffff to 1:2
class 1:3 rate 2000000000 B/s ceil 4000000000 B/s quantum 1514 B
class 1:3 netem limit 32738 packets one_way_delay 10ms jitter 0s loss 00000000
filter at 16 match 0a000003/ffffffff to 1:3`},
		{"down with netem", downTree(plan, 0, BackendNetem), `
root hfsc default 1:2
class 1:1 share 12500000 B/s limit 12500000 B/s
class 1:2 share 6250000 B/s
class 1:2 bfifo limit 250000 B
filter at 12 match 0a000002/ffffffff to 1:2
class 1:3 share 6250000 B/s
class 1:3 bfifo limit 250000 B
filter at 12 match 0a000003/ffffffff to 1:3`},
		{"paths with the router", pathTree(plan, 1, BackendHTB), ""},
		{"down with the router", downTree(plan, 1, BackendHTB), `
root htb default 1:2
class 1:1 rate 12500000 B/s ceil 12500000 B/s quantum 1514 B
class 1:2 rate 6250000 B/s ceil 12500000 B/s quantum 1514 B
class 1:2 bfifo limit 250000 B
filter at 12 match 0a000001/ffffffff to 1:2
class 1:3 rate 6250000 B/s ceil 12500000 B/s quantum 1514 B
class 1:3 bfifo limit 250000 B
filter at 12 match 0a000003/ffffffff to 1:3`},
		{"down unlimited with the router", downTree(plan, 2, BackendHTB), ""},
		{"down unlimited with netem", downTree(plan, 2, BackendNetem), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), strings.Join(c.tree.lines(false), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestManyPeersShareClassesUnlessTheirPathsDiffer(t *testing.T) {
	spec := shaping.Spec{Default: shaping.Properties{Access: access(100)}}
	equal := planOf(t, 200, spec)
	spec.Pairs = []shaping.Pair{{From: "w1", To: "w0", Path: shaping.Path{OneWayDelay: new(shaping.Duration(time.Second))}}}
	differ := planOf(t, 200, spec)
	for _, c := range []struct {
		name string
		tree tree
		want int
	}{
		{"up", upTree(differ, 0, BackendHTB), sharedClasses},
		{"down with the router", downTree(differ, 0, BackendHTB), sharedClasses},
		{"down with netem", downTree(differ, 0, BackendNetem), sharedClasses},
		{"paths that are equal", pathTree(equal, 1, BackendNetem), 0},
		{"paths of which one differs", pathTree(differ, 1, BackendNetem), 199},
		{"paths of the other nodes", pathTree(differ, 0, BackendNetem), 0},
	} {
		if got := len(c.tree.classes); got != c.want {
			t.Errorf("%s: %d classes, want %d", c.name, got, c.want)
		}
	}
	// Every peer falls into exactly one class, neighbours into different ones.
	classOf := func(peer int) (found int) {
		found = -1
		for k, c := range upTree(equal, 0, BackendHTB).classes {
			if word(equal.Nodes[peer].Addr.Addr())&c.mask == c.addr {
				if found >= 0 {
					t.Errorf("peer %d is in the classes %d and %d", peer, found, k)
				}
				found = k
			}
		}
		return found
	}
	for peer := 1; peer < 199; peer++ {
		if a, b := classOf(peer), classOf(peer+1); a < 0 || a == b {
			t.Errorf("peers %d and %d are in the classes %d and %d", peer, peer+1, a, b)
		}
	}
}

func TestManyEqualPathsShareOneNetem(t *testing.T) {
	plan := planOf(t, 200, shaping.Spec{})
	if got := strings.Join(pathTree(plan, 2, BackendNetem).lines(false), "\n"); got != "root netem limit 1048576 packets one_way_delay 10ms jitter 0s loss 00000000" {
		t.Error(got)
	}
}

func TestOneNodeHasNoOneToTalkTo(t *testing.T) {
	plan := planOf(t, 1, shaping.Spec{Default: shaping.Properties{Access: access(1)}})
	for _, tree := range []tree{upTree(plan, 0, BackendHTB), downTree(plan, 0, BackendNetem), pathTree(plan, 0, BackendNetem)} {
		if lines := tree.lines(true); lines != nil {
			t.Errorf("a single node gets %v", lines)
		}
	}
}

// TestNetemLimitHoldsAllThatIsUnderWay: the limit is in packets, but small ones
// must not reach it.
func TestNetemLimitHoldsAllThatIsUnderWay(t *testing.T) {
	at := func(mbit int64, delay time.Duration) shaping.Spec {
		return shaping.Spec{Default: shaping.Properties{Access: access(mbit), Path: shaping.Path{OneWayDelay: new(shaping.Duration(delay))}}}
	}
	duplicating := at(100, 40*time.Millisecond)
	duplicating.Default.Path.Duplicate = new(shaping.Probability(1))
	for _, c := range []struct {
		name     string
		plan     *shaping.Plan
		underWay int // bytes
	}{
		{"a pair", planOf(t, 3, at(100, 40*time.Millisecond)), 1750e3},
		{"no delay", planOf(t, 3, at(1, 0)), shaping.MinQueueBytes},
		{"every packet twice", planOf(t, 2, duplicating), 2 * 1750e3},
		{"to all others", planOf(t, 200, at(100, 40*time.Millisecond)), 1750e3},
	} {
		if got, want := netemLimit(c.plan, 0, 1), uint32(c.underWay/smallestFrame); got != want {
			t.Errorf("%s: netem holds %d packets, want %d", c.name, got, want)
		}
	}
	if got := netemLimit(planOf(t, 3, at(10_000, time.Minute)), 0, 1); got != maxNetemLimit {
		t.Errorf("10 Gbit/s × 1 min: netem may hold %d packets, which no machine has the memory for", got)
	}
}
