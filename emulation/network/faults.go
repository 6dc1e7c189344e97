//go:build linux

package network

import (
	"fmt"
	"slices"
	"time"

	"testbed/policy"
	"testbed/policy/timescale"
	"testbed/scenarios/faults"
	"testbed/shaping"
)

// LinkFaults carries out the faults of links.
type LinkFaults struct {
	Current *shaping.Plan // with the current faults, by the machine's clock; nil before the first

	network  *Network
	schedule *faults.Schedule
	at       time.Duration // time of the last Apply; at first, before all times
	isolated []string      // nodes that are cut off in addition to the schedule
}

// LinkFaults returns the faults of a schedule for the network.
func (n *Network) LinkFaults(of *faults.Schedule) *LinkFaults {
	return &LinkFaults{network: n, schedule: of, at: -1}
}

// Apply applies the faults that are active from this real time on, since
// scenario time zero. It computes the whole plan, never from the one before.
func (f *LinkFaults) Apply(at time.Duration) error {
	f.at = at
	active := f.schedule.At(at)
	for _, name := range f.isolated {
		active = append(active, shaping.Partition{Nodes: []string{name}})
	}
	plan, err := shaping.Compose(f.network.Undilated, active)
	if err == nil {
		plan, err = plan.Dilated(f.network.Dilation)
	}
	if err == nil {
		f.Current, err = plan, f.network.change(plan)
	}
	if err != nil {
		return fmt.Errorf("carrying out the injects of links at %v: %w", at.Round(time.Millisecond), err)
	}
	return nil
}

// Isolate cuts a node off from all others, in addition to the schedule, or ends
// that.
func (f *LinkFaults) Isolate(node string, cut bool) error {
	f.isolated = slices.DeleteFunc(f.isolated, func(name string) bool { return name == node })
	if cut {
		f.isolated = append(f.isolated, node)
	}
	return f.Apply(f.at)
}

// Schedule applies the faults on a clock that began at the scenario time zero,
// until the network is taken down. It calls applied with each time, and with
// the time before it.
func (f *LinkFaults) Schedule(began time.Time, zero policy.Time, applied func(before, at time.Duration) error) {
	start := began.Add(-f.schedule.ClockDuration(zero))
	var await func(before time.Duration)
	await = func(before time.Duration) {
		at, ok := f.schedule.Next(before)
		if !ok {
			return
		}
		time.AfterFunc(time.Until(start.Add(timescale.OnClock(at, f.network.Dilation))), func() {
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
