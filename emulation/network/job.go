//go:build linux

package network

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"testbed/emulation/sandbox"
	"testbed/internal/errs"
	"testbed/record"
)

// JobSpec is the job of a sandbox's init.
type JobSpec struct {
	Kind string
	// Dir keeps the logs of the processes; empty means standard error.
	Dir record.Dir
	// Spec is of the kind's own type.
	Spec any
	// Files are inherited. The job gets them by the names in FileNames.
	Files     []*os.File
	FileNames []string
}

// rawJob is a JobSpec in the form that the sandbox's init reads.
type rawJob struct {
	Kind string
	Dir  record.Dir
	Spec json.RawMessage

	FileNames []string
}

// Note is a note of the sandbox's init.
type Note struct {
	Stage string          `json:"stage,omitempty"` // present activity, in words
	Quiet bool            `json:"quiet,omitempty"` // the stage is of no interest to a user's program
	Data  json.RawMessage `json:"data,omitempty"`  // of a type of the job's own
	Error string          `json:"error,omitempty"`
	Fix   string          `json:"mend,omitempty"`  // with Error: not supported here
	Lost  string          `json:"lost,omitempty"`  // with Error: the host that has gone
	Done  bool            `json:"done,omitempty"`  // the job is over
	Alive bool            `json:"alive,omitempty"` // init is alive
	Raise int             `json:"raise,omitempty"` // a thread asks for priority; see sandbox.Raise
}

// The sandbox's init sends a sign of life every alivePeriod. After a time of
// silence without any message it counts as stopped for ever, and is killed.
const (
	alivePeriod = time.Second
	silence     = time.Minute
)

// Job is a job in a sandbox, seen from outside.
type Job struct {
	ctx      context.Context
	box      *sandbox.Sandbox
	commands chan any
	notes    *os.File
	in       chan Note // closed at the end of the notes
	stop     func() bool
	closed   chan struct{}
	heard    atomic.Uint64 // notes
	silent   atomic.Bool   // init was killed for its silence
	oomKills uint64        // when it began
}

// ErrSandboxSilent is returned by Next if the sandbox's init sends nothing.
var ErrSandboxSilent = fmt.Errorf("the sandbox's init process (testbed: sandbox) has not responded for %v: it was stopped, frozen or starved of CPU; run the command again when the machine is less busy", silence)

// ErrSandboxEnded is returned by Next if the sandbox's init has died.
var ErrSandboxEnded = errors.New("the sandbox's init process ended unexpectedly")

// Start starts a sandbox with the job, and with the standard files of cfg. The
// end of ctx kills it.
func Start(ctx context.Context, spec JobSpec, cfg sandbox.Config) (*Job, error) {
	commandsIn, commandsOut, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the sandbox: %w", err)
	}
	defer commandsIn.Close()
	notesIn, notesOut, err := os.Pipe()
	if err != nil {
		commandsOut.Close()
		return nil, fmt.Errorf("starting the sandbox: %w", err)
	}
	defer notesOut.Close()
	cfg.Args, cfg.Files = []string{VerbInside}, append([]*os.File{commandsIn, notesOut}, spec.Files...)
	box, err := sandbox.Start(cfg)
	if err != nil {
		commandsOut.Close()
		notesIn.Close()
		return nil, err
	}
	j := &Job{
		ctx: ctx, box: box, oomKills: sandbox.OOMKills(), commands: make(chan any, 16),
		notes: notesIn, in: make(chan Note, 64), closed: make(chan struct{}), stop: context.AfterFunc(ctx, box.Kill),
	}
	go j.read(notesIn)
	go j.watch(silence, func() {
		box.Kill()
		_ = notesIn.SetReadDeadline(time.Now().Add(killPatience)) // pipes have deadlines
	})
	go func() {
		defer commandsOut.Close()
		out := json.NewEncoder(commandsOut)
		for c := range j.commands {
			_ = out.Encode(c) // the death of init is noticed by the end of its notes
		}
	}()
	raw, err := json.Marshal(spec.Spec)
	if err != nil {
		j.Close()
		return nil, fmt.Errorf("starting the sandbox: %w", err)
	}
	j.commands <- rawJob{spec.Kind, spec.Dir, raw, spec.FileNames}
	return j, nil
}

// Send sends the job a command, of a type of its own. It must not be called
// after Close.
func (j *Job) Send(command any) { j.commands <- command }

// read receives the notes.
func (j *Job) read(notes io.Reader) {
	defer close(j.in)
	for in := json.NewDecoder(bufio.NewReader(notes)); ; {
		var n Note
		if in.Decode(&n) != nil {
			return
		}
		if j.heard.Add(1); n.Alive {
			continue
		}
		if n.Raise > 0 {
			j.box.Raise(n.Raise)
			continue
		}
		select {
		case j.in <- n:
		case <-j.closed:
			return
		}
	}
}

// watch kills an init that is silent for so long. Time for which this process
// slept does not count: afterwards it ticks only once.
func (j *Job) watch(patience time.Duration, kill func()) {
	ticker := time.NewTicker(patience / 60)
	defer ticker.Stop()
	for last, missed := uint64(0), 0; ; {
		select {
		case <-j.closed:
			return
		case <-ticker.C:
		}
		heard := j.heard.Load()
		if missed++; heard != last || len(j.in) > 0 {
			last, missed = heard, 0
		}
		if missed >= 60 {
			j.silent.Store(true)
			kill()
			return
		}
	}
}

// Next waits for the next note. A note of an error is returned as that error:
// an *errs.UnsupportedError if this machine cannot do the job, a *LostError if
// a host has gone.
func (j *Job) Next() (Note, error) {
	n, more := <-j.in
	switch {
	case j.ctx.Err() != nil:
		return Note{}, context.Cause(j.ctx)
	case !more && j.silent.Load():
		return Note{}, ErrSandboxSilent
	case !more && sandbox.OOMKills() > j.oomKills:
		return Note{}, fmt.Errorf("%w: %s", ErrSandboxEnded, sandbox.OutOfMemory)
	case !more:
		return Note{}, ErrSandboxEnded
	case n.Lost != "":
		return Note{}, &LostError{n.Lost, n.Error}
	case n.Fix != "":
		return Note{}, &errs.UnsupportedError{Missing: n.Error, Fix: n.Fix}
	case n.Error != "":
		return Note{}, errors.New(n.Error)
	}
	return n, nil
}

// Result waits for the data of a job with a single result. It calls progress
// with the stages until then; progress may be nil.
func (j *Job) Result(to any, progress func(stage string)) error {
	for {
		n, err := j.Next()
		switch {
		case err != nil:
			return err
		case n.Data != nil:
			return json.Unmarshal(n.Data, to)
		case n.Done:
			return errors.New("internal error: the sandbox ended without a result")
		case n.Stage != "" && progress != nil:
			progress(n.Stage)
		}
	}
}

// Close ends the sandbox and everything in it.
func (j *Job) Close() {
	j.stop()
	j.box.Kill()
	close(j.closed)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		j.box.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(endPatience): // a cgroup's freezer holds even killed processes; they end when it thaws
	}
	close(j.commands)
	j.notes.Close()
}

// killPatience is how long the notes of a killed init are awaited: a cgroup's
// freezer of version 1 holds it, and so their pipe, until it thaws.
const killPatience = 2 * time.Second

// endPatience limits how long a killed sandbox may take to end.
const endPatience = 30 * time.Second
