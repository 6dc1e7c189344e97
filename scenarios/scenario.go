// Package scenarios is the scenario language: the types of a scenario, its file
// format, and the embedded library. It does not depend on the players of
// scenarios.
//
// A scenario is JSON or YAML. The top level has exactly the shape of churn's
// scenario files; the additions of this project are in the sections `policy`,
// `real` and `work`, and in `description`.
package scenarios

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"testbed/allreduce/reduction"
	"testbed/allreduce/ringorder"
	"testbed/policy"
	"testbed/policy/timescale"
	"testbed/scenarios/faults"
	"testbed/shaping"
	"testbed/train"
	"testbed/train/task"
	"testbed/train/work"
)

// Scenario is one run: the workers, what happens to them, and the rules. Times
// are scenario time in microseconds, or have a unit, such as 30ms.
type Scenario struct {
	// The name of the scenario, without a slash. Records and reports are named after
	// it. If absent, it is the file's name without its ending.
	Name string `yaml:"name" json:"name,omitempty"`
	// One line that says what the scenario shows. `testbed list` prints it.
	Description string `yaml:"description" json:"description,omitempty"`

	// The seed fixes the variation of inner steps, the initial model, the data of each
	// worker, and the links' loss and jitter.
	Seed uint64 `yaml:"seed" json:"seed" need:"yes"`
	// The workers of the run. Entries with `ids` stand for many workers.
	Workers []Worker `yaml:"workers" json:"workers" need:"yes"`
	// Faults and changes that happen to workers and to the coordinator.
	Injects []faults.Inject `yaml:"injects" json:"injects"`
	// Inner steps that each worker takes per round.
	InnerSteps int `yaml:"inner_steps" json:"inner_steps" need:"yes"`
	// The number of rounds, and so of outer steps, in a complete run.
	TargetOuterSteps int `yaml:"target_outer_steps" json:"target_outer_steps" need:"yes"`
	// The time at which an incomplete run ends. Joins and injects after it are refused.
	Horizon policy.Time `yaml:"horizon" json:"horizon" need:"yes"`
	// The time between a worker's heartbeats to the coordinator.
	HeartbeatPeriod policy.Time `yaml:"heartbeat_period" json:"heartbeat_period" need:"yes"`
	// A member silent for `heartbeat_period` × `heartbeat_miss_threshold` is evicted.
	HeartbeatMissThreshold int `yaml:"heartbeat_miss_threshold" json:"heartbeat_miss_threshold" need:"yes"`
	// The one-way latency of a message. On a real network, the default `one_way_delay`
	// of paths is `base_latency` × `time_scale`.
	BaseLatency policy.Time `yaml:"base_latency" json:"base_latency" need:"yes"`
	// The bandwidth of transfers in the simulator, in bytes per microsecond or as a rate
	// such as 1gbit. Real runs ignore it.
	BandwidthBpus int64 `yaml:"bandwidth_bpus" json:"bandwidth_bpus" need:"yes" unit:"B/µs"`
	// The size of the outer state in the simulator, in bytes or as a size such as 64MiB.
	// Real runs ignore it.
	StateBytes int64 `yaml:"state_bytes" json:"state_bytes" need:"yes" unit:"B"`

	// When a round closes, which workers may return, and when joiners contribute. Each
	// policy's parameters are in a section of its name.
	Policy Policies `yaml:"policy" json:"policy"`
	// How the scenario is played on a real network.
	Real Real `yaml:"real" json:"real"`
	// How long inner steps take. Without `work`, only `inner_step_jitter` varies them.
	Work *work.Spec `yaml:"work" json:"work,omitempty"`
	// What the workers train. Without it, they train the stand-in `quadratic`.
	Train *task.Spec `yaml:"train" json:"train,omitempty"`

	// Traces are the texts of the files that Real.Injects, Work and Train name, so that
	// a record can keep them.
	Traces map[string][]byte `yaml:"-" json:"-"`
}

