//go:build linux

package network

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Self is a child of the sandbox's init, in its own process.
type Self struct {
	Log *slog.Logger

	spec    rawChild
	mu      sync.Mutex
	reports *json.Encoder
}

// RunChild runs the binary as a child of the sandbox's init: the program of its
// kind.
func RunChild(programs map[string]func(*Self) error) error {
	s := &Self{
		Log:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
		reports: json.NewEncoder(os.NewFile(reportsFD, "reports")),
	}
	err := s.run(programs)
	if err != nil {
		s.Log.Error("this process gives up", "err", err)
		s.report(Report{Error: err.Error()})
	}
	return err
}

func (s *Self) run(programs map[string]func(*Self) error) error {
	in := os.NewFile(specFD, "spec")
	err := json.NewDecoder(bufio.NewReader(in)).Decode(&s.spec)
	in.Close()
	if err != nil {
		return fmt.Errorf("reading the settings of this process: %w", err)
	}
	s.Log = s.Log.With("process", s.spec.Name)
	showName(s.spec.Name)
	program, ok := programs[s.spec.Kind]
	if !ok {
		return fmt.Errorf("internal error: the process %s is of the unknown kind %q", s.spec.Name, s.spec.Kind)
	}
	for fd := specFD; fd < filesFD+len(s.spec.FileNames); fd++ {
		unix.CloseOnExec(fd) // no program that the child starts keeps them open
	}
	if s.spec.Watched {
		go watchUsage(s.spec.Name, func(u Usage) { s.report(Report{Usage: &u}) })
		go watchStalls(func(stood time.Duration) { s.report(Report{Stalled: stood}) })
	}
	if err := slowMonitor(); err != nil {
		s.Log.Warn("this process takes more processor time than it should", "err", err)
	}
	return program(s)
}

// showName sets the process's name in top and ps -o comm.
func showName(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte("testbed: "+name), 0) // longer ones are cut off
}

func (s *Self) report(r Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reports.Encode(r); err != nil {
		s.Log.Error("the sandbox no longer reads the reports of this process", "err", err)
		os.Exit(1)
	}
}

// Spec decodes the spec of the kind's own type.
func (s *Self) Spec(to any) error {
	if err := json.Unmarshal(s.spec.Spec, to); err != nil {
		return fmt.Errorf("reading the settings of this process: %w", err)
	}
	return nil
}

// Ready reports that the child is working.
func (s *Self) Ready() { s.report(Report{Ready: true}) }

// Raise asks for priority over other programs for a thread of this process,
// which could not get it by itself. It may not be granted.
func (s *Self) Raise(tid int) { s.report(Report{Raise: tid}) }

// Tell sends data of the kind's own type, which must be encodable as JSON.
func (s *Self) Tell(data any) {
	raw, err := json.Marshal(data)
	if err != nil {
		s.report(Report{Error: err.Error()})
		return
	}
	s.report(Report{Data: raw})
}

// Commands reads the child's commands. It ends when there are no more. It must
// be called once.
func (s *Self) Commands() *json.Decoder {
	return json.NewDecoder(os.NewFile(commandsFD, "commands"))
}

// File returns the inherited file of a name, or nil if there is none. It must
// be called once for each.
func (s *Self) File(name string) *os.File {
	k := slices.Index(s.spec.FileNames, name)
	if k < 0 {
		return nil
	}
	return os.NewFile(uintptr(filesFD+k), name)
}
