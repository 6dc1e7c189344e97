package bench

import (
	"fmt"
	"time"

	"testbed/allreduce"
	"testbed/internal/errs"
	"testbed/shaping"
)

// Links are the links of a benchmark's network. Unless they are a scenario's,
// those of all workers are alike, except for the way to another group.
type Links struct {
	Rate        shaping.Rate     `json:"rate"` // up and down, of every worker
	Queue       shaping.Queue    `json:"queue"`
	OneWayDelay shaping.Duration `json:"one_way_delay"`
	// GroupDelay replaces OneWayDelay between groups, if there are several and it
	// is not 0.
	GroupDelay shaping.Duration    `json:"group_one_way_delay"`
	Jitter     shaping.Duration    `json:"jitter"`
	Loss       shaping.Probability `json:"loss"`
	// Backend is the link backend: bridge, netem or user.
	Backend string `json:"backend"`
	// Hosts are the hosts of the nodes, if there are several.
	Hosts []Host `json:"hosts,omitempty"`
	// TCP are the congestion controls under which rivals were measured, separated
	// by commas.
	TCP string `json:"tcp,omitempty"`
	// Scenario is the scenario whose links these are, if any. Then only Backend,
	// Hosts, TCP and SlowestRate are set besides. SlowestRate is the least of its
	// workers' rates, up and down, 0 if all are unlimited.
	Scenario    string       `json:"scenario,omitempty"`
	SlowestRate shaping.Rate `json:"slowest_rate,omitzero"`
}

// Host is one of several.
type Host struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
}

// boundRate is the rate of the slowest link.
func (l *Links) boundRate() int64 {
	if l.Scenario != "" {
		return int64(l.SlowestRate)
	}
	return int64(l.Rate)
}

// SlowestRate is the least rate of the nodes' access links, up and down, 0 if
// all are unlimited. The nodes must be in the plan.
func SlowestRate(plan *shaping.Plan, nodes []string) (slowest shaping.Rate) {
	for _, name := range nodes {
		n := plan.Nodes[plan.Index(name)]
		for _, rate := range []shaping.Rate{n.RateUp, n.RateDown} {
			if rate > 0 && (slowest == 0 || rate < slowest) {
				slowest = rate
			}
		}
	}
	return slowest
}

// Spec converts the links to a scenario's section, for nodes in these groups.
func (l *Links) Spec(nodes []string, groups []int) shaping.Spec {
	spec := shaping.Spec{Default: shaping.Properties{
		Access: shaping.Access{RateUp: &l.Rate, RateDown: &l.Rate, Queue: &l.Queue},
		Path:   shaping.Path{OneWayDelay: &l.OneWayDelay, Jitter: &l.Jitter, Loss: &l.Loss},
	}}
	if l.GroupDelay == 0 {
		return spec
	}
	spec.Groups = make(map[string]shaping.Group)
	name := func(group int) string { return fmt.Sprintf("group%d", group) }
	for k, node := range nodes {
		members := spec.Groups[name(groups[k])].Nodes
		spec.Groups[name(groups[k])] = shaping.Group{Nodes: append(members, node)}
	}
	for a := range len(spec.Groups) {
		for b := range a {
			spec.Paths = append(spec.Paths, shaping.GroupPath{
				Between: []string{name(a), name(b)}, Path: shaping.Path{OneWayDelay: &l.GroupDelay},
			})
		}
	}
	return spec
}