// Worker is one training process.
type Worker struct {
	// The worker's number. Worker 3 is node w3. Give `id` or `ids`.
	ID policy.ID `yaml:"id" json:"id" need:"or ids"`
	// In place of `id`, for many equal workers: a range such as 0-999, or several such as
	// 0-9,20-29.
	IDs string `yaml:"ids" json:"ids,omitempty"`
	// The time at which the worker joins. Workers with the earliest time start the run
	// with its initial state. Others fetch the state when they join.
	JoinAt policy.Time `yaml:"join_at" json:"join_at"`
	// The mean duration of an inner step.
	InnerStepMean policy.Time `yaml:"inner_step_mean" json:"inner_step_mean" need:"yes"`
	// An inner step takes `inner_step_mean` ± this time, uniformly distributed, unless
	// `work` sets another distribution. It is at most the mean.
	InnerStepJitter policy.Time `yaml:"inner_step_jitter" json:"inner_step_jitter"`
	// Under torchft only: the number of outer steps that the worker claims to have taken,
	// below `target_outer_steps`. Whenever it joins, the worker has the initial state.
	InitialStep int `yaml:"initial_step" json:"initial_step,omitempty"`
	// Under torchft only: the number of the lighthouse that the worker asks. Two
	// lighthouses can split a run.
	Lighthouse int `yaml:"lighthouse" json:"lighthouse,omitempty"`
}

// Real says how the scenario is played on a real network.
type Real struct {
	// Real time divided by scenario time.
	TimeScale float64 `yaml:"time_scale" json:"time_scale"`
	// The factor by which a real run is slower by the machine's clock, to carry the load
	// of a faster machine. Links, heartbeats, deadlines and inner steps all slow down, so
	// results stay those of an undilated run.
	Dilation float64 `yaml:"dilation" json:"dilation,omitempty"`
	// With `planned`, inner steps take as long as the scenario says. With `measured`,
	// they take their computing time × the worker's planned duration ÷ the median
	// worker's `inner_step_mean`. Both include `work` and `Slow`. The default is
	// `measured` for the task `program`, otherwise `planned`.
	Compute string `yaml:"compute" json:"compute,omitempty"`
	// The length of the model's float32 vector, over all ranks of a replica group. The
	// state is twice as long, because of momentum. If absent and `train` has a model, it
	// is the model's. Real runs take at most 2³⁰.
	Parameters int `yaml:"parameters" json:"parameters"`
	// The least real time from a round's first arrival to a deadline that follows from
	// arrivals. Arrivals closer together say more about the shared machine than about a
	// worker. The default is 50ms plus 10ms per worker.
	MinSlack shaping.Duration `yaml:"min_slack" json:"min_slack"`
	// The real time after which a reduction in which no worker receives anything counts
	// as stalled. The default is the largest of `heartbeat_period` ×
	// `heartbeat_miss_threshold`, 2s and, for any two nodes, 8 round trips plus 4 times
	// the full queues on the way.
	StallTimeout shaping.Duration `yaml:"stall_timeout" json:"stall_timeout,omitzero"`
	// The coordinator pings silent members and acts on ICMP errors, so that a crash is
	// noticed in about one heartbeat period. Without it, crashes are silent.
	HeedUnreachable bool `yaml:"heed_unreachable" json:"heed_unreachable,omitempty"`
	// The number of outer steps between checkpoints. 0 means no checkpoints.
	CheckpointEvery int `yaml:"checkpoint_every" json:"checkpoint_every"`
	// Outer states sent to a store on the network.
	Upload train.UploadSpec `yaml:"upload" json:"upload,omitzero"`
	// The kernel's name for the congestion control of TCP connections in the nodes. It
	// affects users' programs, stacks and rivals of the ring, but not workers, which
	// use QUIC. The default applies if the kernel allows nodes to choose.
	TCP string `yaml:"tcp" json:"tcp,omitempty"`
	// The properties of the network's links.
	Links shaping.Spec `yaml:"links" json:"links"`
	// How workers average their pseudo-gradients.
	AllReduce reduction.Spec `yaml:"all_reduce" json:"all_reduce"`
	// Faults and changes of links. The simulator's default network, which has no links,
	// ignores them.
	Injects []faults.LinkInject `yaml:"injects" json:"injects,omitempty"`
}

// Defaults of the real section.
const (
	DefaultTimeScale  = 100
	DefaultParameters = 1_000_000
	// DefaultCheckpointEvery is a few rounds, because a checkpoint is as large
	// as the state.
	DefaultCheckpointEvery = 5
)

// defaultMinSlack grows with the number of workers, because their bursts of
// arithmetic queue for the same processors.
func defaultMinSlack(workers int) shaping.Duration {
	return shaping.Duration(50*time.Millisecond + time.Duration(workers)*10*time.Millisecond)
}

