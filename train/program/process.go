//go:build linux

package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/internal/errs"
	"testbed/train/program/wire"
)

// process is a process of the program. It has one user at a time, except for
// end and kill.
type process struct {
	cfg     *Config
	name    string
	command *exec.Cmd
	log     string   // the name of the file
	socket  *os.File // non-blocking: deadlines, and closing it, end waits

	memory *os.File
	shared []byte
	layout *wire.Layout
	size   int

	said   chan wire.Message // its messages; closed after the last
	silent error             // reason for the end of said, once it is closed
	closed chan struct{}     // closed when nobody listens any more
	ended  chan struct{}     // closed when it has been waited for
	status error             // how it ended, once ended is closed
	owed   int               // number of answers that it owes
	waited time.Duration     // for the first of them
	over   chan struct{}     // holds a token until it has been ended
	failed bool              // it has failed
	again  bool              // it can train for one run after another
}

const (
	// startedFD is the first descriptor that os/exec passes on.
	startedFD = 3
	// heardAhead is the number of messages that are read before they are awaited.
	// A program that sends more has to wait.
	heardAhead = 8
	// endPatience is how long a program may take to end when the run is over.
	endPatience = 2 * time.Second
	// statusPatience is how long the end of a process may come after the end of
	// its socket, on a busy machine, too.
	statusPatience = 5 * time.Second
	// lastPatience is how long its last messages may come after its end.
	lastPatience = time.Second
)

// start starts the program.
func start(cfg *Config, name, role string, worker int) (*process, error) {
	p := &process{
		cfg: cfg, name: name, said: make(chan wire.Message, heardAhead), closed: make(chan struct{}), ended: make(chan struct{}), over: make(chan struct{}, 1),
	}
	p.over <- struct{}{}
	theirs, err := p.open()
	if err != nil {
		return nil, fmt.Errorf("starting the program of %s: %w", name, err)
	}
	defer theirs.Close()
	log, err := cfg.Log(name)
	if err != nil {
		p.memory.Close()
		p.socket.Close()
		return nil, fmt.Errorf("starting the program of %s: opening its log: %w", name, err)
	}
	defer log.Close()
	p.log = log.Name()
	c := exec.Command(cfg.Command[0], cfg.Command[1:]...)
	c.Dir, c.Stdout, c.Stderr, c.ExtraFiles = cfg.Dir, log, log, []*os.File{theirs, p.memory}
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", wire.EnvSocket, startedFD), fmt.Sprintf("%s=%d", wire.EnvMemory, startedFD+1))
	c.Env = append(c.Env, cfg.Env...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: cfg.OwnGroup}
	p.command = c
	started := make(chan error)
	go p.live(started)
	if err := <-started; err != nil {
		p.memory.Close()
		p.socket.Close()
		return nil, p.problem(fmt.Errorf("cannot be started: %w", plain(err)), "install the program, make it executable, or write its path from the scenario's folder in train.program")
	}
	go p.listen()
	if err := p.welcome(role, worker); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// welcome tells the program the run and its role in it.
func (p *process) welcome(role string, worker int) error {
	return p.send(wire.Message{
		Type: wire.Welcome, Version: wire.Version, Role: role, Worker: worker,
		Workers: p.cfg.Workers, Seed: p.cfg.Seed, InnerSteps: p.cfg.InnerSteps, Rounds: p.cfg.Rounds,
	})
}

// open makes the socket, whose other end it returns, and the memory.
func (p *process) open() (theirs *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(ends[1]), "program's socket")
	if err := unix.SetNonblock(ends[0], true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	p.socket = os.NewFile(uintptr(ends[0]), "socket")
	fd, err := unix.MemfdCreate("trainer of "+p.name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		theirs.Close()
		p.socket.Close()
		return nil, os.NewSyscallError("memfd_create", err)
	}
	p.memory = os.NewFile(uintptr(fd), "memory")
	return theirs, nil
}

// plain is an error about the program's file without the file's path, which the
// message already has.
func plain(err error) error {
	if e, ok := errors.AsType[*exec.Error](err); ok {
		return e.Err
	}
	return errs.Cause(err)
}

// live starts the process and waits for its end. All of that is on one thread.
// The process dies with that thread, and inherits its priority, the lowest. So
// no other goroutine gets the thread afterwards.
func (p *process) live(started chan<- error) {
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), 19) // if that is refused, it computes at the usual priority
	err := p.command.Start()
	started <- err
	if err == nil {
		p.status = p.command.Wait()
		p.killGroup() // its children
		close(p.ended)
	}
}

