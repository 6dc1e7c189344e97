//go:build linux

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"testbed/emulation"
	"testbed/internal/testenv"
	"testbed/record"
	"testbed/shaping/probe"
)

// commandFile is where the guest has the command under test.
const commandFile = "/testbed"

func testbed(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, err := testbedFor(t, time.Minute, args...)
	if err != nil {
		t.Fatalf("testbed %s: %v\n%s\n%s", strings.Join(args, " "), err, stdout, stderr)
	}
	return stdout, stderr
}

// testbedFor runs the command for so long at the most.
func testbedFor(t *testing.T, most time.Duration, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	onlyInGuest(t)
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	cmd := exec.CommandContext(ctx, commandFile, args...)
	cmd.Dir = t.TempDir()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err = cmd.Run()
	t.Logf("testbed %s: %.1f s\n%s", strings.Join(args, " "), time.Since(start).Seconds(), errs.String())
	return out.String(), errs.String(), err
}

func TestCommandDoctor(t *testing.T) {
	out, _ := testbed(t, "doctor", "--json")
	var checks []emulation.Check
	if err := json.Unmarshal([]byte(out), &checks); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	netem, auto := false, false
	for _, c := range checks {
		if !c.OK && c.Name != emulation.PythonTrainers { // the guest has no Python
			t.Errorf("%s: %s", c.Name, c.Detail)
		}
		netem = netem || strings.Contains(c.Name, "netem")
		auto = auto || c.Detail == "--links auto chooses the link backend netem"
	}
	if !netem || !auto {
		t.Errorf("netem listed: %v, taken by auto: %v\n%s", netem, auto, out)
	}
}

// smallScenario is one that an emulated processor plays in seconds.
const smallScenario = `
seed: 7
workers:
  - {id: 0, inner_step_mean: 1000}
  - {id: 1, inner_step_mean: 1000}
  - {id: 2, inner_step_mean: 1000}
inner_steps: 2
target_outer_steps: 3
horizon: 5000000
heartbeat_period: 1000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
real:
  time_scale: 300
  parameters: 20000
  links:
    default: {rate_up: 10mbit, rate_down: 10mbit, one_way_delay: 10ms, loss: 4%}
    pairs:
      - {from: w0, to: w1, one_way_delay: 25ms, loss: 1%}
  injects:
    - {op: LinkTrace, at: 0, id: 2, direction: up, file: two.trace}
`

// twoRates is a trace of half a second at 12 Mbit/s and half a one at 3.
func twoRates() string {
	var b strings.Builder
	for ms := 1; ms <= 1000; ms++ {
		if ms <= 500 || ms%4 == 0 {
			fmt.Fprintln(&b, ms)
		}
	}
	return b.String()
}

func TestCommandRun(t *testing.T) {
	onlyInGuest(t)
	file := filepath.Join(t.TempDir(), "small.yaml")
	trace := filepath.Join(filepath.Dir(file), "two.trace")
	if err := errors.Join(os.WriteFile(file, []byte(smallScenario), 0o644), os.WriteFile(trace, []byte(twoRates()), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ links, says string }{
		{"netem", "netem links (as asked)"},
		{"auto", "netem links (the kernel has netem)"},
	} {
		t.Run(c.links, func(t *testing.T) {
			out, progress := testbed(t, "run", file, "--policy", "straggler", "--links", c.links, "--json")
			var sum record.Summary
			if err := json.Unmarshal([]byte(out), &sum); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if !sum.Complete || sum.BitIdentical == nil || !*sum.BitIdentical {
				t.Errorf("complete %v, bit-identical %v", sum.Complete, sum.BitIdentical)
			}
			if sum.Links != "netem" || !strings.Contains(progress, c.says) {
				t.Errorf("links %q; nothing says %q", sum.Links, c.says)
			}
			if len(sum.PlannedDrops) == 0 {
				t.Error("4 % of the packets are lost as planned, and none is counted")
			}
			t.Logf("planned drops %+v; fidelity %s %q", sum.PlannedDrops, sum.Fidelity.Verdict, sum.Fidelity.Reasons)
		})
	}
}

// TestCommandVerifyExtremes: netem keeps every property at its extremes, too, but for
// duplicates, which it does not make beside other queues.
func TestCommandVerifyExtremes(t *testing.T) {
	onlyInGuest(t)
	for name, text := range testenv.Extremes {
		t.Run(name, func(t *testing.T) {
			text = strings.NewReplacer("to: w0, duplicate: 100%", "to: w0, loss: 5%", ", duplicate: 100%", "", ", duplicate: 20%", "").Replace(text)
			file := filepath.Join(t.TempDir(), "extremes.yaml")
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			out, _, err := testbedFor(t, 2*time.Minute, "verify", file, "--links", "netem", "--json")
			var report probe.Report
			if jsonErr := json.Unmarshal([]byte(out), &report); jsonErr != nil || len(report.Pairs) == 0 {
				t.Fatalf("%v, %v\n%s", err, jsonErr, out)
			}
			for _, p := range report.Pairs {
				names, all := p.Properties()
				for k, q := range all {
					if !q.OK {
						t.Errorf("%s to %s: %s %v", p.From, p.To, names[k], q)
					}
				}
			}
		})
	}
}
