// Package placement says on which host of several each node of a scenario is.
package placement

import (
	"fmt"
	"math"
	"strings"
	"time"

	"testbed/scenarios"
	"testbed/shaping"
)

// Contiguous cuts the workers, in their order, into as many pieces of about the
// same size as there are hosts, so that a ring crosses from one host to another as
// seldom as possible. All other nodes are on the first host, the leader, whose
// piece is the smallest. It returns the host of each node of the plan.
func Contiguous(s *scenarios.Scenario, plan *shaping.Plan, hosts int) ([]int, error) {
	workers := len(s.Workers)
	if hosts < 1 {
		return nil, fmt.Errorf("%d hosts; there is one at the least", hosts)
	}
	if hosts > workers {
		return nil, fmt.Errorf("%d hosts for %d workers; each host needs one, so take %d hosts at the most", hosts, workers, workers)
	}
	of := make([]int, len(plan.Nodes))
	for k, name := range s.WorkerNodes() {
		of[plan.Index(name)] = hosts - 1 - (workers-1-k)*hosts/workers
	}
	return of, nil
}

// Nodes are the names of the nodes on each host, in the order of the plan.
func Nodes(plan *shaping.Plan, of []int) [][]string {
	var all [][]string
	for i, host := range of {
		for len(all) <= host {
			all = append(all, nil)
		}
		all[host] = append(all[host], plan.Nodes[i].Name)
	}
	return all
}

// Describe says what is on which host, and what the hosts' network must not exceed:
// the least delay of a path between two of them.
func Describe(plan *shaping.Plan, of []int) (lines []string) {
	for host, nodes := range Nodes(plan, of) {
		who := fmt.Sprintf("host %d", host)
		if host == 0 {
			who += ", the leader"
		}
		lines = append(lines, fmt.Sprintf("%s: %s", who, strings.Join(nodes, " ")))
	}
	least, between := time.Duration(math.MaxInt64), ""
	for i, row := range plan.Paths {
		for j, p := range row {
			if d := time.Duration(p.Fastest()); of[i] != of[j] && d < least {
				least, between = d, plan.Nodes[i].Name+"→"+plan.Nodes[j].Name
			}
		}
	}
	if between != "" {
		lines = append(lines, fmt.Sprintf("the fastest path between hosts takes %v (%s); their network has to be faster", least, between))
	}
	return lines
}
