//go:build linux

package network

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emulation/sandbox"
	"testbed/internal/errs"
	"testbed/record"
)

// StartupPatience limits how long processes may take to start; emulated
// machines are slow.
const StartupPatience = 2 * time.Minute

// Supervisor is the init of a sandbox at its job. All its callbacks, and
// functions of Post, run in the single goroutine of the job: in Await and
// HandleUntil.
type Supervisor struct {
	Box *sandbox.Inside
	Dir record.Dir // as in JobSpec
	// OnUsage is called with watched children's usage of the machine; it may be
	// nil.
	OnUsage func(Usage)
	// OnStall is called at the end of a watched child's stall; it may be nil.
	OnStall func(process string, stood time.Duration)

	telling  sync.Mutex // guards notes
	notes    *json.Encoder
	commands *json.Decoder
	inbox    chan func() error
	network  *Network // nil before BringUp
	files    map[string]*os.File
	layout   *Layout // nil if everything is on this host
	remote   Remote  // nil if nothing is on other hosts, or if another host's job directs them
}

// NewSupervisor returns a supervisor that reads commands and writes notes. It
// can start processes once it has a Box.
func NewSupervisor(commands io.Reader, notes io.Writer) *Supervisor {
	return &Supervisor{
		inbox:    make(chan func() error, 1024),
		commands: json.NewDecoder(bufio.NewReader(commands)), notes: json.NewEncoder(notes),
	}
}

// RunInit runs the binary as the init of a sandbox: the job of its kind. It
// returns when the job is over. The kernel then removes everything left. A
// failed job has been reported, and is not an error here.
func RunInit(jobs map[string]func(s *Supervisor, spec json.RawMessage) error) error {
	// Links are made in the namespace of the thread that makes them.
	runtime.LockOSThread()
	box, err := sandbox.Init()
	if err != nil {
		return err
	}
	showName("sandbox")
	s := NewSupervisor(os.NewFile(sandbox.FirstFile, "commands"), os.NewFile(sandbox.FirstFile+1, "notes"))
	s.Box = box
	go func() {
		for range time.Tick(alivePeriod) {
			s.Note(Note{Alive: true})
		}
	}()
	if err := s.work(jobs); err != nil {
		s.Note(Failure(err))
		return nil
	}
	s.Note(Note{Done: true})
	return nil
}

func (s *Supervisor) work(jobs map[string]func(*Supervisor, json.RawMessage) error) error {
	var job rawJob
	if err := s.commands.Decode(&job); err != nil {
		return fmt.Errorf("internal error: reading the sandbox's task: %w", err)
	}
	do, ok := jobs[job.Kind]
	if !ok {
		return fmt.Errorf("internal error: the sandbox got a task of the unknown kind %q", job.Kind)
	}
	s.Dir, s.files = job.Dir, map[string]*os.File{}
	for k, name := range job.FileNames {
		fd := firstFile + k
		unix.CloseOnExec(fd) // no process keeps them open
		s.files[name] = os.NewFile(uintptr(fd), name)
	}
	return do(s, job.Spec)
}

// firstFile is the descriptor of the first of JobSpec.Files in the sandbox.
const firstFile = sandbox.FirstFile + 2

// Failure is the note of an error.
func Failure(err error) Note {
	n := Note{Error: err.Error()}
	if missing, ok := errors.AsType[*errs.UnsupportedError](err); ok {
		n.Error, n.Fix = missing.Missing, missing.Fix
	}
	if lost, ok := errors.AsType[*LostError](err); ok {
		n.Lost = lost.Host
	}
	return n
}

// Raise asks the user's process to give a thread in the sandbox priority over other programs.
func (s *Supervisor) Raise(tid int) { s.Note(Note{Raise: tid}) }

// Note sends a note to the user's process. If nobody listens any more, the
// sandbox is about to end.
func (s *Supervisor) Note(n Note) {
	s.telling.Lock()
	defer s.telling.Unlock()
	_ = s.notes.Encode(n)
}

// File returns the inherited file of a name (JobSpec.Files), nil if there is none.
func (s *Supervisor) File(name string) *os.File { return s.files[name] }

// Tell reports the job's activities or observations in words.
func (s *Supervisor) Tell(format string, args ...any) {
	s.Note(Note{Stage: fmt.Sprintf(format, args...)})
}

// Hand sends data of the job's own type.
func (s *Supervisor) Hand(data any) error {
	raw, err := json.Marshal(data)
	if err == nil {
		s.Note(Note{Data: raw})
	}
	return err
}

// NextCommand waits for a command of the user's process. It fails when there
// are no more.
func (s *Supervisor) NextCommand(to any) error { return s.commands.Decode(to) }

// Post makes the job's goroutine call a function, whose error ends the job.
func (s *Supervisor) Post(do func() error) { s.inbox <- do }

// HandleUntil handles messages until done, or an error.
func (s *Supervisor) HandleUntil(done func() bool) error {
	for !done() {
		if err := (<-s.inbox)(); err != nil {
			return err
		}
	}
	return nil
}

// Await handles messages until done, an error, or the end of patience.
func (s *Supervisor) Await(patience time.Duration, what string, done func() bool) error {
	return s.await(patience, func() string { return what }, done)
}

// AwaitAll is Await until nothing is missing. An error names what is.
func (s *Supervisor) AwaitAll(patience time.Duration, what string, missing func() []string) error {
	return s.await(patience,
		func() string { return fmt.Sprintf("%s (missing: %s)", what, strings.Join(missing(), " ")) },
		func() bool { return len(missing()) == 0 })
}

func (s *Supervisor) await(patience time.Duration, what func() string, done func() bool) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for !done() {
		select {
		case do := <-s.inbox:
			if err := do(); err != nil {
				return err
			}
		case <-timeout.C:
			return fmt.Errorf("timed out after %v waiting for %s%s; see %s", patience, what(), s.network.traffic(), s.logs())
		}
	}
	return nil
}

// Log is the place of a process's log, for an error message.
func (s *Supervisor) Log(name string) string {
	if s.Dir == "" {
		return "standard error"
	}
	return s.Dir.Log(name)
}

// logs is the place of all processes' logs.
func (s *Supervisor) logs() string {
	if s.Dir == "" {
		return "standard error"
	}
	return "the log files in " + s.Dir.Path(record.LogsDir)
}
