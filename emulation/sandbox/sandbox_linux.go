package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	selfExe    = "/proc/self/exe"   // works even if the file has been deleted, as after go run
	argv0      = "testbed: sandbox" // shown by ps for init
	lifelineFD = 3

	// FirstFile is the descriptor of the first of Config.Files inside.
	FirstFile = lifelineFD + 1

	readyTimeout   = 60 * time.Second // set-up takes milliseconds; emulated machines are slower
	reportMaxBytes = 64 << 10
)

// Config is the configuration of a sandbox and its PID 1.
type Config struct {
	Args  []string   // arguments for the re-executed binary, without argv[0]
	Files []*os.File // inherited, as descriptors FirstFile, FirstFile+1, …

	Stdin, Stdout, Stderr *os.File // nil means /dev/null
}

// A Sandbox is a running sandbox, seen from outside.
type Sandbox struct {
	process  *os.Process
	lifeline *os.File

	reported chan struct{} // closed when Start no longer needs the lifeline
	done     chan struct{} // closed when init has been reaped
	state    *os.ProcessState
	err      error
}

// Start re-executes this binary as PID 1 of a new sandbox and returns once Init
// has finished there. The sandbox ends with this process, in whatever way this
// process ends. It has a session of its own: a terminal's Ctrl-C does not reach
// it.
//
// If Init fails, the error has Init's text. If the machine forbids sandboxes,
// the error is an *errs.UnsupportedError.
func Start(cfg Config) (*Sandbox, error) {
	if err := lacking("/run", os.DevNull); err != nil {
		return nil, err
	}
	ours, theirs, err := newLifeline()
	if err != nil {
		return nil, fmt.Errorf("starting the sandbox: %w", err)
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("starting the sandbox: %w", err)
	}
	defer null.Close()

	files := []*os.File{orNull(cfg.Stdin, null), orNull(cfg.Stdout, null), orNull(cfg.Stderr, null), theirs}
	userNS := !privileged()
	if userNS {
		raiseLimits()
	}
	attr := &os.ProcAttr{
		Env:   os.Environ(),
		Files: append(files, cfg.Files...),
		Sys:   sysProcAttr(userNS),
	}
	s := &Sandbox{lifeline: ours, reported: make(chan struct{}), done: make(chan struct{})}
	started := make(chan error)
	go s.keep(append([]string{argv0}, cfg.Args...), attr, started)
	if err := <-started; err != nil {
		ours.Close()
		return nil, startError(err, userNS)
	}
	theirs.Close() // otherwise a dead init would go unnoticed
	r, err := readReport(ours)
	close(s.reported)
	if err == nil && r.Error == "" {
		return s, nil
	}
	s.Kill()
	<-s.done
	switch {
	case err == nil:
		return nil, setUpError(r, userNS)
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("starting the sandbox: its init process ended before it was ready: %v", s.state)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("starting the sandbox: its init process did not report within %v", readyTimeout)
	default:
		return nil, fmt.Errorf("starting the sandbox: reading the report of its init process: %w", err)
	}
}

// newLifeline returns the two ends of the connection by which init notices the
// death of its parent, and on which it reports the result of its set-up once.
// It is a socket pair rather than a pipe, because both directions are needed.
func newLifeline() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting it with its init process: %w", err)
	}
	// Only our end: non-blocking files obey deadlines.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, fmt.Errorf("connecting it with its init process: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "lifeline"), os.NewFile(uintptr(fds[1]), "lifeline"), nil
}

func sysProcAttr(userNS bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Setsid:     true,
		Pdeathsig:  unix.SIGKILL,
	}
	if userNS {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// keep starts init, reports on started, and waits for init's end. It stays on
// one thread, because the parent-death signal fires when the thread that
// forked ends, not the process.
func (s *Sandbox) keep(argv []string, attr *os.ProcAttr, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	process, err := os.StartProcess(selfExe, argv, attr)
	s.process = process
	started <- err
	if err != nil {
		return
	}
	s.state, s.err = process.Wait()
	<-s.reported // a report from an init that has already ended still counts
	s.lifeline.Close()
	close(s.done)
}

// Wait waits until init has ended and returns its state. By then no process of
// the sandbox is left. It may be called more than once, and from several
// goroutines. A non-zero exit status is not an error.
func (s *Sandbox) Wait() (*os.ProcessState, error) {
	<-s.done
	if s.err != nil {
		return nil, fmt.Errorf("waiting for the end of the sandbox: %w", s.err)
	}
	return s.state, nil
}

// Kill ends the sandbox and everything in it at once. It does not wait. Killing
// a sandbox that has ended does nothing.
func (s *Sandbox) Kill() {
	// The only error left to a parent is that the process has ended.
	_ = s.process.Kill()
}

// A report is init's single report about its set-up: one line of JSON.
type report struct {
	Error  string        `json:"error,omitempty"` // empty: ready
	Errno  syscall.Errno `json:"errno,omitempty"`
	Target string        `json:"target,omitempty"` // if a mount was refused
}

func newReport(err error) report {
	if err == nil {
		return report{}
	}
	r := report{Error: err.Error()}
	errors.As(err, &r.Errno)
	if m, ok := errors.AsType[*mountError](err); ok {
		r.Target = m.target
	}
	return r
}

func (r report) send(w io.Writer) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// readReport reads one report from a file that obeys deadlines. It reads no
// further than the report's line, which is init's only line.
func readReport(f *os.File) (report, error) {
	if err := f.SetReadDeadline(time.Now().Add(readyTimeout)); err != nil {
		return report{}, err
	}
	var line []byte
	buf := make([]byte, 4096)
	for !bytes.HasSuffix(line, []byte("\n")) {
		n, err := f.Read(buf)
		if err != nil {
			return report{}, err
		}
		line = append(line, buf[:n]...)
		if len(line) > reportMaxBytes {
			return report{}, errors.New("the report is too long")
		}
	}
	var r report
	if err := json.Unmarshal(line, &r); err != nil {
		return report{}, fmt.Errorf("decoding the report: %w", err)
	}
	return r, nil
}

func orNull(f, null *os.File) *os.File {
	if f == nil {
		return null
	}
	return f
}
