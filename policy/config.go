// Package policy decides who takes part in a round of distributed training.
//
// It holds the coordinator's state machine (membership, heartbeats, rounds),
// and the policies. A Policy decides when a round closes and what happens to
// late members.
//
// The package is pure: it reads no clock, does no I/O, starts no goroutine and
// uses no randomness. The simulator and the real coordinator drive the same
// Machine, so a difference between their runs is a statement about networks
// and never about two versions of the rules. The same events at the same times
// always give the same actions.
package policy

import (
	"fmt"
	"slices"

	"testbed/internal/errs"
)

// Time is scenario time in microseconds since the start of the run.
type Time int64

// ID names a worker.
type ID int

// Epoch numbers a run's reductions from 1. Each attempt at a round has its own
// epoch.
type Epoch int

// Config is the configuration of a Machine. The zero value is not valid.
type Config struct {
	// HeartbeatPeriod is the time between two checks for silent members. Checks
	// take place at multiples of it.
	HeartbeatPeriod Time
	// HeartbeatMissThreshold evicts a member that has been silent for
	// HeartbeatPeriod × HeartbeatMissThreshold. Raising it makes false
	// evictions rarer and the detection of a crash slower.
	HeartbeatMissThreshold int
	// StallAfter is how long no participant of a reduction may receive anything
	// before the reduction is aborted. 0 waits for ever; simulators without bytes
	// use it. It limits stalls, not durations: a slow link is no fault.
	StallAfter Time
	// TargetOuterSteps is the number of rounds after which the run is done.
	TargetOuterSteps int
	// Policy decides when a round closes. The machine copies it. Nil: Baseline.
	Policy Policy `json:"-"`
	// MinSlack is the least time between the first arrival of a round and a
	// deadline that a policy derives from arrivals. In a real run, smaller
	// differences between arrivals come from the machine that all workers share,
	// not from a worker.
	MinSlack Time
	// Overlap reports that workers go on with the next round during a reduction: a
	// round begins when the round before closes, not with its outer step.
	Overlap bool
	// Seed seeds the random draws of a policy.
	Seed uint64
	// Join determines when a late joiner begins to contribute. Empty: JoinRunning.
	Join JoinMode
	// Grouping divides workers into regions, each with an outer state of its own
	// between two global rounds, or into replica groups. Nil: all workers
	// together.
	Grouping *Grouping `json:",omitempty"`
	// Lighthouses is the number of lighthouses; 0 is 1. Asks has the number, from
	// 0, of the lighthouse that each incarnation of a worker asks; the last entry
	// holds for all later incarnations. A worker without an entry asks lighthouse
	// 0.
	Lighthouses int          `json:",omitempty"`
	Asks        map[ID][]int `json:",omitempty"`
	// Rejoin determines whether a worker may come back that was evicted alive or
	// for its slowness. Empty: RejoinNever.
	Rejoin RejoinMode
	// RejoinRounds is the number of outer steps after which an evicted worker may
	// come back, with RejoinAfterRounds. 0 is 1.
	RejoinRounds int
}

// JoinMode determines when a worker that has joined late, and holds the outer
// state, begins to contribute.
type JoinMode string

// The join modes.
const (
	// JoinRunning: the joiner begins the running round at once. The round expects
	// its contribution, and may have to wait for its fetch and all its inner
	// steps.
	JoinRunning JoinMode = "running"
	// JoinNext: the joiner begins with the next round. The running one goes on as
	// if the joiner were not there.
	JoinNext JoinMode = "next"
	// JoinZeros: the joiner contributes zeros to the reduction of the running
	// round, if it holds the state by then. So it begins the next round together
	// with the others. Its zeros count in the mean of the running round, which
	// they shorten.
	JoinZeros JoinMode = "zeros"
	// JoinBlocking: the joiner waits until the running round could close, and then the
	// round waits for the joiner. It fetches the state from one donor while all others
	// wait, and then takes part as with JoinZeros.
	JoinBlocking JoinMode = "blocking"
)

// JoinModes lists the join modes.
var JoinModes = []JoinMode{JoinRunning, JoinNext, JoinZeros, JoinBlocking}

// Learns reports whether a joiner waits for the end of a round before it begins
// inner steps.
func (j JoinMode) Learns() bool { return j != "" && j != JoinRunning }

// Lighthouse returns the number of the lighthouse that an incarnation of a
// worker asks.
func (c *Config) Lighthouse(id ID, incarnation int) int {
	asks := c.Asks[id]
	if len(asks) == 0 {
		return 0
	}
	return asks[min(incarnation, len(asks)-1)]
}

func (c Config) validate() error {
	switch {
	case c.HeartbeatPeriod < 1:
		return fmt.Errorf("policy: the heartbeat period is %d µs: it must be at least 1 µs", c.HeartbeatPeriod)
	case c.HeartbeatMissThreshold < 1:
		return fmt.Errorf("policy: the heartbeat miss threshold is %d: it must be at least 1", c.HeartbeatMissThreshold)
	case c.Join != "" && !slices.Contains(JoinModes, c.Join):
		return fmt.Errorf("policy: the join mode %q is unknown: choose one of %s", c.Join, errs.List(JoinModes))
	case c.Rejoin != "" && !slices.Contains(RejoinModes, c.Rejoin):
		return fmt.Errorf("policy: the rejoin mode %q is unknown: choose one of %s", c.Rejoin, errs.List(RejoinModes))
	case c.RejoinRounds < 0:
		return fmt.Errorf("policy: the number of rounds before a rejoin is %d: it must not be negative", c.RejoinRounds)
	case c.StallAfter < 0:
		return fmt.Errorf("policy: the time after which a reduction stalls is %d µs: it must not be negative", c.StallAfter)
	case c.TargetOuterSteps < 1:
		return fmt.Errorf("policy: the number of outer steps is %d: it must be at least 1", c.TargetOuterSteps)
	}
	if c.Policy != nil {
		if err := c.Policy.Validate(); err != nil {
			return fmt.Errorf("policy: %w", err)
		}
	}
	return nil
}
