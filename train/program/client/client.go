//go:build linux

// Package client is for users' own trainers in Go: a program that testbed
// starts next to a worker, and that takes the worker's inner steps.
//
//	run, err := client.Join()
//	…
//	run.Init(parameters) // the same in every process
//	for r := range run.Rounds() {
//		copy(parameters, r.Params)
//		for step := range r.Steps() {
//			loss := … // an inner step that changes parameters
//			r.Done(loss)
//		}
//		r.Params = parameters
//	}
//	return run.Err()
//
// docs/trainer.md describes the rounds, and has the same in Python.
package client

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/train/program/wire"
)

// Run is the run that this process trains for. It has one user at a time.
type Run struct {
	Worker     int // the worker that this process trains for; its shard of the data is always the same
	Workers    int // of the run
	Seed       uint64
	InnerSteps int // of a round
	OuterSteps int // of the run

	// StateBytes is the longest state that a round may leave; it must be set
	// before Init is called. 0: as long as a state may be (wire.MaxState). Unused
	// bytes cost nothing.
	StateBytes int
	// Validate, if set before Init is called, computes the validation loss of
	// parameters, which it must not retain. It is called in a process of its own.
	Validate func(parameters []float32) float64

	socket *os.File
	memory int // its descriptor
	shared []byte
	layout *wire.Layout
	size   int
	role   string
	next   *wire.Message // received, and not yet handled
	warm   bool          // another run may follow in this process
	other  *wire.Message // the welcome to that run
	err    error
}

// Join makes this process a trainer of the testbed that has started it.
func Join() (*Run, error) {
	numbers := [2]int{}
	for i, name := range []string{wire.EnvSocket, wire.EnvMemory} {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			return nil, fmt.Errorf("joining the run: %s is not set: testbed must start this program; name the program in train.program of a scenario", name)
		}
		unix.CloseOnExec(n)
		numbers[i] = n
	}
	r := &Run{socket: os.NewFile(uintptr(numbers[0]), "testbed"), memory: numbers[1]}
	m, err := r.receive()
	if err != nil {
		return nil, fmt.Errorf("joining the run: %w", err)
	}
	return r, r.welcome(m)
}

func (r *Run) welcome(m wire.Message) error {
	if m.Type != wire.Welcome {
		return fmt.Errorf("joining the run: testbed sent the unexpected message %q", m.Type)
	}
	if m.Version != wire.Version {
		return fmt.Errorf("joining the run: testbed speaks version %d of the protocol, but this program speaks version %d; build both from one version", m.Version, wire.Version)
	}
	r.role, r.Worker, r.Workers, r.Seed, r.InnerSteps, r.OuterSteps = m.Role, m.Worker, m.Workers, m.Seed, m.InnerSteps, m.Rounds
	return nil
}

// Runs is for programs that can train for one run after another, so that a
// sweep need not start them for each of its points. It yields a Run for each,
// like Join's. The body of the loop begins each run as a newly started program
// would. After a run that ends in an error it yields no more.
func Runs() iter.Seq2[*Run, error] {
	return func(yield func(*Run, error) bool) {
		r, err := Join()
		if err == nil {
			r.warm = true
		}
		for yield(r, err) && err == nil && r.other != nil && r.Err() == nil {
			m := *r.other
			if err := unix.Munmap(r.shared); err != nil { // nothing of it may be retained
				yield(nil, fmt.Errorf("unmapping the shared memory: %w", err))
				return
			}
			r = &Run{socket: r.socket, memory: r.memory, warm: true}
			err = r.welcome(m)
		}
	}
}

// Init offers the initial parameters. Those of the first process that is asked
// are used by all; all have to offer as many. Init comes before Rounds.
func (r *Run) Init(parameters []float32) {
	if r.err = r.init(parameters); r.err != nil {
		r.err = fmt.Errorf("joining the run: %w", r.err)
	}
}

func (r *Run) init(parameters []float32) error {
	r.size = len(parameters)
	if r.StateBytes == 0 {
		r.StateBytes = wire.MaxState(r.size)
	}
	if err := r.send(wire.Message{Type: wire.Join, Version: wire.Version, Parameters: r.size, StateBytes: r.StateBytes, Validates: r.Validate != nil, Again: r.warm}); err != nil {
		return err
	}
	m, err := r.receive()
	if err != nil {
		return err
	}
	if r.layout = m.Layout; m.Type != wire.Memory || r.layout == nil {
		return fmt.Errorf("testbed sent the unexpected message %q", m.Type)
	}
	if r.shared, err = unix.Mmap(r.memory, 0, r.layout.Bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("mapping the shared memory: %w", err)
	}
	if r.role == wire.RoleInit {
		copy(r.floats(r.layout.Local), parameters)
		return r.send(wire.Message{Type: wire.Init})
	}
	return nil
}

func (r *Run) floats(at int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&r.shared[at])), r.size)
}

func (r *Run) send(m wire.Message) error {
	data, err := wire.Encode(m)
	if err != nil {
		return err
	}
	switch _, err := r.socket.Write(data); {
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return io.EOF
	case err != nil:
		return fmt.Errorf("sending a message to testbed: %w", err)
	}
	return nil
}

