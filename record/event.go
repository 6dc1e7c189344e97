// Package record is the record of a run: typed events, the same in every
// world, their JSON-lines form, the summary computed from them, and the run
// directory that holds it all.
package record

import "testbed/policy"

// Schema is the version of the record's format.
const Schema = 1

// Type names what happened.
type Type string

// The types of events.
const (
	// The run begins. `run` describes it.
	RunStart Type = "run_start"
	// A worker is missing at the start.
	Absent Type = "absent"
	// A worker has become a member.
	Join Type = "join"
	// A worker has done an inner step. The worker timed it, within
	// `clock_error_us`.
	Step Type = "step"
	// The coordinator hears of a worker's arrival, `offset_us` after the first.
	Arrive Type = "arrive"
	// A deadline for the round was set, for `at_us`.
	DeadlineSet Type = "deadline"
	// A decision: the round closes. If enough workers had arrived, `duration_us` is the
	// timer's lateness. `held_us` is the wait for joiners (`join: blocking`).
	RoundClose Type = "round_close"
	// An attempt (`epoch`) at the all-reduce begins. `ring` is the [order](ring.md) of
	// the ring, unless it is by worker id.
	ReduceStart Type = "reduce_start"
	// The attempt has failed.
	ReduceAbort Type = "reduce_abort"
	// Real runs: a worker has the outcome, timed like a step. `duration_us` counts from
	// the order to reduce. `bytes_sent` and `bytes_received` are the worker's.
	Reduced Type = "reduced"
	// The attempt has succeeded.
	ReduceDone Type = "reduce_done"
	// The outcome is final: an outer step is taken.
	OuterStep Type = "outer_step"
	// [Overlapping rounds](learning.md#published-outer-steps): a worker has
	// applied the outer step of `round` after inner step `step` of the next round.
	Merge Type = "merge"
	// Outer states were compared after an outer step. `loss` is that of the task
	// `quadratic`.
	State Type = "state"
	// [Training](learning.md#recorded-figures): the validation loss after an outer
	// step.
	Validated Type = "validated"
	// [Training](learning.md#recorded-figures): a worker's contribution.
	Contributed Type = "contributed"
	// A member was silent for a heartbeat period or more.
	HeartbeatMiss Type = "heartbeat_miss"
	// A decision: a worker is left out as late.
	Sideline Type = "sideline"
	// A decision: a worker takes part again.
	Rejoin Type = "rejoin"
	// A decision: a worker is no longer a member.
	Evict Type = "evict"
	// Inject: a worker's process is killed.
	Crash Type = "crash"
	// Inject: a new process (`incarnation`) of a worker, between a `crash` and a
	// `join`.
	Restart Type = "restart"
	// Inject: a worker announces that it gives up.
	Fail Type = "fail"
	// Inject: a worker learns that it will die after `duration_us`. It leaves (`evict`,
	// rule `leave`) or is killed (`crash`).
	Preempt Type = "preempt"
	// Inject: a worker leaves.
	Leave Type = "leave"
	// Inject: a worker becomes slow, by `factor`.
	Slow Type = "slow"
	// Inject: a worker is as fast as before.
	Restore Type = "restore"
	// Inject: a worker's process has stopped.
	Pause Type = "pause"
	// Inject: a worker's process runs again.
	Resume Type = "resume"
	// Inject: a worker is cut off.
	Partition Type = "partition"
	// Inject: a worker is no longer cut off.
	Heal Type = "heal"
	// Inject (`op`) of a link, at `node`, or on the path or pair of `from` and `to`.
	// Flaps record each change, traces only their start.
	LinkFault Type = "link"
	// An inject of a link ends.
	LinkRestored Type = "link_restored"
	// Inject: a worker's current or next reduction fails.
	FailReduce Type = "fail_reduce"
	// `participants` of `lineage` took outer step `round`, which lineage `other` had
	// taken ([lineages](torchft.md#two-lineages)).
	Diverged Type = "diverged"
	// `node`, the last holder of the last `step` outer steps of `lineage` up to
	// `round`, moved to lineage `other`.
	Undone Type = "undone"
	// A joiner or a sidelined worker begins to fetch the outer state.
	FetchStart Type = "fetch_start"
	// The worker has the outer state.
	FetchDone Type = "fetch_done"
	// A worker that wanted to join was refused.
	Reject Type = "reject"
	// The coordinator's process has died: unexpectedly if there is a `cause`,
	// otherwise by an inject.
	CoordinatorCrash Type = "coordinator_crash"
	// A new coordinator has taken over, `duration_us` after the former one's last
	// action.
	CoordinatorBack Type = "coordinator_back"
	// Real runs: all nodes had died, and the run continues. `ids` continue from the
	// checkpoint (`hash`) of outer step `round`. `t_us` continues from the last time
	// that the coordinator knew.
	RunResume Type = "run_resume"
	// Real runs: the outer state after `round` is on disk, `duration_us` after
	// `node` had it.
	Checkpoint Type = "checkpoint"
	// A worker begins to send the outer state after `round` to the store.
	UploadStart Type = "upload_start"
	// The store has the state (`hash`), or the upload has failed (`cause`).
	UploadDone Type = "upload_done"
	// The horizon was reached before the last outer step.
	Horizon Type = "horizon"
	// The run ends. There is a `cause` if a [program of a policy](policies.md#errors)
	// did not answer.
	RunEnd Type = "run_end"
)

