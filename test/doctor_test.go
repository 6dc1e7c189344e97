//go:build linux

package test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"testbed/allreduce/int8"
	"testbed/emulation"
)

// TestDoctorShowsKernels: which form each operation takes, and the rates that it
// was chosen by.
func TestDoctorShowsKernels(t *testing.T) {
	r := testbed(t, "doctor", "--json")
	type doctorCheck struct {
		emulation.Check
		Choices []int8.Choice `json:"choices"`
	}
	var checks []doctorCheck
	if err := json.Unmarshal([]byte(r.stdout), &checks); err != nil || r.code != 0 && r.code != exitUnsupported {
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	for _, operation := range []string{"quantise", "dequantise", "dequantise_add", "ring_step"} {
		i := slices.IndexFunc(checks, func(c doctorCheck) bool { return c.Name == "kernel "+operation })
		if i < 0 || !checks[i].OK || checks[i].Needed {
			t.Errorf("no check of %s, or it fails:\n%s", operation, r.stdout)
			continue
		}
		bits := map[int]int{}
		for _, c := range checks[i].Choices {
			bits[c.Bits]++
			if c.Operation != operation || !slices.Contains(int8.Routes(), c.Route) || !strings.Contains(c.Why(), c.Route) && len(c.Rates) > 0 {
				t.Errorf("%s: %+v", operation, c)
			}
			for _, rate := range c.Rates {
				if rate.GBs <= 0 || c.MeasuringUS <= 0 {
					t.Errorf("%s: %+v", operation, c)
				}
			}
		}
		if bits[8] == 0 || bits[8] != bits[4] || !strings.HasPrefix(checks[i].Detail, checks[i].Choices[0].Route+" (") {
			t.Errorf("%s: %+v", operation, checks[i])
		}
	}
}
