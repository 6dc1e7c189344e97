package node

import (
	"slices"
	"time"

	"testbed/allreduce/reduction"
	"testbed/policy"
	"testbed/policy/timescale"
	"testbed/scenarios/resolved"
	"testbed/train/task"
	"testbed/train/work"
)

// CoordinatorSettings are what a coordinator is told of the run: plain values, which
// travel to its process. Times are scenario time in microseconds.
type CoordinatorSettings struct {
	Scenario   string // its name, for the record
	PolicyName string // as the user named the policy, for the record
	Seed       uint64
	timescale.Scale
	Policy  policy.Config
	Workers []resolved.Worker
	Horizon policy.Time
	// HeedUnreachable has the coordinator ping who is silent, and act on the ICMP error
	// that nobody listens there any more.
	HeedUnreachable bool
	CheckpointEvery int // outer steps from one checkpoint to the next; 0: none
	// Residuals says that workers keep more than the outer state that all share.
	Residuals bool
	Learns    bool // a model is trained, not the stand-in
	// Patience is resolved.Scenario's.
	Patience time.Duration
}

// patient is a real time by the machine's clock, where the links allow it.
func patient(d, links time.Duration, scale timescale.Scale) time.Duration {
	return scale.OnClock(max(d, links))
}

// NewCoordinatorSettings returns the settings of a run's coordinator.
func NewCoordinatorSettings(r *resolved.Scenario) CoordinatorSettings {
	return CoordinatorSettings{
		Scenario: r.Name, PolicyName: r.PolicyName, Seed: r.Seed, Scale: r.Scale,
		Policy: r.OnLinks(), Workers: r.Workers, Horizon: r.Horizon,
		HeedUnreachable: r.HeedUnreachable, CheckpointEvery: r.CheckpointEvery,
		Residuals: r.WorkersKeep(), Learns: r.Train.Real(), Patience: r.Patience,
	}
}

// FirstJoin is when the workers join that start the run.
func (s *CoordinatorSettings) FirstJoin() policy.Time {
	return resolved.FirstJoin(s.Workers)
}

// worker returns the worker with this id, the zero Worker if there is none.
func (s *CoordinatorSettings) worker(id policy.ID) (w resolved.Worker) {
	if i := slices.IndexFunc(s.Workers, func(w resolved.Worker) bool { return w.ID == id }); i >= 0 {
		w = s.Workers[i]
	}
	return w
}

// WorkerSettings are what a worker is told of the run: plain values, which travel to
// its process. Times are scenario time in microseconds.
type WorkerSettings struct {
	resolved.Worker
	Incarnation int // of its processes, from 0
	Seed        uint64
	timescale.Scale
	HeartbeatPeriod policy.Time
	InnerSteps      int // of a round

	// Workers are all of the run, and Groups those of the links in which they are.
	Workers   []policy.ID
	Groups    []int
	Grouping  *policy.Grouping // who reduces with whom
	Reduction reduction.Spec

	Work *work.Spec // nil: inner steps vary by Jitter alone
	// Measured has them take as long as computing takes, times what the scenario says of
	// them over Typical, what it says of a typical one.
	Measured bool
	Typical  policy.Time

	Train           *task.Spec // nil: a stand-in is trained
	Parameters      int        // length of the model's float32 vector
	StalenessWeight float64    // of late pseudo-gradients, 0 to 1
	CheckpointEvery int        // outer steps from one checkpoint to the next; 0: none
	// Patience is resolved.Scenario's.
	Patience time.Duration
}

// NewWorkerSettings returns the settings of a process of a worker.
func NewWorkerSettings(r *resolved.Scenario, w resolved.Worker, incarnation int) WorkerSettings {
	return WorkerSettings{
		Worker: w, Incarnation: incarnation, Seed: r.Seed, Scale: r.Scale, HeartbeatPeriod: r.Policy.HeartbeatPeriod, InnerSteps: r.InnerSteps,
		Workers: r.IDs(), Groups: r.LinkGroups, Grouping: r.Grouping, Reduction: r.Reduction,
		Work: r.Work, Measured: r.Measured, Typical: r.TypicalStep(),
		Train: r.Train, Parameters: r.Parameters, StalenessWeight: r.StalenessWeight, CheckpointEvery: r.CheckpointEvery,
		Patience: r.Patience,
	}
}

// keeps reports whether the worker has something beside the outer state that all
// share.
func (s *WorkerSettings) keeps() bool {
	return s.Reduction.Feedback() || s.Train.Real() || !s.Train.Exchange(s.InnerSteps, s.Parameters).Plain()
}
