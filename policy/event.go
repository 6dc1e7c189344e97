package policy

// Event is something that happened, as the coordinator learns of it.
type Event interface{ event() }

type (
	// Join is a worker that asks to become a member. HasState says that it
	// already holds the outer state, as the workers that start a run do.
	// Incarnation numbers the processes of the worker: 0 is the first. All other
	// events are of the last one that has asked; whoever tells them drops what is
	// still under way from one before it. Of a state, OuterSteps are those that it
	// has.
	Join struct {
		ID          ID
		HasState    bool
		OuterSteps  int
		Incarnation int
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
		Epoch Epoch
	}
	// ReduceFailed says that a participant gave a reduction up by itself. Peer is the
	// worker at which it showed, if known; Alone that its own part is done, so that
	// the others can end theirs.
	ReduceFailed struct {
		ID    ID
		Round int
		Epoch Epoch
		Peer  *ID
		Alone bool
	}
	// Progress is a Heartbeat of a worker that reduces. Received is what it has
	// got from its peers so far, in this and earlier reductions, in a unit of its
	// own; From is the worker that it receives from, or itself if none can be named. Due
	// is how many frames of this reduction it has still to receive, where it tells: From is
	// then the worker that owes most of them.
	Progress struct {
		ID       ID
		Epoch    Epoch
		Received int64
		From     ID
		Due      int64
	}
	// Lost says that a worker has gone without leaving, and how that is known:
	// RuleGaveUp if it said so, RuleConnection if its control connection was closed.
	Lost struct {
		ID   ID
		Rule Rule
	}
	// Unreachable says that, according to the network, nobody listens at the
	// worker's address. Anybody can forge such a message, and so only a worker
	// that has missed a heartbeat too is evicted.
	Unreachable struct{ ID ID }
	// StateFetched says that a worker now holds the outer state after the
	// given number of outer steps: Agreed as its Fetch was.
	StateFetched struct {
		ID         ID
		OuterSteps int
		Agreed     bool
	}
	// FetchFailed says that a worker could not get the state from its donor.
	FetchFailed struct{ ID ID }
	// Timer is the wake-up that a WakeAt action asked for.
	Timer struct{}
	// Recovered says that the coordinator was away and is back. It has missed
	// heartbeats and arrivals meanwhile, and so nobody is late or silent until
	// every member has given a heartbeat again. It was away for Away. Forgets says
	// that it has lost what it can do without, as torchft's lighthouse does.
	Recovered struct {
		Forgets bool
		Away    Time
	}
	// Restarted says that everything had ended and begins anew from a
	// checkpoint: the outer state after OuterSteps outer steps, which the
	// Holders hold and no other member does. Whatever came later is undone,
	// but for the membership.
	Restarted struct {
		OuterSteps int
		Holders    []ID
	}
)

func (Join) event()         {}
func (Leave) event()        {}
func (Heartbeat) event()    {}
func (Arrival) event()      {}
func (Reduced) event()      {}
func (ReduceFailed) event() {}
func (Progress) event()     {}
func (Lost) event()         {}
func (Unreachable) event()  {}
func (StateFetched) event() {}
func (FetchFailed) event()  {}
func (Timer) event()        {}
func (Recovered) event()    {}
func (Restarted) event()    {}
