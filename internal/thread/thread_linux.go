// Package thread runs functions on threads that end with them.
package thread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Do calls f on a thread that ends when f returns. Namespaces and priorities that f
// gives the thread end with it.
//
// The thread is never the main one of the process. Go's runtime does not end that
// thread with a locked goroutine but parks it for ever (runtime.mexit), and with it
// the namespaces that it is in.
func Do(f func()) {
	done := make(chan struct{})
	go own(f, done)
	<-done
}

func own(f func(), done chan struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		go own(f, done) // elsewhere, because the main thread is locked here until it is done
		<-done
		runtime.UnlockOSThread()
		return
	}
	defer close(done)
	f() // never unlocked: the thread ends
}
