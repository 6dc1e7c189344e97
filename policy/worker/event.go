package worker

import "testbed/policy"

// Event is something that happens to a worker.
type Event interface{ event() }

// The orders of the coordinator.
type (
	// Start: the worker begins the inner steps of a round from the outer state
	// after OuterSteps outer steps. If it holds the outcome of the last of them,
	// it takes the outer step first.
	Start struct {
		Round      int
		OuterSteps int
		// Checkpoint tells the worker to save the state that it begins from. Residual
		// tells it to save its own part too: the quantisation's residual, and its
		// optimiser's state.
		Checkpoint, Residual bool
	}
	// Reduce: the worker all-reduces its pseudo-gradient of the round with the
	// workers of the ring, in the ring's order. With Zero it contributes zeros. Its
	// contribution counts Repeats more times than once.
	Reduce struct {
		Round   int
		Epoch   policy.Epoch
		Ring    []policy.ID
		Zero    bool
		Repeats int
	}
	// Abort: the worker drops a reduction, or its outcome, and keeps its
	// contribution. With Confirm it reports the drop.
	Abort struct {
		Epoch   policy.Epoch
		Confirm bool
	}
	// Fetch: the worker gets the outer state after OuterSteps outer steps, or a newer
	// one, from the first of the donors with the help of the others. With Agreed the
	// donors are in other regions, and the state is the last that all regions agreed on.
	// With Whole, the state that the worker holds did not lead there.
	Fetch struct {
		OuterSteps int
		Donors     []policy.ID
		Agreed     bool
		Whole      bool
	}
	// Evict ends its part in the run. With Rejoin it may join again.
	Evict struct{ Rejoin bool }
	// Finish ends the run. If it ends after an outer step, that is OuterSteps.
	Finish struct{ OuterSteps int }
)

// The injects of the scenario.
type (
	// Leave: the worker departs in good order.
	Leave struct{}
	// Preempt announces that the worker will soon be killed. It departs when the
	// outcome of its present round is there, or at once if it works on none.
	Preempt struct{}
	// Slow makes inner steps that begin from now on take Factor times as long.
	// With AtJoin it is due no later than the worker's joining.
	Slow struct {
		Factor float64
		AtJoin bool
	}
	// Restore ends Slow.
	Restore struct{ AtJoin bool }
	// FailReduce fails the reduction that is under way, or else the next one. It
	// fails at once. With Alone it fails when the worker has done its own part and
	// the others can end theirs.
	FailReduce struct{ Alone bool }
)

// The ends of the worker's tasks.
type (
	// StepDone is the end of an inner step.
	StepDone struct{}
	// Reduced says that it holds the outcome of the reduction.
	Reduced struct{}
	// ReduceFailed says that the reduction has failed at a peer, if that is
	// known.
	ReduceFailed struct{ Peer *policy.ID }
	// Fetched says that it holds the outer state after OuterSteps outer steps.
	Fetched struct{ OuterSteps int }
	// FetchFailed says that it did not get the outer state.
	FetchFailed struct{}
)

func (Start) event()        {}
func (Reduce) event()       {}
func (Abort) event()        {}
func (Fetch) event()        {}
func (Evict) event()        {}
func (Finish) event()       {}
func (Leave) event()        {}
func (Preempt) event()      {}
func (Slow) event()         {}
func (Restore) event()      {}
func (FailReduce) event()   {}
func (StepDone) event()     {}
func (Reduced) event()      {}
func (ReduceFailed) event() {}
func (Fetched) event()      {}
func (FetchFailed) event()  {}

// Action is something that the driver of a Machine has to do. The actions are
// pointers to the types below.
type Action interface{ action() }

type (
	// Stop ends the inner step or the fetch under way, and StopReduce ends the
	// reduction. The driver must not report the end of a stopped task. They come
	// before the worker's next action.
	Stop       struct{}
	StopReduce struct{}
	// Apply takes the outer step to this version with the outcome of the last
	// reduction.
	Apply struct{ OuterSteps int }
	// Merge adds the effect of the outer step to the local parameters: before
	// inner step 1 or, where rounds overlap, after Step of the next round.
	Merge struct{ OuterSteps, Step int }
	// Save writes a checkpoint of the outer state and of the worker's own state;
	// with Stateless, of the latter alone.
	Save struct{ Stateless bool }
	// BeginStep begins an inner step, numbered from 1, that takes Factor times as
	// long as usual. The Last step of a round ends with the contribution to it. If
	// Late is not 0, the contribution of round Late, which came too late for its
	// own round, is added.
	BeginStep struct {
		Round, Step int
		Factor      float64
		Last        bool
		Late        int
	}
	// BeginReduce begins an all-reduce of the contribution, which counts Repeats more
	// times than once, or of zeros.
	BeginReduce struct {
		Round   int
		Epoch   policy.Epoch
		Ring    []policy.ID
		Zero    bool
		Repeats int
	}
	// BeginFetch begins to get the outer state after OuterSteps outer steps or a
	// newer one. Current reports that the worker holds a state of the run, though
	// an old one. Then the outcomes of the outer steps since may suffice. Agreed
	// is as in Fetch.
	BeginFetch struct {
		OuterSteps int
		Donors     []policy.ID
		Current    bool
		Agreed     bool
	}
	// Say sends the coordinator an event for its machine. Problem explains a
	// failure that the end of a task does not explain.
	Say struct {
		policy.Event
		Problem string
	}
	// SpeedChanged records that Factor holds for the inner steps to come, because
	// of a Slow or a Restore.
	SpeedChanged struct {
		Factor float64
		Slow   bool
	}
	// Rejoin: the worker joins again. It is as it was at first, except that it
	// keeps the outer state and its speed.
	Rejoin struct{}
	// End ends the worker.
	End struct{ Evicted bool }
	// GiveUp ends a worker that was asked for something impossible.
	GiveUp struct{ Problem string }
)

func (*Stop) action()         {}
func (*StopReduce) action()   {}
func (*Merge) action()        {}
func (*Apply) action()        {}
func (*Save) action()         {}
func (*BeginStep) action()    {}
func (*BeginReduce) action()  {}
func (*BeginFetch) action()   {}
func (*Say) action()          {}
func (*SpeedChanged) action() {}
func (*Rejoin) action()       {}
func (*End) action()          {}
func (*GiveUp) action()       {}
