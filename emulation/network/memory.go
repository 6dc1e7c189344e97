//go:build linux

package network

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NewMemory makes memory that a process and the sandbox's init share. It has
// the size of its content. It is freed when both processes are gone.
func NewMemory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making memory for %s: %w", name, os.NewSyscallError("memfd_create", err))
	}
	return os.NewFile(uintptr(fd), "memory"), nil
}