// listen reads the process's messages, until one is invalid or there are no
// more.
func (p *process) listen() {
	defer close(p.said)
	buf := make([]byte, wire.MaxBytes+1)
	for {
		n, err := p.socket.Read(buf)
		if err != nil {
			p.silent = io.EOF
			return
		}
		m, err := wire.FromProgram(buf[:n])
		if err != nil {
			p.silent = fmt.Errorf("sent an invalid message of %d bytes: %w", n, err)
			return
		}
		select {
		case p.said <- m:
		case <-p.closed:
			p.silent = io.EOF
			return
		}
	}
}

// send sends a message. There is a limit, too, for a program that does not read
// its messages.
func (p *process) send(m wire.Message) error {
	data, err := wire.Encode(m)
	if err == nil {
		err = p.socket.SetWriteDeadline(time.Now().Add(p.cfg.Limit))
	}
	if err == nil {
		_, err = p.socket.Write(data)
	}
	switch {
	case err == nil:
		if m.Type == wire.Step || m.Type == wire.Finish || m.Type == wire.Validate {
			p.owed++
		}
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return p.hangs("has not read its messages")
	}
	return p.gone()
}

// errAnotherLayout is about a warm process, whose memory cannot change its
// length.
var errAnotherLayout = errors.New("the program asks for other sizes than in the previous run")

// join waits until the program reports its size, and lays out the memory.
func (p *process) join(ctx context.Context) (wire.Message, error) {
	join, err := p.await(ctx, `its first message ("join")`, func(m wire.Message) bool { return m.Type == wire.Join })
	if err != nil {
		return join, err
	}
	layout, err := wire.NewLayout(join)
	if err != nil {
		return join, p.problem(fmt.Errorf("joined with %w", err), "make the program ask for sizes within the limits")
	}
	if p.layout != nil { // from the run before
		if *layout != *p.layout {
			return join, errAnotherLayout
		}
		p.size = join.Parameters
		return join, p.send(wire.Message{Type: wire.Memory, Layout: p.layout})
	}
	p.layout = layout
	if err := p.share(); err != nil {
		return join, p.problem(fmt.Errorf("cannot share memory with testbed: %w", err), "make the program leave the descriptor of the memory alone before it has joined")
	}
	p.size = join.Parameters
	return join, p.send(wire.Message{Type: wire.Memory, Layout: p.layout})
}

// share fixes the length of the memory: neither side can shrink it under the
// other.
func (p *process) share() error {
	length := int64(p.layout.Bytes)
	if err := p.memory.Truncate(length); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(p.memory.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	info, err := p.memory.Stat()
	if err != nil {
		return err
	}
	if info.Size() != length { // the program has changed it meanwhile
		return fmt.Errorf("the memory has %d bytes instead of %d", info.Size(), length)
	}
	p.shared, err = unix.Mmap(int(p.memory.Fd()), 0, p.layout.Bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return os.NewSyscallError("mmap", err)
}

func (p *process) outer() []float32 { return p.floats(p.layout.Outer) }

func (p *process) floats(at int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&p.shared[at])), p.size)
}

func (p *process) stateIn() []byte  { return p.shared[p.layout.StateIn:p.layout.StateOut] }
func (p *process) stateOut() []byte { return p.shared[p.layout.StateOut:] }

