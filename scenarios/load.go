package scenarios

import (
	"fmt"
	"math"
)

// MachineLoad compares the traffic of reductions with the traffic that a
// machine can carry.
type MachineLoad struct {
	// Planned is the traffic that all workers together send while they reduce at
	// the rate of their slowest link, in bit/s as links count them and not
	// dilated. It is 0 if no link has a rate: then the machine sets the pace.
	Planned float64 `json:"planned_bit_per_s"`
	// Carried is the traffic that this machine carried in a reduction on links
	// without rates.
	Carried float64 `json:"carried_bit_per_s"`
	// Dilation is the least sufficient real.dilation, 1 if none is needed.
	Dilation float64 `json:"least_dilation"`
}

// loaded is the highest share of a machine's capacity that leaves it time to be
// punctual.
const loaded = 0.7

// NewMachineLoad compares planned and carried traffic.
func NewMachineLoad(plannedBits, carried float64) *MachineLoad {
	return &MachineLoad{plannedBits, carried, max(1, roundUp(plannedBits/(loaded*carried)))}
}

// roundUp rounds up to two digits: a machine's capacity is not known more
// precisely.
func roundUp(x float64) float64 {
	if x <= 1 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-1)
	return math.Ceil(x/unit-1e-9) * unit
}

// Words explain the load for a scenario with this dilation.
func (l *MachineLoad) Words(dilation float64) string {
	text := fmt.Sprintf("in a test on links without rates, this machine carried %s between all workers", bits(l.Carried))
	if l.Planned == 0 {
		return text + ". No link of this scenario has a rate, so only the machine limits the traffic"
	}
	text += fmt.Sprintf(". The reductions of this scenario send %s", bits(l.Planned))
	switch {
	case l.Dilation > dilation:
		return fmt.Sprintf("%s, but emulation is exact only up to %.0f %% of what the machine carried: run the scenario with a dilation of %g or more (real.dilation, --dilation)", text, 100*loaded, l.Dilation)
	case dilation > 1:
		return fmt.Sprintf("%s. The scenario's dilation of %g is large enough: the least sufficient dilation is %g", text, dilation, l.Dilation)
	}
	return text + ". The scenario needs no dilation"
}

func bits(perSecond float64) string {
	if perSecond >= 999.5e6 { // below, three digits of Mbit/s would be 1e+03
		return fmt.Sprintf("%.3g Gbit/s", perSecond/1e9)
	}
	return fmt.Sprintf("%.3g Mbit/s", perSecond/1e6)
}
