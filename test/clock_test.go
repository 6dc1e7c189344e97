//go:build linux

package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"testbed/internal/testenv"
	"testbed/internal/wallsteps"
	"testbed/record"
)

// TestMeasuredWallClockDecidesNothing: it is set by minutes and by years, both ways and in
// every phase of a run, also while there is no coordinator.
func TestMeasuredWallClockDecidesNothing(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	dir := t.TempDir()
	overlay, err := wallsteps.Overlay(dir, 300*time.Millisecond, wallsteps.Usual)
	if err != nil {
		t.Fatal(err)
	}
	stepped := filepath.Join(dir, "testbed")
	if err := build(stepped, overlay); err != nil {
		t.Fatal(err)
	}
	usual := program
	program = stepped // measured tests run one after the other
	defer func() { program = usual }()
	file := scenario(t, 4, "100mbit", "injects:\n  - {op: CoordinatorCrash, at: 4000, down: 6000}\n")
	play(t, func(sum record.Summary) error {
		if !sum.Complete || len(sum.Evicted)+len(sum.Sidelined) > 0 {
			return fmt.Errorf("complete %v, sidelined %q, evicted %q", sum.Complete, who(sum.Sidelined), who(sum.Evicted))
		}
		if sum.WallClock < 12_000 || sum.WallClock > 60_000 {
			return fmt.Errorf("it took %d µs of scenario time", sum.WallClock)
		}
		return nil
	}, file, "--policy", "baseline")
}

// TestMeasuredSlowLinksMakeNobodyDead: time-outs follow the plan, so that nobody is evicted
// because it is far away, or sends for long.
func TestMeasuredSlowLinksMakeNobodyDead(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	for name, links := range map[string]string{
		"800 ms":    "parameters: 200000\n  links: {default: {rate_up: 100mbit, rate_down: 100mbit, one_way_delay: 800ms}}",
		"64 kbit/s": "parameters: 20000\n  links: {default: {rate_up: 64kbit, rate_down: 100mbit, one_way_delay: 5ms}}",
		"100 kbit/s during the run": "parameters: 20000\n  links: {default: {rate_up: 100mbit, rate_down: 100mbit, one_way_delay: 5ms}}\n" +
			"  injects: [{op: Link, at: 1000, until: 5000000, id: 1, rate_up: 100kbit}]",
	} {
		text := `
seed: 7
inner_steps: 2
target_outer_steps: 2
horizon: 5000000
heartbeat_period: 1000
heartbeat_miss_threshold: 4
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}, {id: 2, inner_step_mean: 1000}, {id: 3, inner_step_mean: 1000}]
real:
  time_scale: 300
  ` + links + "\n"
		file := filepath.Join(t.TempDir(), "slow.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, evicts(""), file, "--policy", "baseline")
		})
	}
}
