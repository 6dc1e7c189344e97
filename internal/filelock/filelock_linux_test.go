package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhoHoldsTheLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	open := func() *os.File {
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return file
	}
	first, second := open(), open()
	if err := Try(first); err != nil {
		t.Fatal(err)
	}
	if err := Try(second); !errors.Is(err, ErrHeld) {
		t.Errorf("the second lock: %v", err)
	}
	first.Close()
	if err := Try(second); err != nil {
		t.Errorf("after the first was closed: %v", err)
	}
}

// TestErrorsOfFlock: only "would block" says that somebody has the lock.
func TestErrorsOfFlock(t *testing.T) {
	defer func() { flock = unix.Flock }()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for errno, want := range map[error]error{unix.EWOULDBLOCK: ErrHeld, unix.ENOLCK: ErrUnsupported, unix.ENOSYS: ErrUnsupported, unix.EOPNOTSUPP: ErrUnsupported, unix.EINVAL: ErrUnsupported, unix.EIO: unix.EIO} {
		interrupted := true
		flock = func(int, int) error {
			if interrupted {
				interrupted = false
				return unix.EINTR
			}
			return errno
		}
		if err := Try(file); !errors.Is(err, want) || errors.Is(err, ErrHeld) != (want == ErrHeld) {
			t.Errorf("%v: %v, want %v", errno, err, want)
		}
	}
}
