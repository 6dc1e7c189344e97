package node

import (
	"log/slog"
	"slices"
	"testing"

	"testbed/allreduce/ringorder"
	"testbed/internal/testscenario"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
)

// TestRingOrder: two regions, whose workers' ids take turns.
func TestRingOrder(t *testing.T) {
	var d ringorder.Ways
	for from := range policy.ID(6) {
		d.Workers = append(d.Workers, from)
		row := make([]float64, 6)
		for to := range row {
			if row[to] = 0.001; to%2 != int(from)%2 {
				row[to] = 0.05
			}
		}
		d.Delays = append(d.Delays, row)
	}
	c := &coordinator{cfg: CoordinatorConfig{CoordinatorSettings: NewCoordinatorSettings(testscenario.Resolve(t, parse(t, threeWorkers), scenarios.Baseline)), Ways: d, Log: slog.New(slog.DiscardHandler)}}
	for _, participants := range [][]policy.ID{{0, 1, 2, 3, 4, 5}, {0, 2, 3, 5}, {1, 2, 4, 5}, {3}} {
		e := record.Event{Type: record.ReduceStart, Participants: participants}
		c.orderRing(&e)
		order := c.order(participants)
		if !slices.Equal(slices.Sorted(slices.Values(order)), participants) || !slices.Equal(e.Ring.Order, order) {
			t.Fatalf("participants %v are ordered %v, recorded %v", participants, order, e.Ring.Order)
		}
		crossings := 0
		for k, id := range order {
			crossings += int(id^order[(k+1)%len(order)]) & 1
		}
		if crossings > 2 {
			t.Errorf("the ring %v crosses between the regions %d times", order, crossings)
		}
		if e.Ring.Latency > e.Ring.NaiveLatency || len(participants) == 6 && e.Ring.NaiveLatency != 10*1000 { // ten hops, of 1 ms of scenario time
			t.Errorf("ring %+v", e.Ring)
		}
	}
	if order := c.order([]policy.ID{0, 7}); !slices.Equal(order, []policy.ID{0, 7}) {
		t.Errorf("without a delay the order is %v", order)
	}
	c.cfg.Ways = ringorder.Ways{}
	if order := c.order([]policy.ID{0, 1, 2, 3}); !slices.Equal(order, []policy.ID{0, 1, 2, 3}) {
		t.Errorf("without delays the order is %v", order)
	}
}
