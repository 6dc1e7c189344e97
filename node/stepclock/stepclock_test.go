package stepclock

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWhatRuns: a process that is stopped computes nothing, and one that hangs goes on
// computing.
func TestWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, began := New(), time.Now()
		at := func(what string, running, going time.Duration) {
			t.Helper()
			if got := c.Running(began); got != running {
				t.Errorf("%s: ran for %v, want %v", what, got, running)
			}
			if got := c.Going(began); got != going {
				t.Errorf("%s: was not paused for %v, want %v", what, got, going)
			}
		}
		time.Sleep(time.Second)
		c.Pause(true)
		c.Pause(true)
		time.Sleep(time.Second)
		at("stopped", time.Second, time.Second)
		c.Resume()
		c.Resume()
		time.Sleep(time.Second)
		at("again", 2*time.Second, 2*time.Second)
		c.Pause(false)
		time.Sleep(time.Second)
		at("hanging", 3*time.Second, 2*time.Second)
		c.Resume()
		at("at the end", 3*time.Second, 2*time.Second)
		if got := c.Running(time.Now()); got != 0 {
			t.Errorf("since now: %v", got)
		}
	})
}
