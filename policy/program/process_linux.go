package program

import (
	"os"
	"syscall"
)

// attributes make a process die with the thread that starts it, and lead a
// process group, so that it does not receive an interrupt at a terminal.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// kill ends a process and all of its group, which may be gone.
func kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
