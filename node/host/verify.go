//go:build linux

package host

import (
	"context"
	"fmt"
	"os"
	"time"

	"testbed/node/host/sandbox"
	"testbed/scenarios"
	"testbed/shaping/probe"
)

// VerifyOptions say which network to build and measure.
type VerifyOptions struct {
	Scenario *scenarios.Scenario
	Links    string
	// Progress is told what happens in words; it may be nil.
	Progress func(string)
}

type verifyJob struct{}

// Verify builds the scenario's network, measures its pairs and compares them
// with the plan.
func Verify(ctx context.Context, o VerifyOptions) (probe.Report, error) {
	s, err := openSession(ctx, job{Scenario: o.Scenario, Links: o.Links, Verify: &verifyJob{}}, sandbox.Config{Stderr: os.Stderr})
	if err != nil {
		return probe.Report{}, err
	}
	defer s.close()
	for {
		n, err := s.next()
		switch {
		case err != nil:
			return probe.Report{}, err
		case n.Verified != nil:
			return *n.Verified, nil
		case n.Stage != "" && o.Progress != nil:
			o.Progress(n.Stage)
		}
	}
}

// runVerify is the inner half of Verify.
func (i *inside) runVerify() error {
	if err := i.bringUp(); err != nil {
		return err
	}
	pairs, whole := probe.AllPairs(i.plan)
	n := len(i.plan.Nodes)
	what := fmt.Sprintf("all %d pairs", len(pairs))
	if !whole {
		what = fmt.Sprintf("%d of %d pairs: neighbours on the ring and a sample of the others", len(pairs), n*(n-1))
	}
	i.tell(note{Stage: fmt.Sprintf("measuring %s takes about %v, and some seconds more if rates have to be measured again", what, probe.Estimate(i.plan, pairs).Round(time.Second))})
	i.onReport = func(_ *child, r nodeReport) {
		if r.Probed != nil && r.Probed.Stage != "" {
			i.tell(note{Stage: r.Probed.Stage})
		}
	}
	pressure, began := cpuPressure(), time.Now()
	p, err := i.probePairs(pairs, false)
	if err != nil {
		return err
	}
	waited := float64(cpuPressure()-pressure) / float64(time.Since(began))
	if err := i.takeDown(); err != nil {
		return err
	}
	r := probe.Judge(i.plan, string(i.backend), whole, p.Found)
	r.Notes = append(r.Notes, p.Notes...)
	if s := i.routed; s != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("packets left the router late by %v (median), %v (99th percentile)", s.LatenessP50.Round(time.Microsecond), s.LatenessP99.Round(time.Microsecond)))
		if d := unplanned(s); d > 0 {
			r.OK = false
			r.Notes = append(r.Notes, fmt.Sprintf("%d packets were dropped for lack of room, which no plan asks for", d))
		}
	}
	if !r.OK && waited > busyMachine {
		r.Notes = append(r.Notes, fmt.Sprintf("tasks waited for a processor in %.0f %% of the time: this machine was busy, or is too small for these rates", 100*waited))
	}
	i.tell(note{Verified: &r})
	return nil
}

// busyMachine is the share of time with waiting tasks from which a failure
// may be the machine's and not the links'.
const busyMachine = 0.5