// take copies the program's data, and checks the copy: the program may keep
// writing. mend is the fix for values that are not finite.
func (p *process) take(to []float32, what, mend string) error {
	const block = 16 << 10 // fits in a cache until it has been checked
	from := p.floats(p.layout.Local)
	wrong := make([]int, inParts(to, nil)) // position of the first non-finite value in each part, counted from 1
	inParts(to, func(k, begin, end int) {
		for at := begin; at < end && wrong[k] == 0; at += block {
			part := to[at:min(at+block, end)]
			copy(part, from[at:])
			if !finite(part) {
				wrong[k] = at + 1 + slices.IndexFunc(part, func(v float32) bool { return !finite([]float32{v}) })
			}
		}
	})
	for _, at := range wrong {
		if at > 0 {
			return p.problem(fmt.Errorf("handed over %s with the value %v at position %d", what, to[at-1], at-1), mend)
		}
	}
	return nil
}

// give copies parameters to the program's memory.
func give(to, from []float32) {
	inParts(from, func(_, begin, end int) { copy(to[begin:end], from[begin:end]) })
}

// inParts processes the parts of a vector, each on a processor of its own: one
// processor does not use the memory's full bandwidth. It returns the number of
// parts.
func inParts(of []float32, work func(k, begin, end int)) (n int) {
	const least = 1 << 20 // less is not worth it
	n = max(1, min(len(of)/least, runtime.GOMAXPROCS(0)))
	if work == nil {
		return n
	}
	var all sync.WaitGroup
	for k := range n {
		all.Go(func() { work(k, k*len(of)/n, (k+1)*len(of)/n) })
	}
	all.Wait()
	return n
}

// finite reports whether all values are finite. It checks two at a time,
// because there may be many. A finite number's exponent is not all ones. Adding
// one to the exponent carries into the sign bit only if it is.
func finite(values []float32) bool {
	const exponents, ones, signs = 0x7f800000_7f800000, 0x00800000_00800000, 0x80000000_80000000
	var a, b, c, d uint64
	if n := len(values); n%2 == 1 {
		a = uint64(math.Float32bits(values[n-1]))&exponents + ones
	}
	var pairs []uint64
	if len(values) > 1 {
		pairs = unsafe.Slice((*uint64)(unsafe.Pointer(&values[0])), len(values)/2)
	}
	for ; len(pairs) >= 4; pairs = pairs[4:] {
		a |= pairs[0]&exponents + ones
		b |= pairs[1]&exponents + ones
		c |= pairs[2]&exponents + ones
		d |= pairs[3]&exponents + ones
	}
	for _, p := range pairs {
		a |= p&exponents + ones
	}
	return (a|b|c|d)&signs == 0
}

// await waits for the answer that the program owes. It drops earlier messages
// that belong to an abandoned round.
func (p *process) await(ctx context.Context, what string, is func(wire.Message) bool) (wire.Message, error) {
	tick := max(p.cfg.Limit/50, time.Millisecond)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	ended, since := p.ended, time.Now()
	for p.waited <= p.cfg.Limit {
		select {
		case m, ok := <-p.said:
			if !ok {
				return m, p.gone()
			}
			p.owed = max(p.owed-1, 0)
			p.waited = 0
			switch {
			case is(m):
				return m, nil
			case p.owed == 0: // this should be the answer
				return m, p.problem(fmt.Errorf("sent a message of type %q, attempt %d and step %d instead of %s", m.Type, m.Attempt, m.Step, what), "make the program follow the protocol of docs/trainer.md")
			}
		case <-ended: // its children may still hold the socket
			ended = nil
			time.AfterFunc(lastPatience, func() { p.socket.Close() })
		case <-ticker.C:
			// Ticks are counted, because this process may be stopped while time passes.
			p.waited, since = p.waited+tick, time.Now()
		case <-ctx.Done(): // it still owes the answer next time
			p.waited += min(time.Since(since), tick)
			return wire.Message{}, context.Cause(ctx)
		}
	}
	return wire.Message{}, p.hangs("has not sent " + what)
}

