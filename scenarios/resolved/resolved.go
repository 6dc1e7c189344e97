// Package resolved is a scenario as plain values for nodes, links, reductions
// and simulators, so that none of them depends on the scenario language.
// scenarios.Scenario.Resolve makes them, once for each run.
package resolved

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"testbed/allreduce/reduction"
	"testbed/policy"
	"testbed/policy/timescale"
	"testbed/scenarios/faults"
	"testbed/shaping"
	"testbed/train"
	"testbed/train/task"
	"testbed/train/work"
)

// Scenario is a scenario as every player plays it. Times are scenario time in
// microseconds unless stated otherwise.
type Scenario struct {
	Name string
	Seed uint64
	timescale.Scale

	Workers          []Worker
	InnerSteps       int // of a round
	TargetOuterSteps int
	Horizon          policy.Time

	// PolicyName is the policy as the user names it, NAME[:parameter=value]…, for
	// the record. Empty: no policy is chosen.
	PolicyName string
	// Policy is the configuration of the coordinator's machine on churn's network,
	// where nothing but the scenario disturbs arrivals. OnLinks is the
	// configuration on all other networks.
	Policy policy.Config
	// MinSlack and StallAfter are fields of OnLinks.
	MinSlack, StallAfter policy.Time
	// Patience is the real time for which a healthy exchange may stall on the
	// slowest of the links, even while injects make them slower.
	Patience time.Duration
	// StalenessWeight, 0 to 1, is the weight with which a worker adds a late
	// pseudo-gradient to its next contribution; 0 discards it.
	StalenessWeight float64

	Injects []faults.Inject  // injects of workers and of the coordinator
	Faults  *faults.Schedule // changes of links

	Churn Churn
	Plan  *shaping.Plan // the links; shared, and not changed
	// LinkGroups are the numbers of the workers' groups of links, in the order of
	// Workers; -1 for no group.
	LinkGroups []int
	// HeedUnreachable makes the coordinator act on the ICMP error that no process
	// listens at an address.
	HeedUnreachable bool

	Reduction reduction.Spec
	// Grouping determines which workers reduce together in which round; nil:
	// always all.
	Grouping *policy.Grouping

	Work *work.Spec // nil: inner steps vary by Worker.Jitter alone
	// Measured reports that inner steps take as long as computing takes, for a
	// worker with typical steps.
	Measured bool

	Train      *task.Spec // nil: a stand-in is trained
	Parameters int        // length of the model's float32 vector
	Exchange   *train.Exchange
	// CheckpointEvery is the number of outer steps from one checkpoint to the next; 0:
	// there are none.
	CheckpointEvery int
	Upload          train.UploadSpec
}

// Worker is one of the workers.
type Worker struct {
	ID     policy.ID
	JoinAt policy.Time
	// An inner step takes Mean ± Jitter, uniformly, if Scenario.Work says nothing else.
	Mean, Jitter policy.Time
	// InitialStep is the number of outer steps that its first process claims to
	// have taken.
	InitialStep int
}

// Asks returns the request to join of the worker's first process, in a run that
// begins at a time. A worker that joins at that time holds the initial state.
func (w Worker) Asks(first policy.Time) policy.Join {
	return policy.Join{ID: w.ID, HasState: w.JoinAt == first || w.InitialStep > 0, OuterSteps: w.InitialStep}
}

// Churn is the network model of churn: a message takes BaseLatency, and a state
// fetch or an all-reduce BaseLatency + StateBytes / BandwidthBpus.
type Churn struct {
	BaseLatency   policy.Time
	BandwidthBpus int64 // bytes per microsecond
	StateBytes    int64
}

// TypicalStep is the median of the workers' mean inner steps, or the lower of
// the two middle ones.
func (s *Scenario) TypicalStep() policy.Time {
	means := make([]policy.Time, len(s.Workers))
	for i, w := range s.Workers {
		means[i] = w.Mean
	}
	slices.Sort(means)
	return means[(len(means)-1)/2]
}

// FirstJoin returns the time at which the first workers join. They start the
// run and hold its initial state; later workers have to fetch it.
func (s *Scenario) FirstJoin() policy.Time { return FirstJoin(s.Workers) }

// FirstJoin is the FirstJoin of a scenario with these workers.
func FirstJoin(workers []Worker) policy.Time {
	return slices.MinFunc(workers, func(a, b Worker) int { return cmp.Compare(a.JoinAt, b.JoinAt) }).JoinAt
}

// InitialStep is the most outer steps that any worker claims to have taken when
// it joins.
func (s *Scenario) InitialStep() (most int) {
	for _, w := range s.Workers {
		most = max(most, w.InitialStep)
	}
	return most
}

// Worker returns the worker with this id.
func (s *Scenario) Worker(id policy.ID) (Worker, bool) {
	i := slices.IndexFunc(s.Workers, func(w Worker) bool { return w.ID == id })
	if i < 0 {
		return Worker{}, false
	}
	return s.Workers[i], true
}

// IDs are the workers' ids, in their order.
func (s *Scenario) IDs() []policy.ID {
	ids := make([]policy.ID, len(s.Workers))
	for i, w := range s.Workers {
		ids[i] = w.ID
	}
	return ids
}

// WorkerNodes returns the names of the workers' nodes, in their order.
func (s *Scenario) WorkerNodes() []string {
	names := make([]string, len(s.Workers))
	for i, w := range s.Workers {
		names[i] = w.ID.Node()
	}
	return names
}

// Groups are the numbers of the groups of links of a ring's workers.
func (s *Scenario) Groups(ring []policy.ID) []int { return GroupsOf(ring, s.IDs(), s.LinkGroups) }

// GroupsOf selects the groups of a ring's workers from the groups of all
// workers.
func GroupsOf(ring, workers []policy.ID, groups []int) []int {
	of := make([]int, len(ring))
	for k, id := range ring {
		of[k] = groups[slices.Index(workers, id)]
	}
	return of
}

// OnLinks is Policy for a network of bytes: MinSlack is a floor under deadlines that
// follow from arrivals, and a reduction can stall.
func (s *Scenario) OnLinks() policy.Config {
	cfg := s.Policy
	cfg.MinSlack, cfg.StallAfter = s.MinSlack, s.StallAfter
	return cfg
}

// WorkersKeep reports whether workers have state of their own besides the outer
// state that all share: the quantisation's residual, the optimiser's state, or
// local parameters.
func (s *Scenario) WorkersKeep() bool {
	return s.Reduction.Feedback() || s.Train.Real() || !s.Exchange.Plain()
}

// Sampler draws the durations of a worker's inner steps; see work.Spec.Sampler.
func (s *Scenario) Sampler(w Worker, incarnation int, shared *rand.Rand) work.Sampler {
	return s.Work.Sampler(s.Seed, w.ID, w.Mean, w.Jitter, incarnation, shared)
}
