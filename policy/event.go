package policy

// Event is something that happened, as the coordinator learns of it.
type Event interface{ event() }

type (
	// Join is a worker that asks to become a member. HasState says that it
	// already holds the outer state, as the workers that start a run do.
	Join struct {
		ID       ID
		HasState bool
	}
	// Leave is an orderly departure.
	Leave struct{ ID ID }
	// Heartbeat is a sign of life. Only heartbeats and joins count as one.
	Heartbeat struct{ ID ID }
	// Arrival says that a worker has finished the inner steps of a round.
	Arrival struct {
		ID    ID
		Round int
	}
	// Reduced says that a participant holds the outcome of a reduction.
	Reduced struct {
		ID    ID
		Round int
		Epoch int
	}
	// ReduceFailed says that a participant gave a reduction up by itself.
	ReduceFailed struct {
		ID    ID
		Round int
		Epoch int
	}
	// StateFetched says that a worker now holds the outer state after the
	// given number of outer steps.
	StateFetched struct {
		ID         ID
		OuterSteps int
	}
	// FetchFailed says that a worker could not get the state from its donor.
	FetchFailed struct{ ID ID }
	// Timer is the wake-up that a WakeAt action asked for.
	Timer struct{}
)

func (Join) event()         {}
func (Leave) event()        {}
func (Heartbeat) event()    {}
func (Arrival) event()      {}
func (Reduced) event()      {}
func (ReduceFailed) event() {}
func (StateFetched) event() {}
func (FetchFailed) event()  {}
func (Timer) event()        {}
