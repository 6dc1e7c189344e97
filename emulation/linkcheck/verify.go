//go:build linux

// Package linkcheck measures the links of a network that is up: all of them
// thoroughly (Verify), or quickly those that a run depends on (Check).
package linkcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"testbed/emulation/cluster"
	"testbed/emulation/monitor"
	"testbed/emulation/network"
	"testbed/emulation/sandbox"
	"testbed/internal/errs"
	"testbed/scenarios/resolved"
	"testbed/shaping"
	"testbed/shaping/fidelity"
	"testbed/shaping/probe"
	"testbed/shaping/userlink"
)

// KindVerify is the kind of the job of Verify: RunVerify.
const KindVerify = "verify"

// Options determine which network to build and measure.
type Options struct {
	Scenario *resolved.Scenario
	Links    string // the backend, as in package emulation
	// Hosts asks for a network over several hosts; nil for this host alone.
	Hosts *cluster.Request
	// Progress is called with progress in words; it may be nil.
	Progress func(string)
}

// verifySpec is the job of Verify.
type verifySpec struct {
	Plan     *shaping.Plan
	Dilation float64
	Links    string
	Layout   *network.Layout `json:",omitempty"`
}

// Verify builds the scenario's network, measures its pairs and compares them
// with the plan.
func Verify(ctx context.Context, o Options) (r probe.Report, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	hosts, links, err := cluster.Form(ctx, o.Hosts, cluster.NetworkOf(o.Scenario), o.Links, o.Progress)
	if err != nil {
		return r, err
	}
	defer func() { hosts.Close(err) }()
	job, err := network.Start(ctx, hosts.Job(KindVerify, verifySpec{o.Scenario.Plan, o.Scenario.Slowdown(), links, hosts.Layout}), sandbox.Config{Stderr: os.Stderr})
	if err != nil {
		return r, err
	}
	defer job.Close()
	return r, job.Result(&r, o.Progress)
}

// RunVerify is Verify in the sandbox.
func RunVerify(s *network.Supervisor, spec json.RawMessage) error {
	var v verifySpec
	if err := json.Unmarshal(spec, &v); err != nil {
		return fmt.Errorf("internal error: parsing the sandbox's job, a measurement of links: %w", err)
	}
	hosts, err := cluster.Connect(s, v.Layout)
	if err != nil {
		return err
	}
	links, err := s.BringUp(v.Plan, v.Dilation, v.Links, nil)
	if err != nil {
		return err
	}
	plan := links.Plan
	pairs, whole := probe.AllPairs(plan)
	n := len(plan.Nodes)
	what := fmt.Sprintf("all %d pairs of nodes", len(pairs))
	if !whole {
		what = fmt.Sprintf("%d of %d pairs of nodes (neighbours on the ring, and a sample of the other pairs)", len(pairs), n*(n-1))
	}
	s.Tell("measuring %s takes about %v, and some seconds more if a measurement has to be repeated", what, probe.Estimate(plan, pairs).Round(time.Second))
	watch := monitor.NewWatch(links, links.Kernel.Nodes())
	hosts.OnSample = watch.Remote
	crew, err := newCrew(s, hosts, links, proberSpec{Plan: plan, Pairs: pairs})
	if err != nil {
		return err
	}
	crew.clocks = true
	found, err := probe.NewSurvey(plan, pairs, crew.do, func(stage string) { s.Tell("%s", stage) }).Verify()
	if err == nil {
		err = crew.end()
	}
	if err != nil {
		return err
	}
	m := watch.Stop()
	router, err := links.TakeDown()
	if err != nil {
		return err
	}
	watch.Conclude(router, &m)
	r := probe.Judge(plan, string(links.Backend), whole, found)
	r.Notes = append(r.Notes, crew.notes()...)
	r.Hosts = hostsOf(plan, hosts, router)
	r.Undilate(v.Dilation)
	judgeMachine(&r, router, m)
	return s.Hand(r)
}

// hostsOf are the hosts of the network, nil if there is one.
func hostsOf(plan *shaping.Plan, hosts *cluster.Hosts, router *userlink.Stats) (all []probe.Host) {
	if !hosts.Several() {
		return nil
	}
	for k, name := range hosts.Names() {
		h := probe.Host{Name: name, Nodes: hosts.Nodes(plan, k)}
		for _, u := range router.Underlay {
			if u.To == name && u.From == hosts.Names()[0] {
				h.ClockOffset, h.ClockBound = float64(u.Offset)/1e3, float64(u.Bound)/1e3
			}
		}
		all = append(all, h)
	}
	return all
}

// busyMachine is the share of time with waiting tasks above which a failure may
// be the machine's rather than the links'.
const busyMachine = 0.5

// judgeMachine adds the router's count, nil without a router, the links below
// their rate while packets waited, and the machine's possible part in both.
func judgeMachine(r *probe.Report, router *userlink.Stats, m fidelity.Measurements) {
	if router != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("packets left the router late by %v (median) and %v (99th percentile)", router.LatenessP50.Round(time.Microsecond), router.LatenessP99.Round(time.Microsecond)))
		m.RouterNoPriority = router.NoPriority
		if d := router.Unplanned(); d > 0 {
			r.OK = false
			r.Notes = append(r.Notes, fmt.Sprintf("against the plan, the router dropped %s because a buffer was full", errs.Count(int(d), "packet")))
		}
	}
	links := fidelity.Measurements{BusyLink: m.BusyLink, BusyTime: m.BusyTime, BusyShare: m.BusyShare, Steal: m.Steal, Underlay: m.Underlay}
	if v := fidelity.Judge(links); v.Verdict != fidelity.Valid {
		r.OK = false
		r.Notes = append(r.Notes, v.Reasons...)
	} else if !r.OK {
		r.Notes = append(r.Notes, fidelity.Likely(m)...)
	}
	if !r.OK && m.CPUPressure > busyMachine {
		r.Notes = append(r.Notes, fmt.Sprintf("tasks waited for a processor for %.0f %% of the time: this machine was busy, or is too small for these rates", 100*m.CPUPressure))
	}
}
