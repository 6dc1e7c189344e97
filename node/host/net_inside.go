//go:build linux

package host

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"testbed/node/host/sandbox"
	"testbed/scenarios"
)

const (
	// ownBin is a directory in the sandbox's private /run with a link to this
	// binary, so that `testbed in` works however the binary was started.
	ownBin = "/run/testbed-bin"
	// ownExe is this binary: the sandbox's init runs it.
	ownExe = "/proc/1/exe"
)

// runNet runs the user's program on the network.
func (i *inside) runNet() error {
	var sent signals
	go sent.pass(i.words)
	if err := i.bringUp(); err != nil {
		return err
	}
	if n := workerInjects(i.Scenario); n > 0 {
		i.tell(note{Stage: fmt.Sprintf("%d injects of %s are for workers, and there are none here: only those of links are carried out", n, i.Scenario.Name)})
	}
	for _, name := range i.Net.Pcap {
		if err := i.capture(name, i.Net.PcapDir, i.Net.PcapLimit); err != nil {
			return err
		}
	}
	exit, err := i.runProgram(&sent)
	if err != nil {
		return err
	}
	if err := i.endCaptures(); err != nil {
		return err
	}
	if err := i.takeDown(); err != nil {
		return err
	}
	if r := i.routed; r != nil && unplanned(r) > 0 {
		i.tell(note{Stage: fmt.Sprintf("the network dropped %d packets for lack of room, which no plan asks for: this machine was too slow", unplanned(i.routed))})
	}
	i.tell(note{Exit: &exit})
	return nil
}

// workerInjects counts the injects that happen to a worker.
func workerInjects(s *scenarios.Scenario) int {
	n := 0
	for _, in := range s.Injects {
		if in.ID != nil {
			n++
		}
	}
	return n
}

// runProgram starts the program and waits for it. It returns an error where
// the network fails, and the program's exit code otherwise.
func (i *inside) runProgram(sent *signals) (exit int, err error) {
	env, err := i.programEnv()
	if err != nil {
		return 0, err
	}
	path, err := exec.LookPath(i.Net.Command[0])
	if err != nil {
		code, err := notStarted(err)
		fmt.Fprintf(os.Stderr, "testbed: %v\n", err)
		return code, nil
	}
	program, early, err := sent.start(i.box, sandbox.Command{
		Name: i.Net.Command[0], NetNS: -1, Path: path, Args: i.Net.Command[1:], Env: env, Terminal: i.Net.Terminal,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		code, err := notStarted(err)
		fmt.Fprintf(os.Stderr, "testbed: %v\n", err)
		return code, nil
	}
	if early != 0 {
		return 128 + int(early), nil
	}
	i.tell(note{Started: true})
	i.scheduleFaults(time.Now(), 0, func(_, _ time.Duration) {})
	go func() {
		<-program.Done()
		i.inbox <- func() error { return nil } // wakes await
	}()
	for {
		select {
		case <-program.Done():
			return exitOf(program.Wait()), nil
		case m := <-i.inbox:
			if err := i.handle(m); err != nil {
				return 0, err
			}
		}
	}
}

// exitOf is a program's exit code as a shell gives it.
func exitOf(s sandbox.Status) int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

// signals hands the signals that the outer process was sent to all that the
// program has started, as a terminal does. One that comes before the program
// has started keeps it from starting.
type signals struct {
	mu      sync.Mutex
	program *sandbox.Process
	early   syscall.Signal
}

func (s *signals) pass(words *json.Decoder) {
	for {
		var w word
		if words.Decode(&w) != nil {
			return
		}
		s.mu.Lock()
		if s.program == nil {
			s.early = w.Signal
		} else {
			_ = s.program.SignalGroup(w.Signal) // the only error is that it has ended
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

func (i *inside) programEnv() ([]string, error) {
	if err := os.MkdirAll(ownBin, 0o755); err != nil {
		return nil, fmt.Errorf("making %s: %w", ownBin, err)
	}
	if err := os.Symlink(ownExe, filepath.Join(ownBin, "testbed")); err != nil {
		return nil, fmt.Errorf("making %s: %w", ownBin, err)
	}
	// In this process too, so that the program itself may be testbed.
	if err := os.Setenv("PATH", ownBin+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		return nil, err
	}
	names := i.net.Nodes()
	env := []string{envNodes + "=" + strings.Join(names, " ")}
	for _, name := range names {
		env = append(env, addrVariable(name)+"="+i.addr(name).String())
	}
	return env, nil
}
