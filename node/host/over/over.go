//go:build linux

// Package over gathers the hosts for a network that is to go over several, whatever
// is done on it.
package over

import (
	"context"

	"testbed/node/host/emulation"
	"testbed/node/host/place"
	"testbed/node/host/share"
	"testbed/scenarios"
	"testbed/shaping"
)

// Hosts are those of a network. The zero value is this one alone.
type Hosts struct {
	Links string // that the network takes
	// Spread is for the job, nil where there is but this host.
	Spread *emulation.Spread

	gathered *share.Hosts
}

// Gather gathers the hosts that a request asks for, nil for this one alone, and says
// on which of them each node of the plan is; of the scenario its workers count. links
// are what the user asks for.
func Gather(ctx context.Context, r *share.Request, s *scenarios.Scenario, plan *shaping.Plan, links string, told func(string)) (*Hosts, error) {
	if r == nil {
		return &Hosts{Links: links}, nil
	}
	if links != emulation.LinksUser && links != emulation.LinksAuto {
		return nil, &emulation.UsageError{Problem: links + " links cannot go over several hosts; take --links user"}
	}
	if err := place.Possible(s, plan, r.Count, ""); err != nil {
		return nil, err
	}
	gathered, err := share.Gather(ctx, *r, told)
	if err != nil {
		return nil, err
	}
	if _, err := place.Nodes(ctx, gathered, s, plan, "", told); err != nil {
		gathered.Close(err)
		return nil, err
	}
	return &Hosts{emulation.LinksUser, gathered.Spread, gathered}, nil
}

// Job is a job for a network over these hosts.
func (h *Hosts) Job(kind string, spec any) emulation.JobSpec {
	job := emulation.JobSpec{Kind: kind, Spec: spec}
	if h.gathered != nil {
		job.Files, job.FileNames = h.gathered.Files, h.gathered.FileNames
	}
	return job
}

// Close ends it for all hosts, with the reason if it has failed. The job has ended.
func (h *Hosts) Close(failed error) {
	if h.gathered != nil {
		h.gathered.Close(failed)
	}
}
