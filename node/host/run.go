//go:build linux

// Package host plays a scenario on the real network of one machine: it makes
// the sandbox, has the links built in it, starts a process in each node's
// namespace, carries the injects out, and keeps the record. On the same
// network it runs programs of the user's (Net).
//
// Three generations of processes are involved. The user's process calls Run
// or Net; it only listens and writes files. Its child is the init of the
// sandbox (RunInside); it builds the network and starts the nodes. Theirs is
// the third generation (RunNode). Every one is this same binary.
package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"testbed/node/host/sandbox"
	"testbed/runlog"
	"testbed/scenarios"
)

// Verbs under which the binary is started again, by itself.
const (
	VerbInside = "inside-sandbox"
	VerbNode   = "inside-node"
)

// Link backends as a user names them.
const (
	LinksAuto  = "auto"
	LinksNetem = "netem"
	LinksUser  = "user"
)

// Options say what to run and where to keep it.
type Options struct {
	Scenario *scenarios.Scenario
	// File and Source are the scenario's file name and text, for the copy in
	// the run directory.
	File   string
	Source []byte
	Policy string
	Links  string
	// Qlog has each node record its QUIC connections.
	Qlog bool
	// Command is the command line that asked for the run, for the record.
	Command []string
	// Dir is the run directory to make.
	Dir string
	// Progress is told what happens, from one goroutine; it may be nil.
	Progress func(Progress)
	// Meddle is asked after each Progress what to do to the workers that the
	// scenario does not have in store for them; it may be nil. Tests strike
	// with it in a phase that has no time of its own.
	Meddle func(Progress) []Meddling
}

// Meddling is an inject of no scenario. Its time is that of its coming; before
// the run has begun it leaves no record.
type Meddling struct {
	Inject scenarios.Inject
	After  time.Duration // real time to wait before it
}

// Progress is a step of a run as it happens: a stage of the set-up in words, or
// an event of the record.
type Progress struct {
	Stage string
	Event *runlog.Event
}

// UnsupportedError says what this machine or this version cannot do, and the
// mend.
type UnsupportedError struct{ Missing, Mend string }

func (e *UnsupportedError) Error() string { return e.Missing + "; " + e.Mend }

// Is makes errors.Is(err, errors.ErrUnsupported) true.
func (e *UnsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

// Ready says whether a real run is possible on this machine; if not, the error
// is an *UnsupportedError.
func Ready() error {
	err := sandbox.Check()
	var unsupported *sandbox.UnsupportedError
	if errors.As(err, &unsupported) {
		return &UnsupportedError{Missing: unsupported.Missing, Mend: unsupported.Mend}
	}
	return err
}

// Run plays the scenario and returns its summary. When ctx ends the run is cut
// short, nothing of it stays behind, and the summary of the partial record is
// returned with the context's error.
func Run(ctx context.Context, o Options) (runlog.Summary, error) {
	r := &run{Options: o, sum: runlog.NewSummarizer()}
	if r.Progress == nil {
		r.Progress = func(Progress) {}
	}
	if err := r.prepare(); err != nil {
		return runlog.Summary{}, err
	}
	var lock *os.File
	var err error
	if r.job.Name, lock, err = claim(r.dir); err != nil {
		return runlog.Summary{}, err
	}
	defer lock.Close()
	err = r.play(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return runlog.Summary{}, errors.Join(err, os.RemoveAll(string(r.dir))) // nothing has run
	}
	sum, werr := r.conclude(err)
	return sum, errors.Join(err, werr)
}

type run struct {
	Options
	dir      runlog.Dir
	job      runJob
	sum      *runlog.Summarizer
	measured *measured
}

func (r *run) prepare() (err error) {
	plan, err := r.Scenario.Plan()
	if err != nil {
		return err
	}
	if r.dir, err = runlog.CreateDir(r.Dir); err != nil {
		return err
	}
	if err := os.Mkdir(r.dir.Path(runlog.LogsDir), 0o755); err != nil {
		return fmt.Errorf("making the run directory: %w", err)
	}
	return errors.Join(r.dir.WriteScenario(r.File, r.Source, r.Scenario.Traces), r.dir.WriteJSON(runlog.PlanFile, plan),
		r.dir.WriteJSON(runlog.EnvironmentFile, environment(r.Command)))
}

// play has a sandbox play the scenario and writes the record as it comes.
func (r *run) play(ctx context.Context) error {
	r.Progress(Progress{Stage: "run directory " + r.Dir})
	log, err := os.OpenFile(r.dir.Log("sandbox"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("writing the run directory: %w", err)
	}
	defer log.Close()
	r.job.Policy, r.job.Qlog = r.Policy, r.Qlog
	s, err := openSession(ctx, job{Scenario: r.Scenario, Links: r.Links, Dir: r.dir, Run: &r.job}, sandbox.Config{Stderr: log})
	if err != nil {
		return err
	}
	defer s.close()
	tell := r.Progress
	r.Progress = func(step Progress) {
		tell(step)
		if r.Meddle != nil {
			for _, m := range r.Meddle(step) {
				s.words <- word{Meddle: &m}
			}
		}
	}
	return r.listen(s)
}

// listen takes the notes of the sandbox's init until it is done.
func (r *run) listen(s *session) error {
	file, err := os.OpenFile(r.dir.Path(runlog.EventsFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("writing the run directory: %w", err)
	}
	defer file.Close()
	record := runlog.NewWriter(file)
	for {
		n, err := s.next()
		switch {
		case errors.Is(err, errSandboxEnded):
			return errors.Join(fmt.Errorf("%w; see %s", err, r.dir.Log("sandbox")), record.Flush())
		case err != nil:
			return err
		case n.Stage != "":
			r.Progress(Progress{Stage: n.Stage})
		case n.Event != nil:
			r.sum.Add(n.Event)
			record.Write(*n.Event)
			if err := record.Flush(); err != nil {
				return fmt.Errorf("writing the record: %w", err)
			}
			r.Progress(Progress{Event: n.Event})
		case n.Measured != nil:
			r.measured = n.Measured
		case n.Done:
			return nil
		}
	}
}

// conclude writes the summary. A run that was cut short keeps a partial one.
func (r *run) conclude(failed error) (runlog.Summary, error) {
	sum := r.sum.Summary()
	sum.Dir = string(r.dir)
	if sum.Scenario == "" { // it did not get as far as run_start
		sum.Scenario, sum.Policy, sum.World, sum.Links = r.Scenario.Name, r.Policy, runlog.Real, r.Links
		sum.Seed, sum.TimeScale = r.Scenario.Seed, r.Scenario.Real.TimeScale
	}
	sum.Fidelity = runlog.Fidelity{Verdict: "invalid", Reasons: []string{"the run was cut short"}}
	if failed == nil && r.measured != nil {
		sum.Fidelity = r.measured.judge()
	}
	if sum.Fidelity.Reasons == nil {
		sum.Fidelity.Reasons = []string{}
	}
	return sum, r.dir.WriteJSON(runlog.SummaryFile, sum)
}
