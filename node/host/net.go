//go:build linux

package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"testbed/node/host/sandbox"
	"testbed/scenarios"
)

// Environment of a program on the emulated network.
const (
	envNodes = "TESTBED_NODES" // the names, space separated
	envAddr  = "TESTBED_ADDR_" // and the node's name in capitals: its address
	envNode  = "TESTBED_NODE"  // the node that a program was started in by RunIn
)

// Exit codes for a program that cannot be started, as shells have them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// NetOptions say which network to build and what to run on it.
type NetOptions struct {
	Scenario *scenarios.Scenario
	Links    string
	// Command is the program with its arguments; empty means $SHELL, or sh.
	Command []string
	// Pcap names the nodes whose frames are written to NODE.pcap in PcapDir,
	// each file no longer than PcapLimit bytes.
	Pcap      []string
	PcapDir   string
	PcapLimit int64
	// Progress is told what happens in words; it may be nil.
	Progress func(string)
}

type netJob struct {
	Command   []string
	Pcap      []string
	PcapDir   string
	PcapLimit int64
	// Terminal says that standard input is a terminal, for Command to control.
	Terminal bool
}

// UsageError is a mistake in what was asked for.
type UsageError struct{ Problem string }

func (e *UsageError) Error() string { return e.Problem }

// Net runs a program of the user's on the scenario's network and returns its
// exit code, 128 + n if signal n ended it. Standard input, output and error
// are the program's. Interrupts are passed on to it. The program runs in the
// hub, between all links; RunIn starts others in the nodes. When it has ended,
// everything is removed.
func Net(o NetOptions) (int, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	shell := len(o.Command) == 0
	if err := o.check(); err != nil {
		return 0, err
	}
	stdio, err := openStdio()
	if err != nil {
		return 0, err
	}
	defer stdio.restore()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(signals)

	s, err := openSession(context.Background(), job{
		Scenario: o.Scenario, Links: o.Links,
		Net: &netJob{
			Command: o.Command, Terminal: stdio.terminal != nil,
			Pcap: o.Pcap, PcapDir: o.PcapDir, PcapLimit: o.PcapLimit,
		},
	}, sandbox.Config{Stdin: stdio.in, Stdout: stdio.out, Stderr: stdio.err})
	if err != nil {
		return 0, err
	}
	stdio.handedOver()
	notes := make(chan struct {
		note
		err error
	})
	go func() {
		for {
			n, err := s.next()
			notes <- struct {
				note
				err error
			}{n, err}
			if err != nil || n.Exit != nil {
				return
			}
		}
	}()
	for {
		select {
		case sig := <-signals:
			s.words <- word{Signal: sig.(syscall.Signal)}
		case n := <-notes:
			switch {
			case n.err != nil:
				s.close()
				return 0, n.err
			case n.Exit != nil:
				s.close() // then the last output is on its way
				return *n.Exit, nil
			case n.Started:
				if shell {
					o.Progress("nodes " + strings.Join(o.Scenario.Nodes(), " ") + "; testbed in NODE CMD… runs a program in one; exit removes the network")
				}
			case n.Stage != "" && (shell || !n.Quiet):
				o.Progress(n.Stage)
			}
		}
	}
}

func (o *NetOptions) check() error {
	nodes := o.Scenario.Nodes()
	for _, name := range o.Pcap {
		if !slices.Contains(nodes, name) {
			return &UsageError{fmt.Sprintf("no node %q to capture; the nodes are %s", name, strings.Join(nodes, " "))}
		}
	}
	if len(o.Pcap) > 0 && o.PcapLimit < pcapLeastAllowed {
		return &UsageError{fmt.Sprintf("a capture of at most %d bytes holds no frame", o.PcapLimit)}
	}
	if len(o.Command) == 0 {
		shell := os.Getenv("SHELL")
		if shell == "" {
			shell = "sh"
		}
		o.Command = []string{shell}
	}
	return nil
}

// RunIn replaces this process by a program in the namespace of a node. It
// returns only if that fails, with an exit code. It works inside of Net.
func RunIn(name string, command []string) (int, error) {
	nodes := strings.Fields(os.Getenv(envNodes))
	if len(nodes) == 0 {
		return 0, &UsageError{"testbed in works only inside of testbed net: start for example testbed net SCENARIO, and then testbed in " + name + " ping …"}
	}
	if !slices.Contains(nodes, name) {
		return 0, &UsageError{fmt.Sprintf("no node %q; the nodes are %s", name, strings.Join(nodes, " "))}
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return notStarted(err)
	}
	runtime.LockOSThread() // the namespace is the thread's, until exec makes it the process's
	if err := enter(name); err != nil {
		return 0, fmt.Errorf("entering node %s: %w", name, err)
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, envNode+"=") })
	return notStarted(&fs.PathError{Op: "exec", Path: path, Err: unix.Exec(path, command, append(env, envNode+"="+name))})
}

// enter moves the thread into the node's network namespace, and shows that
// namespace's interfaces in /sys, where programs look for them.
func enter(name string) error {
	ns, err := os.Open(filepath.Join(sandbox.NetNSDir, name))
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return os.NewSyscallError("setns", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	// A machine that masks parts of /sys forbids a fresh one to ordinary
	// users; then the old one stays.
	_ = unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "")
	return nil
}

// notStarted is the exit code of a program that could not be started, and why.
func notStarted(err error) (int, error) {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNotFound, err
	}
	return exitNotExecutable, err
}

// addrVariable is the environment variable that holds the node's address.
func addrVariable(name string) string {
	return envAddr + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}
