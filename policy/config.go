// Package policy decides who takes part in a round of distributed training.
//
// It holds the coordinator's state machine (membership, heartbeats, rounds),
// and the policies that it asks when to close a round and what becomes of
// those that are late: see Policy.
//
// The package is pure: it reads no clock, does no I/O, starts no goroutine and
// uses no randomness. The simulator and the real coordinator drive the same
// Machine, so a difference between their runs is a statement about networks
// and never about two versions of the rules. The same events at the same times
// always give the same actions.
package policy

import (
	"errors"
	"fmt"
	"slices"
)

// Time is scenario time in microseconds since the start of the run.
type Time int64

// ID names a worker.
type ID int

// Epoch numbers a run's reductions, each attempt at a round anew, from 1.
type Epoch int

// Config is what a Machine needs to know. The zero value is not valid.
type Config struct {
	// HeartbeatPeriod is the time between two checks for silent members. The
	// checks lie on the global grid of its multiples.
	HeartbeatPeriod Time
	// HeartbeatMissThreshold evicts a member that has been silent for
	// HeartbeatPeriod × HeartbeatMissThreshold. Raising it makes false
	// evictions rarer and the detection of a crash slower.
	HeartbeatMissThreshold int
	// StallAfter is how long no participant of a reduction may receive anything
	// before the reduction is aborted; 0 waits for ever, as does a simulator
	// without bytes. It bounds standstill and not duration: a slow link is no
	// fault.
	StallAfter Time
	// TargetOuterSteps is the number of rounds after which the run is done.
	TargetOuterSteps int
	// Policy decides when a round closes. The machine works with a copy of its
	// own. Nil: Baseline.
	Policy Policy `json:"-"`
	// MinSlack is the least time between the first arrival of a round and a
	// deadline that a policy derives from arrivals: in a real run, those that are
	// closer together say more about the machine that all workers share than
	// about a worker.
	MinSlack Time
	// Overlap says that workers go on with the next round while one is reduced: a
	// round begins when the one before closes, and not with its outer step.
	Overlap bool
	// Seed is what a policy that draws by lot draws from.
	Seed uint64
	// Join says from when on a late joiner contributes. Empty: JoinRunning.
	Join JoinMode
	// Grouping says who reduces with whom: regions, each of which has an outer state of
	// its own between two rounds of all, or replica groups. Nil: all workers together.
	Grouping *Grouping `json:",omitempty"`
	// Lighthouses is the number of lighthouses; 0 is 1. Asks are the numbers, from 0, of
	// those that the processes of a worker ask, by incarnation: the last one holds for
	// all later processes. A worker that is not in it asks lighthouse 0.
	Lighthouses int          `json:",omitempty"`
	Asks        map[ID][]int `json:",omitempty"`
	// Rejoin says whether a worker may come back that was evicted alive or for its
	// slowness. Empty: RejoinNever.
	Rejoin RejoinMode
	// RejoinRounds is the number of outer steps after which it may, with
	// RejoinAfterRounds. 0 is 1.
	RejoinRounds int
}

// JoinMode says from when on a worker contributes that has joined late and
// holds the outer state.
type JoinMode string

// The join modes.
const (
	// JoinRunning: the joiner begins the running round at once. The round counts on
	// it, and may have to wait for its fetch and all its inner steps.
	JoinRunning JoinMode = "running"
	// JoinNext: the joiner begins with the next round. The running one goes on as
	// if the joiner were not there.
	JoinNext JoinMode = "next"
	// JoinZeros: the joiner contributes zeros to the reduction of the running round,
	// if it holds the state by then, and so begins the next round together with the
	// others. It counts in the mean of that round, which is shorter for it.
	JoinZeros JoinMode = "zeros"
	// JoinBlocking: the joiner waits until the running round could close, and then the
	// round waits for the joiner. It fetches the state from one donor while all others
	// wait, and then takes part as with JoinZeros.
	JoinBlocking JoinMode = "blocking"
)

// JoinModes lists the join modes.
var JoinModes = []JoinMode{JoinRunning, JoinNext, JoinZeros, JoinBlocking}

// Learns reports whether a joiner begins no inner steps before it has seen the
// end of a round.
func (j JoinMode) Learns() bool { return j != "" && j != JoinRunning }

// Lighthouse is the number of the lighthouse that a process of a worker asks.
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
		return errors.New("policy: the heartbeat period must be at least 1 µs")
	case c.HeartbeatMissThreshold < 1:
		return errors.New("policy: the heartbeat miss threshold must be at least 1")
	case c.Join != "" && !slices.Contains(JoinModes, c.Join):
		return fmt.Errorf("policy: no join mode %q", c.Join)
	case c.Rejoin != "" && !slices.Contains(RejoinModes, c.Rejoin):
		return fmt.Errorf("policy: no rejoin mode %q", c.Rejoin)
	case c.RejoinRounds < 0:
		return errors.New("policy: the number of rounds before a rejoin must not be negative")
	case c.StallAfter < 0:
		return errors.New("policy: the time after which a reduction stalls must not be negative")
	case c.TargetOuterSteps < 1:
		return errors.New("policy: the number of outer steps must be at least 1")
	}
	if c.Policy != nil {
		if err := c.Policy.Validate(); err != nil {
			return fmt.Errorf("policy: %w", err)
		}
	}
	return nil
}
