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

	"testbed/bench"
)

// benchGuest is the value of inGuest in the guest of BenchmarkRing, and
// benchSteps what it does.
const benchGuest = "bench"

var benchSteps = []step{{"bench", "/init", []string{"-test.v", "-test.run=^TestRingOnLinks"}, 30 * time.Minute}}

// benchTimeout is by this machine's clock.
const benchTimeout = 30 * time.Minute

// BenchmarkRing has a guest run `testbed bench ring` on user links and on netem,
// and prints the rows of the table in docs/bench.md. Times are by the guest's
// clock, for which an instruction takes a nanosecond: they are the same whatever
// else this machine does.
func BenchmarkRing(b *testing.B) {
	ctx, cancel := context.WithTimeout(b.Context(), benchTimeout)
	defer cancel()
	g, err := prepare(ctx, b)
	if err != nil {
		b.Skip(err)
	}
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
	fmt.Println(resultMark + "| rate | one-way delay, loss | `bridge` | `user` | `netem` | processor, s: `user` and its router, `netem` |")
	fmt.Println(resultMark + "|---|---|---|---|---|---|")
	for _, path := range []struct{ delay, loss string }{{"0ms", "0%"}, {"10ms", "0%"}, {"10ms", "1%"}} {
		for _, rate := range []string{"20mbit", "50mbit", "100mbit"} {
			cells := []string{rate, path.delay + ", " + path.loss}
			bridge := "–" // it knows neither delay nor loss
			if path.delay == "0ms" {
				bridge = timed(ringOn(t, "bridge", rate, path.delay, path.loss))
			}
			user, netem := ringOn(t, "user", rate, path.delay, path.loss), ringOn(t, "netem", rate, path.delay, path.loss)
			cells = append(cells, bridge, timed(user), timed(netem), fmt.Sprintf("%.2g + %.2g, %.2g", user.CPUSeconds, user.RouterCPUSeconds, netem.CPUSeconds))
			fmt.Println(resultMark + "| " + strings.Join(cells, " | ") + " |")
		}
	}
}

func ringOn(t *testing.T, links, rate, delay, loss string) *bench.Ring {
	t.Helper()
	var r bench.Ring
	out, _ := testbed(t, "bench", "ring", "--links", links, "--rate", rate, "--one-way-delay", delay, "--loss", loss,
		"--elements", "1000000", "--entropy", "off", "--repeat", "3", "--json")
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
