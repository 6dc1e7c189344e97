// Package faults determines what happens to the workers and links of a run, and
// when: the injects of a scenario. The player of the run carries them out.
//
// The package is pure.
package faults

import (
	"cmp"
	"slices"

	"testbed/policy"
)

// Op is the kind of an inject, in the words of churn's scenario files.
type Op string

// The injects.
const (
	Crash          Op = "Crash"          // the worker dies and sends nothing more
	Leave          Op = "Leave"          // the worker leaves in good order
	Slow           Op = "Slow"           // inner steps scheduled from now on take factor times as long
	Restore        Op = "Restore"        // the end of Slow
	Pause          Op = "Pause"          // the worker stalls, whatever it was doing
	Resume         Op = "Resume"         // the end of Pause; it goes on where it stood
	Partition      Op = "Partition"      // ids are cut off from everybody else
	ClearPartition Op = "ClearPartition" // the end of Partition, for ids or for all
	// CoordinatorCrash kills the coordinator. Another one takes its place after
	// down.
	CoordinatorCrash Op = "CoordinatorCrash"
	// Restart is a Crash, after which a new process of the worker begins.
	Restart Op = "Restart"
	Fail    Op = "Fail" // the worker gives up, and says so
	// Preempt gives the worker notice. The worker takes part until the outcome of
	// the running round, and leaves. When the notice is over it is killed.
	Preempt Op = "Preempt"
	// FailReduce fails the reduction that the worker takes part in, or else the
	// next: at once, and so for all participants, or alone.
	FailReduce Op = "FailReduce"
)

// Ops lists the injects.
var Ops = []Op{Crash, Leave, Slow, Restore, Pause, Resume, Partition, ClearPartition, CoordinatorCrash, Restart, Fail, Preempt, FailReduce}

// Inject is a fault or change that happens to workers at a given time.
type Inject struct {
	// The kind of inject.
	Op Op `yaml:"op" json:"op" need:"yes"`
	// The time of the inject, at most `horizon`.
	At policy.Time `yaml:"at" json:"at" need:"yes"`
	// The worker concerned. All injects except `Partition`, `ClearPartition` and
	// `CoordinatorCrash` need it.
	ID *policy.ID `yaml:"id" json:"id,omitempty"`
	// The workers that `Partition` cuts off, or that `ClearPartition` reconnects.
	// Without `ids`, `ClearPartition` reconnects all workers.
	IDs []policy.ID `yaml:"ids" json:"ids,omitempty"`
	// With `Slow`, which needs it: inner steps take this many times as long.
	Factor *float64 `yaml:"factor" json:"factor,omitempty"`
	// With `CoordinatorCrash`: the time until another coordinator starts.
	Down policy.Time `yaml:"down" json:"down,omitempty"`
	// With `Pause`: the worker still sends heartbeats, like a hung trainer with a live
	// manager.
	Heartbeats bool `yaml:"heartbeats" json:"heartbeats,omitempty"`
	// With `CoordinatorCrash`, under torchft only: the lighthouse loses its memory.
	Forgets bool `yaml:"forgets" json:"forgets,omitempty"`
	// With `Restart`: the time until the new process begins.
	After policy.Time `yaml:"after" json:"after,omitempty"`
	// With `Restart`, under torchft only: the number of the lighthouse that the new
	// process asks. The default is the former process's lighthouse.
	Lighthouse *int `yaml:"lighthouse" json:"lighthouse,omitempty"`
	// With `Preempt`: the time from the warning to the worker's death.
	Notice policy.Time `yaml:"notice" json:"notice,omitempty"`
	// With `FailReduce`, under torchft: the reduction fails only for this worker, after it
	// has done its part. The others finish.
	Alone bool `yaml:"alone" json:"alone,omitempty"`
}

// String describes the inject: "Crash w3".
func (in Inject) String() string {
	text := string(in.Op)
	if in.ID != nil {
		text += " " + in.ID.Node()
	}
	for _, id := range in.IDs {
		text += " " + id.Node()
	}
	return text
}

// InTime returns the places of the injects in the order of their times.
func InTime(injects []Inject) []int {
	order := make([]int, len(injects))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(injects[a].At, injects[b].At) })
	return order
}