// Event is one line of the record. Fields that a type does not use are absent.
type Event struct {
	T    policy.Time `json:"t_us"` // Scenario time since the start of the run.
	Type Type        `json:"type"` // What happened.
	// Real runs: the number of the coordinator's event.
	Seq int `json:"seq,omitempty"`
	// The node concerned, such as `w3`. It is absent if the event concerns the whole
	// run.
	Node  string       `json:"node,omitempty"`
	Round int          `json:"round,omitempty"` // The round, from 1.
	Epoch policy.Epoch `json:"epoch,omitempty"` // The attempt at a reduction.
	// The [lineage](torchft.md#two-lineages) of outer states, if there are several.
	Lineage int  `json:"lineage,omitempty"`
	Other   *int `json:"other,omitempty"` // Another lineage.
	// Of `pause`: the worker still sends heartbeats.
	Heartbeats bool `json:"heartbeats,omitempty"`
	// Of `fail_reduce`: the others can end their parts.
	Alone bool `json:"alone,omitempty"`
	// The number of a worker's process, from 0.
	Incarnation int `json:"incarnation,omitempty"`
	// The inner step of the round, from 1.
	Step int `json:"step,omitempty"`
	// How long the step, reduction or fetch took. [Types of events](#types-of-events)
	// give other meanings.
	Duration policy.Time `json:"duration_us,omitempty"`
	// Of `step`: the part of measured computing that waited for a processor.
	Waited policy.Time `json:"waited_us,omitempty"`
	// How long a round that closes has waited for joiners.
	Held policy.Time `json:"held_us,omitempty"`
	// The time since the first arrival of the round.
	Offset *policy.Time `json:"offset_us,omitempty"`
	Late   bool         `json:"late,omitempty"`  // Of `arrive`: the round had closed.
	At     policy.Time  `json:"at_us,omitempty"` // Of `deadline`: the time of the deadline.
	// The workers that take part.
	Participants []policy.ID `json:"participants,omitempty"`
	Missing      []policy.ID `json:"missing,omitempty"` // The members that do not take part.
	Zero         []policy.ID `json:"zero,omitempty"`    // Participants that contribute zeros.
	// Participants in `zero` that have taken their donor's values, as `worker` and
	// `donor`. The donor's contribution counts once more for each of them.
	Repeated []policy.Repeat `json:"repeated,omitempty"`
	IDs      []policy.ID     `json:"ids,omitempty"`    // The workers concerned.
	Op       string          `json:"op,omitempty"`     // The kind of link inject.
	From     string          `json:"from,omitempty"`   // The start of a path, or the source of a fetch.
	To       string          `json:"to,omitempty"`     // The end of a path.
	Factor   float64         `json:"factor,omitempty"` // Of `slow`: how many times as long steps take.
	// How a process ended unexpectedly, or why an upload failed or the run ended.
	Cause string `json:"cause,omitempty"`
	// Of `reduced`: the part of `duration_us` until the worker had its own chunk. The
	// rest is the all-gather.
	ReduceScatter policy.Time `json:"reduce_scatter_us,omitempty"`
	// Bytes that a worker, or all participants together, wrote to the ring's streams.
	BytesSent int64 `json:"bytes_sent,omitempty"`
	// Bytes that a worker read from the ring's streams.
	BytesReceived int64 `json:"bytes_received,omitempty"`
	// The hash of the bytes that all participants agree on.
	Hash      string `json:"hash,omitempty"`
	Identical *bool  `json:"identical,omitempty"` // Whether all participants have equal bytes.
	Complete  *bool  `json:"complete,omitempty"`  // Of `run_end`: all outer steps were taken.
	// The hashes of each region, if regions reduce separately. Then there is no `hash`.
	Regions []RegionHash `json:"regions,omitempty"`
	// Of a fetch: the state is the last one that all regions agreed on.
	Agreed bool `json:"agreed,omitempty"`
	// A bound on the error of `t_us` in events that a worker has timed.
	ClockError policy.Time `json:"clock_error_us,omitempty"`
	// Of `state` and `validated`: the loss on held-out data. Of `step`: the loss on the
	// batch before the step. The loss of the task `quadratic` is the mean squared
	// distance of the parameters from the optimum.
	Loss *float64 `json:"loss,omitempty"`
	// Of `contributed`: the contribution.
	Contribution *Contribution `json:"contribution,omitempty"`
	// The optimised order of the ring.
	Ring *Ring `json:"ring,omitempty"`
	// Of `run_start`: the run.
	Run *Run `json:"run,omitempty"`
	// The numbers on which a decision was based.
	Reason *policy.Reason `json:"reason,omitempty"`
}

