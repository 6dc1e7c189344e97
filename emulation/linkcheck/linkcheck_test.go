//go:build linux

package linkcheck

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"testbed/allreduce/reduction"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/shaping"
	"testbed/shaping/fidelity"
	"testbed/shaping/probe"
	"testbed/shaping/userlink"
)

const ms = time.Millisecond

func scenario(t *testing.T, text string) (*scenarios.Scenario, *shaping.Plan) {
	t.Helper()
	s, err := scenarios.Load("homogeneous")
	if err != nil {
		t.Fatal(err)
	}
	s.Real.AllReduce.Order = text
	plan, err := s.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return s, plan
}

func TestPairsThatARunDependsOn(t *testing.T) {
	named := func(s *scenarios.Scenario, plan *shaping.Plan) string {
		var names []string
		for _, p := range pairs(plan, s.IDs(), s.Real.AllReduce.Order) {
			names = append(names, plan.Nodes[p.From].Name+">"+plan.Nodes[p.To].Name)
		}
		return strings.ReplaceAll(strings.Join(names, " "), policy.CoordinatorNode, "c")
	}
	s, plan := scenario(t, reduction.OrderPlanned)
	if len(s.Workers) != 4 {
		t.Fatalf("%d workers", len(s.Workers))
	}
	if got := named(s, plan); got != "w0>c w0>w1 w1>c w1>w2 w2>c w2>w3 w3>c w3>w0" {
		t.Errorf("of a ring: %s", got)
	}
	s.Real.AllReduce.Order = reduction.OrderMeasured
	if got := named(s, plan); got != "w0>c w0>w1 w0>w2 w0>w3 w1>c w1>w2 w1>w3 w2>c w2>w3 w3>c" {
		t.Errorf("of a ring to be ordered: %s", got)
	}
	s.Real.AllReduce.Order = reduction.OrderPlanned
	s.Workers = s.Workers[:2]
	if got := named(s, plan); got != "w0>c w0>w1 w1>c" {
		t.Errorf("of two: %s", got)
	}
	s.Workers = s.Workers[:1]
	if got := named(s, plan); got != "w0>c" {
		t.Errorf("of one: %s", got)
	}
}

// TestWays: what was measured takes the planned values' place where that is
// wanted, and differs by more than the measurement does.
func TestWays(t *testing.T) {
	s, plan := scenario(t, reduction.OrderMeasuredRates)
	if rated := ratedPairs(plan, s.IDs(), s.Real.AllReduce.Order); len(rated) != 12 || len(union(pairs(plan, s.IDs(), s.Real.AllReduce.Order), rated)) != 4+12 {
		t.Errorf("rated pairs %v", rated)
	}
	pair := func(from, to string) probe.Pair { return probe.Pair{From: plan.Index(from), To: plan.Index(to)} }
	flow := func(measured float64) probe.Flow { return probe.Flow{Planned: 200e6, Measured: measured, Frames: 100} }
	found := []probe.Found{
		{Pair: pair("w0", policy.CoordinatorNode), RTTs: []time.Duration{ms}},
		{Pair: pair("w0", "w1"), RTTs: []time.Duration{8 * ms}, Rate: flow(199e6)},
		{Pair: pair("w1", "w0"), Rate: flow(60e6)},
		{Pair: pair("w2", "w3"), Rate: flow(0)},
		{Pair: pair("w3", "w2")}, // it was not measured
	}
	w := ways(plan, s.IDs(), s.Real.AllReduce, 1, found)
	if w.Rates[0][1] != 200e6 || w.Rates[1][0] != 60e6 || w.Rates[2][3] != leastRate || w.Rates[3][2] != 200e6 || w.Delays[0][1] != 0.01 {
		t.Errorf("rates %v, delays %v", w.Rates, w.Delays)
	}
	s.Real.AllReduce.Order = reduction.OrderMeasured
	if w := ways(plan, s.IDs(), s.Real.AllReduce, 1, found); w.Rates != nil || w.Delays[0][1] != 0.004 || w.Delays[1][0] != 0.004 || w.Delays[2][3] != 0.01 || len(ratedPairs(plan, s.IDs(), s.Real.AllReduce.Order)) > 0 {
		t.Errorf("rates %v, delays %v", w.Rates, w.Delays)
	}
	s.Real.AllReduce.Order = reduction.OrderPlannedRates
	if w := ways(plan, s.IDs(), s.Real.AllReduce, 1, found); w.Rates[1][0] != 200e6 || w.Delays[0][1] != 0.01 {
		t.Errorf("rates %v, delays %v", w.Rates, w.Delays)
	}
}

