package report_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"testbed/policy"
	"testbed/record"
	"testbed/report"
	"testbed/scenarios"
)

// TestOneShapeWhateverTheCount: the lists of a comparison have one entry for each run, and
// for each policy beside the reference in each world, whether that is one or several.
func TestOneShapeWhateverTheCount(t *testing.T) {
	s, pair := simulated(t, "persistent_straggler")
	run := pair[scenarios.Straggler]
	set := func(world, links string, seed uint64, policies ...string) report.Set {
		all := report.Set{}
		for k, name := range policies {
			sum := run
			sum.World, sum.Links, sum.Policy, sum.Seed, sum.WallClock = world, links, name, seed, policy.Time(1000*(k+1))
			all[name] = sum
		}
		return all
	}
	three := []string{"baseline", "straggler", "backup"}
	for _, c := range []struct {
		policies []string
		seeds    int
	}{{three[:1], 1}, {three[:2], 1}, {three[:2], 4}, {three, 1}, {three, 4}} {
		cmp := &report.Comparison{Scenario: s.Name, Policies: c.policies}
		for n := range c.seeds {
			sim, links, real := set(record.Sim, "none", uint64(n), c.policies...), set(record.Sim, record.OnPlan, uint64(n), c.policies...), set(record.Real, "user", uint64(n), c.policies...)
			if n == 0 {
				cmp.Sim, cmp.SimLinks, cmp.Real = sim, links, real
				continue
			}
			cmp.SimRepeats, cmp.SimLinksRepeats, cmp.Repeats = append(cmp.SimRepeats, sim), append(cmp.SimLinksRepeats, links), append(cmp.Repeats, real)
		}
		cmp.Conclude()
		text, err := json.Marshal(cmp)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Runs        []map[string]any
			Comparisons []map[string]any
			Predictions []map[string]any
		}
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		n := len(c.policies)
		if len(got.Runs) != 3*n*c.seeds || len(got.Comparisons) != 3*(n-1) || len(got.Predictions) != 2*n {
			t.Errorf("%v, %d seeds: %d runs, %d comparisons, %d predictions", c.policies, c.seeds, len(got.Runs), len(got.Comparisons), len(got.Predictions))
		}
		worlds := map[any]bool{}
		for _, r := range got.Runs {
			worlds[r["world"]] = true
			if r["wall_clock_us"] != float64(1000*(1+position(c.policies, r["policy"]))) {
				t.Errorf("a run is %v", r)
			}
		}
		if want := map[any]bool{"sim": true, "sim_links": true, "real": true}; !reflect.DeepEqual(worlds, want) {
			t.Errorf("the runs are of the worlds %v, want %v", worlds, want)
		}
		for _, a := range got.Comparisons {
			k := position(c.policies, a["policy"])
			e := a["speedup"].(map[string]any)
			if list := a["speedups"].([]any); len(list) != c.seeds || a["reference"] != "baseline" || k < 1 || e["median"] != 1/float64(k+1) || e["n"] != float64(c.seeds) {
				t.Errorf("%v, %d seeds: a comparison is %v", c.policies, c.seeds, a)
			}
		}
	}
}

func position(all []string, name any) int {
	for k, one := range all {
		if one == name {
			return k
		}
	}
	return -1
}

// TestWorkersAreNumbers: whatever names a worker in a summary has its number as worker.
func TestWorkersAreNumbers(t *testing.T) {
	sum := record.Summary{
		Sidelined: []record.Membership{{Round: 1, ID: 3}}, Evicted: []record.Membership{{Round: 2, ID: 4, Reason: "leave"}}, Rejoined: []record.Membership{{Round: 1, ID: 5}},
		Returned: []record.Return{{ID: 6}}, Undone: []record.Undoing{{ID: 7}}, Uploads: []record.Upload{{ID: 8}}, Detected: []record.Detection{{ID: 9}},
		Rounds: []record.Round{{PseudoGradients: []record.PseudoGradient{{ID: 10}}}},
	}
	text, err := json.Marshal(sum)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	want := 3.0
	check := func(name string, entry any) {
		t.Helper()
		if e := entry.(map[string]any); e["worker"] != want || e["id"] != want {
			t.Errorf("%s: %v has worker %v and id %v, want %v", name, e, e["worker"], e["id"], want)
		}
		want++
	}
	for _, name := range []string{"sidelined", "evicted", "rejoined", "returned", "undone", "uploads", "detected"} {
		check(name, all[name].([]any)[0])
	}
	check("pseudo_gradients", all["rounds"].([]any)[0].(map[string]any)["pseudo_gradients"].([]any)[0])

	var back record.Summary
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, sum) {
		t.Errorf("it reads back as %+v (%v)", back, err)
	}
}

// TestWorldsHaveOneName: a summary says by one name in which world its run was.
func TestWorldsHaveOneName(t *testing.T) {
	_, pair := simulated(t, "persistent_straggler")
	if name := pair[scenarios.Baseline].WorldName; name != record.Sim {
		t.Errorf("churn's network is the world %q", name)
	}
	for links, want := range map[string]string{"none": "sim", "plan": "sim_links"} {
		if got := record.WorldName(record.Sim, links); got != want {
			t.Errorf("a simulation on links %s is in the world %q, want %q", links, got, want)
		}
	}
	if got := record.WorldName(record.Real, "user"); got != "real" {
		t.Errorf("a real run is in the world %q", got)
	}
}
