package units_test

import (
	"strings"
	"testing"

	"testbed/internal/units"
)

func TestPlain(t *testing.T) {
	for _, c := range []struct {
		unit       units.Unit
		text, want string
	}{
		{units.Microsecond, "30ms", "30000"},
		{units.Microsecond, "1.5s", "1500000"},
		{units.Microsecond, "2m", "120000000"},
		{units.Microsecond, "1m30s", "90000000"},
		{units.Microsecond, "2 min", "120000000"},
		{units.Microsecond, "1h", "3600000000"},
		{units.Microsecond, "7µs", "7"},
		{units.Microsecond, "7us", "7"},
		{units.Microsecond, "2000ns", "2"},
		{units.Microsecond, "-5ms", "-5000"},
		{units.Microsecond, "0.1ms", "100"}, // no binary fraction
		{units.Millisecond, "2s", "2000"},
		{units.Second, "90m", "5400"},
		{units.Byte, "64MiB", "67108864"},
		{units.Byte, "1.1GB", "1100000000"},
		{units.Byte, "3kB", "3000"},
		{units.Byte, "12B", "12"},
		{units.Gigabyte, "80GB", "80"},
		// What has no unit is not judged.
		{units.Microsecond, "30", ""}, {units.Microsecond, "5e6", ""}, {units.Microsecond, "many", ""}, {units.Microsecond, ".inf", ""},
		{units.Microsecond, "0x10", ""}, {units.Microsecond, "1_000", ""}, {units.Microsecond, "1.5", ""}, {units.Microsecond, "", ""}, {units.Byte, "7", ""},
	} {
		if got, err := c.unit.Plain(c.text, true); got != c.want || err != nil {
			t.Errorf("%s in %s: %q, %v, want %q", c.text, c.unit, got, err, c.want)
		}
	}
	if got, err := units.Millisecond.Plain("1500us", false); got != "1.500000000000" || err != nil {
		t.Errorf("1500us in ms: %q, %v", got, err)
	}
}

// TestRefused: what would lose something, or has two meanings, is refused with all ways
// to write it.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		unit units.Unit
		text string
		want []string
	}{
		{units.Microsecond, "1.5us", []string{"1us", "2us"}},
		{units.Microsecond, "-1.5us", []string{"-2us", "-1us"}},
		{units.Microsecond, "1ns", []string{"0us", "1us"}},
		{units.Microsecond, "0.00000000001s", []string{"0us", "1us"}},
		{units.Millisecond, "1500us", []string{"1ms", "2ms"}},
		{units.Microsecond, "5M", []string{"5m", "millions"}},
		{units.Microsecond, "5MS", []string{"5ms"}},
		{units.Microsecond, "1:30", []string{"1h30m", "1m30s"}},
		{units.Microsecond, "1,5s", []string{"1.5s"}},
		{units.Microsecond, "3parsec", []string{"parsec", "30ms"}},
		{units.Microsecond, "3ms4", []string{"30ms"}},
		{units.Microsecond, "3MB", []string{"30ms"}},
		{units.Byte, "100mb", []string{"100MB", "100MiB"}},
		{units.Byte, "100M", []string{"100MB", "100MiB"}},
		{units.Byte, "100KB", []string{"100kB", "100KiB"}},
		{units.Byte, "100mib", []string{"100MiB"}},
		{units.Byte, "1.5B", []string{"1B", "2B"}},
		{units.Byte, "8b", []string{"8B", "bits"}},
		{units.Byte, "8s", []string{"100MB"}},
	} {
		got, err := c.unit.Plain(c.text, true)
		if err == nil {
			t.Errorf("%s in %s is read as %q", c.text, c.unit, got)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s in %s: %v, without %s", c.text, c.unit, err, want)
			}
		}
	}
}