func TestJudge(t *testing.T) {
	delay, loss, all := shaping.Duration(10*ms), shaping.Probability(0.5), shaping.Probability(1)
	plan, err := shaping.NewPlan(shaping.Spec{
		Pairs: []shaping.Pair{
			{From: "w0", To: "w1", Path: shaping.Path{OneWayDelay: &delay}}, {From: "w1", To: "w0", Path: shaping.Path{OneWayDelay: &delay}},
			{From: "w0", To: "w2", Path: shaping.Path{Loss: &loss}}, {From: "w1", To: "w2", Path: shaping.Path{Loss: &all}},
		},
	}, []string{"w0", "w1", "w2"}, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	found := func(from, to string, rtt time.Duration) probe.Found {
		f := probe.Found{Pair: probe.Pair{From: plan.Index(from), To: plan.Index(to)}, Asked: 20}
		for k := range time.Duration(5) {
			if rtt > 0 {
				f.RTTs = append(f.RTTs, rtt+(k-2)*10*time.Microsecond)
			}
		}
		return f
	}
	for name, test := range map[string]struct {
		found        probe.Found
		pairs, wrong int
	}{
		"as planned":                {found("w0", "w1", 20*ms+300*time.Microsecond), 1, 0},
		"too long":                  {found("w0", "w1", 25*ms), 1, 1},
		"too short":                 {found("w0", "w1", 2*ms), 1, 1},
		"silent":                    {found("w0", "w1", 0), 1, 1},
		"silent though half is let": {found("w0", "w2", 0), 1, 1},
		"silent by plan":            {found("w1", "w2", 0), 0, 0},
	} {
		c := judge(plan, "user", []probe.Found{test.found})
		if len(c.Pairs) != test.pairs || c.Wrong != test.wrong || len(c.Report.Pairs) != 1 {
			t.Errorf("%s: %d pairs, %d wrong; want %d, %d: %+v", name, len(c.Pairs), c.Wrong, test.pairs, test.wrong, c.Pairs)
		}
		if got, some := Median(test.found), len(test.found.RTTs) > 0; some && got != test.found.RTTs[2] || !some && got != 0 {
			t.Errorf("%s: the median is %v", name, got)
		}
	}
}

func TestJudgeMachine(t *testing.T) {
	for name, test := range map[string]struct {
		ok     bool
		router *userlink.Stats
		seen   fidelity.Measurements
		wantOK bool
		notes  string
	}{
		"all is well":             {true, nil, fidelity.Measurements{CPUPressure: 0.9, Steal: 0.3}, true, "[]"},
		"a router":                {true, &userlink.Stats{Lateness: userlink.Lateness{LatenessP50: ms, LatenessP99: 2 * ms}}, fidelity.Measurements{}, true, "[packets left the router late by 1ms (median) and 2ms (99th percentile)]"},
		"drops":                   {true, &userlink.Stats{SendDrops: 3}, fidelity.Measurements{}, false, "[packets left the router late by 0s (median) and 0s (99th percentile) against the plan, the router dropped 3 packets because a buffer was full]"},
		"wrong, machine idle":     {false, nil, fidelity.Measurements{CPUPressure: 0.4}, false, "[]"},
		"wrong, machine is busy":  {false, nil, fidelity.Measurements{CPUPressure: 0.6}, false, "[tasks waited for a processor for 60 % of the time: this machine was busy, or is too small for these rates]"},
		"wrong, on a greedy host": {false, nil, fidelity.Measurements{Steal: 0.3}, false, "[the likely cause: the hypervisor took 30 % of the CPU time away (steal)]"},
		"a link below its rate": {true, nil, fidelity.Measurements{BusyLink: "w1", BusyTime: time.Second, BusyShare: 0.7}, false,
			"[w1 sent at 70 % of its rate while packets waited (1s in all): 30 % off (limit 20 %)]"},
	} {
		r := probe.Report{OK: test.ok}
		judgeMachine(&r, test.router, test.seen)
		if r.OK != test.wantOK || fmt.Sprint(r.Notes) != test.notes {
			t.Errorf("%s: %v, %v", name, r.OK, r.Notes)
		}
	}
}