func (p *process) hangs(how string) error {
	return p.problem(fmt.Errorf("%s within %v", how, p.cfg.Limit), "the program hangs, or needs more time: raise train.time_limit")
}

// gone is the reason why the program sends no more messages.
func (p *process) gone() error {
	select {
	case <-p.closed:
		return fmt.Errorf("testbed has ended the program of %s", p.name)
	default:
	}
	for range p.said { // no longer of use
	}
	if !errors.Is(p.silent, io.EOF) {
		return p.problem(p.silent, "make the program follow the protocol of docs/trainer.md, and use the socket for nothing else")
	}
	select {
	case <-p.ended:
		if p.status == nil {
			return p.problem(errors.New("ended by itself before the end of the run"), "keep it running until it receives the end of the run")
		}
		return p.problem(fmt.Errorf("crashed: %w", p.status), "fix the error in its output")
	case <-time.After(statusPatience):
		return p.problem(errors.New("closed its socket"), "keep the socket open until the program receives the end of the run")
	}
}

// problem is an error of the program, with its last output, the place of the
// rest, and the fix.
func (p *process) problem(err error, mend string) error {
	p.failed = true
	said := ""
	if last := lastLine(p.log); last != "" {
		said = fmt.Sprintf("; its last line of output: %q", last)
	}
	where := fmt.Sprintf(" (its output is in %s)", p.log)
	if p.cfg.Quotes {
		where = ""
		if end := lastLines(p.log); strings.Contains(end, "\n") {
			where = "; the end of its output:\n" + end
		}
	}
	return fmt.Errorf("the program %q (%s) %w%s; %s%s", strings.Join(p.cfg.Command, " "), p.name, err, said, mend, where)
}

// lastLine returns the last non-empty line of a file, or its end.
func lastLine(name string) string {
	const most = 200
	line := endOf(name, 4*most)
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	return string(line[max(0, len(line)-most):])
}

// lastLines returns the end of a file, as much as a person wants to read.
func lastLines(name string) string {
	const most = 4000
	text := endOf(name, most)
	if at := bytes.IndexByte(text, '\n'); len(text) > most-10 && at >= 0 {
		text = text[at+1:]
	}
	return string(text)
}

// endOf returns at most so many bytes of the end of a file, without the white space
// around them.
func endOf(name string, most int64) []byte {
	file, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer file.Close()
	var end int64
	if info, err := file.Stat(); err == nil {
		end = info.Size()
	}
	buf := make([]byte, min(end, most))
	if _, err := file.ReadAt(buf, end-int64(len(buf))); err != nil {
		return nil
	}
	return bytes.TrimSpace(buf)
}

// end tells the program that the run is over, and makes sure that it ends.
func (p *process) end() {
	select {
	case <-p.over:
	default:
		return // it has been ended
	}
	p.finish()
	if !p.failed {
		select {
		case <-p.ended:
		case <-time.After(endPatience):
		}
	}
	p.remove()
}

// kill ends the program at once.
func (p *process) kill() {
	select {
	case <-p.over:
		p.finish()
		p.remove()
	default:
	}
}

// finish closes the conversation.
func (p *process) finish() {
	close(p.closed)
	p.socket.Close()
	for range p.said {
	}
}

// remove ends the process, if it still runs, and waits for its end.
func (p *process) remove() {
	select {
	case <-p.ended:
	default:
		_ = p.command.Process.Kill() // the only error is that it has ended
		<-p.ended
	}
	p.memory.Close()
	if p.shared != nil {
		_ = unix.Munmap(p.shared) // it is mapped
		p.shared = nil
	}
}

// killGroup kills the children of the process, which has just ended.
func (p *process) killGroup() {
	if p.command.SysProcAttr.Setpgid { // p.cfg may be the next run's by now
		_ = unix.Kill(-p.command.Process.Pid, unix.SIGKILL) // there may be no children
	}
}