// Worker returns the worker that the event is about; for an event about the run as a
// whole it is -1, and ok is false.
func (e *Event) Worker() (id policy.ID, ok bool) { return policy.ParseNode(e.Node) }

// Run describes the run. It comes with the run's first event.
type Run struct {
	Schema    int     `json:"schema"`             // The version of the record's format.
	Scenario  string  `json:"scenario"`           // The name of the scenario.
	Policy    string  `json:"policy"`             // The policy with its parameters, as given.
	World     string  `json:"world"`              // `sim`, `real` or `replay`.
	Links     string  `json:"links"`              // Real runs: `user`, `htb` or `netem`. Simulated runs: `none` or `plan`.
	Seed      uint64  `json:"seed"`               // The seed of the scenario.
	TimeScale float64 `json:"time_scale"`         // Real time divided by scenario time.
	Dilation  float64 `json:"dilation,omitempty"` // Real runs: [time dilation](dilation.md).
}

// Contribution describes a worker's contribution to a reduction: a
// pseudo-gradient, with whatever the worker added to it.
type Contribution struct {
	Norm   float64 `json:"norm"`   // The L2 norm.
	Cosine float64 `json:"cosine"` // The cosine of the angle to the mean.
	// The norm of the quantisation's error, divided by `norm`.
	QuantisationError float64 `json:"quantisation_error"`
	// The error of each layer, if requested.
	Layers []LayerError `json:"layers,omitempty"`
}

// LayerError is the QuantisationError of a layer.
type LayerError struct {
	Name  string  `json:"name"`  // The name of the layer.
	Error float64 `json:"error"` // The norm of the error, divided by the layer's norm.
}

// Ring is an optimised order of a ring, and its expected gain.
type Ring struct {
	Order []policy.ID `json:"order"` // The workers in the order of the ring.
	// The longest delay of a chunk around the ring, by the one-way delays known before
	// the run.
	Latency policy.Time `json:"latency_us"`
	// The longest delay in a ring by worker id.
	NaiveLatency policy.Time `json:"naive_latency_us"`
	// The rate of the slowest hop in Mbit/s as links count it, by the rates known
	// before the run. It is absent if the ring is not ordered by rates, or no rate
	// is limited.
	RateMbit float64 `json:"rate_mbit,omitempty"`
	// The rate of the slowest hop in a ring by worker id.
	NaiveRateMbit float64 `json:"naive_rate_mbit,omitempty"`
}

