//go:build linux

package shell

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
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"testbed/emulation/network"
)

// A guest is a program in a node on another host. The command that asked for it
// (abroad) stands for it where the user's program is:
//
//	testbed in NODE ── socket ── job ─ ─ orders, tidings ─ ─ RunGuest ── program
//
// Between them go words, JSON values into which nobody else looks.

// KindGuest is the kind of the process of a guest, RunGuest.
const KindGuest = "guest"

// guestSocket is where the job hears commands that ask for guests.
const guestSocket = ownBin + "/guests"

const (
	// guestChunk is how many bytes of a stream go in one piece, and guestWindow how
	// many pieces of it may be under way: nothing piles up where nobody reads.
	guestChunk, guestWindow = 32 << 10, 16
	// guestQueue is more words than may be under way to a command at a time.
	guestQueue = 8 * guestWindow
)

// guestSpec is the program.
type guestSpec struct {
	Node    string
	Command []string
	Env     []string
	Dir     string
}

// words are one of these.
type words struct {
	Start  *guestSpec     `json:"start,omitempty"` // the first
	Signal syscall.Signal `json:"signal,omitempty"`

	Stream int    `json:"stream,omitempty"` // 0, 1, 2, as descriptors: of the next three
	Data   []byte `json:"data,omitempty"`
	End    bool   `json:"end,omitempty"`   // there will be no more data
	Taken  bool   `json:"taken,omitempty"` // a piece of it has been written

	Exit *int `json:"exit,omitempty"` // the program has ended; the last
}

// streams is an end of the streams of a guest.
type streams struct {
	say    func(words)
	window [3]chan struct{} // pieces under way that we send
	write  [3]chan []byte   // pieces that we write
	all    sync.WaitGroup
}

// read sends what is read until its end.
func (s *streams) read(stream int, from io.Reader) {
	s.window[stream] = make(chan struct{}, guestWindow)
	s.all.Go(func() {
		for {
			buf := make([]byte, guestChunk)
			n, err := from.Read(buf)
			if n > 0 {
				s.window[stream] <- struct{}{}
				s.say(words{Stream: stream, Data: buf[:n]})
			}
			if err != nil {
				s.say(words{Stream: stream, End: true})
				return
			}
		}
	})
}

// writeTo writes what comes until its end. Where nobody reads any more the rest is
// lost.
func (s *streams) writeTo(stream int, to io.WriteCloser) {
	pieces := make(chan []byte, guestWindow)
	s.write[stream] = pieces
	s.all.Go(func() {
		defer to.Close()
		for p := range pieces {
			_, _ = to.Write(p)
			s.say(words{Stream: stream, Taken: true})
		}
	})
}

// heard takes words about a stream. Who sends more than may be under way is at fault.
func (s *streams) heard(w words) error {
	if w.Stream < 0 || w.Stream > 2 {
		return fmt.Errorf("there is no stream %d", w.Stream)
	}
	to := s.write[w.Stream]
	switch {
	case w.Taken:
		select {
		case <-s.window[w.Stream]:
		default:
			return errors.New("more was taken than sent")
		}
	case w.End && to != nil:
		close(to)
		s.write[w.Stream] = nil
	case w.Data != nil && to != nil:
		select {
		case to <- w.Data:
		default:
			return errors.New("more was sent than may be under way")
		}
	}
	return nil
}

// serveGuests has commands start programs in nodes on other hosts, until the sandbox
// ends.
func serveGuests(s *network.Supervisor, links *network.Network) error {
	listener, err := net.Listen("unix", guestSocket)
	if err != nil {
		return fmt.Errorf("listening for testbed in: %w", err)
	}
	go func() {
		for number := 1; ; number++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveGuest(s, links, conn, number)
		}
	}()
	return nil
}

