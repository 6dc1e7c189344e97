package testenv

import (
	"os"
	"syscall"
)

// WriteExecutable writes a program that the test is about to start. While the
// file is open for writing, no child may be forked: a child that has not yet
// called execve would hold the file open, and starting the program would fail
// with ETXTBSY (https://go.dev/issue/22315).
func WriteExecutable(name string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(name, text, 0o755)
}
