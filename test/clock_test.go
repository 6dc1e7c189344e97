//go:build linux

package test

import (
	"fmt"
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
