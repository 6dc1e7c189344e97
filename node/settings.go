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

// CoordinatorSettings are a run's settings for the coordinator: plain values,
// which are sent to its process. Times are scenario time in microseconds.
type CoordinatorSettings struct {
	Scenario   string // its name, for the record
	PolicyName string // as the user named the policy, for the record
	Seed       uint64
	timescale.Scale
	Policy  policy.Config
	Workers []resolved.Worker
	Horizon policy.Time
	// HeedUnreachable makes the coordinator ping silent workers, and act on the
	// ICMP error that no process listens there.
	HeedUnreachable bool
	CheckpointEvery int // outer steps from one checkpoint to the next; 0: none
	// Residuals reports that workers keep state of their own besides the outer
	// state.
	Residuals bool
	Learns    bool // a model is trained rather than the stand-in
	// Patience is as in resolved.Scenario.
	Patience time.Duration
}

// patient converts a real time, at least links, to the machine's clock.
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

// FirstJoin is when the workers that start the run join.
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

// WorkerSettings are a run's settings for a worker: plain values, which are
// sent to its process. Times are scenario time in microseconds.
type WorkerSettings struct {
	resolved.Worker
	Incarnation int // number of the process, from 0
	Seed        uint64
	timescale.Scale
	HeartbeatPeriod policy.Time
	InnerSteps      int // of a round

	// Workers are all workers of the run, and Groups their groups of links.
	Workers   []policy.ID
	Groups    []int
	Grouping  *policy.Grouping // which workers reduce together
	Reduction reduction.Spec

	Work *work.Spec // nil: inner steps vary by Jitter alone
	// Measured makes inner steps take as long as computing takes, times the
	// worker's planned duration over Typical, that of a typical worker.
	Measured bool
	Typical  policy.Time

	Train           *task.Spec // nil: a stand-in is trained
	Parameters      int        // length of the model's float32 vector
	StalenessWeight float64    // of late pseudo-gradients, 0 to 1
	CheckpointEvery int        // outer steps from one checkpoint to the next; 0: none
	// Patience is as in resolved.Scenario.
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

// keeps reports whether the worker has state of its own besides the outer state
// that all share.
func (s *WorkerSettings) keeps() bool {
	return s.Reduction.Feedback() || s.Train.Real() || !s.Train.Exchange(s.InnerSteps, s.Parameters).Plain()
}
