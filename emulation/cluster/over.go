//go:build linux

package cluster

import (
	"context"

	"testbed/emulation/network"
	"testbed/internal/errs"
	"testbed/scenarios"
	"testbed/shaping"
)

// NetworkHosts are those of a network. The zero value is this one alone.
type NetworkHosts struct {
	Links string // that the network takes
	// Spread is for the job, nil where there is but this host.
	Spread *network.Spread

	gathered *Hosts
}

// GatherNetwork gathers the hosts that a request asks for, nil for this one alone, and says
// on which of them each node of the plan is; of the scenario its workers count. links
// are what the user asks for.
func GatherNetwork(ctx context.Context, r *Request, s *scenarios.Scenario, plan *shaping.Plan, links string, told func(string)) (*NetworkHosts, error) {
	if r == nil {
		return &NetworkHosts{Links: links}, nil
	}
	if links != network.LinksUser && links != network.LinksAuto {
		return nil, errs.Usagef("%s links cannot go over several hosts; take --links user", links)
	}
	if err := Possible(s, plan, r.Count, ""); err != nil {
		return nil, err
	}
	gathered, err := Gather(ctx, *r, told)
	if err != nil {
		return nil, err
	}
	if _, err := PlaceNodes(ctx, gathered, s, plan, "", told); err != nil {
		gathered.Close(err)
		return nil, err
	}
	return &NetworkHosts{network.LinksUser, gathered.Spread, gathered}, nil
}

// Job is a job for a network over these hosts.
func (h *NetworkHosts) Job(kind string, spec any) network.JobSpec {
	job := network.JobSpec{Kind: kind, Spec: spec}
	if h.gathered != nil {
		job.Files, job.FileNames = h.gathered.Files, h.gathered.FileNames
	}
	return job
}

// Close ends it for all hosts, with the reason if it has failed. The job has ended.
func (h *NetworkHosts) Close(failed error) {
	if h.gathered != nil {
		h.gathered.Close(failed)
	}
}
