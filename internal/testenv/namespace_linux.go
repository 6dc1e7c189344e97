package testenv

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// InNewNamespace runs f on a thread of its own in a fresh network namespace,
// and waits for it. The thread is left to die, so the namespace lives no
// longer than what f leaves open in it. f may end the test only by returning:
// it must not call t.FailNow and the like.
func InNewNamespace(t testing.TB, f func()) {
	t.Helper()
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			f()
		}
	}()
	<-done
	if err != nil {
		t.Fatalf("creating a network namespace: %v", err)
	}
}
