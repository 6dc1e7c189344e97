package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Command is a process to start inside a sandbox.
type Command struct {
	Name  string     // for errors and, for this binary, for ps
	Path  string     // the program; empty means this binary
	NetNS int        // descriptor of its network namespace, with Furnish's machine, if any; -1 means init's own
	Args  []string   // without argv[0]
	Env   []string   // added to init's environment; takes precedence
	Files []*os.File // inherited, as descriptors 3, 4, …

	Stdin, Stdout, Stderr *os.File // nil means /dev/null
	// Terminal makes Stdin, which must be a terminal without a session, the
	// process's controlling terminal.
	Terminal bool
}

// A Process is a child of the sandbox's init, started by Inside.Start.
type Process struct {
	name   string
	pid    int
	in     *Inside
	done   chan struct{}
	status Status // valid once done is closed
}

// Status is how a process ended.
type Status struct {
	Code   int            // exit code, -1 if a signal ended it
	Signal syscall.Signal // the signal that ended it, or 0
	// Memory reports that the kernel killed processes for lack of memory
	// meanwhile.
	Memory bool
}

// Success reports whether the process exited with code 0.
func (s Status) Success() bool { return s.Code == 0 }

func (s Status) String() string {
	if s.Memory {
		return "signal: " + s.Signal.String() + ": " + OutOfMemory
	}
	if s.Signal != 0 {
		return "signal: " + s.Signal.String()
	}
	return fmt.Sprintf("exit status %d", s.Code)
}

type startRequest struct {
	command Command
	result  chan<- startResult
}

type startResult struct {
	process *Process
	err     error
}

// Start starts a process in its network namespace, in a session of its own. The
// namespace's descriptor and the files remain the caller's, and may be closed
// after Start has returned.
func (in *Inside) Start(c Command) (*Process, error) {
	result := make(chan startResult)
	in.starts <- startRequest{c, result}
	r := <-result
	if r.err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, r.err)
	}
	return r.process, nil
}

// spawn starts all processes from one thread that never ends. A process
// starts in the network namespace of the thread that forks it, and its
// parent-death signal fires at the end of that thread.
func (in *Inside) spawn() {
	runtime.LockOSThread()
	// The thread changes between mount namespaces: its root and working directory
	// must be its own. This fails on no kernel that has namespaces.
	_ = unix.Unshare(unix.CLONE_FS)
	for r := range in.starts {
		p, err := in.start(r.command)
		r.result <- startResult{p, err}
	}
}

func (in *Inside) start(c Command) (*Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	path, argv := selfExe, []string{"testbed: " + c.Name} // shown by ps
	if c.Path != "" {
		path, argv = c.Path, []string{c.Path}
	}
	argv = append(argv, c.Args...)
	files := append([]*os.File{orNull(c.Stdin, null), orNull(c.Stdout, null), orNull(c.Stderr, null)}, c.Files...)
	attr := &syscall.ProcAttr{
		Env:   mergeEnv(c.Env),
		Files: descriptors(files),
		// A session of its own keeps "kill 0" in a script from reaching init.
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: c.Terminal, Pdeathsig: unix.SIGKILL},
	}
	defer runtime.KeepAlive(files)

	if err := in.enterOwn(); err != nil {
		return nil, err
	}
	m, err := in.machineOf(c.NetNS)
	switch {
	case err != nil:
	case m != nil:
		attr.Env = MachineEnv(attr.Env, m.name)
		err = m.enter(in.dir)
	case c.NetNS >= 0:
		if err = unix.Setns(c.NetNS, unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("entering the network namespace: %w", err)
		}
	}
	p := &Process{name: c.Name, in: in, done: make(chan struct{})}
	if err == nil {
		err = in.fork(p, path, argv, attr)
	}
	// The thread must not keep the node's namespaces alive. If this fails, the
	// next start still enters its own namespaces first.
	_ = in.enterOwn()
	if err != nil {
		return nil, err
	}
	return p, nil
}

