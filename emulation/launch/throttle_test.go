package launch

import (
	"math"
	"testing"
	"time"
)

// TestThrottleHoldsItsShare: a program that computes whenever it may has its share in the
// mean, whatever that is, and however late it is looked at.
func TestThrottleHoldsItsShare(t *testing.T) {
	for _, share := range []float64{0.01, 0.1, 0.25, 0.5, 0.9, 1.5} {
		for _, late := range []time.Duration{0, time.Millisecond, 13 * time.Millisecond} {
			const processors = 2
			var at, used time.Duration
			th := newThrottle(share, at, used)
			run := true
			for k := 0; at < 20*time.Second; k++ {
				step := throttleTick
				if k%5 == 0 {
					step += late
				}
				at += step
				if run {
					used += processors * step
				}
				run = th.look(at, used)
			}
			if got := used.Seconds() / at.Seconds(); math.Abs(got-share) > 0.01*share+0.003 {
				t.Errorf("share %v, %v late: %v", share, late, got)
			}
		}
	}
}

// TestThrottleKeepsNoCredit: who has waited may not compute for as long afterwards.
func TestThrottleKeepsNoCredit(t *testing.T) {
	th := newThrottle(0.1, 0, 0)
	if !th.look(10*time.Second, 0) {
		t.Fatal("it may not run")
	}
	used := throttleTick
	if th.look(10*time.Second+throttleTick, used) && th.look(10*time.Second+2*throttleTick, used+throttleTick) {
		t.Error("it still may after twice a bucket")
	}
}

func TestSlowShare(t *testing.T) {
	for _, c := range []struct {
		windows       []float64
		factor        float64
		before, meant float64
	}{
		{nil, 4, 1, 0.25},
		{[]float64{0.2, 0.2}, 4, 1, 0.25},                               // too few
		{[]float64{0.01, 0.4, 0.5, 0.02, 0.45, 0}, 5, 0.45, 0.09},       // it waits in between
		{[]float64{0, 0, 0}, 5, 0, leastShare},                          // it has not computed at all
		{[]float64{1, 1, 1, 1}, 1e9, 1, leastShare},                     // it still ends
		{[]float64{2.5, 3, 2.9, 0.1, 0.1, 0.1, 0.1, 0.1}, 2, 2.9, 1.45}, // many threads
	} {
		before, meant := slowShare(c.windows, c.factor)
		if math.Abs(before-c.before) > 1e-9 || math.Abs(meant-c.meant) > 1e-9 {
			t.Errorf("%v ÷ %v: %v, %v; want %v, %v", c.windows, c.factor, before, meant, c.before, c.meant)
		}
	}
}
