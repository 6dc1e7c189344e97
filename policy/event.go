package policy

// Event is something that happened, at the time when the coordinator learns of
// it.
type Event interface{ event() }

type (
	// Join is a worker's request to become a member. HasState reports that it
	// already holds the outer state after OuterSteps outer steps, as workers do at
	// the start of a run. Incarnation numbers the processes of the worker; 0 is
	// the first. All other events belong to the last incarnation that has asked.
	// The driver drops events of earlier incarnations that are still on their way.
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
	// ReduceFailed says that a participant gave a reduction up by itself. Peer is
	// the worker at which the failure showed, if known. Alone means that its own
	// part is done, so that the others can finish theirs.
	ReduceFailed struct {
		ID    ID
		Round int
		Epoch Epoch
		Peer  *ID
		Alone bool
	}
	// Progress is a Heartbeat of a worker that reduces. Received is the amount
	// that it has received from its peers so far, in this and earlier reductions,
	// in a unit of its own. Due is the number of frames of this reduction that it
	// has still to receive, or 0 if it does not report that. From is the worker
	// that owes most of the frames in Due. Without Due, From is the worker that it
	// receives from, or itself if none can be named.
	Progress struct {
		ID       ID
		Epoch    Epoch
		Received int64
		From     ID
		Due      int64
	}
	// Lost says that a worker has gone without leaving. Its rule is RuleGaveUp if
	// the worker said so, or RuleConnection if its control connection was closed.
	Lost struct {
		ID   ID
		Rule Rule
	}
	// Unreachable says that, according to the network, no process listens at the
	// worker's address. Anybody can forge such a message, so a worker is evicted
	// for it only if it has missed a heartbeat too.
	Unreachable struct{ ID ID }
	// StateFetched says that a worker now holds the outer state after the given
	// number of outer steps. Agreed is copied from its Fetch.
	StateFetched struct {
		ID         ID
		OuterSteps int
		Agreed     bool
	}
	// FetchFailed says that a worker could not get the state from its donor.
	FetchFailed struct{ ID ID }
	// Timer is the wake-up that WakeAt asked for.
	Timer struct{}
	// Recovered says that the coordinator was down, for the time Away, and is
	// back. It has missed heartbeats and arrivals meanwhile. So nobody is late or
	// silent until every member has sent a heartbeat again. Forgets means that it
	// has lost the state that it can do without, as torchft's lighthouse does.
	Recovered struct {
		Forgets bool
		Away    Time
	}
	// Restarted says that everything had ended and begins anew from a checkpoint:
	// the outer state after OuterSteps outer steps, which only the Holders have.
	// Everything later is undone, except the membership.
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
