package thread

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain keeps the main thread for the test that needs it: it is the one that this
// goroutine runs on as long as it is locked.
func TestMain(m *testing.M) {
	if unix.Gettid() == unix.Getpid() {
		runtime.LockOSThread()
		fromMain()
		runtime.UnlockOSThread()
	}
	os.Exit(m.Run())
}

// seen is what fromMain found, in the order of threads, and whether it is known.
var seen struct{ main, thread int }

func fromMain() {
	done := make(chan struct{})
	seen.main = unix.Gettid()
	own(func() { seen.thread = unix.Gettid() }, done)
}

// TestNeverOnTheMainThread, which would be parked for ever in place of ending.
func TestNeverOnTheMainThread(t *testing.T) {
	if seen.main == 0 {
		t.Fatal("TestMain does not run on the main thread")
	}
	if seen.thread == seen.main || seen.thread == 0 {
		t.Errorf("called on the main thread, f ran on thread %d of process %d", seen.thread, seen.main)
	}
}

// TestThreadsEnd: the threads are gone when the calls have returned.
func TestThreadsEnd(t *testing.T) {
	threads := map[int]bool{}
	for range 100 {
		Do(func() { threads[unix.Gettid()] = true })
	}
	if threads[unix.Getpid()] {
		t.Error("a function ran on the main thread")
	}
}
