package shaping

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Defaults of an access link and bounds of a path.
const (
	// DefaultQueue is the queue of an access link that names none: at
	// 20 ms a bulk transfer keeps the link busy and a short message still
	// gets through within a few round trips of a nearby peer.
	DefaultQueue = Duration(20 * time.Millisecond)
	// maxTime bounds delays and queues: tc's 32-bit ticks end at 275 s, and
	// a minute is beyond any link that training runs over.
	maxTime = Duration(time.Minute)
)

// FieldError is a value of the specification that cannot be used.
type FieldError struct {
	// Path names the field from the root of the scenario,
	// for example "real.links.pairs[2].from".
	Path string
	// Problem says what is wrong and how to mend it.
	Problem string
}

func (e *FieldError) Error() string { return e.Path + ": " + e.Problem }

// NewPlan resolves spec for the named nodes. A rate given nowhere is
// unlimited, a queue DefaultQueue, a one-way delay defaultOneWayDelay, jitter
// and loss are zero. The error joins one *FieldError per problem of spec.
func NewPlan(spec Spec, nodes []string, defaultOneWayDelay time.Duration, seed uint64) (*Plan, error) {
	r := resolver{spec: spec, index: make(map[string]int, len(nodes)), names: nodes}
	if err := r.checkNodes(); err != nil {
		return nil, err
	}
	base := r.path("default", spec.Default.Path, PathPlan{OneWayDelay: Duration(defaultOneWayDelay)})
	access := r.access("default", spec.Default.Access, NodePlan{Queue: DefaultQueue})

	plan := &Plan{Seed: seed, Nodes: make([]NodePlan, len(nodes)), Paths: make([][]PathPlan, len(nodes))}
	for i, name := range nodes {
		plan.Nodes[i] = access
		plan.Nodes[i].Name, plan.Nodes[i].Addr, plan.Nodes[i].MAC = name, nodeAddr(i), nodeMAC(i)
		plan.Paths[i] = slices.Repeat([]PathPlan{base}, len(nodes))
		plan.Paths[i][i] = PathPlan{}
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Nodes)) {
		field := "nodes." + name
		if i, ok := r.node(field, name); ok {
			plan.Nodes[i] = r.access(field, spec.Nodes[name], plan.Nodes[i])
		}
	}
	r.pairs(plan, base)
	if r.problems != nil {
		return nil, errors.Join(r.problems...)
	}
	return plan, nil
}

// resolver collects the problems of one specification.
type resolver struct {
	spec     Spec
	names    []string
	index    map[string]int
	problems []error
}

func (r *resolver) reject(field, format string, args ...any) {
	r.problems = append(r.problems, &FieldError{"real.links." + field, fmt.Sprintf(format, args...)})
}

func (r *resolver) checkNodes() error {
	if len(r.names) > maxNodes {
		return fmt.Errorf("planning links: %d nodes, at most %d have an address", len(r.names), maxNodes)
	}
	for i, name := range r.names {
		if err := checkName(name); err != nil {
			return fmt.Errorf("planning links: %w", err)
		}
		if _, dup := r.index[name]; dup {
			return fmt.Errorf("planning links: two nodes are named %q", name)
		}
		r.index[name] = i
	}
	return nil
}

func (r *resolver) node(field, name string) (int, bool) {
	i, ok := r.index[name]
	if !ok {
		r.reject(field, "no node %q; the nodes are %s", name, listNames(r.names))
	}
	return i, ok
}

// listNames keeps the message short for a network of hundreds of nodes.
func listNames(names []string) string {
	const most = 12
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s, … %s (%d in all)", strings.Join(names[:most-2], ", "), names[len(names)-1], len(names))
}

func (r *resolver) access(field string, a Access, base NodePlan) NodePlan {
	setRate := func(name string, v *Rate, to *Rate) {
		if v == nil {
			return
		}
		if *v < 0 {
			r.reject(field+"."+name, "%d bit/s is negative; leave it out for an unlimited rate", int64(*v))
		}
		*to = *v
	}
	setRate("rate_up", a.RateUp, &base.RateUp)
	setRate("rate_down", a.RateDown, &base.RateDown)
	if a.Queue != nil {
		r.checkTime(field+".queue", *a.Queue)
		base.Queue = *a.Queue
	}
	return base
}

func (r *resolver) path(field string, p Path, base PathPlan) PathPlan {
	if p.OneWayDelay != nil {
		base.OneWayDelay = *p.OneWayDelay
	}
	r.checkTime(field+".one_way_delay", base.OneWayDelay)
	if p.Jitter != nil {
		base.Jitter = *p.Jitter
	}
	switch {
	case base.Jitter < 0:
		r.reject(field+".jitter", "%v is negative", base.Jitter)
	case base.Jitter > base.OneWayDelay:
		r.reject(field+".jitter", "%v exceeds the one-way delay of %v, and a packet cannot arrive before it was sent; lower the jitter or raise one_way_delay", base.Jitter, base.OneWayDelay)
	}
	if p.Loss != nil {
		base.Loss = *p.Loss
	}
	if !(base.Loss >= 0 && base.Loss <= 1) { // also refuses NaN
		r.reject(field+".loss", "%v is not a probability; write 0%% to 100%%", float64(base.Loss))
	}
	return base
}

func (r *resolver) checkTime(field string, d Duration) {
	if d < 0 {
		r.reject(field, "%v is negative", d)
	}
	if d > maxTime {
		r.reject(field, "%v is above the limit of %v", d, maxTime)
	}
}

func (r *resolver) pairs(plan *Plan, base PathPlan) {
	seen := make(map[[2]string]int, len(r.spec.Pairs))
	for k, pair := range r.spec.Pairs {
		field := fmt.Sprintf("pairs[%d]", k)
		from, okFrom := r.node(field+".from", pair.From)
		to, okTo := r.node(field+".to", pair.To)
		if !okFrom || !okTo {
			continue
		}
		if from == to {
			r.reject(field+".to", "%q is also the pair's from; a pair joins two different nodes", pair.To)
			continue
		}
		if first, dup := seen[[2]string{pair.From, pair.To}]; dup {
			r.reject(field, "the pair from %s to %s is already given by pairs[%d]; merge the two", pair.From, pair.To, first)
			continue
		}
		seen[[2]string{pair.From, pair.To}] = k
		plan.Paths[from][to] = r.path(field, pair.Path, base)
	}
}
