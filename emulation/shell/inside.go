//go:build linux

package shell

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"testbed/emulation/cluster"
	"testbed/emulation/network"
	"testbed/emulation/programs"
	"testbed/emulation/sandbox"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/scenarios/faults"
)

// RunProgram is Run in the sandbox.
func RunProgram(s *network.Supervisor, raw json.RawMessage) error {
	var spec programSpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return fmt.Errorf("internal error: parsing the sandbox's job, a program for \"testbed net\": %w", err)
	}
	var sent signals
	go sent.pass(s)
	ground, err := programs.Build(s, &spec.Network)
	if err != nil {
		return err
	}
	if n := workerInjects(spec.Network.Faults); n > 0 {
		s.Tell("testbed net starts no workers, and therefore ignores %s of %s", errs.Count(n, "worker inject"), spec.Network.Name)
	}
	note, err := runProgram(ground, &spec, &sent)
	if err != nil {
		return err
	}
	if note.Fidelity, err = ground.End(); err != nil {
		return err
	}
	return s.Hand(note)
}

// workerInjects counts the injects into workers.
func workerInjects(s *faults.Schedule) int {
	n := 0
	for _, in := range s.Injects {
		if in.ID != nil {
			n++
		}
	}
	return n
}

// runProgram starts the program and waits for it. It returns an error if the
// network fails, and otherwise the program's exit code.
func runProgram(g *programs.Ground, spec *programSpec, sent *signals) (n programNote, err error) {
	s := g.S
	env, err := g.Env()
	if err == nil && g.Hosts.Several() {
		err = cluster.ServeExec(s, g.Links, programs.ExecSocket)
	}
	if err != nil {
		return n, err
	}
	failed := func(err error) (programNote, error) {
		code, err := programs.NotStarted(err)
		fmt.Fprintf(os.Stderr, "testbed: %v\n", err)
		return programNote{Exit: &code}, nil
	}
	path, err := exec.LookPath(spec.Command[0])
	if err != nil {
		return failed(err)
	}
	at := network.Hub
	if spec.At != "" {
		if !sandbox.HasMachine(spec.At) {
			return n, errs.Usagef("--at %s: the node is on another host; name a node of this host, or leave --at out and call \"testbed in %[1]s CMD\" inside \"testbed net\"", spec.At)
		}
		at, env = g.Links.NS(spec.At), programs.InNode(env, spec.At)
	}
	clock := &programs.Clock{Rule: spec.Clock}
	if err := hear(g, clock); err != nil {
		return n, err
	}
	program, early, err := sent.start(s.Box, sandbox.Command{
		Name: spec.Command[0], NetNS: at, Path: path, Args: spec.Command[1:], Env: env, Terminal: spec.Terminal,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		return failed(err)
	}
	if early != 0 {
		return programNote{Exit: new(128 + int(early))}, nil
	}
	if err := s.Hand(programNote{Started: true}); err != nil {
		return n, err
	}
	where := cmp.Or(spec.At, "hub")
	if err := g.RecordBegin(map[string][]string{where: spec.Command}, spec.Clock); err != nil {
		return n, err
	}
	if spec.Record {
		g.Sample()
	}
	if clock.Begin() {
		if err := g.StartClock(clock.By, 0); err != nil {
			return n, err
		}
	}
	ended := false
	go func() {
		<-program.Done()
		s.Post(func() error {
			ended = true
			return nil
		})
	}()
	if err := s.HandleUntil(func() bool { return ended }); err != nil {
		return n, err
	}
	if clock.By == "" {
		s.Tell("there is no verdict on the network, and no inject has happened: %s (--clock %s)", clock.Silent(), clock.Rule)
	}
	if err := g.EndSamples(); err != nil {
		return n, err
	}
	exit := exitOf(program.Wait())
	return programNote{Exit: &exit}, g.Record(record.ProgramEvent{Type: record.ProgramsFinish, Code: &exit})
}

// hear receives the marks of programs at the hub and in nodes and, if the clock
// waits for it, the first byte between workers.
func hear(g *programs.Ground, clock *programs.Clock) error {
	started := func(starts bool) error {
		if starts {
			return g.StartClock(clock.By, 0)
		}
		return nil
	}
	err := programs.ServeMarks("", func(m programs.Mark) {
		g.S.Post(func() error {
			if err := g.RecordMark(m); err != nil || m.Type != programs.MarkStart {
				return err
			}
			starts, objection := clock.Mark(m.Node)
			if objection != "" {
				g.S.Tell("%s", objection)
			}
			return started(starts)
		})
	})
	if err != nil || clock.Rule != programs.ClockTraffic {
		return err
	}
	return g.AwaitTraffic(func(from string) error { return started(clock.Carried(from)) })
}

// exitOf is a program's exit code in a shell's convention.
func exitOf(s sandbox.Status) int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

// signals passes the outer process's signals on to the program and its
// descendants, as a terminal does. A signal before the program's start prevents
// it.
type signals struct {
	mu      sync.Mutex
	program *sandbox.Process
	early   syscall.Signal
}

func (s *signals) pass(from *network.Supervisor) {
	for {
		var c signalCommand
		if from.NextCommand(&c) != nil {
			return
		}
		s.mu.Lock()
		if s.program == nil {
			s.early = c.Signal
		} else {
			_ = s.program.SignalGroup(c.Signal) // the only error is that it has ended
		}
		s.mu.Unlock()
	}
}

// start starts the program unless a signal came first.
func (s *signals) start(box *sandbox.Inside, c sandbox.Command) (program *sandbox.Process, early syscall.Signal, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early == 0 {
		s.program, err = box.Start(c)
	}
	return s.program, s.early, err
}