// serveGuest passes words on between a command and its guest.
func serveGuest(s *network.Supervisor, links *network.Network, conn net.Conn, number int) {
	in := json.NewDecoder(conn)
	var first words
	if in.Decode(&first) != nil || first.Start == nil || links.Plan.Index(first.Start.Node) < 0 {
		conn.Close()
		return
	}
	out := make(chan json.RawMessage, guestQueue)
	go func() {
		defer conn.Close()
		to := json.NewEncoder(conn)
		for w := range out {
			if to.Encode(w) != nil {
				return // the command has gone, which is heard below
			}
		}
	}()
	var guest *network.Child
	s.Post(func() (err error) {
		guest, err = links.StartIn(first.Start.Node, network.ChildSpec{
			Name: fmt.Sprintf("in-%s-%d", first.Start.Node, number), Kind: KindGuest, Spec: first.Start,
			OnData: func(w json.RawMessage) error {
				select {
				case out <- w:
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
		var w json.RawMessage
		if in.Decode(&w) != nil {
			break
		}
		s.Post(func() error {
			_ = guest.Send(w) // one that has ended does not hear it
			return nil
		})
	}
	s.Post(func() error {
		guest.CloseCommands()
		return nil
	})
}

// RunGuest is the process of a guest: it starts the program in its node, and stands
// for the command that asked for it. When that has gone it kills the program.
func RunGuest(self *network.Self) error {
	var spec guestSpec
	if err := self.Spec(&spec); err != nil {
		return err
	}
	s := &streams{say: func(w words) { self.Tell(w) }}
	fail := func(err error) error {
		code, err := notStarted(err)
		self.Tell(words{Stream: 2, Data: fmt.Appendf(nil, "testbed: %v\n", err)})
		self.Tell(words{Exit: &code})
		return nil
	}
	for _, v := range spec.Env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			if err := os.Setenv("PATH", path); err != nil {
				return err
			}
		}
	}
	path, err := exec.LookPath(spec.Command[0])
	if err != nil {
		return fail(err)
	}
	runtime.LockOSThread() // the program dies with this thread
	if err := showInterfaces(); err != nil {
		return err
	}
	cmd := &exec.Cmd{
		Path: path, Args: spec.Command, Env: inNode(spec.Env, spec.Node), Dir: spec.Dir,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL},
	}
	if _, err := os.Stat(spec.Dir); err != nil {
		cmd.Dir = "/" // this host has no such directory
	}
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
	reading := &streams{say: s.say}
	reading.writeTo(0, stdin)
	s.write[0] = reading.write[0]
	go obey(self, s, cmd.Process.Pid)
	s.all.Wait() // whoever has its output may still be there, as with a pipe
	_ = cmd.Wait()
	self.Tell(words{Exit: new(exitCode(cmd.ProcessState))})
	return nil
}

// obey takes what the command says until that has gone.
func obey(self *network.Self, s *streams, program int) {
	commands := self.Commands()
	for {
		var w words
		err := commands.Decode(&w)
		if err == nil && w.Signal == 0 {
			err = s.heard(w)
		}
		switch {
		case err != nil:
			_ = unix.Kill(-program, unix.SIGKILL) // it may have ended
			os.Exit(1)
		case w.Signal != 0:
			_ = unix.Kill(-program, w.Signal)
		}
	}
}

// exitCode is a program's exit code as a shell gives it.
func exitCode(p *os.ProcessState) int {
	if status := p.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.ExitCode()
}

// abroad runs a program in a node on another host, whose standard files are those of
// this process, and returns its exit code. Signals are passed on to it.
func abroad(node string, command []string) (int, error) {
	conn, err := net.Dial("unix", guestSocket)
	if err != nil {
		return 0, fmt.Errorf("reaching node %s on another host: %w", node, err)
	}
	defer conn.Close()
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	var writing sync.Mutex
	out := json.NewEncoder(conn)
	s := &streams{say: func(w words) {
		writing.Lock()
		defer writing.Unlock()
		_ = out.Encode(w) // its end is heard below
	}}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	defer signal.Stop(signals)
	s.say(words{Start: &guestSpec{Node: node, Command: command, Env: os.Environ(), Dir: dir}})
	go func() {
		for sig := range signals {
			s.say(words{Signal: sig.(syscall.Signal)})
		}
	}()
	outputs := &streams{say: s.say}
	outputs.writeTo(1, os.Stdout)
	outputs.writeTo(2, os.Stderr)
	s.write = outputs.write
	s.read(0, os.Stdin)
	for in := json.NewDecoder(conn); ; {
		var w words
		err := in.Decode(&w)
		if err == nil && w.Exit == nil {
			err = s.heard(w)
		}
		if err == nil && w.Exit == nil {
			continue
		}
		for _, to := range s.write {
			if to != nil {
				close(to)
			}
		}
		outputs.all.Wait() // the last output has been written
		if err != nil {
			return 0, fmt.Errorf("the program in %s has gone with its host, or could not be reached: %w", node, err)
		}
		return *w.Exit, nil
	}
}
