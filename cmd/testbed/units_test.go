package main

import (
	"testing"

	"github.com/spf13/pflag"

	"testbed/internal/units"
)

// TestCountedFlags: a flag that counts milliseconds takes any unit of time, and a plain
// number as before.
func TestCountedFlags(t *testing.T) {
	for text, want := range map[string]int64{"250": 250, "0x10": 16, "-1": -1, "2s": 2000, "1m": 60_000, "1.5s": 1500} {
		var ms int64
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		countedFlag(f, &ms, units.Millisecond, "tick_ms", 7, "")
		if err := f.Parse([]string{"--tick_ms", text}); err != nil || ms != want {
			t.Errorf("%s: %d, %v; want %d", text, ms, err, want)
		}
	}
	for _, text := range []string{"1.5ms", "5M", "many", "1.5"} {
		var ms int64
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		countedFlag(f, &ms, units.Millisecond, "tick_ms", 7, "")
		if err := f.Parse([]string{"--tick_ms", text}); err == nil || ms != 7 {
			t.Errorf("%s is taken for %d", text, ms)
		}
	}
}
