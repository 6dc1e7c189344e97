package node

import (
	"time"

	"testbed/policy"
	"testbed/record"
)

// Report is a node's report to the process that started it. Reports bypass the
// emulated network.
type Report struct {
	// Ready reports that the node listens on all its addresses.
	Ready bool `json:"ready,omitempty"`
	// Event is for the record of the run.
	Event *record.Event `json:"event,omitempty"`
	// After is the number of the coordinator's events that come before Event.
	After int `json:"after,omitempty"`
	// Lateness is the delay of an inner step's timer.
	Lateness *time.Duration `json:"lateness_ns,omitempty"`
	// Round is the round of the inner step of Lateness and Behind, which has ended
	// or was broken off. Behind is its additional time because its threads waited
	// for a processor.
	Round  int           `json:"round,omitempty"`
	Behind time.Duration `json:"behind_ns,omitempty"`
	// Computing is the share of an inner step's time spent on computing, if
	// something real is trained.
	Computing float64 `json:"computing,omitempty"`
	// Paused answers OpPause.
	Paused bool `json:"paused,omitempty"`
	// Error is why the node gave up.
	Error string `json:"error,omitempty"`
}

// Command is an order of the process that started a worker. Commands bypass the
// emulated network.
type Command struct {
	Op     Op          `json:"op"`
	At     policy.Time `json:"at_us,omitempty"`
	Factor float64     `json:"factor,omitempty"`
	Alone  bool        `json:"alone,omitempty"` // for a reduction that fails
	// Heartbeats means, for a pause, that the process is not stopped: it hangs,
	// except for its heartbeats.
	Heartbeats bool `json:"heartbeats,omitempty"`
}

// Op is the kind of a Command.
type Op string

// The commands.
const (
	OpJoin    Op = "join"    // connect to the coordinator
	OpSlow    Op = "slow"    // inner steps scheduled from now on take Factor times as long
	OpRestore Op = "restore" // the end of slow
	OpLeave   Op = "leave"   // depart in good order
	OpFail    Op = "fail"    // give up
	OpPreempt Op = "preempt" // depart after the round
	// OpFailReduce fails the reduction under way, or else the next one.
	OpFailReduce Op = "fail_reduce"
	OpPause      Op = "pause"  // about to be stopped: the inner step under way stalls
	OpResume     Op = "resume" // no longer stopped: it goes on with the time it had left
)
