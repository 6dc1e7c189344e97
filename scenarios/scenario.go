// Package scenarios is the scenario language: what a run is, how it is read
// from a file, and the embedded library. It does not know who plays a scenario.
//
// A scenario is JSON or YAML. The top level has exactly the shape of churn's
// scenario files; what this project adds lives in the sections `policy`, `real`
// and `work`, and in `description`.
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
	// Name is, where the file has none, the file's base name without its ending.
	Name        string `yaml:"name" json:"name,omitempty"`
	Description string `yaml:"description" json:"description,omitempty"`

	Seed             uint64          `yaml:"seed" json:"seed" need:"yes"`
	Workers          []Worker        `yaml:"workers" json:"workers" need:"yes"`
	Injects          []faults.Inject `yaml:"injects" json:"injects"`
	InnerSteps       int             `yaml:"inner_steps" json:"inner_steps" need:"yes"`
	TargetOuterSteps int             `yaml:"target_outer_steps" json:"target_outer_steps" need:"yes"`
	Horizon          policy.Time     `yaml:"horizon" json:"horizon" need:"yes"`
	// A member silent for HeartbeatPeriod × HeartbeatMissThreshold is evicted.
	HeartbeatPeriod        policy.Time `yaml:"heartbeat_period" json:"heartbeat_period" need:"yes"`
	HeartbeatMissThreshold int         `yaml:"heartbeat_miss_threshold" json:"heartbeat_miss_threshold" need:"yes"`
	// BaseLatency is the one-way latency of a message.
	BaseLatency policy.Time `yaml:"base_latency" json:"base_latency" need:"yes"`
	// BandwidthBpus is in bytes per microsecond, or a rate such as 1gbit.
	BandwidthBpus int64 `yaml:"bandwidth_bpus" json:"bandwidth_bpus" need:"yes" unit:"B/µs"`
	// StateBytes is the size of the outer state in bytes, or a size such as 64MiB.
	StateBytes int64 `yaml:"state_bytes" json:"state_bytes" need:"yes" unit:"B"`

	Policy Policies `yaml:"policy" json:"policy"`
	Real   Real     `yaml:"real" json:"real"`
	// Work says how long inner steps take beyond what Workers say. If it is nil
	// they vary by InnerStepJitter alone.
	Work *work.Spec `yaml:"work" json:"work,omitempty"`
	// Train says what is trained. If it is nil that is a stand-in.
	Train *task.Spec `yaml:"train" json:"train,omitempty"`

	// Traces are the texts of the files that Real.Injects, Work and Train name, so that
	// a record can keep them.
	Traces map[string][]byte `yaml:"-" json:"-"`
}

// Worker is one training process.
type Worker struct {
	ID policy.ID `yaml:"id" json:"id" need:"or ids"`
	// IDs stands in a file in place of ID, for an entry that is that of many workers: a
	// range such as 0-999, or several as 0-9,20-29. It is empty in what was read.
	IDs    string      `yaml:"ids" json:"ids,omitempty"`
	JoinAt policy.Time `yaml:"join_at" json:"join_at"`
	// An inner step takes InnerStepMean ± InnerStepJitter, uniformly, if Work
	// says nothing else.
	InnerStepMean   policy.Time `yaml:"inner_step_mean" json:"inner_step_mean" need:"yes"`
	InnerStepJitter policy.Time `yaml:"inner_step_jitter" json:"inner_step_jitter"`
	// InitialStep is how many outer steps its first process says to have taken, which
	// holds the initial state. It takes a policy in which workers have their own.
	InitialStep int `yaml:"initial_step" json:"initial_step,omitempty"`
	// Lighthouse is the number of the one that it asks, where there are several.
	Lighthouse int `yaml:"lighthouse" json:"lighthouse,omitempty"`
}

