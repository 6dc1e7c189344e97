package shaping

import "testing"

// TestWindow: a connection's buffers hold two round trips of the fastest peer at least.
func TestWindow(t *testing.T) {
	rate := func(r Rate) *Rate { return &r }
	delay := func(ms int) *Duration { return new(Duration(ms * 1e6)) }
	for _, c := range []struct {
		name        string
		rate        *Rate
		oneWay      *Duration
		least, most int
	}{
		{"400 Mbit/s, 100 ms", rate(400e6), delay(50), 10_000_000, 13_000_000},
		{"400 Mbit/s, 200 ms", rate(400e6), delay(100), 20_000_000, 23_000_000},
		{"1 Mbit/s, 2 ms", rate(1e6), delay(1), leastWindow, leastWindow},
		{"unlimited, 10 ms", nil, delay(5), 25_000_000, 25_000_000},
		{"unlimited, 10 s", nil, delay(5000), MaxWindow, MaxWindow},
	} {
		spec := Spec{Default: Properties{Access: Access{RateUp: c.rate, RateDown: c.rate}, Path: Path{OneWayDelay: c.oneWay}}}
		plan, err := NewPlan(spec, []string{"w0", "w1", "w2"}, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Window(1); got < c.least || got > c.most {
			t.Errorf("%s: %d bytes, want %d to %d", c.name, got, c.least, c.most)
		}
	}
}
