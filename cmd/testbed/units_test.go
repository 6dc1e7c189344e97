package main

import (
	"strings"
	"testing"
	"time"

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

// TestFlagErrors say in words what a value must be.
func TestFlagErrors(t *testing.T) {
	for arg, want := range map[string]string{
		"--int=a": "it must be a whole number", "--int=1.5": "it must be a whole number", "--int=99999999999999999999": "it is out of range",
		"--uint=-1": "it must be a whole number from 0", "--float=x\"y": "it must be a number", "--bool=2": "it must be true or false",
		"--time=5": "it must be a time with a unit, such as 30s", "--time=x": "it must be a time with a unit, such as 30s", "--list=1,a": "it must be a whole number", "--other": "unknown flag: --other",
	} {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.Int("int", 0, "")
		f.Uint64("uint", 0, "")
		f.Float64("float", 0, "")
		f.Bool("bool", false, "")
		f.IntSlice("list", nil, "")
		f.Duration("time", time.Second, "")
		if err := f.Parse([]string{arg}); err == nil || !strings.HasSuffix(flagError{err}.Error(), want) {
			t.Errorf("%s: %v, want %s", arg, flagError{err}, want)
		}
	}
}
