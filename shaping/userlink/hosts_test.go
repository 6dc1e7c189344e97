package userlink_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/shaping"
	"testbed/shaping/userlink"
)

// TestFatesDoNotDependOnHosts plays packets over links that are all on one host,
// and over the same links on several, between which each packet takes its time:
// the same packets come out at the same times, but for those that the way between
// hosts made late.
func TestFatesDoNotDependOnHosts(t *testing.T) {
	rapidtest.Check(t, func(rt *rapid.T) {
		const nodes = 4
		plan := lossyPlan(rt, nodes)
		one := make([]int, nodes)
		several := make([]int, nodes)
		for i := range several {
			several[i] = rapid.IntRange(0, 2).Draw(rt, "host")
		}
		var sent []sending
		at := time.Duration(0)
		for k := range rapid.IntRange(1, 200).Draw(rt, "packets") {
			at += time.Duration(rapid.IntRange(0, 2000).Draw(rt, "gap")) * time.Microsecond
			from := rapid.IntRange(0, nodes-1).Draw(rt, "from")
			to := (from + rapid.IntRange(1, nodes-1).Draw(rt, "to")) % nodes
			sent = append(sent, sending{at, from, to, k})
		}
		// Less than the least delay of a path.
		way := time.Duration(rapid.IntRange(0, 4000).Draw(rt, "way")) * time.Microsecond
		want, got := over(plan, one, 0, sent), over(plan, several, way, sent)
		if !slices.Equal(want, got) {
			rt.Fatalf("on one host\n%v\nand on several\n%v", want, got)
		}
	})
}

// sending is a packet that a node sends.
type sending struct {
	at       time.Duration
	from, to int
	number   int
}

// lossyPlan is a network of paths of 5 ms at the least, which lose packets.
func lossyPlan(rt *rapid.T, nodes int) *shaping.Plan {
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("w%d", i)
	}
	spec := shaping.Spec{Default: shaping.Properties{
		Access: shaping.Access{RateUp: new(shaping.Rate(20e6)), RateDown: new(shaping.Rate(20e6))},
		Path: shaping.Path{
			OneWayDelay: new(shaping.Duration(8 * time.Millisecond)), Jitter: new(shaping.Duration(3 * time.Millisecond)),
			Loss: new(shaping.Probability(0.1)), Duplicate: new(shaping.Probability(0.05)),
		},
	}}
	plan, err := shaping.NewPlan(spec, names, 0, rapid.Uint64().Draw(rt, "seed"))
	if err != nil {
		rt.Fatal(err)
	}
	return plan
}

// comingOut is a packet that came out.
type comingOut struct {
	due    time.Duration
	number int
}

// crossing is a packet between hosts.
type crossing struct {
	reaches, due time.Duration
	from, to     int
	number       int
}

// over plays the packets over links on hosts, between which a packet takes that
// long, and returns what came out, in order.
func over(plan *shaping.Plan, hosts []int, way time.Duration, sent []sending) (all []comingOut) {
	const size = 1000
	var underway []crossing
	links := make([]*userlink.Links[int], slices.Max(hosts)+1)
	now := time.Duration(0)
	for h := range links {
		links[h] = userlink.NewLinks[int](plan, 1<<20)
		links[h].Leave(func(due time.Duration, from, to int, number int) bool {
			if hosts[to] == h {
				return false
			}
			underway = append(underway, crossing{now + way, due, from, to, number})
			return true
		})
	}
	const tick = 100 * time.Microsecond
	for ; now < 2*time.Second; now += tick {
		for len(sent) > 0 && sent[0].at <= now {
			s := sent[0]
			sent = sent[1:]
			links[hosts[s.from]].Push(s.at, s.from, s.to, size, s.number)
		}
		underway = slices.DeleteFunc(underway, func(c crossing) bool {
			if c.reaches > now {
				return false
			}
			links[hosts[c.to]].Arrive(c.due, c.from, c.to, size, c.number)
			return true
		})
		for _, l := range links {
			for number, _, due, ok := l.Pop(now); ok; number, _, due, ok = l.Pop(now) {
				all = append(all, comingOut{due, number})
			}
		}
	}
	slices.SortFunc(all, func(a, b comingOut) int {
		return cmp.Or(cmp.Compare(a.due, b.due), a.number-b.number)
	})
	return all
}