// Ring is the result of a benchmark of the all-reduce. docs/bench.md defines
// every field.
type Ring struct {
	Settings
	Links   Links   `json:"links"`
	Machine Machine `json:"machine"`

	Seconds       []float64 `json:"seconds"`
	SecondsMedian float64   `json:"seconds_median"`
	Spread        float64   `json:"spread"`
	// BoundSeconds and RatioToBound are absent if the rate is unlimited.
	BoundSeconds *float64 `json:"bound_seconds,omitempty"`
	RatioToBound *float64 `json:"ratio_to_bound,omitempty"`
	// BusyLink is the link that was farthest from its rate while packets waited,
	// and BusyShare the share of the rate that it carried. Both are absent if no
	// link was busy long enough.
	BusyLink     string  `json:"busy_link,omitempty"`
	BusyShare    float64 `json:"busy_share,omitempty"`
	AlgorithmGBs float64 `json:"algorithm_gb_per_s"`
	BusGBs       float64 `json:"bus_gb_per_s"`

	// Ordered is absent if the order is naive.
	Ordered *Ordered `json:"ordered,omitempty"`

	Phases           Phases  `json:"phases"`
	FrameBytes       int64   `json:"frame_bytes"`
	BytesOnWire      int64   `json:"bytes_on_wire"`
	ConnectionsUsed  int     `json:"connections_used"`
	CodedShare       float64 `json:"coded_share"` // of the ranks' reductions
	CPUSeconds       float64 `json:"cpu_seconds"`
	RouterCPUSeconds float64 `json:"router_cpu_seconds"`
	// MemoryBytes is absent if the kernel does not report memory.
	MemoryBytes   *int64  `json:"memory_bytes,omitempty"`
	MemoryRatio   float64 `json:"memory_ratio,omitempty"`
	RelativeError float64 `json:"relative_error"`
	// AveragedError is that of the mean of all reductions, warm-ups included,
	// which all have the same exact result.
	AveragedError float64 `json:"averaged_error"`
	BitIdentical  bool    `json:"bit_identical"`

	Ranks   []Rank   `json:"ranks"`
	Notes   []string `json:"notes"`
	Against []Rival  `json:"against,omitempty"`
}

// Ordered is an optimised order of the ring, and its gain.
type Ordered struct {
	Ring []int `json:"ring"` // the ranks in order
	// LatencySeconds is the longest way of a chunk by the planned one-way
	// delays, and NaiveLatencySeconds the same in the naive order.
	LatencySeconds      float64 `json:"latency_seconds"`
	NaiveLatencySeconds float64 `json:"naive_latency_seconds"`
	// NaiveSeconds are the times of reductions in the naive order, which take
	// turns with the others.
	NaiveSeconds       []float64 `json:"naive_seconds"`
	NaiveSecondsMedian float64   `json:"naive_seconds_median"`
	// A gain is the naive order's time divided by this one's. The prediction is
	// the bound of the wire and the latency.
	PredictedGain float64 `json:"predicted_gain"`
	MeasuredGain  float64 `json:"measured_gain"`
}

// OrderRing finds the order with the shortest ways by one-way delays in
// seconds.
func OrderRing(delays [][]float64) (*Ordered, error) {
	tour, err := allreduce.OrderRing(delays, allreduce.Sum)
	if err != nil {
		return nil, err
	}
	naive := make([]int, len(delays))
	for rank := range naive {
		naive[rank] = rank
	}
	return &Ordered{
		Ring: tour.Order, LatencySeconds: allreduce.RingLatency(delays, tour.Order),
		NaiveLatencySeconds: allreduce.RingLatency(delays, naive),
	}, nil
}

// Gained records an optimised order and the times in the naive one.
func (r *Ring) Gained(o Ordered, naive []float64) {
	bound := 0.0
	if r.BoundSeconds != nil {
		bound = *r.BoundSeconds
	}
	o.NaiveSeconds, o.NaiveSecondsMedian = naive, medianOrZero(naive)
	o.PredictedGain, o.MeasuredGain = 1, o.NaiveSecondsMedian/r.SecondsMedian
	if predicted := bound + o.LatencySeconds; predicted > 0 {
		o.PredictedGain = (bound + o.NaiveLatencySeconds) / predicted
	}
	r.Ordered = &o
}

// Phases are medians over the reductions, for the rank that ended last in each.
type Phases struct {
	StartSeconds         float64 `json:"start_seconds"` // from the common start to its own
	ReduceScatterSeconds float64 `json:"reduce_scatter_seconds"`
	AllGatherSeconds     float64 `json:"all_gather_seconds"`
}

