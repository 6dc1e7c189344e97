//go:build linux

package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"testbed/allreduce/bench"
)

// benchGuest is the value of inGuest in the guest of BenchmarkRing, and
// benchSteps what it does.
const benchGuest = "bench"

// ringLinks are links that rings are compared on, each a row of the table and a
// step of the guest.
var ringLinks = []struct{ rate, delay, loss string }{
	{"10mbit", "0ms", "0%"}, {"50mbit", "0ms", "0%"}, {"10mbit", "10ms", "0%"}, {"10mbit", "10ms", "1%"},
}

// ringElements is few: values have to be drawn, added up and hashed, too, and a
// row takes a minute.
const ringElements = 250_000

func benchSteps() (all []step) {
	for k := range ringLinks {
		name := fmt.Sprintf("row%d", k)
		all = append(all, step{name, "/init", []string{"-test.v", "-test.run=^TestRingOnLinks$/^" + name + "$"}, 10 * time.Minute})
	}
	return all
}

// benchTimeout is by this machine's clock.
const benchTimeout = 30 * time.Minute

// BenchmarkRing has a guest run `testbed bench ring` on user links and on netem,
// and prints the rows of the table in docs/notes/bench.md as they come. Times are by
// the guest's clock, for which an instruction takes a nanosecond: they do not
// depend on what else this machine does.
func BenchmarkRing(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), benchTimeout)
	defer cancel()
	g, err := prepare(ctx, b)
	if err != nil {
		b.Skip(err)
	}
	fmt.Println("| links | `bridge` | `user` | `netem` | processor, s: `user` and its router, `netem` |")
	fmt.Println("|---|---|---|---|---|")
	for b.Loop() {
		rest, err := g.boot(ctx, benchGuest, func(r report) {
			for line := range strings.Lines(r.output) {
				if row, ok := strings.CutPrefix(line, resultMark); ok {
					fmt.Print(row)
				}
			}
			if !r.passed {
				b.Error(r.output)
			}
		})
		if err != nil {
			b.Error(err, rest)
		}
	}
}

// TestRingOnLinks is the guest's part of BenchmarkRing: all benchmarks of a row
// have the same links, carried by somebody else.
func TestRingOnLinks(t *testing.T) {
	if os.Getenv(inGuest) != benchGuest {
		t.Skip("BenchmarkRing runs this in the guest")
	}
	for k, on := range ringLinks {
		t.Run(fmt.Sprintf("row%d", k), func(t *testing.T) {
			name, bridge := on.rate, "–" // a bridge knows neither delay nor loss
			if on.delay == "0ms" {
				bridge = timed(ringOn(t, "bridge", on.rate, on.delay, on.loss))
			} else {
				name += ", " + on.delay
			}
			if on.loss != "0%" {
				name += ", loss " + on.loss
			}
			user, netem := ringOn(t, "user", on.rate, on.delay, on.loss), ringOn(t, "netem", on.rate, on.delay, on.loss)
			fmt.Printf("%s| %s | %s | %s | %s | %.2g + %.2g, %.2g |\n", resultMark, name, bridge, timed(user), timed(netem), user.CPUSeconds, user.RouterCPUSeconds, netem.CPUSeconds)
		})
	}
}

func ringOn(t *testing.T, links, rate, delay, loss string) *bench.Ring {
	t.Helper()
	var r bench.Ring
	out, _ := testbed(t, "bench", "ring", "--links", links, "--rate", rate, "--one-way-delay", delay, "--loss", loss,
		"--elements", fmt.Sprint(ringElements), "--entropy", "off", "--repeat", "3", "--json")
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, note := range r.Notes {
		t.Logf("%s, %s, %s, %s: %s", links, rate, delay, loss, note)
	}
	return &r
}

// timed is the median time, its spread, and the ratio to the bound of the wire.
func timed(r *bench.Ring) string {
	return fmt.Sprintf("%.3f s (%.0f %%), %.2f ×", r.SecondsMedian, 100*r.Spread, *r.RatioToBound)
}
