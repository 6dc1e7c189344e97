package calibrate

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/scenarios/convert"
)

// fitted is a calibration of a machine whose costs are known.
func fitted() *Calibration {
	c := &Calibration{Schema: Schema}
	for to, v := range map[*Estimate]float64{&c.Costs.Step: 0.7, &c.Costs.Message: 0.9, &c.Costs.Hop: 1.5, &c.Costs.ReduceByte: 4, &c.Costs.Efficiency: 0.94} {
		to.Value = v
	}
	return c
}

// atRate is a scenario as churn's users write it, on links of a rate.
func atRate(rate string, timeScale float64, parameters int) []byte {
	return fmt.Appendf(nil, `{
  "seed": 42,
  "workers": [ {"id": 0, "inner_step_mean": 100000}, {"id": 1, "inner_step_mean": 100000}, {"id": 2, "inner_step_mean": 100000}, {"id": 3, "inner_step_mean": 100000} ],
  "injects": [],
  "inner_steps": 2, "target_outer_steps": 4, "horizon": 900000000000, "heartbeat_period": 100000000, "heartbeat_miss_threshold": 5,
  "base_latency": 8000, "bandwidth_bpus": 1, "state_bytes": 1,
  "real": {"time_scale": %v, "parameters": %d, "all_reduce": {"entropy": "off"},
    "links": {"default": {"rate_up": "%s", "rate_down": "%s", "one_way_delay": "8ms"}}}
}`, timeScale, parameters, rate, rate)
}

// TestSlowLinksForChurn: at a time scale of 1 the rate of 10 Mbit/s is 1.2 bytes
// per microsecond, which churn has to take for 1. A round takes there what it
// takes on the links nevertheless.
func TestSlowLinksForChurn(t *testing.T) {
	for _, rate := range []string{"1mbit", "5mbit", "10mbit", "11900kbit", "20mbit", "1gbit"} {
		source := atRate(rate, 1, 1_000_000)
		s := parse(t, "slow.json", source)
		c := fitted()
		text, prices, err := c.Rewrite(s, source, convert.Churn)
		if err != nil {
			t.Fatal(err)
		}
		churn, err := onChurn(parse(t, "slow.json", text), scenarios.Baseline)
		if err != nil {
			t.Fatal(err)
		}
		links, err := onLinks(s, scenarios.Baseline, c.SimCosts(), nil)
		if err != nil {
			t.Fatal(err)
		}
		a, b := churn.Rounds[3], links.Rounds[3] // the first one connects on links
		// What reductions and control messages take, inner steps apart.
		steps := 2 * s.Workers[0].InnerStepMean
		took, want := float64(a.End-a.Start-steps), float64(b.End-b.Start-steps)
		if off := took/want - 1; math.Abs(off) > 0.002 || math.Abs(prices.Error) > 1e-4 {
			t.Errorf("%s: a round takes %.0f µs beside its steps on churn's network, %.0f on the links (%+.2f %%); prices %+v", rate, took, want, 100*off, prices)
		}
	}
}

// TestWholeNumbersLeaveHalfAMicrosecond of a round, whatever the rate; and what
// is said to be left is what is left.
func TestWholeNumbersLeaveHalfAMicrosecond(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		empty := rapid.Float64Range(0, 1e6).Draw(t, "empty")
		rate := math.Exp(rapid.Float64Range(math.Log(1e-3), math.Log(1e6)).Draw(t, "log rate"))
		bytes := float64(rapid.Int64Range(0, 1e10).Draw(t, "bytes"))
		full := empty + bytes/rate
		p := round(empty, full, bytes)
		took := float64(2*p.BaseLatency + policy.Time(p.StateBytes/p.BandwidthBpus))
		if math.Abs(took-full) > 0.5001 || p.BaseLatency < 0 || p.StateBytes < 0 || p.BandwidthBpus < 1 || p.BandwidthBpus > scenarios.MaxBandwidthBpus {
			t.Fatalf("%v µs instead of %v: %+v", took, full, p)
		}
		if math.Abs(float64(p.BaseLatency)-empty/2) > 1 {
			t.Fatalf("a latency of %d µs instead of %v", p.BaseLatency, empty/2)
		}
		if full > 0 && math.Abs(p.Error-(took-full)/full) > 1e-9 {
			t.Fatalf("it says %v, and %v is left", p.Error, (took-full)/full)
		}
		// Any rounding of the division gives the same, also another program's.
		if p.StateBytes%p.BandwidthBpus != 0 {
			t.Fatalf("state_bytes are no multiple of the rate: %+v", p)
		}
	})
}

// TestCoarseTimeIsSaid: where a round takes a few microseconds of scenario time,
// whole ones are too coarse.
func TestCoarseTimeIsSaid(t *testing.T) {
	if p := round(1.2, 3.4, 1e6); math.Abs(p.Error) < tolerance || len(p.Warnings()) != 1 || !strings.Contains(p.Warnings()[0], "-11.8 %; lower real.time_scale") {
		t.Errorf("3.4 µs become %+v, with %q", p, p.Warnings())
	}
}

// TestRewriteFormats: JSON stays JSON, with the links that it had, and churn's
// has churn's fields only.
func TestRewriteFormats(t *testing.T) {
	source := []byte(strings.Replace(string(atRate("10mbit", 1, 1_000_000)), `, "one_way_delay": "8ms"`, "", 1)) // it comes from base_latency
	before := parse(t, "mine.json", source)
	plan, err := before.Plan()
	if err != nil {
		t.Fatal(err)
	}
	for _, to := range convert.Formats {
		text, p, err := fitted().Rewrite(before, source, to)
		if err != nil {
			t.Fatal(err)
		}
		after := parse(t, "mine.json", text)
		if after.BaseLatency != p.BaseLatency || after.BandwidthBpus != p.BandwidthBpus || after.StateBytes != p.StateBytes || after.Workers[3].InnerStepMean != 100_700 {
			t.Errorf("%s: %+v is written as\n%s", to, p, text)
		}
		if json.Valid(text) != (to != convert.YAML) || strings.Contains(string(text), "real") != (to != convert.Churn) {
			t.Errorf("%s:\n%s", to, text)
		}
		if to == convert.Churn {
			continue
		}
		again, err := after.Plan()
		if err != nil {
			t.Fatal(err)
		}
		if a, b := plan.Paths[1][2].OneWayDelay, again.Paths[1][2].OneWayDelay; a != b || a == 0 {
			t.Errorf("%s: a path's one-way delay was %v, is %v", to, a, b)
		}
	}
}
