//go:build unix

// Package steady reads a clock that all processes of a machine share and that
// nobody can set.
package steady

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is CLOCK_MONOTONIC: the time since some moment before all processes of
// this machine began. It is the clock of Go's timers. Like them, it stands
// still while the machine is suspended.
func Now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
	return time.Duration(ts.Nano())
}
