package bench

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// pin keeps the calling goroutine on one processor until release is called. By
// itself the kernel runs threads that start together on one processor for
// longer than a batch takes. If pinning is refused, nothing happens.
func pin(k int) (release func()) {
	runtime.LockOSThread()
	var allowed, one unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil {
		return runtime.UnlockOSThread
	}
	for cpu := range len(allowed) * 64 {
		if !allowed.IsSet(cpu) {
			continue
		}
		if k == 0 {
			one.Set(cpu)
			break
		}
		k--
	}
	if one.Count() == 0 || unix.SchedSetaffinity(0, &one) != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		if unix.SchedSetaffinity(0, &allowed) == nil {
			runtime.UnlockOSThread() // otherwise the thread ends with the goroutine
		}
	}
}
