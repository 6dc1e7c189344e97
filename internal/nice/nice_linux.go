// Package nice lets long computing yield to everything else.
package nice

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Thread gives the goroutine that calls it a thread of its own of the lowest
// priority, until it ends. If that is refused, it computes at the usual
// priority. It returns the number of the thread.
func Thread() (tid int) {
	runtime.LockOSThread() // never undone: the thread ends with the goroutine
	tid = unix.Gettid()
	_ = unix.Setpriority(unix.PRIO_PROCESS, tid, 19)
	return tid
}
