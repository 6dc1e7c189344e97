//go:build linux

package network

import (
	"fmt"
	"time"

	"testbed/policy"
	"testbed/policy/timescale"
	"testbed/scenarios"
	"testbed/shaping"
)

// LinkFaults carries out the faults of links in a scenario.
type LinkFaults struct {
	Current *shaping.Plan // with the faults of the moment, by the machine's clock; nil before the first

	network  *Network
	scenario *scenarios.Scenario
}

// LinkFaults gives the network the faults of a scenario, when they are due.
func (n *Network) LinkFaults(of *scenarios.Scenario) *LinkFaults {
	return &LinkFaults{network: n, scenario: of}
}

// Apply gives the network the faults that are active from this real time on,
// since scenario time zero. The plan is computed whole, never from the one
// before.
func (f *LinkFaults) Apply(at time.Duration) error {
	plan, err := shaping.Compose(f.network.emulated, f.scenario.Faults().At(at))
	if err == nil {
		plan, err = plan.Dilated(f.network.dilation)
	}
	if err == nil {
		f.Current, err = plan, f.network.change(plan)
	}
	if err != nil {
		return fmt.Errorf("carrying out the injects of links at %v: %w", at, err)
	}
	return nil
}

// Schedule applies the faults on a clock that began at the scenario time zero,
// until the network is taken down. applied hears of each time, and of the one
// before it.
func (f *LinkFaults) Schedule(began time.Time, zero policy.Time, applied func(before, at time.Duration) error) {
	start := began.Add(-f.scenario.Scale().ClockDuration(zero))
	var await func(before time.Duration)
	await = func(before time.Duration) {
		at, ok := f.scenario.Faults().Next(before)
		if !ok {
			return
		}
		time.AfterFunc(time.Until(start.Add(timescale.OnClock(at, f.network.dilation))), func() {
			f.network.s.Post(func() error {
				if f.network.takeDown {
					return nil
				}
				if err := f.Apply(at); err != nil {
					return err
				}
				if err := applied(before, at); err != nil {
					return err
				}
				await(at)
				return nil
			})
		})
	}
	await(-1)
}