// machineOf returns the machine of a network namespace, nil if it has none.
func (in *Inside) machineOf(netNS int) (*surroundings, error) {
	if netNS < 0 {
		return nil, nil
	}
	key, err := inode(netNS)
	if err != nil {
		return nil, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.machines[key], nil
}

// enterOwn moves the thread to init's own namespaces.
func (in *Inside) enterOwn() error { return in.home.enter(in.dir) }

// fork starts and registers a child under the lock. So the reaper finds even a
// child that ends at once, and leaves a child whose exec fails to ForkExec.
func (in *Inside) fork(p *Process, path string, argv []string, attr *syscall.ProcAttr) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return fmt.Errorf("executing %s: %w", path, err)
	}
	p.pid = pid
	in.children[pid] = p
	return nil
}

func descriptors(files []*os.File) []uintptr {
	fds := make([]uintptr, len(files))
	for i, f := range files {
		if f == nil {
			fds[i] = ^uintptr(0) // closed in the child
		} else {
			fds[i] = f.Fd()
		}
	}
	return fds
}

// reap waits for every child that ends, including orphans that become children
// of init. A signal may stand for several children.
func (in *Inside) reap(childEnded <-chan os.Signal) {
	for range childEnded {
		for in.reapOne() {
		}
	}
}

// reapOne reports whether there may be more to reap.
func (in *Inside) reapOne() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	var ws unix.WaitStatus
	pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
	if err == unix.EINTR {
		return true
	}
	if err != nil || pid == 0 {
		return false
	}
	if p, ok := in.children[pid]; ok {
		delete(in.children, pid)
		kills := OOMKills()
		p.status = newStatus(ws, kills > in.oomKills)
		in.oomKills = kills
		close(p.done)
	}
	return true
}

func newStatus(ws unix.WaitStatus, memory bool) Status {
	s := Status{Code: ws.ExitStatus()}
	if ws.Signaled() {
		s.Signal = ws.Signal()
		s.Memory = memory && s.Signal == unix.SIGKILL
	}
	return s
}

// Pid returns the process id inside the sandbox.
func (p *Process) Pid() int { return p.pid }

// Done returns a channel that is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the process has ended and returns its status. It may be
// called more than once, and from several goroutines.
func (p *Process) Wait() Status {
	<-p.done
	return p.status
}

// Kill ends the process at once. Killing a process that has ended does
// nothing.
func (p *Process) Kill() {
	_ = p.Signal(unix.SIGKILL) // the only error is that it has ended
}

// Signal sends a signal to the process. It returns os.ErrProcessDone if the
// process has ended.
func (p *Process) Signal(sig os.Signal) error { return p.signal(p.pid, sig) }

// SignalGroup sends a signal to the process and its descendants, except those
// that have moved to another process group. It returns os.ErrProcessDone if the
// process has ended.
func (p *Process) SignalGroup(sig os.Signal) error { return p.signal(-p.pid, sig) }

// KillGroup ends the descendants of an ended process, except those that have
// moved to another process group. It must be called right after Wait: no other
// group gets the number so soon.
func (p *Process) KillGroup() { _ = unix.Kill(-p.pid, unix.SIGKILL) } // there may be none

func (p *Process) signal(target int, sig os.Signal) error {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signalling %s: the signal %v is not supported", p.name, sig)
	}
	// Only the reaper frees a process id, and it needs this lock: the id cannot go
	// to another process meanwhile.
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	if p.in.children[p.pid] != p {
		return fmt.Errorf("signalling %s: %w", p.name, os.ErrProcessDone)
	}
	if err := unix.Kill(target, s); err != nil {
		return fmt.Errorf("signalling %s: %w", p.name, err)
	}
	return nil
}

// mergeEnv returns this process's environment with extra taking precedence.
// Without the merging, programs would disagree about which of two entries
// counts.
func mergeEnv(extra []string) []string {
	return (&exec.Cmd{Env: append(os.Environ(), extra...)}).Environ()
}
