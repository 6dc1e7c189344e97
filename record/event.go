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
	RunStart    Type = "run_start"
	Absent      Type = "absent" // a worker did not take part in the run at its beginning
	Join        Type = "join"
	Step        Type = "step" // a worker has completed an inner step
	Arrive      Type = "arrive"
	DeadlineSet Type = "deadline"
	RoundClose  Type = "round_close"
	ReduceStart Type = "reduce_start"
	ReduceAbort Type = "reduce_abort"
	Reduced     Type = "reduced" // a worker has the outcome of a reduction
	ReduceDone  Type = "reduce_done"
	OuterStep   Type = "outer_step"
	// Merge says that a worker has added the effect of the outer step of Round to
	// its parameters, after inner step Step of the next round.
	Merge         Type = "merge"
	State         Type = "state"       // the outer states after an outer step, compared
	Validated     Type = "validated"   // the loss of the outer state after an outer step
	Contributed   Type = "contributed" // what a worker's contribution to an outer step was like
	HeartbeatMiss Type = "heartbeat_miss"
	Sideline      Type = "sideline"
	Rejoin        Type = "rejoin"
	Evict         Type = "evict"
	Crash         Type = "crash"
	Restart       Type = "restart" // a new process of a worker has begun
	Fail          Type = "fail"    // a worker gives up, and says so
	Preempt       Type = "preempt" // a worker is warned that it will be killed after Duration
	Leave         Type = "leave"
	Slow          Type = "slow"
	Restore       Type = "restore"
	Pause         Type = "pause"
	Resume        Type = "resume"
	Partition     Type = "partition"
	Heal          Type = "heal"
	LinkFault     Type = "link" // a link has other properties, or carries nothing
	LinkRestored  Type = "link_restored"
	// FailReduce says that a worker's next reduction fails, or the one under way.
	FailReduce Type = "fail_reduce"
	// Diverged says that an outer step of the lineage Other has been taken again,
	// in another lineage. Undone says that no worker holds the last Step outer
	// steps of a lineage any more, because the worker goes on in Other.
	Diverged   Type = "diverged"
	Undone     Type = "undone"
	FetchStart Type = "fetch_start"
	FetchDone  Type = "fetch_done"
	Reject     Type = "reject"
	// The coordinator's process has died, and another one has taken its place.
	CoordinatorCrash Type = "coordinator_crash"
	CoordinatorBack  Type = "coordinator_back"
	// RunResume says that every node had died, and that the run goes on from the
	// checkpoint of outer step Round. Rounds after it that the record already has
	// are undone.
	RunResume Type = "run_resume"
	// Checkpoint says that the outer state after outer step Round is kept.
	Checkpoint Type = "checkpoint"
	// UploadStart and UploadDone say that the worker sends the outer state after
	// outer step Round to the store, and that the store has it, or why it does
	// not.
	UploadStart Type = "upload_start"
	UploadDone  Type = "upload_done"
	Horizon     Type = "horizon"
	RunEnd      Type = "run_end"
)

