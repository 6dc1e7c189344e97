//go:build linux

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"testbed/emulation/network"
)

// Programs in nodes on other hosts are started as with ssh. The command that
// starts one (Exec) represents it on the user's host:
//
//	testbed in NODE ── socket ── job ─ ─ orders, reports ─ ─ RunExec ── program
//
// The two ends exchange messages: JSON values that nothing else reads.

// KindExec is the kind of the process that runs such a program, RunExec.
const KindExec = "exec"

const (
	// execChunk is the number of bytes of a stream in one message, and execWindow
	// the most such messages under way, so that nothing piles up if the other end
	// does not read.
	execChunk, execWindow = 32 << 10, 16
	// execQueue is more than the number of messages that may be under way to a
	// command.
	execQueue = 8 * execWindow
)

// Program is a program in a node.
type Program struct {
	Node    string
	Command []string
	Env     []string
	Dir     string
}

// execMessage is one of these messages.
type execMessage struct {
	Start  *Program       `json:"start,omitempty"` // the first
	Signal syscall.Signal `json:"signal,omitempty"`

	Stream int    `json:"stream,omitempty"` // 0, 1, 2, as descriptors: of the next three
	Data   []byte `json:"data,omitempty"`
	End    bool   `json:"end,omitempty"`   // end of the data
	Taken  bool   `json:"taken,omitempty"` // a piece of data has been written

	Exit *int `json:"exit,omitempty"` // the program has ended; the last
}

// streams is one end of a program's three streams.
type streams struct {
	send   func(execMessage)
	window [3]chan struct{} // data under way from this end
	write  [3]chan []byte   // data to write
	all    sync.WaitGroup
}

// read sends the data of a file, until its end.
func (s *streams) read(stream int, from io.Reader) {
	s.window[stream] = make(chan struct{}, execWindow)
	s.all.Go(func() {
		for {
			buf := make([]byte, execChunk)
			n, err := from.Read(buf)
			if n > 0 {
				s.window[stream] <- struct{}{}
				s.send(execMessage{Stream: stream, Data: buf[:n]})
			}
			if err != nil {
				s.send(execMessage{Stream: stream, End: true})
				return
			}
		}
	})
}

// writeTo writes the data of a stream to a file, until its end. If the file's
// reader is gone, the rest is lost.
func (s *streams) writeTo(stream int, to io.WriteCloser) {
	pieces := make(chan []byte, execWindow)
	s.write[stream] = pieces
	s.all.Go(func() {
		defer to.Close()
		for p := range pieces {
			_, _ = to.Write(p)
			s.send(execMessage{Stream: stream, Taken: true})
		}
	})
}

// take handles a message about a stream. It is an error if the other end sends
// more than may be under way.
func (s *streams) take(m execMessage) error {
	if m.Stream < 0 || m.Stream > 2 {
		return fmt.Errorf("internal error of \"testbed in\": the other host sent a message for stream %d, but the streams are 0, 1 and 2", m.Stream)
	}
	to := s.write[m.Stream]
	switch {
	case m.Taken:
		select {
		case <-s.window[m.Stream]:
		default:
			return errors.New("internal error of \"testbed in\": the other host confirmed more data than was sent")
		}
	case m.End && to != nil:
		close(to)
		s.write[m.Stream] = nil
	case m.Data != nil && to != nil:
		select {
		case to <- m.Data:
		default:
			return errors.New("internal error of \"testbed in\": the other host sent more data than the flow control allows")
		}
	}
	return nil
}

// ServeExec starts programs in nodes on other hosts for commands that connect
// to a Unix socket, until the sandbox ends.
func ServeExec(s *network.Supervisor, links *network.Network, socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("opening the socket for the command \"testbed in\": %w", err)
	}
	go func() {
		for number := 1; ; number++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go relayExec(s, links, conn, number)
		}
	}()
	return nil
}

