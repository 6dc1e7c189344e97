package shaping

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Idle returns an error for every given field without effect, because the
// property that it refines is absent: a queue without a limited rate, a
// distribution without jitter. plan is the result of NewPlan for the
// specification. Later changes of links may give such a field an effect; the
// caller has to consider them.
func (s Spec) Idle(plan *Plan) error {
	r := resolver{spec: s, index: make(map[string]int, len(plan.Nodes))}
	for i, n := range plan.Nodes {
		r.names, r.index[n.Name] = append(r.names, n.Name), i
	}
	members := r.groups()
	limited := func(i int) bool {
		ofPath := func(p PathPlan) bool { return p.Rate > 0 }
		return plan.Nodes[i].RateUp > 0 || plan.Nodes[i].RateDown > 0 || slices.ContainsFunc(plan.Paths[i], ofPath)
	}
	jittery := func(i, j int) bool { return plan.Paths[i][j].Jitter > 0 }
	all := make([]int, len(plan.Nodes))
	for i := range all {
		all[i] = i
	}
	queue := func(field string, a Access, nodes []int) {
		if a.Queue != nil && !slices.ContainsFunc(nodes, limited) {
			r.reject(field+".queue", "has no effect, because no rate of these links is limited: give rate_up, rate_down or rate, or remove the queue")
		}
	}
	distribution := func(field string, p Path, from, to []int) {
		if p.JitterDistribution == nil {
			return
		}
		for _, i := range from {
			if slices.ContainsFunc(to, func(j int) bool { return i != j && jittery(i, j) }) {
				return
			}
		}
		r.reject(field+".jitter_distribution", "has no effect, because there is no jitter: give jitter, or remove jitter_distribution")
	}
	queue("default", s.Default.Access, all)
	distribution("default", s.Default.Path, all, all)
	for _, name := range slices.Sorted(maps.Keys(s.Groups)) {
		queue("groups."+name, s.Groups[name].Access, members[name])
	}
	for k, p := range s.Paths {
		a, b := p.From, p.To
		if p.Between != nil {
			a, b = p.Between[0], p.Between[1]
		}
		there, back := members[a], members[b]
		if p.Between != nil { // both ways: each may have what the other lacks
			there, back = slices.Concat(there, back), slices.Concat(back, there)
		}
		distribution(fmt.Sprintf("paths[%d]", k), p.Path, there, back)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Nodes)) {
		queue("nodes."+name, s.Nodes[name], []int{r.index[name]})
	}
	for k, p := range s.Pairs {
		distribution(fmt.Sprintf("pairs[%d]", k), p.Path, []int{r.index[p.From]}, []int{r.index[p.To]})
	}
	return errors.Join(r.problems...)
}
