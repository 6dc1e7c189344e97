//go:build !linux

package program

import (
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

// kill ends a process, which may be gone.
func kill(p *os.Process) { _ = p.Kill() }
