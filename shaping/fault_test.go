package shaping_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/shaping"
)

func mustPlan(t testing.TB, n int, text string) *shaping.Plan {
	t.Helper()
	plan, err := planOf(t, n, text)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// written is the plan as text, to compare two wholly.
func written(t testing.TB, p *shaping.Plan) string {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestComposeLaysFaultsOverTheBase(t *testing.T) {
	base := mustPlan(t, 3, `default: {one_way_delay: 10ms, access_one_way_delay: 1ms, loss: 1%, rate_up: 10mbit}`)
	before := written(t, base)
	plan, err := shaping.Compose(base, []shaping.Fault{
		shaping.Partition{Nodes: []string{"w1", "w2"}},
		shaping.Cut{Paths: []shaping.Direction{{From: "w1", To: "w2"}}},
		shaping.AccessChange{Node: "w0", Access: shaping.Access{RateUp: new(shaping.Rate(1e6)), AccessOneWayDelay: ms(5)}},
		shaping.PathChange{From: "w0", To: "coordinator", Path: shaping.Path{OneWayDelay: ms(30), LossBurst: &shaping.LossBurst{Enter: 0.1, Leave: 0.5, LossInside: 1}}},
		shaping.PathChange{From: "w0", To: "coordinator", Path: shaping.Path{OneWayDelay: ms(40)}},
		shaping.Paced{Node: "w1", Now: 2e6, Peak: 5e6},
		shaping.Paced{Node: "w1", Down: true, Now: 3e6, Peak: 8e6},
		shaping.AccessChange{Node: "w1", Access: shaping.Access{RateDown: new(shaping.Rate(4e6))}},
		shaping.Refusal{Pairs: [][2]string{{"coordinator", "w1"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if written(t, base) != before {
		t.Error("the base plan changed")
	}
	names := []string{"coordinator", "w0", "w1", "w2"}
	cut := map[string]bool{"w1w2": true}
	for _, a := range names[:2] {
		for _, b := range names[2:] {
			cut[a+b], cut[b+a] = true, true
		}
	}
	for i, a := range names {
		for j, b := range names {
			if plan.Paths[i][j].Cut != cut[a+b] {
				t.Errorf("%s to %s: cut is %v", a, b, plan.Paths[i][j].Cut)
			}
			if refused := a+b == "coordinatorw1" || a+b == "w1coordinator"; plan.Paths[i][j].Refused != refused {
				t.Errorf("%s to %s: refused is %v", a, b, !refused)
			}
		}
	}
	if got := plan.Nodes[1]; got.RateUp != 1e6 || got.RateDown != 0 || got.AccessOneWayDelay != *ms(5) {
		t.Errorf("w0 is %+v", got)
	}
	if got := plan.Nodes[2]; got.Up() != 2e6 || got.RateUp != 5e6 || got.Down() != 4e6 {
		t.Errorf("w1 is %+v, want the trace's rate up, and down the later one", got)
	}
	want := shaping.PathPlan{OneWayDelay: *ms(46), LossBurst: shaping.LossBurst{Enter: 0.1, Leave: 0.5, LossInside: 1}}
	if got := plan.Paths[1][0]; got != want {
		t.Errorf("w0 to coordinator is %+v, want %+v", got, want)
	}
	if got, want := plan.Paths[0][1], (shaping.PathPlan{OneWayDelay: *ms(16), Loss: 0.01}); got != want {
		t.Errorf("coordinator to w0 is %+v, want %+v", got, want)
	}
}

func TestComposeNamesTheFault(t *testing.T) {
	base := mustPlan(t, 2, `default: {one_way_delay: 10ms}`)
	for _, c := range []struct {
		fault shaping.Fault
		want  string
	}{
		{nil, "faults[1] is nil: leave it out"},
		{shaping.Partition{}, "faults[1].nodes is empty: name the nodes to cut off"},
		{shaping.Partition{Nodes: []string{"w0", "w7"}}, `faults[1].nodes[1]: there is no node "w7"; the nodes are coordinator, w0, w1`},
		{shaping.Cut{}, "faults[1].paths is empty: name the paths to cut"},
		{shaping.Cut{Paths: []shaping.Direction{{From: "w0", To: "w0"}}}, `faults[1].paths[0].to: "w0" is also the path's "from"; a path joins two different nodes`},
		{shaping.Refusal{}, "faults[1].pairs is empty: name the pairs to keep apart"},
		{shaping.Refusal{Pairs: [][2]string{{"w0", "x"}}}, `faults[1].pairs[0].to: there is no node "x"; the nodes are coordinator, w0, w1`},
		{shaping.Paced{Node: "w0", Now: 2e6, Peak: 1e6}, "faults[1].now: 2mbit is not between 0 and the trace's highest rate of 1mbit"},
		{shaping.Paced{Node: "x", Now: 1e6, Peak: 1e6}, `faults[1].node: there is no node "x"; the nodes are coordinator, w0, w1`},
		{shaping.AccessChange{Node: "x"}, `faults[1].node: there is no node "x"; the nodes are coordinator, w0, w1`},
		{shaping.AccessChange{Node: "w0", Access: shaping.Access{RateUp: new(shaping.Rate(-1))}}, "faults[1].rate_up: -1 bit/s is negative; leave it out for an unlimited rate"},
		{shaping.PathChange{From: "w0", To: "w1", Path: shaping.Path{Jitter: ms(20)}}, "faults[1].jitter: from w0 to w1: 20ms exceeds the one-way delay of 10ms, and a packet cannot arrive before it was sent; lower the jitter or raise one_way_delay"},
	} {
		_, err := shaping.Compose(base, []shaping.Fault{shaping.Cut{Paths: []shaping.Direction{{From: "w0", To: "w1"}}}, c.fault})
		if err == nil || strings.Split(err.Error(), "\n")[0] != c.want {
			t.Errorf("%+v gives %v, want %s", c.fault, err, c.want)
		}
	}
}

// randomFault draws any kind of fault for nodes of these names.
func randomFault(r *rand.Rand, names []string) shaping.Fault {
	order := r.Perm(len(names))
	from, to := names[order[0]], names[order[1]]
	share := func() *shaping.Probability { return new(shaping.Probability(r.IntN(100)) / 100) }
	switch r.IntN(6) {
	case 4:
		return shaping.Refusal{Pairs: [][2]string{{from, to}}}
	case 5:
		return shaping.Paced{Node: from, Down: r.IntN(2) == 0, Peak: 9e6, Now: shaping.Rate(1 + r.Int64N(9e6))}
	case 0:
		f := shaping.Partition{}
		for _, i := range order[:1+r.IntN(len(names)-1)] {
			f.Nodes = append(f.Nodes, names[i])
		}
		return f
	case 1:
		return shaping.Cut{Paths: []shaping.Direction{{From: from, To: to}}}
	case 2:
		return shaping.AccessChange{Node: from, Access: shaping.Access{
			RateDown: new(shaping.Rate(1+r.IntN(100)) * 1e6), AccessOneWayDelay: ms(r.IntN(20)),
			Queue: &shaping.Queue{Time: *ms(r.IntN(100))},
		}}
	}
	path := shaping.Path{OneWayDelay: ms(30 + r.IntN(50)), Jitter: ms(r.IntN(8)), Duplicate: share(), Reorder: share(), Corrupt: share()}
	path.JitterDistribution = new(shaping.JitterDistribution(r.IntN(3)))
	if r.IntN(2) == 0 {
		path.Loss = share()
	} else {
		path.LossBurst = &shaping.LossBurst{Enter: 0.01, Leave: 0.1, LossInside: 0.5}
	}
	return shaping.PathChange{From: from, To: to, Path: path}
}

// TestFaultsLeaveNothingBehind: after 1,000 faults applied and cleared in any
// order the base plan is what there is, and on the way a path is cut exactly
// while a fault says so.
func TestFaultsLeaveNothingBehind(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	base := mustPlan(t, 5, `default: {one_way_delay: 40ms, jitter: 1ms, loss: 1%, rate_up: 10mbit, access_one_way_delay: 1ms}`)
	names := []string{"coordinator", "w0", "w1", "w2", "w3", "w4"}
	want := written(t, base)
	var active []shaping.Fault
	for step := range 1000 {
		if r.IntN(2) == 0 || len(active) == 0 {
			active = append(active, randomFault(r, names))
		} else {
			k := r.IntN(len(active))
			active = slices.Delete(active, k, k+1)
		}
		plan, err := shaping.Compose(base, active)
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		for i, a := range names {
			for j, b := range names {
				cut := i != j && slices.ContainsFunc(active, func(f shaping.Fault) bool {
					switch f := f.(type) {
					case shaping.Partition:
						return slices.Contains(f.Nodes, a) != slices.Contains(f.Nodes, b)
					case shaping.Cut:
						return f.Paths[0] == shaping.Direction{From: a, To: b}
					}
					return false
				})
				if plan.Paths[i][j].Cut != cut {
					t.Fatalf("step %d: %s to %s: cut is %v with %+v", step, a, b, !cut, active)
				}
			}
		}
		if step%50 == 49 {
			active = nil
		}
		if plan, err = shaping.Compose(base, active); len(active) == 0 && (err != nil || written(t, plan) != want) {
			t.Fatalf("step %d: without faults: %v", step, err)
		}
	}
	if d := base.Paths[1][2].OneWayDelay; d != shaping.Duration(42*time.Millisecond) {
		t.Errorf("the base plan has changed to %v", d)
	}
}