// Rank has medians over the reductions of one rank.
type Rank struct {
	Rank        int     `json:"rank"`
	Seconds     float64 `json:"seconds_median"`
	CPUSeconds  float64 `json:"cpu_seconds"`
	FrameBytes  int64   `json:"frame_bytes"`
	BytesOnWire int64   `json:"bytes_on_wire"`
}

// Rival is another program on the same links. Its measurements take turns with
// the ring's.
type Rival struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Connections, if the rival was measured with several numbers of connections,
	// and Quantisation distinguish its entries, and so does TCP, the congestion
	// control.
	Connections  int       `json:"connections,omitempty"`
	Quantisation string    `json:"quantisation,omitempty"`
	TCP          string    `json:"tcp,omitempty"`
	Seconds      []float64 `json:"seconds,omitempty"`
	// The rest as in Ring. Ratio is the ring's median divided by the rival's:
	// below 1 the ring is faster.
	SecondsMedian float64 `json:"seconds_median,omitempty"`
	Spread        float64 `json:"spread,omitempty"`
	CPUSeconds    float64 `json:"cpu_seconds,omitempty"`
	Ratio         float64 `json:"ratio,omitempty"`
	// RelativeError and BitIdentical are those of the rival's results; absent if
	// it reduces nothing.
	RelativeError *float64 `json:"relative_error,omitempty"`
	BitIdentical  *bool    `json:"bit_identical,omitempty"`
	// Problem explains why there are no figures.
	Problem string `json:"problem,omitempty"`
}

// Label names the rival with what distinguishes it.
func (r *Rival) Label() string {
	label := r.Name
	if r.Connections > 0 {
		label += ", " + errs.Count(r.Connections, "connection")
	}
	switch r.Quantisation {
	case "":
	case "none":
		label += ", float32"
	default:
		label += ", uint8 " + r.Quantisation
	}
	if r.TCP != "" {
		label += ", " + r.TCP
	}
	return label
}

// Measured records a rival's samples.
func (r *Rival) Measured(seconds, cpu []float64, ring float64) {
	r.Seconds, r.SecondsMedian, r.Spread = seconds, medianOrZero(seconds), Spread(seconds)
	r.CPUSeconds = medianOrZero(cpu)
	if r.SecondsMedian > 0 {
		r.Ratio = ring / r.SecondsMedian
	}
}

// Reduced is a worker's part of a reduction as it ended. Times count from the
// common start.
type Reduced struct {
	Began         time.Duration `json:"began_ns"` // delay of the worker's beginning
	ReduceScatter time.Duration `json:"reduce_scatter_ns"`
	Total         time.Duration `json:"total_ns"`
	FrameBytes    int64         `json:"frame_bytes"` // sent, as counted by quicring
	Coded         bool          `json:"coded"`       // codes were shortened
	Connections   int           `json:"connections"` // number of connections used
}

// Checked is a worker's report once all workers have ended.
type Checked struct {
	Hash    string  `json:"hash"`    // of the whole result
	Squares Squares `json:"squares"` // of the rank's shard
	// Averaged is for the mean of all results so far.
	Averaged  Squares       `json:"averaged"`
	CPU       time.Duration `json:"cpu_ns"` // of the process, from the order to reduce on
	WireBytes int64         `json:"wire_bytes"`
	// Memory is the peak memory of the process beyond its input and output, in
	// bytes; negative if the kernel does not report it.
	Memory int64 `json:"memory"`
}

// Reduction is one measured reduction, by rank.
type Reduction struct {
	Reduced []Reduced
	Checked []Checked
	// RouterCPU is the router's CPU time meanwhile.
	RouterCPU time.Duration
}

// last is the rank that ended last.
func (r *Reduction) last() (last Reduced) {
	for _, x := range r.Reduced {
		if x.Total > last.Total {
			last = x
		}
	}
	return last
}

// Seconds is the duration from the common start to the end of the last rank.
func (r *Reduction) Seconds() float64 { return r.last().Total.Seconds() }