// relayExec passes messages between a command and its program.
func relayExec(s *network.Supervisor, links *network.Network, conn net.Conn, number int) {
	in := json.NewDecoder(conn)
	var first execMessage
	if in.Decode(&first) != nil || first.Start == nil || links.Plan.Index(first.Start.Node) < 0 {
		conn.Close()
		return
	}
	out := make(chan json.RawMessage, execQueue)
	go func() {
		defer conn.Close()
		to := json.NewEncoder(conn)
		for m := range out {
			if to.Encode(m) != nil {
				return // the command has gone, which the loop below notices
			}
		}
	}()
	var program *network.Child
	s.Post(func() (err error) {
		program, err = links.StartIn(first.Start.Node, network.ChildSpec{
			Name: fmt.Sprintf("in-%s-%d", first.Start.Node, number), Kind: KindExec, Spec: first.Start,
			OnData: func(m json.RawMessage) error {
				select {
				case out <- m:
				default: // the command no longer listens
				}
				return nil
			},
			OnEnd: func(*network.Child, string) error {
				close(out)
				return nil
			},
		})
		return err
	})
	for {
		var m json.RawMessage
		if in.Decode(&m) != nil {
			break
		}
		s.Post(func() error {
			_ = program.Send(m) // an ended program does not receive it
			return nil
		})
	}
	s.Post(func() error {
		program.CloseCommands()
		return nil
	})
}

// RunExec is the process on the other host: it starts the program, for which
// prepare makes a command, and represents the user's command there. When that
// command has gone, it kills the program. notStarted returns the exit code of a
// program that cannot be started.
func RunExec(self *network.Self, prepare func(Program) (*exec.Cmd, error), notStarted func(error) (int, error)) error {
	var program Program
	if err := self.Spec(&program); err != nil {
		return err
	}
	s := &streams{send: func(m execMessage) { self.Tell(m) }}
	fail := func(err error) error {
		code, err := notStarted(err)
		self.Tell(execMessage{Stream: 2, Data: fmt.Appendf(nil, "testbed: %v\n", err)})
		self.Tell(execMessage{Exit: &code})
		return nil
	}
	runtime.LockOSThread() // the program dies with this thread, and inherits the effects of prepare
	cmd, err := prepare(program)
	if err != nil {
		return fail(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var outputs [2]io.ReadCloser
	if outputs[0], err = cmd.StdoutPipe(); err == nil {
		outputs[1], err = cmd.StderrPipe()
	}
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	s.read(1, outputs[0])
	s.read(2, outputs[1])
	input := &streams{send: s.send}
	input.writeTo(0, stdin)
	s.write[0] = input.write[0]
	go obey(self, s, cmd.Process.Pid)
	s.all.Wait() // other processes may still hold its output, as with a pipe
	_ = cmd.Wait()
	self.Tell(execMessage{Exit: new(exitCode(cmd.ProcessState))})
	return nil
}

// obey handles the command's messages until the command has gone.
func obey(self *network.Self, s *streams, program int) {
	commands := self.Commands()
	for {
		var m execMessage
		err := commands.Decode(&m)
		if err == nil && m.Signal == 0 {
			err = s.take(m)
		}
		switch {
		case err != nil:
			_ = unix.Kill(-program, unix.SIGKILL) // it may have ended
			os.Exit(1)
		case m.Signal != 0:
			_ = unix.Kill(-program, m.Signal)
		}
	}
}

// exitCode is a program's exit code in a shell's convention.
func exitCode(p *os.ProcessState) int {
	if status := p.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.ExitCode()
}

// Exec runs a program in a node on another host, through a socket of ServeExec,
// with the standard files of this process, and returns its exit code. It passes
// on signals.
func Exec(socket string, p Program) (int, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0, fmt.Errorf("reaching node %s on another host: %w; check that testbed net is still running", p.Node, err)
	}
	defer conn.Close()
	var sending sync.Mutex
	out := json.NewEncoder(conn)
	s := &streams{send: func(m execMessage) {
		sending.Lock()
		defer sending.Unlock()
		_ = out.Encode(m) // the loop below notices its end
	}}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(signals)
	s.send(execMessage{Start: &p})
	go func() {
		for sig := range signals {
			s.send(execMessage{Signal: sig.(syscall.Signal)})
		}
	}()
	outputs := &streams{send: s.send}
	outputs.writeTo(1, os.Stdout)
	outputs.writeTo(2, os.Stderr)
	s.write = outputs.write
	s.read(0, os.Stdin)
	for in := json.NewDecoder(conn); ; {
		var m execMessage
		err := in.Decode(&m)
		if err == nil && m.Exit == nil {
			err = s.take(m)
		}
		if err == nil && m.Exit == nil {
			continue
		}
		for _, to := range s.write {
			if to != nil {
				close(to)
			}
		}
		outputs.all.Wait() // the last output has been written
		if err != nil {
			return 0, fmt.Errorf("the connection to the program in node %s was lost: %w", p.Node, err)
		}
		return *m.Exit, nil
	}
}