// Event is one line of the record. Fields that a type does not use are absent.
type Event struct {
	// T is scenario time since the start of the run.
	T    policy.Time `json:"t_us"`
	Type Type        `json:"type"`
	// Seq numbers the events of the coordinator of a real run.
	Seq int `json:"seq,omitempty"`
	// Node is the worker concerned ("w3"), or absent for the run as a whole.
	Node  string       `json:"node,omitempty"`
	Round int          `json:"round,omitempty"`
	Epoch policy.Epoch `json:"epoch,omitempty"`
	// Lineage numbers the line of outer states that the event belongs to, if there
	// is more than one. Other is another lineage.
	Lineage int  `json:"lineage,omitempty"`
	Other   *int `json:"other,omitempty"`
	// Heartbeats means, for a Pause, that the worker still sends heartbeats.
	Heartbeats bool `json:"heartbeats,omitempty"`
	// Alone means, for a FailReduce, that the others can end their parts.
	Alone bool `json:"alone,omitempty"`
	// Incarnation numbers the processes of a worker; the first one is 0.
	Incarnation int `json:"incarnation,omitempty"`
	// Step counts the inner steps of a round from 1.
	Step int `json:"step,omitempty"`
	// Duration is how long the step, reduction or fetch that ended took. For a
	// preemption it is the notice. For the close of a round it is the time since
	// enough had arrived.
	Duration policy.Time `json:"duration_us,omitempty"`
	// Waited is the part of a step's Duration for which the computing thread
	// waited for a processor, if compute is measured.
	Waited policy.Time `json:"waited_us,omitempty"`
	// Held is how long a round that closes has waited for joiners.
	Held policy.Time `json:"held_us,omitempty"`
	// Offset counts from the first arrival of the round.
	Offset       *policy.Time `json:"offset_us,omitempty"`
	Late         bool         `json:"late,omitempty"`
	At           policy.Time  `json:"at_us,omitempty"`
	Participants []policy.ID  `json:"participants,omitempty"`
	Missing      []policy.ID  `json:"missing,omitempty"`
	Zero         []policy.ID  `json:"zero,omitempty"` // participants that contribute zeros
	IDs          []policy.ID  `json:"ids,omitempty"`
	// Op is the inject of a link.
	Op     string  `json:"op,omitempty"`
	From   string  `json:"from,omitempty"`
	To     string  `json:"to,omitempty"`
	Factor float64 `json:"factor,omitempty"`
	// Cause is how a process ended unexpectedly, or why a run ended whose policy
	// did not answer.
	Cause string `json:"cause,omitempty"`
	// ReduceScatter is the part of a worker's Duration until it had its own chunk.
	// The rest is the all-gather.
	ReduceScatter policy.Time `json:"reduce_scatter_us,omitempty"`
	// BytesSent is the number of bytes that a worker, or all participants
	// together, wrote to the ring's streams. BytesReceived is the number that a
	// worker read from them.
	BytesSent     int64 `json:"bytes_sent,omitempty"`
	BytesReceived int64 `json:"bytes_received,omitempty"`
	// Hash is the hash of the bytes that all participants agree on. Identical
	// reports whether they agree.
	Hash      string `json:"hash,omitempty"`
	Identical *bool  `json:"identical,omitempty"`
	Complete  *bool  `json:"complete,omitempty"`
	// Regions has the hashes that each region agrees on, in a round that regions
	// reduce separately. Then there is no Hash.
	Regions []RegionHash `json:"regions,omitempty"`
	// Agreed means, for a fetch, that the fetched state is the last one that all
	// regions agreed on.
	Agreed bool `json:"agreed,omitempty"`
	// ClockError bounds the error of T in events that a worker has timed.
	ClockError policy.Time `json:"clock_error_us,omitempty"`
	// Loss depends on the event. For State and Validated it is the loss on
	// held-out data; for Step, the loss on the training batch before the step. For
	// the stand-in, it is the mean squared distance of the outer parameters from
	// the optimum.
	Loss *float64 `json:"loss,omitempty"`
	// Contribution describes a worker's contribution, for Contributed.
	Contribution *Contribution  `json:"contribution,omitempty"`
	Ring         *Ring          `json:"ring,omitempty"`
	Run          *Run           `json:"run,omitempty"`
	Reason       *policy.Reason `json:"reason,omitempty"`
}

// Worker returns the worker that the event is about; for an event about the run as a
// whole it is -1, and ok is false.
func (e *Event) Worker() (id policy.ID, ok bool) { return policy.ParseNode(e.Node) }

// Run describes the run. It comes with the run's first event.
type Run struct {
	Schema    int     `json:"schema"`
	Scenario  string  `json:"scenario"`
	Policy    string  `json:"policy"`
	World     string  `json:"world"` // sim, real or replay
	Links     string  `json:"links"` // user, htb or netem; simulated: none or plan
	Seed      uint64  `json:"seed"`
	TimeScale float64 `json:"time_scale"`
	Dilation  float64 `json:"dilation,omitempty"` // of real runs
}

// Contribution describes a worker's contribution to a reduction: a
// pseudo-gradient, with whatever the worker added to it.
type Contribution struct {
	Norm float64 `json:"norm"`
	// Cosine is the cosine of its angle to the outcome of the reduction.
	Cosine float64 `json:"cosine"`
	// QuantisationError is the norm of the error of quantising the contribution,
	// divided by the contribution's norm. Layers has the same ratio for each
	// layer, if requested.
	QuantisationError float64      `json:"quantisation_error"`
	Layers            []LayerError `json:"layers,omitempty"`
}

// LayerError is the QuantisationError of a layer.
type LayerError struct {
	Name  string  `json:"name"`
	Error float64 `json:"error"`
}

// Ring is an optimised order of a ring, and its expected gain.
type Ring struct {
	Order []policy.ID `json:"order"`
	// Latency is the longest way of a chunk, by the one-way delays known before
	// the run. NaiveLatency is the longest way in a ring ordered by ID.
	Latency      policy.Time `json:"latency_us"`
	NaiveLatency policy.Time `json:"naive_latency_us"`
	// RateMbit is the rate of the slowest hop in Mbit/s as links count it, by the
	// rates known before the run. NaiveRateMbit is the rate of the slowest hop in
	// a ring ordered by ID. Zero: the ring is not ordered by rates, or no rate is
	// limited.
	RateMbit      float64 `json:"rate_mbit,omitempty"`
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
		e.Type, e.Round, e.Epoch, e.Lineage, e.Participants, e.Zero = ReduceStart, a.Round, a.Epoch, a.Lineage, a.Participants, a.Zero
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
