package shaping

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"testbed/internal/errs"
)

// Bounds of a path.
const (
	// maxTime bounds delays and queues: tc's 32-bit ticks end at 275 s, and no
	// link for training has a delay of a minute.
	maxTime = Duration(time.Minute)
	// maxJitter is below 2³¹ nanoseconds, netem's limit.
	maxJitter = Duration(2 * time.Second)
)

// DefaultQueue is the queue of an access link without one of its own. At 20 ms
// a bulk transfer keeps the link busy, and a short message still gets through
// within a few round trips of a nearby peer.
var DefaultQueue = Queue{Time: Duration(20 * time.Millisecond)}

// NewPlan resolves spec for the named nodes. A rate that is given nowhere is
// unlimited, a queue is DefaultQueue, a one-way delay is defaultOneWayDelay.
// Everything else is zero. The error joins one *errs.FieldError per problem of
// spec.
func NewPlan(spec Spec, nodes []string, defaultOneWayDelay time.Duration, seed uint64) (*Plan, error) {
	r := resolver{spec: spec, index: make(map[string]int, len(nodes)), names: nodes}
	if err := r.checkNodes(); err != nil {
		return nil, err
	}
	plan := &Plan{Seed: seed, Nodes: make([]NodePlan, len(nodes)), Paths: make([][]PathPlan, len(nodes))}
	r.defaults(plan, Duration(defaultOneWayDelay))
	members := r.groups()
	for _, name := range slices.Sorted(maps.Keys(spec.Groups)) {
		access := spec.Groups[name].Access
		r.checkAccess("groups."+name, access)
		for _, i := range members[name] {
			access.apply(&plan.Nodes[i])
		}
	}
	r.groupPaths(plan, members)
	for _, name := range slices.Sorted(maps.Keys(spec.Nodes)) {
		field := "nodes." + name
		if i, ok := r.node(field, name); ok {
			r.checkAccess(field, spec.Nodes[name])
			spec.Nodes[name].apply(&plan.Nodes[i])
		}
	}
	r.pairs(plan)
	r.join(plan)
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
	// setBy[i][j] is the position, in fields, of the field that set the path from
	// i to j. Errors about the whole path name that field.
	setBy  [][]int32
	fields []string
}

func (r *resolver) reject(field, format string, args ...any) {
	r.problems = append(r.problems, errs.Fieldf("real.links."+field, format, args...))
}

// source adds a field to fields.
func (r *resolver) source(field string) int32 {
	r.fields = append(r.fields, field)
	return int32(len(r.fields) - 1)
}

// defaults fills the plan.
func (r *resolver) defaults(plan *Plan, oneWayDelay Duration) {
	path, access := PathPlan{OneWayDelay: oneWayDelay}, NodePlan{Queue: DefaultQueue}
	r.checkPath("default", r.spec.Default.Path)
	r.checkAccess("default", r.spec.Default.Access)
	r.spec.Default.Path.apply(&path)
	r.spec.Default.Access.apply(&access)
	source := r.source("default")
	r.setBy = make([][]int32, len(r.names))
	for i, name := range r.names {
		plan.Nodes[i] = access
		plan.Nodes[i].Name, plan.Nodes[i].Addr, plan.Nodes[i].MAC = name, nodeAddr(i), nodeMAC(i)
		plan.Paths[i] = slices.Repeat([]PathPlan{path}, len(r.names))
		plan.Paths[i][i] = PathPlan{}
		r.setBy[i] = slices.Repeat([]int32{source}, len(r.names))
	}
}

// join adds the access links' delays to the paths, and checks each path as a
// whole. An error names a field once, however many pairs it concerns.
func (r *resolver) join(plan *Plan) {
	if r.problems != nil {
		return // one cause should not be reported twice
	}
	blamed := make(map[string]bool)
	for i := range plan.Paths {
		for j := range plan.Paths[i] {
			if i == j {
				continue
			}
			p := &plan.Paths[i][j]
			p.OneWayDelay += plan.Nodes[i].AccessOneWayDelay + plan.Nodes[j].AccessOneWayDelay
			if name, problem := p.problem(); problem != "" {
				if field := r.fields[r.setBy[i][j]] + "." + name; !blamed[field] {
					blamed[field] = true
					r.reject(field, "%s", problem)
				}
			}
		}
	}
}

func (r *resolver) checkNodes() error {
	if len(r.names) > maxNodes {
		return fmt.Errorf("planning links: there are %d nodes, but at most %d can have an address", len(r.names), maxNodes)
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
		r.reject(field, "there is no node %q; the nodes are %s", name, listNames(r.names))
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

func (r *resolver) pairs(plan *Plan) {
	seen := make(map[[2]string]int, len(r.spec.Pairs))
	for k, pair := range r.spec.Pairs {
		field := fmt.Sprintf("pairs[%d]", k)
		from, okFrom := r.node(field+".from", pair.From)
		to, okTo := r.node(field+".to", pair.To)
		if !okFrom || !okTo {
			continue
		}
		if from == to {
			r.reject(field+".to", `%q is also the pair's "from"; a pair joins two different nodes`, pair.To)
			continue
		}
		if first, dup := seen[[2]string{pair.From, pair.To}]; dup {
			r.reject(field, "the pair from %s to %s is already given by pairs[%d]; merge the two", pair.From, pair.To, first)
			continue
		}
		seen[[2]string{pair.From, pair.To}] = k
		r.checkPath(field, pair.Path)
		pair.apply(&plan.Paths[from][to])
		r.setBy[from][to] = r.source(field)
	}
}

func (r *resolver) checkAccess(field string, a Access) {
	a.check(func(name, format string, args ...any) { r.reject(field+"."+name, format, args...) })
}

func (r *resolver) checkPath(field string, p Path) {
	p.check(func(name, format string, args ...any) { r.reject(field+"."+name, format, args...) })
}