// Real says how the scenario is played on a real network.
type Real struct {
	// TimeScale is real time divided by scenario time.
	TimeScale float64 `yaml:"time_scale" json:"time_scale"`
	// Dilation is by how much everything on the real network takes longer by the
	// machine's clock than real time says: links, heartbeats, deadlines, inner
	// steps. At least 1, which it is if not given; results stay those of an
	// undilated run, on a machine that is so many times as fast.
	Dilation float64 `yaml:"dilation" json:"dilation,omitempty"`
	// Compute says how long inner steps take.
	Compute string `yaml:"compute" json:"compute,omitempty"`
	// Parameters is the length of the model's float32 vector. Where Train has a
	// model, it is that one's.
	Parameters int `yaml:"parameters" json:"parameters"`
	// MinSlack is a floor, in real time, under the deadlines that policies
	// derive from arrivals: arrivals closer together than this say more about the machine
	// that all workers share than about a worker. If not given it is 50 ms and
	// 10 ms per worker.
	MinSlack shaping.Duration `yaml:"min_slack" json:"min_slack"`
	// StallTimeout is the real time after which a reduction in which nobody
	// receives anything has stalled. Zero: HeartbeatPeriod ×
	// HeartbeatMissThreshold, and at least two seconds, and eight of the slowest
	// round trips with four times the queues on their way.
	StallTimeout shaping.Duration `yaml:"stall_timeout" json:"stall_timeout,omitzero"`
	// HeedUnreachable has the coordinator ping who is silent and act on the
	// ICMP error that nobody listens there any more, so that a crash is
	// noticed in about a heartbeat period. Without it a crash is as silent as
	// in the simulator, and as one that takes the machine along.
	HeedUnreachable bool `yaml:"heed_unreachable" json:"heed_unreachable,omitempty"`
	// CheckpointEvery is the number of outer steps from one checkpoint to the
	// next; 0 is none.
	CheckpointEvery int `yaml:"checkpoint_every" json:"checkpoint_every"`
	// Upload has outer states sent to a store on the network.
	Upload train.UploadSpec `yaml:"upload" json:"upload,omitzero"`
	// TCP is the congestion control of TCP connections in the nodes, as the
	// kernel names it: that of the user's programs, and of what benchmarks put
	// beside the ring. Workers speak QUIC. Empty: shaping.DefaultTCP.
	TCP   string       `yaml:"tcp" json:"tcp,omitempty"`
	Links shaping.Spec `yaml:"links" json:"links"`
	// AllReduce says how pseudo-gradients are averaged.
	AllReduce reduction.Spec `yaml:"all_reduce" json:"all_reduce"`
	// Injects are what happens to links. They are here and not beside the
	// injects of workers because a simulator without links has no use for
	// them.
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
// run and hold its initial state; whoever joins later has to fetch it.
func (s *Scenario) FirstJoin() policy.Time {
	return slices.MinFunc(s.Workers, func(a, b Worker) int { return cmp.Compare(a.JoinAt, b.JoinAt) }).JoinAt
}

// StallTimeout returns the real time after which a reduction stalls, whatever
// the links.
func (s *Scenario) StallTimeout() time.Duration {
	if t := s.Real.StallTimeout; t > 0 {
		return time.Duration(t)
	}
	window := float64(s.HeartbeatPeriod) * float64(s.HeartbeatMissThreshold)
	return max(minStallTimeout, s.RealDuration(policy.Time(min(window, 1e15))))
}

// patience is the plan's, and that of what injects make of it.
func (s *Scenario) patience(plan *shaping.Plan) time.Duration {
	longest := plan.Patience()
	schedule := s.Faults()
	for _, in := range s.Real.Injects {
		if in.Op != faults.Link {
			continue // a cut is a fault, and a trace's average carries the vector
		}
		if changed, err := shaping.Compose(plan, schedule.At(s.RealDuration(in.At))); err == nil { // else it is no valid scenario
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

// Groups are the groups of the links in which workers are, by number; workers
// in none have the number -1.
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

// Faults are what happens to links, and when.
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

// Ways are what rings are ordered by, as the scenario's plan knows it before
// anything is measured.
func (s *Scenario) Ways(plan *shaping.Plan) ringorder.Ways {
	return ringorder.Planned(s.Real.AllReduce, s.IDs(), plan)
}
