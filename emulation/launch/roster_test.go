//go:build linux

package launch

import (
	"testing"
	"time"

	"testbed/internal/cpuwait"
)

func TestDelays(t *testing.T) {
	var d delays
	for k, c := range []struct {
		now  cpuwait.Times
		want time.Duration
	}{
		{cpuwait.Times{1: 10, 2: 20}, 30},
		{cpuwait.Times{1: 15, 2: 20, 3: 1}, 36},
		{cpuwait.Times{1: 15, 3: 2}, 37}, // 2 has ended
		{cpuwait.Times{1: 15, 2: 1}, 38}, // 3 has ended, and another thread has the number 2
		{cpuwait.Times{1: 16, 2: 0}, 39}, // the number 2 has passed on again
		{cpuwait.Times{}, 39},
	} {
		if got := d.add(c.now); got != c.want {
			t.Errorf("%d: %d, want %d", k, got, c.want)
		}
	}
}

// TestMeterCountsWhatLives: a process that is not in a list still counts once.
func TestMeterCountsWhatLives(t *testing.T) {
	r, err := newRoster()
	if err != nil {
		t.Fatal(err)
	}
	own := r.spare // this process
	var m meter
	first := m.read(own)
	if first <= 0 {
		t.Fatalf("this process has computed for %v", first)
	}
	if again := m.read(nil); again < first || again > first+time.Minute {
		t.Errorf("%v after %v, and not in the list", again, first)
	}
	before := m.ended
	if m.read(own); m.ended != before {
		t.Errorf("%v of processes that have ended", m.ended)
	}
}
