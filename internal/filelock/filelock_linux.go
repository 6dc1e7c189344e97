// Package filelock locks files, and distinguishes a locked file from a file
// system that cannot lock.
package filelock

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another process has the lock.
var ErrHeld = errors.New("another process holds the lock")

// ErrUnsupported says that the file system cannot lock.
var ErrUnsupported = errors.New("its file system does not support locks")

// Try locks a file until it is closed, and does not wait. The error is ErrHeld,
// ErrUnsupported, or another one, with the system's message.
func Try(file *os.File) error {
	for {
		err := flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("locking %s: %w", file.Name(), ErrHeld)
		case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
			return fmt.Errorf("locking %s: %w (flock: %w)", file.Name(), ErrUnsupported, err)
		}
		return fmt.Errorf("locking %s: %w", file.Name(), err)
	}
}

var flock = unix.Flock
