//go:build linux

package shell

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// stdio are the standard files of a program in a sandbox: this process's own.
// If standard input is a terminal, each file that is a terminal is replaced by
// a terminal of the program's own. A terminal serves one session, and the
// sandbox has another. So the program has job control, and a Ctrl-C of its own.
type stdio struct {
	in, out, err *os.File
	terminal     *os.File // our end of the program's terminal, or nil
	fd           int      // of terminal
	theirs       *os.File
	before       *term.State
	resized      chan os.Signal
	shown        chan struct{} // closed when all output has been shown
}

func openStdio() (*stdio, error) {
	s := &stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	if !isTerminal(os.Stdin) {
		return s, nil
	}
	if err := s.openTerminal(); err != nil {
		return nil, fmt.Errorf("opening a terminal for the program: %w", err)
	}
	s.in = s.theirs
	screen := io.Discard
	for _, f := range []**os.File{&s.err, &s.out} {
		if isTerminal(*f) {
			screen, *f = *f, s.theirs
		}
	}
	var err error
	if s.before, err = term.MakeRaw(int(os.Stdin.Fd())); err != nil {
		return nil, fmt.Errorf("preparing the terminal: %w", err)
	}
	s.resized = make(chan os.Signal, 1)
	signal.Notify(s.resized, unix.SIGWINCH)
	go func() {
		for range s.resized {
			s.resize()
		}
	}()
	s.resize()
	go func() { _, _ = io.Copy(s.terminal, os.Stdin) }() // ends with this process
	s.shown = make(chan struct{})
	go func() {
		_, _ = io.Copy(screen, s.terminal) // until no process holds the other end
		close(s.shown)
	}()
	return s, nil
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

func (s *stdio) openTerminal() error {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	s.terminal, s.fd = os.NewFile(uintptr(fd), "terminal"), fd
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		s.terminal.Close()
		return os.NewSyscallError("ioctl TIOCSPTLCK", err)
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		s.terminal.Close()
		return os.NewSyscallError("ioctl TIOCGPTPEER", errno)
	}
	s.theirs = os.NewFile(peer, "terminal")
	return nil
}

func (s *stdio) resize() {
	size, err := unix.IoctlGetWinsize(int(os.Stdin.Fd()), unix.TIOCGWINSZ)
	if err == nil {
		_ = unix.IoctlSetWinsize(s.fd, unix.TIOCSWINSZ, size) // cosmetic
	}
}

// handedOver closes this process's copies of the program's files.
func (s *stdio) handedOver() {
	if s.theirs != nil {
		s.theirs.Close()
	}
}

// restore shows the last output and restores the terminal. It is called when
// the program and all its descendants have ended.
func (s *stdio) restore() {
	if s.terminal == nil {
		return
	}
	s.handedOver()
	select {
	case <-s.shown:
	case <-time.After(time.Second): // the user stopped the screen with Ctrl-S
	}
	signal.Stop(s.resized)
	_ = term.Restore(int(os.Stdin.Fd()), s.before)
}
