//go:build linux

package emulation

import (
	"time"

	"testbed/policy"
	"testbed/scenarios/resolved"
)

// clock relates the time of a scenario to the machine's time.
type clock struct {
	scenario *resolved.Scenario
	began    time.Time // when the first workers joined, in scenario time FirstJoin; zero before
	// resumed is the scenario time at which a run is resumed: everything earlier
	// has been recorded. Otherwise it is before all times.
	resumed policy.Time
}

// begin sets the clock to the scenario time now.
func (c *clock) begin(now policy.Time, resumed bool) {
	c.began = time.Now().Add(-c.scenario.ClockDuration(now - c.scenario.FirstJoin()))
	c.resumed = -1
	if resumed {
		c.resumed = now
	}
}

func (c *clock) running() bool { return !c.began.IsZero() }

// now is the scenario time.
func (c *clock) now() policy.Time { return c.at(time.Now()) }

// at is the scenario time of a real time.
func (c *clock) at(t time.Time) policy.Time {
	return c.scenario.FirstJoin() + c.scenario.ClockTime(t.Sub(c.began))
}

// due is the real time of a scenario time.
func (c *clock) due(t policy.Time) time.Time {
	return c.began.Add(c.scenario.ClockDuration(t - c.scenario.FirstJoin()))
}
