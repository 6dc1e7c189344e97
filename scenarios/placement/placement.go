// Package placement says on which host of several each node of a scenario is.
package placement

import (
	"fmt"

	"testbed/scenarios"
	"testbed/shaping"
)

// Contiguous cuts the workers, in their order, into as many pieces of about the
// same size as there are hosts, so that a ring crosses from one host to another as
// seldom as possible. All other nodes are on the first host, the leader, whose
// piece is the smallest. It returns the host of each node of the plan.
func Contiguous(s *scenarios.Scenario, plan *shaping.Plan, hosts int) ([]int, error) {
	workers := len(s.Workers)
	if hosts > workers {
		return nil, fmt.Errorf("%d hosts for %d workers; each host needs one, so take %d hosts at the most", hosts, workers, workers)
	}
	of := make([]int, len(plan.Nodes))
	for k, name := range s.WorkerNodes() {
		of[plan.Index(name)] = hosts - 1 - (workers-1-k)*hosts/workers
	}
	return of, nil
}
