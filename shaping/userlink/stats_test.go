package userlink

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
)

func TestHistogramIsOffByAnEighthAtMost(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "d"))
		var h histogram
		h.add(d)
		h.add(24 * time.Hour) // so that the maximum does not help
		if got := h.quantile(0.49); got < d || got > d+d/8 {
			t.Errorf("the median of %v and more is %v", d, got)
		}
	})
	var h histogram
	for i := range 1000 {
		h.add(time.Duration(i) * time.Microsecond)
	}
	if p := h.quantile(0.99); p < 990*time.Microsecond || p > 999*time.Microsecond {
		t.Errorf("p99 of 0…999 µs is %v", p)
	}
}
