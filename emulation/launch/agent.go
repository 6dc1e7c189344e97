//go:build linux

package launch

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emulation/cluster"
	"testbed/emulation/network"
	"testbed/emulation/programs"
)

// KindAgent is the kind of the process that manages the program of a node,
// RunAgent.
const KindAgent = "agent"

const (
	// outputChunk is the number of bytes of output in one report, and outputWindow
	// the most such reports under way from a node, so that nothing piles up
	// without a reader.
	outputChunk, outputWindow = 32 << 10, 16
)

// order is an order to an agent.
type order struct {
	Start  *cluster.Program `json:"start,omitempty"`
	Signal syscall.Signal   `json:"signal,omitempty"` // for the program and its process group
	Kill   bool             `json:"kill,omitempty"`   // all that runs in the node
	Freeze bool             `json:"freeze,omitempty"` // all that runs in the node
	Thaw   bool             `json:"thaw,omitempty"`
	Slow   float64          `json:"slow,omitempty"`  // slow down by this factor; 1: back to normal
	Taken  bool             `json:"taken,omitempty"` // a piece of output
}

// agentReport is a report of an agent: one of these fields.
type agentReport struct {
	Stream int    `json:"stream,omitempty"` // 1 or 2, as descriptors
	Data   []byte `json:"data,omitempty"`

	Mark    *programs.Mark `json:"mark,omitempty"`
	Carried bool           `json:"carried,omitempty"` // a first byte for a peer has left

	Complaint string `json:"complaint,omitempty"` // about the program's behaviour

	Ended  *Ended  `json:"ended,omitempty"`
	Killed *met    `json:"killed,omitempty"`
	Frozen *met    `json:"frozen,omitempty"`
	Slowed *slowed `json:"slowed,omitempty"`
	Sample *sample `json:"sample,omitempty"`
}

// met has the number of processes of a node that were ended or stopped, the
// number that could not be, and the time that this took.
type met struct {
	Processes int           `json:"processes"`
	Left      int           `json:"left,omitempty"`
	Took      time.Duration `json:"took_ns"`
}

// slowed has the shares of a processor that a node used while it computed: before
// it was slowed, the intended share, and the share while it was slow.
type slowed struct {
	Before   float64 `json:"before"`
	Intended float64 `json:"intended"`
	Used     float64 `json:"used"`
}

// sample is what a node has sent, received and computed so far.
type sample struct {
	Sent      uint64        `json:"sent"` // bytes of Ethernet frames
	Received  uint64        `json:"received"`
	Processor time.Duration `json:"cpu_ns"`
	Waited    time.Duration `json:"waited_ns"` // of all threads, for a processor
}

// agentSpec configures an agent.
type agentSpec struct {
	Node  string
	Spare []int // processes in the node that are not the program's
	// Peers are the addresses to which a first byte is awaited; nil: it is not
	// awaited.
	Peers []netip.Addr
	Most  Most
}

// agent is the process that manages the program of a node, in the node.
type agent struct {
	self   *network.Self
	spec   agentSpec
	roster *roster
	window chan struct{} // output under way

	mu      sync.Mutex
	running int // the process group of the program, 0 if none runs

	pace *pace

	marks, markBytes int // that have come from all programs of the node
}

// RunAgent is the process that manages the program of a node, in the node.
func RunAgent(self *network.Self) error {
	a := &agent{self: self, window: make(chan struct{}, outputWindow)}
	if err := self.Spec(&a.spec); err != nil {
		return err
	}
	if err := programs.LinkBinary(); err != nil {
		return err
	}
	var err error
	if a.roster, err = newRoster(); err != nil {
		return err
	}
	a.roster.spare = append(a.roster.spare, a.spec.Spare...)
	a.pace = newPace(a.roster, self.Raise)
	go a.pace.keep(func(s sample) { self.Tell(agentReport{Sample: &s}) })
	err = programs.ServeMarks(a.spec.Node, func(m programs.Mark) {
		m.Node = a.spec.Node // whatever the sender says
		if !a.tooMany(len(m.Type)) {
			a.self.Tell(agentReport{Mark: &m})
		}
	})
	if err != nil {
		return err
	}
	if a.spec.Peers != nil {
		wait, err := programs.AwaitTraffic(a.spec.Peers)
		if err != nil {
			return fmt.Errorf("watching for the first byte between workers: %w", err)
		}
		go func() {
			if err := wait(); err != nil {
				self.Log.Error("this node could not watch for the first byte between workers", "err", err)
				return
			}
			self.Tell(agentReport{Carried: true})
		}()
	}
	runtime.LockOSThread() // programs die with the thread that has started them
	self.Ready()
	for orders := self.Commands(); ; {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		a.obey(o)
	}
}

func (a *agent) obey(o order) {
	switch {
	case o.Start != nil:
		if err := a.start(*o.Start); err != nil {
			code, err := programs.NotStarted(err)
			a.self.Tell(agentReport{Ended: &Ended{Node: a.spec.Node, Code: code, Why: err.Error()}})
		}
	case o.Signal != 0:
		a.mu.Lock()
		if a.running != 0 {
			_ = unix.Kill(-a.running, o.Signal) // the only error is that it has ended
		}
		a.mu.Unlock()
	case o.Kill:
		began := time.Now()
		a.pace.release() // the next processes must not begin stopped
		n, left := a.roster.kill()
		a.self.Tell(agentReport{Killed: &met{n, left, time.Since(began)}})
	case o.Freeze:
		began := time.Now()
		n, left := a.pace.freeze()
		a.self.Tell(agentReport{Frozen: &met{n, left, time.Since(began)}})
	case o.Thaw:
		a.pace.thaw()
	case o.Slow == 1:
		a.endSlow()
	case o.Slow != 0:
		a.endSlow()
		a.pace.slow(o.Slow)
	case o.Taken:
		<-a.window
	}
}