// minStallTimeout is longer than QUIC pauses for several losses in a row.
const minStallTimeout = 2 * time.Second

// FirstJoin returns the time at which the first workers join. They start the
// run and hold its initial state; later workers have to fetch it.
func (s *Scenario) FirstJoin() policy.Time {
	return slices.MinFunc(s.Workers, func(a, b Worker) int { return cmp.Compare(a.JoinAt, b.JoinAt) }).JoinAt
}

// StallTimeout returns the real time without progress after which a reduction
// counts as stalled, whatever the links.
func (s *Scenario) StallTimeout() time.Duration {
	if t := s.Real.StallTimeout; t > 0 {
		return time.Duration(t)
	}
	window := float64(s.HeartbeatPeriod) * float64(s.HeartbeatMissThreshold)
	return max(minStallTimeout, s.RealDuration(policy.Time(min(window, 1e15))))
}

// patience is the patience of the plan, or of the plan as injects change it,
// whichever is longer.
func (s *Scenario) patience(plan *shaping.Plan) time.Duration {
	longest := plan.Patience()
	schedule := s.Faults()
	for _, in := range s.Real.Injects {
		if in.Op != faults.Link {
			continue // a cut is a fault, and a trace carries the vector at its average rate
		}
		if changed, err := shaping.Compose(plan, schedule.At(s.RealDuration(in.At))); err == nil { // otherwise the scenario is not valid
			longest = max(longest, changed.Patience())
		}
	}
	return longest
}

// Worker returns the worker with this id.
func (s *Scenario) Worker(id policy.ID) (Worker, bool) {
	i := slices.IndexFunc(s.Workers, func(w Worker) bool { return w.ID == id })
	if i < 0 {
		return Worker{}, false
	}
	return s.Workers[i], true
}

// Nodes returns the names of all nodes: the coordinator, the workers, and the
// store where there are uploads.
func (s *Scenario) Nodes() []string {
	nodes := append([]string{policy.CoordinatorNode}, s.WorkerNodes()...)
	if s.Real.Upload.Every > 0 {
		nodes = append(nodes, train.StoreNode)
	}
	return nodes
}

// WorkerNodes returns the names of the workers' nodes.
func (s *Scenario) WorkerNodes() (nodes []string) {
	for _, w := range s.Workers {
		nodes = append(nodes, w.ID.Node())
	}
	return nodes
}

// Groups are the numbers of the workers' groups of links; -1 for workers in no
// group.
func (s *Scenario) Groups(workers []policy.ID) []int {
	nodes := s.Nodes()
	of := s.Real.Links.GroupOf(nodes)
	names := slices.Sorted(maps.Keys(s.Real.Links.Groups))
	groups := make([]int, len(workers))
	for k, id := range workers {
		groups[k] = slices.Index(names, of[slices.Index(nodes, id.Node())])
	}
	return groups
}

// Scale relates the times of the scenario, of the real network, and of the machine's
// clock.
func (s *Scenario) Scale() timescale.Scale {
	return timescale.Scale{TimeScale: s.Real.TimeScale, Dilation: s.Real.Dilation}
}

// RealDuration converts scenario time to real time.
func (s *Scenario) RealDuration(t policy.Time) time.Duration { return s.Scale().RealDuration(t) }

// ScenarioTime converts real time to scenario time.
func (s *Scenario) ScenarioTime(d time.Duration) policy.Time { return s.Scale().ScenarioTime(d) }

// Slowdown is the dilation, at least 1.
func (s *Scenario) Slowdown() float64 { return s.Scale().Slowdown() }

// Faults are the changes of links, with their times.
func (s *Scenario) Faults() *faults.Schedule {
	return &faults.Schedule{Scale: s.Scale(), Nodes: s.Nodes(), Injects: s.Injects, Links: s.Real.Injects}
}

// Plan resolves the links of the scenario.
func (s *Scenario) Plan() (*shaping.Plan, error) {
	plan, err := shaping.NewPlan(s.Real.Links, s.Nodes(), s.RealDuration(s.BaseLatency), s.Seed)
	if err == nil {
		plan.TCP = s.Real.TCP
	}
	return plan, err
}

// Ways are the delays and rates by which rings are ordered, from the scenario's
// plan, before anything is measured.
func (s *Scenario) Ways(plan *shaping.Plan) ringorder.Ways {
	return ringorder.Planned(s.Real.AllReduce, s.IDs(), plan)
}
