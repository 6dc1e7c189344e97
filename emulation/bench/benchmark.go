//go:build linux

// Package bench measures the all-reduce between worker processes on a network
// of their own, and rivals on the same links.
package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/bench"
	"testbed/emulation/cluster"
	"testbed/emulation/monitor"
	"testbed/emulation/network"
	"testbed/emulation/sandbox"
	"testbed/internal/errs"
	"testbed/policy"
	"testbed/scenarios/resolved"
	"testbed/shaping"
)

// Kinds of the job of Run, RunRing, and of its workers, RunRank.
const (
	KindRing = "benchmark"
	KindRank = "rank"
)

// Options determine which all-reduce to measure, on which links, and with which
// rivals.
type Options struct {
	bench.Settings
	Links bench.Links
	// Scenario is a scenario whose workers are the ranks, on its links in place of
	// Links; nil: none.
	Scenario *resolved.Scenario
	// Backend is the link backend. emulation.LinksAuto chooses a bridge alone if
	// the links neither delay nor lose packets, and otherwise a run's backend.
	Backend string
	// Hosts asks for links over several hosts; nil for this host alone.
	Hosts   *cluster.Request
	Against []string
	// TCP are the congestion controls under which rivals are measured. None: the
	// scenario's, or reno and bbr.
	TCP []string
	// Timeout limits every single reduction.
	Timeout time.Duration
	// Progress is called with progress in words; it may be nil.
	Progress func(string)
}

// ringSpec is the job of Run.
type ringSpec struct {
	Plan     *shaping.Plan
	Nodes    []string // by rank
	Settings bench.Settings
	Links    bench.Links
	Backend  string
	Ordered  *bench.Ordered // nil: the ring is in naive order
	Against  []string
	TCP      []string
	Timeout  time.Duration
	Layout   *network.Layout `json:",omitempty"`
}

// Run measures the all-reduce.
func Run(ctx context.Context, o Options) (r *bench.Ring, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	spec, err := o.spec()
	if err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	var hosts *cluster.Cluster
	if hosts, spec.Backend, err = cluster.Form(ctx, o.Hosts, o.toPlace(spec.Plan), spec.Backend, o.Progress); err != nil {
		return nil, err
	}
	defer func() { hosts.Close(err) }()
	spec.Layout = hosts.Layout
	job, err := network.Start(ctx, hosts.Job(KindRing, spec), sandbox.Config{Stderr: os.Stderr})
	if err != nil {
		return nil, err
	}
	defer job.Close()
	r = &bench.Ring{}
	if err := job.Result(r, o.Progress); err != nil {
		return nil, err
	}
	return r, nil
}

// toPlace is the network whose nodes are placed on hosts: the scenario's, or
// one of as many workers without other facts.
func (o *Options) toPlace(plan *shaping.Plan) *cluster.Network {
	if o.Scenario != nil {
		return cluster.NetworkOf(o.Scenario)
	}
	n := &cluster.Network{Plan: plan, Dilation: 1}
	for k := range o.Workers {
		n.Workers = append(n.Workers, policy.ID(k))
	}
	return n
}

func (o *Options) spec() (*ringSpec, error) {
	plan, names, err := o.network()
	if err != nil {
		return nil, errs.Usage(err)
	}
	links := o.Links
	if s := o.Scenario; s != nil {
		links = bench.Links{Scenario: s.Name, SlowestRate: bench.SlowestRate(plan, names)}
	}
	var ordered *bench.Ordered
	if o.Order == bench.OptimisedOrder {
		if ordered, err = bench.OrderRing(plan.Delays(names)); err != nil {
			return nil, err
		}
	}
	backend := o.Backend
	if backend == network.LinksBridge && !plan.Plain() {
		return nil, errs.Fieldf("links", "bridge neither delays nor loses packets, but the benchmark's links do: choose auto, htb, netem or user")
	}
	if backend == network.LinksAuto && plan.Plain() && o.Hosts == nil {
		backend = network.LinksBridge
	}
	return &ringSpec{
		Plan: plan, Nodes: names, Settings: o.Settings, Links: links, Backend: backend, Ordered: ordered, Against: o.Against, TCP: o.TCP, Timeout: o.Timeout,
	}, nil
}

// network returns the plan, and the ranks' nodes in it.
func (o *Options) network() (*shaping.Plan, []string, error) {
	if s := o.Scenario; s != nil {
		return s.Plan, s.WorkerNodes(), nil
	}
	names := make([]string, o.Workers)
	for k := range names {
		names[k] = fmt.Sprintf("w%d", k)
	}
	plan, err := shaping.NewPlan(o.Links.Spec(names, o.GroupNumbers()), names, 0, o.Seed)
	return plan, names, err
}

// adopt takes the ranks from the scenario.
func (o *Options) adopt() error {
	s := o.Scenario
	if x := s.Slowdown(); x > 1 {
		return errs.Usagef("%s: real.dilation is %g, but benchmarks always run in real time; remove it", s.Name, x)
	}
	o.Workers = len(s.Workers)
	if n := slices.Max(s.LinkGroups) + 1; n > 0 {
		o.GroupOf, o.Groups = s.LinkGroups, n
	}
	if o.Algorithm == allreduce.Hierarchical.String() && (o.GroupOf == nil || slices.Contains(o.GroupOf, -1)) {
		return errs.Fieldf("algorithm", "is %s, but a worker of %s is in no group: put every worker into one of real.links.groups", o.Algorithm, s.Name)
	}
	return nil
}

func (o *Options) check() error {
	if o.Scenario != nil {
		if err := o.adopt(); err != nil {
			return err
		}
	}
	if err := o.Settings.Check(); err != nil {
		return err
	}
	if o.Links.GroupDelay > 0 && o.Groups < 2 {
		return errs.Fieldf("group_delay", "is %v, but there is only one group: set groups to at least 2", o.Links.GroupDelay)
	}
	if o.Hosts != nil && len(o.Against) > 0 {
		return errs.Fieldf("against", "works on one host only: leave it out, or leave --hosts out")
	}
	if o.Timeout <= 0 {
		return errs.Fieldf("timeout", "is %v: it must be above 0", o.Timeout)
	}
	if len(o.TCP) > 0 && len(o.Against) == 0 {
		return errs.Fieldf("tcp", "applies only to the programs of --against: add --against, for example --against gloo")
	}
	var all []rival
	for _, name := range o.Against {
		r, err := newRival(name)
		if err == nil {
			err = r.fits(&o.Settings)
		}
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	// Input, output and as much again for the reduction. The exact mean is spread
	// over all.
	n := int64(o.Workers)*int64(o.Elements)*12 + int64(o.Elements)*8
	if len(all) > 0 {
		n += int64(o.Workers) * int64(o.Elements) * 8 // vectors and results
	}
	for _, r := range all {
		n += int64(o.Workers) * int64(max(len(o.TCP), len(usualTCP))) * r.memory(&o.Settings)
	}
	if free := monitor.AvailableMemory(); free > 0 && n > free {
		fewer := "elements or workers"
		if len(all) > 0 {
			fewer = "elements, workers or rivals"
		}
		return errs.Fieldf("elements", "is %d: with %s the benchmark needs about %d MiB of memory, but this machine has only %d MiB available; choose fewer %s", o.Elements, errs.Count(o.Workers, "worker"), n>>20, free>>20, fewer)
	}
	return nil
}