// NewRing computes the result from the measured reductions, of which there
// must be at least one.
func NewRing(s Settings, l Links, all []Reduction) *Ring {
	r := &Ring{Settings: s, Links: l, BitIdentical: true, Ranks: make([]Rank, s.Workers), Notes: []string{}}
	figures := func(f func(*Reduction) float64) []float64 {
		var values []float64
		for k := range all {
			values = append(values, f(&all[k]))
		}
		return values
	}
	median := func(f func(*Reduction) float64) float64 { return medianOrZero(figures(f)) }
	sum := func(f func(*Reduction, int) float64) float64 {
		return median(func(x *Reduction) (total float64) {
			for rank := range s.Workers {
				total += f(x, rank)
			}
			return total
		})
	}
	frames := func(x *Reduction, rank int) float64 { return float64(x.Reduced[rank].FrameBytes) }
	wire := func(x *Reduction, rank int) float64 { return float64(x.Checked[rank].WireBytes) }
	connections := func(x *Reduction, rank int) float64 { return float64(x.Reduced[rank].Connections) }
	cpu := func(x *Reduction, rank int) float64 { return x.Checked[rank].CPU.Seconds() }

	r.Seconds = figures((*Reduction).Seconds)
	r.SecondsMedian, r.Spread = medianOrZero(r.Seconds), Spread(r.Seconds)
	if bound := BoundSeconds(s.Workers, s.Elements, l.boundRate()); bound > 0 {
		r.BoundSeconds, r.RatioToBound = &bound, new(r.SecondsMedian/bound)
	}
	r.AlgorithmGBs, r.BusGBs = Bandwidths(s.Workers, s.Elements, r.SecondsMedian)
	r.Phases = Phases{
		StartSeconds:         median(func(x *Reduction) float64 { return x.last().Began.Seconds() }),
		ReduceScatterSeconds: median(func(x *Reduction) float64 { l := x.last(); return (l.ReduceScatter - l.Began).Seconds() }),
		AllGatherSeconds:     median(func(x *Reduction) float64 { l := x.last(); return (l.Total - l.ReduceScatter).Seconds() }),
	}
	r.FrameBytes, r.BytesOnWire, r.CPUSeconds = int64(sum(frames)), int64(sum(wire)), sum(cpu)
	r.ConnectionsUsed = int(sum(connections))
	for _, x := range all {
		for _, y := range x.Reduced {
			if y.Coded {
				r.CodedShare += 1 / float64(len(all)*s.Workers)
			}
		}
	}
	r.RouterCPUSeconds = median(func(x *Reduction) float64 { return x.RouterCPU.Seconds() })
	for rank := range r.Ranks {
		of := func(f func(*Reduction, int) float64) float64 {
			return median(func(x *Reduction) float64 { return f(x, rank) })
		}
		r.Ranks[rank] = Rank{
			Rank: rank, CPUSeconds: of(cpu), FrameBytes: int64(of(frames)), BytesOnWire: int64(of(wire)),
			Seconds: of(func(x *Reduction, rank int) float64 { return x.Reduced[rank].Total.Seconds() }),
		}
	}
	r.judge(all)
	return r
}

// judge records the properties that every reduction must have: the worst of
// them counts.
func (r *Ring) judge(all []Reduction) {
	memory, known := int64(0), true
	for _, x := range all {
		var whole, averaged Squares
		for _, c := range x.Checked {
			whole.Add(c.Squares)
			averaged.Add(c.Averaged)
			r.BitIdentical = r.BitIdentical && c.Hash == x.Checked[0].Hash
			memory, known = max(memory, c.Memory), known && c.Memory >= 0
		}
		r.RelativeError = max(r.RelativeError, whole.Relative())
		r.AveragedError = averaged.Relative() // the last one counts
	}
	if known {
		r.MemoryBytes, r.MemoryRatio = &memory, float64(memory)/float64(floatBytes*r.Elements)
	}
}