// endSlow ends a Slow, if there is one, and reports its result.
func (a *agent) endSlow() {
	if s := a.pace.restore(); s != nil {
		a.self.Tell(agentReport{Slowed: s})
	}
}

// start starts the program.
func (a *agent) start(p cluster.Program) error {
	cmd, err := programs.Prepare(p)
	if err != nil {
		return err
	}
	// A session of its own, so that signals reach only the program and its
	// descendants.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	var outputs []*output
	fail := func(err error) error {
		for _, o := range outputs {
			o.file.Close()
		}
		return err
	}
	marks := a.mark()
	sinks := []func([]byte){a.show(1), a.show(2), marks.take}
	for _, sink := range sinks {
		r, w, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		defer w.Close()
		outputs = append(outputs, &output{file: r, sink: sink, drained: make(chan struct{}, 1)})
		switch len(outputs) {
		case 1:
			cmd.Stdout = w
		case 2:
			cmd.Stderr = w
		case marksFD:
			cmd.ExtraFiles = []*os.File{w}
		}
	}
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", envMarks, marksFD))
	if err := cmd.Start(); err != nil {
		return fail(err)
	}
	a.mu.Lock()
	a.running = cmd.Process.Pid
	a.mu.Unlock()
	for _, o := range outputs {
		go o.pass()
	}
	go a.await(cmd, outputs, marks)
	return nil
}

// show passes on output, as much at a time as may be under way.
func (a *agent) show(stream int) func([]byte) {
	return func(data []byte) {
		a.window <- struct{}{}
		a.self.Tell(agentReport{Stream: stream, Data: data})
	}
}

// marks are the marks that a program writes, one on each line.
type marks struct {
	agent *agent

	mu         sync.Mutex
	lines      splitter
	complained map[string]bool // kinds of errors that have been reported
}

func (a *agent) mark() *marks { return &marks{agent: a, complained: map[string]bool{}} }

// take takes a piece of what the program has written.
func (m *marks) take(data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, line := range m.lines.take(data) {
		m.line(line)
	}
}

// end takes what the program has left unfinished.
func (m *marks) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, line := range m.lines.end() {
		m.line(line)
	}
}

func (m *marks) line(line []byte) {
	a := m.agent
	if a.tooMany(len(line)) {
		m.complain("the programs of the node wrote too many marks (more than %d, or %d MiB): all further marks are ignored", a.spec.Most.Marks, a.spec.Most.MarkBytes>>20)
		return
	}
	mark, err := programs.ParseMark(line, a.spec.Node)
	if err != nil {
		m.complain("invalid mark on descriptor %d (%s): %v", marksFD, envMarks, err)
		return
	}
	a.self.Tell(agentReport{Mark: &mark})
}

// complain reports the first error of a kind in a program's marks.
func (m *marks) complain(format string, args ...any) {
	if !m.complained[format] {
		m.complained[format] = true
		m.agent.self.Tell(agentReport{Complaint: fmt.Sprintf(format, args...)})
	}
}

// tooMany counts a mark of that many bytes, and reports whether there are too many.
func (a *agent) tooMany(bytes int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.marks++
	a.markBytes += bytes
	most := a.spec.Most
	return most.Marks > 0 && a.marks > most.Marks || most.MarkBytes > 0 && a.markBytes > most.MarkBytes
}

// await reports the end of the program, after its last output.
func (a *agent) await(cmd *exec.Cmd, outputs []*output, marks *marks) {
	// The number stays the program's until it is waited for, because signals may
	// be under way.
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	if last, is := a.pace.sample(); is { // while the kernel still knows what the program has computed
		a.self.Tell(agentReport{Sample: &last})
	}
	a.mu.Lock()
	a.running = 0
	a.mu.Unlock()
	_ = cmd.Wait() // ProcessState has its status
	for _, o := range outputs {
		o.drain()
	}
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ws.Signaled() { // a program that was killed may have been about to write
		marks.end()
	}
	e := &Ended{Node: a.spec.Node, Code: ws.ExitStatus()}
	if ws.Signaled() {
		e.Signal = ws.Signal()
	}
	if s := a.pace.soFar(); s != nil {
		a.self.Tell(agentReport{Slowed: s})
	}
	a.self.Tell(agentReport{Ended: e})
}

// output is a program's output on one of its descriptors. Its descendants may
// write to it after the program has ended.
type output struct {
	file    *os.File
	sink    func([]byte)
	drained chan struct{} // closed at the end, and after everything written before drain has been read
}

// pass passes on everything written, until no process can write any more.
func (o *output) pass() {
	defer close(o.drained)
	defer o.file.Close()
	buf := make([]byte, outputChunk)
	read := func() error {
		n, err := o.file.Read(buf)
		if n > 0 {
			o.sink(buf[:n])
		}
		return err
	}
	for {
		err := read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = o.file.SetReadDeadline(time.Time{})
			for err == nil && o.waiting() {
				err = read()
			}
			if err == nil {
				o.drained <- struct{}{}
			}
		}
		if err != nil {
			return
		}
	}
}

// waiting reports whether there is something to read.
func (o *output) waiting() bool {
	raw, err := o.file.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return err == nil && n > 0
}

// drain waits until everything written before has been passed on.
func (o *output) drain() {
	if o.file.SetReadDeadline(time.Now()) == nil {
		<-o.drained
	}
}
