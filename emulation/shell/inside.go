//go:build linux

package shell

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

	"testbed/emulation/cluster"
	"testbed/emulation/monitor"
	"testbed/emulation/network"
	"testbed/emulation/sandbox"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/scenarios/faults"
	"testbed/shaping/fidelity"
)

const (
	// ownBin is a directory in the sandbox's private /run with a link to this
	// binary, so that `testbed in` works however the binary was started.
	ownBin = "/run/testbed-bin"
	// ownExe is this binary: the sandbox's init runs it.
	ownExe = "/proc/1/exe"
	// execSocket is where the job hears of programs to start on other hosts.
	execSocket = ownBin + "/exec"
)

// RunProgram is Run in the sandbox.
func RunProgram(s *network.Supervisor, raw json.RawMessage) error {
	var spec programSpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	var sent signals
	go sent.pass(s)
	hosts, err := cluster.Connect(s, spec.Layout)
	if err != nil {
		return err
	}
	links, err := s.BringUp(spec.Plan, spec.Dilation, spec.Links, nil)
	if err != nil {
		return err
	}
	if n := workerInjects(spec.Faults); n > 0 {
		s.Tell("%d worker injects of %s are ignored: testbed net has no workers and applies link injects only", n, spec.Name)
	}
	over := make(chan struct{})
	defer close(over)
	if err := links.Kernel.KeepNeighbours(over); err != nil {
		return err
	}
	if err := links.Kernel.CountARP(); err != nil {
		return err
	}
	var captures []*capture
	for _, name := range spec.Pcap {
		c, err := startCapture(s, links, name, captureSpec{File: filepath.Join(spec.PcapDir, name+".pcap"), Limit: spec.PcapLimit})
		if err != nil {
			return err
		}
		captures = append(captures, c)
	}
	note, seen, watch, err := runProgram(s, hosts, links, &spec, &sent)
	if err != nil {
		return err
	}
	if err := endCaptures(s, captures); err != nil {
		return err
	}
	router, err := links.TakeDown()
	if err != nil {
		return err
	}
	if err := tellStrays(s, links); err != nil {
		return err
	}
	if seen != nil {
		counts, err := links.Kernel.Counters()
		if err != nil {
			return err
		}
		if _, some := spec.Faults.Next(-1); !some { // a cut loses packets by plan, and netem counts all losses alike
			seen.UnplannedDrops = monitor.NetemExcess(spec.Plan, counts)
		}
		monitor.EnterRouter(router, seen)
		watch.Conclude(router, seen)
		note.Fidelity = &monitor.Record{Verdict: fidelity.Judge(*seen), Measured: *seen, Rounds: []*monitor.Round{}}
		if note.Fidelity.Drops, err = links.Drops(router); err != nil {
			return err
		}
		for _, d := range note.Fidelity.Drops {
			s.Tell("%s", record.LinkDrops(d))
		}
	}
	return s.Hand(note)
}

// tellStrays tells what programs sent that no link carries.
func tellStrays(s *network.Supervisor, links *network.Network) error {
	strays, err := links.Kernel.Strays()
	if err != nil {
		return err
	}
	for _, stray := range strays {
		s.Tell("%s; links carry only IPv4 unicast between nodes", stray)
	}
	return nil
}

// workerInjects counts the injects that happen to a worker.
func workerInjects(s *faults.Schedule) int {
	n := 0
	for _, in := range s.Injects {
		if in.ID != nil {
			n++
		}
	}
	return n
}

// runProgram starts the program and waits for it. It returns an error where
// the network fails, and otherwise the program's exit code and what was seen of
// the network meanwhile, nil if it could not be started.
func runProgram(s *network.Supervisor, hosts *cluster.Hosts, links *network.Network, spec *programSpec, sent *signals) (n programNote, seen *fidelity.Measurements, watch *monitor.Watch, err error) {
	env, err := programEnv(links)
	if err == nil && hosts.Several() {
		err = cluster.ServeExec(s, links, execSocket)
	}
	if err != nil {
		return n, nil, nil, err
	}
	failed := func(err error) (programNote, *fidelity.Measurements, *monitor.Watch, error) {
		code, err := notStarted(err)
		fmt.Fprintf(os.Stderr, "testbed: %v\n", err)
		return programNote{Exit: &code}, nil, nil, nil
	}
	path, err := exec.LookPath(spec.Command[0])
	if err != nil {
		return failed(err)
	}
	at := network.Hub
	if spec.At != "" {
		if !sandbox.HasMachine(spec.At) {
			return n, nil, nil, errs.Usagef("node %s is on another host: the program can only run in a node of this one", spec.At)
		}
		at, env = links.NS(spec.At), inNode(env, spec.At)
	}
	program, early, err := sent.start(s.Box, sandbox.Command{
		Name: spec.Command[0], NetNS: at, Path: path, Args: spec.Command[1:], Env: env, Terminal: spec.Terminal,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		return failed(err)
	}
	if early != 0 {
		return programNote{Exit: new(128 + int(early))}, nil, nil, nil
	}
	if err := s.Hand(programNote{Started: true}); err != nil {
		return n, nil, nil, err
	}
	watch = monitor.NewWatch(links, links.Kernel.Nodes())
	hosts.OnSample = watch.Remote
	if hosts.Several() {
		links.AskCount() // so that other hosts begin, too
	}
	links.LinkFaults(spec.Faults).Schedule(time.Now(), 0, func(_, _ time.Duration) error { return nil })
	ended := false
	go func() {
		<-program.Done()
		s.Post(func() error {
			ended = true
			return nil
		})
	}()
	if err := s.HandleUntil(func() bool { return ended }); err != nil {
		return n, nil, nil, err
	}
	return programNote{Exit: new(exitOf(program.Wait()))}, new(watch.Stop()), watch, nil
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

// programEnv is the environment of the program, in which it finds the nodes and
// this binary.
func programEnv(links *network.Network) ([]string, error) {
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
	var names []string
	for _, n := range links.Plan.Nodes {
		names = append(names, n.Name)
	}
	env := []string{envNodes + "=" + strings.Join(names, " ")}
	for _, name := range names {
		env = append(env, addrVariable(name)+"="+links.Addr(name).String())
	}
	return env, nil
}
