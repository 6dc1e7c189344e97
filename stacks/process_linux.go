package stacks

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
)

// refused are errors of a machine that gives an ordinary user no namespaces, or no more
// of them.
var refused = []error{syscall.EPERM, syscall.EACCES, syscall.ENOSPC, syscall.EINVAL, syscall.EUSERS}

// contain runs a command to its end. All its descendants end with it, and with this
// process, because the command is the first process of a PID namespace. Where there can
// be no such namespace, at least the command ends with this process.
func contain(prepare func() *exec.Cmd) error {
	runtime.LockOSThread() // the signal at the parent's death is bound to the thread
	defer runtime.UnlockOSThread()
	cmd := prepare()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Cloneflags: syscall.CLONE_NEWPID}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	}
	err := cmd.Start()
	if slices.ContainsFunc(refused, func(e error) bool { return errors.Is(err, e) }) {
		return tether(prepare())
	}
	if err != nil {
		return err
	}
	return cmd.Wait()
}

// tether runs a command to its end. The command ends with this process, in whatever way
// this process ends.
func tether(cmd *exec.Cmd) error {
	runtime.LockOSThread() // the signal at the parent's death is bound to the thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }() // what is left of its group
	return cmd.Wait()
}