// receive waits for the next message. The error is io.EOF if the run is over.
func (r *Run) receive() (wire.Message, error) {
	if m := r.next; m != nil {
		r.next = nil
		return *m, nil
	}
	if r.other != nil {
		return wire.Message{}, io.EOF
	}
	buf := make([]byte, wire.MaxBytes)
	n, err := r.socket.Read(buf)
	if errors.Is(err, unix.ECONNRESET) {
		err = io.EOF
	}
	if err != nil {
		return wire.Message{}, err
	}
	m, err := wire.Decode(buf[:n])
	if err == nil && m.Type == wire.Welcome && r.shared != nil && r.warm { // to another run: this one is over
		r.other = &m
		return wire.Message{}, io.EOF
	}
	return m, err
}

// Err returns why Rounds has ended, or nil if the run is over.
func (r *Run) Err() error {
	if errors.Is(r.err, io.EOF) {
		return nil
	}
	return r.err
}

// Round is one beginning of a round for this worker.
type Round struct {
	Number int
	// Params are at first the outer parameters. The slice at the end of the loop's
	// body, changed or another one, is handed over. At first it is shared memory,
	// which must not be retained.
	Params []float32
	// State is the state after the last kept round, nil if there is none. Its
	// content at the end of the loop's body is kept in checkpoints.
	State []byte
	// Restored reports that State is not the last one of this process: a round was
	// discarded, or the run goes on after a crash.
	Restored bool

	run      *Run
	attempt  int
	step     int  // under way
	finished bool // all steps were taken
}

// Rounds yields the rounds of this worker until the run is over.
func (r *Run) Rounds() iter.Seq[*Round] {
	return func(yield func(*Round) bool) {
		var state []byte
		for r.err == nil {
			m, err := r.receive()
			switch {
			case err != nil:
				r.err = err
			case m.Type == wire.Validate:
				r.err = r.validate(m)
			case m.Type != wire.Round:
				r.err = fmt.Errorf("testbed sent the unexpected message %q", m.Type)
			default:
				if m.Restored {
					state = append([]byte(nil), r.shared[r.layout.StateIn:][:m.State]...)
				}
				one := &Round{Number: m.Round, Params: r.floats(r.layout.Outer), State: state, Restored: m.Restored, run: r, attempt: m.Attempt}
				if !yield(one) {
					return
				}
				state = one.State
				r.err = errors.Join(r.err, one.end())
			}
		}
	}
}

func (r *Run) validate(m wire.Message) error {
	loss := math.NaN()
	if r.Validate != nil {
		loss = r.Validate(r.floats(r.layout.Outer))
	}
	if err := finite(loss); err != nil {
		return fmt.Errorf("the validation loss is %v: %w", loss, err)
	}
	return r.send(wire.Message{Type: wire.Loss, Attempt: m.Attempt, Loss: &loss})
}

func finite(loss float64) error {
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return errors.New("the training has diverged; lower its learning rate, or train.outer.rate")
	}
	return nil
}

// Steps yields the numbers of the inner steps to take, from 1 on, each at its
// time. It ends early if the worker is left out of the round.
func (d *Round) Steps() iter.Seq[int] {
	return func(yield func(int) bool) {
		r := d.run
		for r.err == nil {
			if d.step != 0 {
				r.err = fmt.Errorf("inner step %d of round %d was not reported; call Done with its loss", d.step, d.Number)
				return
			}
			m, err := r.receive()
			switch {
			case err != nil:
				r.err = err
				return
			case m.Type == wire.Finish && m.Attempt == d.attempt:
				d.finished = true
				return
			case m.Type == wire.Round:
				r.next = &m
				return
			case m.Type != wire.Step || m.Attempt != d.attempt:
				r.err = fmt.Errorf("testbed sent the unexpected message %q", m.Type)
				return
			}
			if d.step = m.Step; !yield(m.Step) {
				return
			}
		}
	}
}

// Done reports an inner step, with the training loss of its batch before it.
func (d *Round) Done(loss float64) {
	if err := finite(loss); err != nil {
		d.run.err = fmt.Errorf("the loss of inner step %d of round %d is %v: %w", d.step, d.Number, loss, err)
	}
	if d.run.err == nil {
		d.run.err = d.run.send(wire.Message{Type: wire.Done, Attempt: d.attempt, Step: d.step, Loss: &loss})
	}
	d.step = 0
}

// end hands the round over.
func (d *Round) end() error {
	switch {
	case !d.finished && (d.run.next != nil || d.run.err != nil):
		return nil // it was broken off
	case !d.finished:
		return fmt.Errorf("round %d ended before its inner steps were done; run the loop over Steps to its end", d.Number)
	case len(d.State) > d.run.StateBytes:
		return fmt.Errorf("the state after round %d has %d bytes, but StateBytes is %d: raise StateBytes", d.Number, len(d.State), d.run.StateBytes)
	}
	if len(d.Params) != d.run.size {
		return fmt.Errorf("the program handed over %d parameters after round %d, but the run has %d", len(d.Params), d.Number, d.run.size)
	}
	copy(d.run.floats(d.run.layout.Local), d.Params)
	copy(d.run.shared[d.run.layout.StateOut:], d.State)
	return d.run.send(wire.Message{Type: wire.Finished, Attempt: d.attempt, State: len(d.State)})
}
