//go:build linux

package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"

	"testbed/bench"
	"testbed/node"
	"testbed/node/host/sandbox"
	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/shaping/probe"
)

// job is what the sandbox's init is told. At most one of the pointers at its
// end is set; without any, the sandbox only tells what the kernel can do.
type job struct {
	Scenario *scenarios.Scenario
	Links    string
	// Dir keeps the logs of the processes; empty means standard error.
	Dir runlog.Dir

	Run    *runJob    `json:",omitempty"`
	Net    *netJob    `json:",omitempty"`
	Verify *verifyJob `json:",omitempty"`
	Bench  *benchJob  `json:",omitempty"`
}

type runJob struct {
	Policy string
	Qlog   bool   `json:",omitempty"`
	Name   string // of the run, in its journal and checkpoints
	// Resume is given for a run that goes on after its death. Gone are then the
	// workers that are no part of it any more, and Reported is the number of the
	// coordinator's last event in the record.
	Resume   *node.Resume
	Gone     []policy.ID
	Reported int
}

// word is what the sandbox's init may be told after its job.
type word struct {
	Signal syscall.Signal // for the user's program
	Meddle *Meddling      `json:",omitempty"`
}

// note is what the sandbox's init tells.
type note struct {
	Stage    string        `json:"stage,omitempty"`
	Quiet    bool          `json:"quiet,omitempty"` // the stage is of no concern to a user's program
	Event    *runlog.Event `json:"event,omitempty"`
	Measured *measured     `json:"measured,omitempty"`
	Started  bool          `json:"started,omitempty"` // the user's program
	Exit     *int          `json:"exit,omitempty"`    // of the user's program
	Verified *probe.Report `json:"verified,omitempty"`
	Benched  *bench.Ring   `json:"benched,omitempty"`
	Error    string        `json:"error,omitempty"`
	Mend     string        `json:"mend,omitempty"` // with Error: not supported here
	Checks   []Check       `json:"checks,omitempty"`
	Done     bool          `json:"done,omitempty"`
}

// session is a sandbox at its job, seen from outside.
type session struct {
	ctx   context.Context
	box   *sandbox.Sandbox
	words chan any
	notes *os.File
	in    *json.Decoder
	stop  func() bool
}

var errSandboxEnded = errors.New("the sandbox ended unexpectedly")

// openSession starts a sandbox on the job. The end of ctx kills it.
func openSession(ctx context.Context, j job, cfg sandbox.Config) (*session, error) {
	jobIn, jobOut, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the sandbox: %w", err)
	}
	defer jobIn.Close()
	notesIn, notesOut, err := os.Pipe()
	if err != nil {
		jobOut.Close()
		return nil, fmt.Errorf("starting the sandbox: %w", err)
	}
	defer notesOut.Close()
	cfg.Args, cfg.Files = []string{VerbInside}, []*os.File{jobIn, notesOut}
	box, err := sandbox.Start(cfg)
	if err != nil {
		jobOut.Close()
		notesIn.Close()
		return nil, err
	}
	s := &session{
		ctx: ctx, box: box, words: make(chan any, 16),
		notes: notesIn, in: json.NewDecoder(bufio.NewReader(notesIn)), stop: context.AfterFunc(ctx, box.Kill),
	}
	go func() {
		defer jobOut.Close()
		out := json.NewEncoder(jobOut)
		for w := range s.words {
			_ = out.Encode(w) // an init that has died is reported by the end of its notes
		}
	}()
	s.words <- j
	return s, nil
}

// next returns the next note. A note of an error is returned as that error.
func (s *session) next() (note, error) {
	var n note
	err := s.in.Decode(&n)
	switch {
	case s.ctx.Err() != nil:
		return note{}, context.Cause(s.ctx)
	case err != nil:
		return note{}, errSandboxEnded
	case n.Mend != "":
		return note{}, &UnsupportedError{Missing: n.Error, Mend: n.Mend}
	case n.Error != "":
		return note{}, errors.New(n.Error)
	}
	return n, nil
}

// close ends the sandbox, and with it all that runs in it.
func (s *session) close() {
	s.stop()
	s.box.Kill()
	s.box.Wait()
	close(s.words)
	s.notes.Close()
}
