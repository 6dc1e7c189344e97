package adaptive_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"testbed/policy"
	_ "testbed/policy/adaptive"
)

// rounds plays rounds in which every member takes what took says, an outer step
// takes a tenth of that, and fetching state lag, and tells about each close.
func rounds(t *testing.T, p policy.Policy, members, n int, lag policy.Time, took func(round int, id policy.ID) policy.Time, closed func(c *policy.Close, at policy.Time)) {
	t.Helper()
	m, err := policy.New(policy.Config{Policy: p, TargetOuterSteps: n, HeartbeatPeriod: 1e9, HeartbeatMissThreshold: 5})
	if err != nil {
		t.Fatal(err)
	}
	type event struct {
		at policy.Time
		e  policy.Event
	}
	var queue []event
	later := func(at policy.Time, e policy.Event) { queue = append(queue, event{at, e}) }
	for id := range members {
		later(0, policy.Join{ID: policy.ID(id), HasState: true})
	}
	for !m.Finished() && len(queue) > 0 {
		next := 0
		for i := range queue { // Timers come last of an instant
			_, timer := queue[i].e.(policy.Timer)
			_, held := queue[next].e.(policy.Timer)
			if queue[i].at < queue[next].at || queue[i].at == queue[next].at && held && !timer {
				next = i
			}
		}
		e := queue[next]
		queue = append(queue[:next], queue[next+1:]...)
		for _, a := range m.Step(e.at, e.e) {
			switch a := a.(type) {
			case *policy.StartRound:
				for _, id := range a.IDs {
					later(e.at+took(a.Round, id), policy.Arrival{ID: id, Round: a.Round})
				}
			case *policy.Close:
				closed(a, e.at)
			case *policy.Reduce:
				for _, id := range a.Participants {
					later(e.at+100, policy.Reduced{ID: id, Round: a.Round, Epoch: a.Epoch})
				}
			case *policy.Fetch:
				later(e.at+lag, policy.StateFetched{ID: a.ID, OuterSteps: a.OuterSteps})
			case *policy.Evict:
				t.Fatalf("round %d evicts %d", a.Round, a.ID)
			case *policy.WakeAt:
				later(a.At, policy.Timer{})
			}
		}
	}
	if !m.Finished() {
		t.Fatalf("not finished after %d outer steps", m.OuterSteps())
	}
}

// TestAdaptiveLeavesTheHealthyIn: of members whose steps vary log-normally, by
// up to 0.3, hardly any is ever left out.
func TestAdaptiveLeavesTheHealthyIn(t *testing.T) {
	for _, members := range []int{4, 16, 32} {
		for _, sigma := range []float64{0, 0.1, 0.3} {
			rng := rand.New(rand.NewPCG(1, uint64(members)))
			p, _ := policy.Named("adaptive")
			all, left := 0, 0
			rounds(t, p, members, 60, 200, func(int, policy.ID) policy.Time {
				return policy.Time(2000 * math.Exp(sigma*rng.NormFloat64()))
			}, func(c *policy.Close, _ policy.Time) {
				if c.Round > 10 {
					all += members
					left += len(c.Late)
				}
			})
			if float64(left) > 0.01*float64(all) {
				t.Errorf("%d members, sigma %g: %d of %d healthy arrivals left out", members, sigma, left, all)
			}
		}
	}
}

// TestAdaptiveDoesNotWaitForTheSlow: a member that is ten times slower is not
// waited for, but for a chance now and then; when it is well again, it is soon
// back, and stays.
func TestAdaptiveDoesNotWaitForTheSlow(t *testing.T) {
	p, _ := policy.Named("adaptive")
	var last policy.Time
	waited, missing := 0, 0
	rounds(t, p, 4, 60, 200, func(round int, id policy.ID) policy.Time {
		if id == 3 && round <= 40 {
			return 20_000
		}
		return 2000 + 10*policy.Time(round%5)
	}, func(c *policy.Close, at policy.Time) {
		if took := at - last; c.Round > 1 && c.Round <= 40 && took > 2250 {
			waited++
		}
		if c.Round > 40 && len(c.Late) > 0 {
			missing++
		}
		if (c.Round == 1 || c.Round == 40) && (len(c.Late) != 1 || c.Late[0] != 3) {
			t.Errorf("round %d closed without %v", c.Round, c.Late)
		}
		last = at
	})
	if waited > 12 || missing > 16 {
		t.Errorf("waited for it in %d of 40 rounds; left out in %d of the 20 in which it was well", waited, missing)
	}
}

// TestAdaptiveWaitsWhenEverybodyIsLate, because that is nobody's fault.
func TestAdaptiveWaitsWhenEverybodyIsLate(t *testing.T) {
	p, _ := policy.Named("adaptive")
	rounds(t, p, 8, 30, 200, func(round int, id policy.ID) policy.Time {
		d := 2000 + 20*policy.Time(id) + policy.Time(round)
		if round%7 == 6 {
			d *= 3
		}
		return d
	}, func(c *policy.Close, _ policy.Time) {
		if len(c.Late) > 0 {
			t.Errorf("round %d closed without %v", c.Round, c.Late)
		}
	})
}

// TestAdaptiveChoosesWhoPays: of two members that are twice as slow as six
// others the rate of contributions is better off without, of four it is not.
func TestAdaptiveChoosesWhoPays(t *testing.T) {
	for slow, want := range map[int]int{2: 2, 6: 0} {
		p, _ := policy.Named("adaptive")
		late := 0
		rng := rand.New(rand.NewPCG(2, 0))
		rounds(t, p, 8, 30, 200, func(_ int, id policy.ID) policy.Time {
			d := policy.Time(2000 + rng.IntN(100))
			if int(id) < slow {
				d *= 2
			}
			return d
		}, func(c *policy.Close, _ policy.Time) {
			if c.Round == 30 {
				late = len(c.Late)
			}
		})
		if late != want {
			t.Errorf("%d of 8 are twice as slow: closed without %d, want %d", slow, late, want)
		}
	}
}
