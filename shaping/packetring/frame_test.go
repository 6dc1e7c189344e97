package packetring

import (
	"testing"
	"time"
)

// TestWaited: a wall clock that was set, by whatever, takes no more from a frame's delay
// than the time that nobody looked.
func TestWaited(t *testing.T) {
	const unseen = 2 * time.Millisecond
	stamp := time.Unix(1_700_000_000, 0)
	for wall, want := range map[time.Duration]time.Duration{
		0: 0, time.Millisecond: time.Millisecond, unseen: unseen,
		30 * time.Second: unseen, 20 * 365 * 24 * time.Hour: unseen, // set forward
		-30 * time.Minute: 0, -20 * 365 * 24 * time.Hour: 0, // set back
	} {
		if got := Waited(stamp.Add(wall), stamp, unseen); got != want {
			t.Errorf("the clock shows %v more: waited %v, want %v", wall, got, want)
		}
	}
	if got := Waited(stamp.Add(time.Hour), stamp, time.Hour); got != time.Second {
		t.Errorf("nobody has looked for an hour: waited %v, want a second", got)
	}
}
