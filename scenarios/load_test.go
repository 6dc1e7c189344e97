package scenarios_test

import (
	"strings"
	"testing"

	"testbed/scenarios"
)

func TestMachineLoad(t *testing.T) {
	for _, c := range []struct {
		planned, carried, dilation float64
		least                      float64
		words                      string
	}{
		{160e9, 1.4e9, 1, 170, "send 160 Gbit/s, but emulation is exact only up to 70 % of what the machine carried: run the scenario with a dilation of 170 or more"},
		{160e9, 1.4e9, 200, 170, "send 160 Gbit/s. The scenario's dilation of 200 is large enough: the least sufficient dilation is 170"},
		{400e6, 1.4e9, 1, 1, "send 400 Mbit/s. The scenario needs no dilation"},
		{0.98e9, 1.4e9, 1, 1, "The scenario needs no dilation"}, // exactly the share that may be used
		{1e9, 1.4e9, 1, 1.1, "a dilation of 1.1 or more"},
		{0, 1.4e9, 1, 1, "No link of this scenario has a rate"},
	} {
		l := scenarios.NewMachineLoad(c.planned, c.carried)
		if words := l.Words(c.dilation); l.Dilation < c.least*0.999 || l.Dilation > c.least*1.001 || !strings.Contains(words, c.words) {
			t.Errorf("%g of %g: %g, %s; want %g, %q", c.planned, c.carried, l.Dilation, words, c.least, c.words)
		}
	}
}
