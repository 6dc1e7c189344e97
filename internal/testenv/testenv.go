//go:build linux

// Package testenv says what tests need of the machine. Where it is missing a
// test is skipped with the reason, but fails if CI=true: there a skip would
// be a test that nobody runs.
package testenv

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"testbed/shaping/kernel"
)

// NeedNamespaces skips unless user and HTB links can be built here: as root, or
// inside a user namespace.
func NeedNamespaces(t testing.TB) {
	t.Helper()
	if err := kernel.Probe().Supports(kernel.BackendHTB); err != nil {
		Missing(t, err)
	}
}

// NeedNetem skips where the kernel has no netem, in CI too: CI's kernels may
// lack it, and real netem is tested in a guest with a kernel of its own. For
// any other reason it does what NeedNamespaces does.
func NeedNetem(t testing.TB) {
	t.Helper()
	NeedNamespaces(t)
	if err := kernel.Probe().Supports(kernel.BackendNetem); errors.Is(err, unix.ENOENT) {
		t.Skip(err)
	} else if err != nil {
		Missing(t, err)
	}
}

// Missing skips a test that lacks something, or fails it in CI.
func Missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("in CI this test may not be skipped: %v", err)
	}
	t.Skip(err)
}

// WatchSources looks at every source file below a folder. The go command reuses
// a test's result until a file that the test has looked at changes, and a test
// that builds programs imports nothing of them.
func WatchSources(t testing.TB, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == ".git" || d.Name() == "runs" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".s", ".mod", ".yaml", ".sh", ".py":
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

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
