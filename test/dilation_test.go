//go:build linux

package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/internal/testenv"
	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping/probe"
)

// TestMeasuredDilatedRun: links are so many times slower, and all that is told of the run
// is as if they were not.
func TestMeasuredDilatedRun(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	file := scenario(t, 3, "100mbit", "  injects:\n    - {op: Link, at: 0, until: 6000, id: 1, rate_up: 10mbit}\n")
	sum := play(t, func(sum record.Summary) error {
		// 2/3 of a megabyte each way over 10 Mbit/s take 1.07 s, 3,560 µs.
		if first, last := sum.Rounds[0].Reduce, sum.Rounds[2].Reduce; first < 3000 || first > 5500 || first < 2*last {
			return fmt.Errorf("the reduction over the slow link took %d µs, that over a good one %d", first, last)
		}
		return nil
	}, file, "--policy", "baseline", "--dilation", "3")
	if sum.Dilation != 3 || sum.TimeScale != 300 {
		t.Errorf("dilation %v, time scale %v", sum.Dilation, sum.TimeScale)
	}
	kept, err := scenarios.Load(filepath.Join(sum.Dir, "scenario.json")) // rewritten
	if err != nil || kept.Real.Dilation != 3 {
		t.Errorf("the record's scenario: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(sum.Dir, "linkcheck.json"))
	var links probe.Report
	if err == nil {
		err = json.Unmarshal(text, &links)
	}
	if err != nil || len(links.Pairs) == 0 {
		t.Fatalf("links before the run: %v\n%s", err, text)
	}
	rtt := links.Pairs[0].RTT // nil if nothing came back, on a machine that stalled
	if rtt != nil && rtt.Planned != 10 || !strings.Contains(strings.Join(links.Notes, " "), "dilation 3: by the machine") {
		t.Errorf("links before the run: %v\n%s", err, text)
	}
	plan, err := os.ReadFile(filepath.Join(sum.Dir, record.PlanFile))
	if err != nil || !bytes.Contains(plan, []byte(`"rate_up": "100mbit"`)) {
		t.Errorf("the plan: %v\n%s", err, plan)
	}
	r := testbed(t, "report", sum.Dir)
	if r.code != 0 {
		t.Errorf("its report: exit code %d, %s", r.code, r.stderr)
	}
}

// TestPlanMeasure: links beyond any machine need a dilation, and slow ones none.
func TestPlanMeasure(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	for rate, want := range map[string]string{"1tbit": "run the scenario with a dilation of ", "1mbit": ". The scenario needs no dilation"} {
		r := testbed(t, "plan", scenario(t, 3, rate, ""), "--measure")
		if r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("%s: exit code %d\n%s%s", rate, r.code, r.stdout, r.stderr)
		}
	}
	dilated := scenario(t, 3, "1mbit", "  dilation: 2\n")
	if r := testbed(t, "bench", "ring", dilated); r.code != exitUsage || !strings.Contains(r.stderr, "real.dilation is 2, but benchmarks always run in real time") {
		t.Errorf("a benchmark: exit code %d, %s", r.code, r.stderr)
	}
	if r := testbed(t, "plan", dilated); !strings.Contains(r.stdout, "1 ms of scenario time takes 300ms, or 600ms by the machine's clock (dilation 2)") {
		t.Errorf("the plan:\n%s%s", r.stdout, r.stderr)
	}
}