// The worlds. An event and Summary.World call both simulations Sim; WorldName tells
// them apart.
const (
	Sim  = "sim"
	Real = "real"
	// SimLinks is the simulation on the links of the plan, whereas Sim uses
	// churn's network.
	SimLinks = "sim_links"
	// Replayed is a simulation whose durations come from the record of a run.
	Replayed = "replay"
)

// OnPlan is the value of Links for a simulation on the links of the plan.
const OnPlan = "plan"

// WorldName is the one name of a world: Sim, SimLinks, Real or Replayed.
func WorldName(world, links string) string {
	if world == Sim && links == OnPlan {
		return SimLinks
	}
	return world
}

// FromAction returns the record of an action of the policy machine, or false
// for an action that leaves no record. The record points into the action.
func FromAction(now policy.Time, a policy.Action) (e Event, ok bool) {
	e.T, e.Reason = now, a.Why()
	switch a := a.(type) {
	case *policy.Admit:
		e.Type, e.Node, e.Round, e.Incarnation = Join, a.ID.Node(), a.Round, a.Incarnation
	case *policy.Reject:
		e.Type, e.Node = Reject, a.ID.Node()
	case *policy.Arrived:
		e.Type, e.Node, e.Round, e.Late = Arrive, a.ID.Node(), a.Round, a.Late
		if !a.Late || a.Offset > 0 { // the offset of an earlier round is not known
			e.Offset = &a.Offset
		}
	case *policy.ArmDeadline:
		e.Type, e.Round, e.At = DeadlineSet, a.Round, a.At
	case *policy.Close:
		e.Type, e.Round, e.Lineage, e.Participants, e.Missing, e.Duration, e.Held = RoundClose, a.Round, a.Lineage, a.Participants, a.Late, a.Overslept, a.Held
	case *policy.Reduce:
		e.Type, e.Round, e.Epoch, e.Lineage, e.Participants, e.Zero, e.Repeated = ReduceStart, a.Round, a.Epoch, a.Lineage, a.Participants, a.Zero, a.Repeated
	case *policy.Abort:
		e.Type, e.Round, e.Epoch, e.Lineage, e.Participants = ReduceAbort, a.Round, a.Epoch, a.Lineage, a.Participants
	case *policy.OuterStep:
		e.Type, e.Round, e.Epoch, e.Lineage, e.Participants = OuterStep, a.Round, a.Epoch, a.Lineage, a.Participants
	case *policy.Diverge:
		e.Type, e.Round, e.Epoch, e.Lineage, e.Other, e.Participants = Diverged, a.Round, a.Epoch, a.Lineage, &a.Other, a.Participants
	case *policy.Undo:
		e.Type, e.Node, e.Round, e.Step, e.Lineage, e.Other = Undone, a.ID.Node(), a.Round, a.Steps, a.Lineage, &a.Other
	case *policy.HeartbeatMiss:
		e.Type, e.Node, e.Round = HeartbeatMiss, a.ID.Node(), a.Round
	case *policy.Sideline:
		e.Type, e.Node, e.Round = Sideline, a.ID.Node(), a.Round
	case *policy.Rejoin:
		e.Type, e.Node, e.Round = Rejoin, a.ID.Node(), a.Round
	case *policy.Evict:
		e.Type, e.Node, e.Round = Evict, a.ID.Node(), a.Round
	case *policy.Fetch:
		e.Type, e.Node, e.Round, e.From, e.Agreed = FetchStart, a.ID.Node(), a.Round, a.From.Node(), a.Agreed
	case *policy.Fetched:
		e.Type, e.Node, e.Round, e.Agreed = FetchDone, a.ID.Node(), a.Round, a.Agreed
	case *policy.Finish:
		e.Type, e.Complete, e.Cause = RunEnd, &a.Complete, a.Cause
	default: // StartRound shows in the steps that follow; WakeAt is internal
		return Event{}, false
	}
	return e, true
}
