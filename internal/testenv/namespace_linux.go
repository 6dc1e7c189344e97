package testenv

import (
	"testing"

	"golang.org/x/sys/unix"

	"testbed/internal/thread"
)

// InNewNamespace runs f on a thread of its own in a new network namespace, and
// waits for it. The thread then ends, so the namespace lives only as long as
// something that f leaves open in it. f may end the test only by returning: it
// must not call t.FailNow and the like.
func InNewNamespace(t testing.TB, f func()) {
	t.Helper()
	var err error
	thread.Do(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			f()
		}
	})
	if err != nil {
		t.Fatalf("creating a network namespace: %v", err)
	}
}
