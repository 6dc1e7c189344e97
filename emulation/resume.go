//go:build linux

package emulation

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/emulation/cluster"
	"testbed/emulation/network"
	"testbed/internal/errs"
	"testbed/internal/filelock"
	"testbed/node"
	"testbed/node/state"
	"testbed/policy"
	"testbed/policy/program"
	"testbed/record"
	"testbed/scenarios"
)

// runFile, in resumeDir, holds the name of the run. It is locked while the run
// goes on.
const runFile = "run"

// claim makes the folder for a run's resumption, or takes it over, and returns
// the name of the run. The locked file is the claim.
func claim(dir record.Dir) (name string, lock *os.File, err error) {
	wrap := func(err error) error { return fmt.Errorf("locking the run: %w", err) }
	if err := os.MkdirAll(dir.Path(resumeDir), 0o755); err != nil {
		return "", nil, wrap(err)
	}
	lock, err = os.OpenFile(dir.Path(filepath.Join(resumeDir, runFile)), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return "", nil, wrap(err)
	}
	switch err := filelock.Try(lock); {
	case errors.Is(err, filelock.ErrHeld):
		lock.Close()
		return "", nil, wrap(errors.New("the run is still going on; wait for its end, or kill it first"))
	case errors.Is(err, filelock.ErrUnsupported): // resuming requires that the former process is dead
	case err != nil:
		lock.Close()
		return "", nil, wrap(err)
	}
	text, err := os.ReadFile(lock.Name())
	if err == nil && len(text) == 0 {
		text = []byte(rand.Text())
		_, err = lock.Write(text)
	}
	if err != nil {
		lock.Close()
		return "", nil, wrap(err)
	}
	return string(text), lock, nil
}

// tidy removes the folder for a run's resumption, when the run is over and all
// its processes are gone: a network file system keeps open files, and with them
// the folder. A failure does not affect the run, which is over.
func (r *recorder) tidy(lock *os.File) {
	lock.Close()
	var err error
	for attempt := range 5 {
		if err = os.RemoveAll(r.dir.Path(resumeDir)); err == nil {
			return
		}
		time.Sleep(time.Duration(attempt) * 50 * time.Millisecond)
	}
	r.stage(fmt.Sprintf("the folder %s is no longer needed, but could not be removed: %v", r.dir.Path(resumeDir), err))
}

// policyFile, in resumeDir, holds the policy's specification in a form that is
// valid in any folder.
const policyFile = "policy"

// keepPolicy stores what recall needs to find a policy's program.
func (r *recorder) keepPolicy() error {
	name, err := program.Absolute(r.options.Policy)
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.dir.Path(filepath.Join(resumeDir, policyFile)), []byte(name), 0o644); err != nil {
		return fmt.Errorf("writing the run directory: %w", err)
	}
	s := r.spec.Scenario
	text, err := json.Marshal(asked{record.Run{
		Schema: record.Schema, Scenario: s.Name, Policy: s.PolicyName, World: record.Real, Links: r.options.Links,
		Seed: s.Seed, TimeScale: s.TimeScale, Dilation: s.Slowdown(),
	}, r.options.Qlog})
	if err == nil {
		err = os.WriteFile(r.dir.Path(filepath.Join(resumeDir, askedFile)), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the run directory: %w", err)
	}
	return nil
}

// askedFile, in resumeDir, holds the options (an asked), for a run that was
// killed before it began.
const askedFile = "asked.json"

type asked struct {
	Run  record.Run `json:"run"`
	Qlog bool       `json:"qlog,omitempty"`
}

// begin restarts a run that was killed before any worker had joined.
func (r *recorder) begin() error {
	text, err := os.ReadFile(r.dir.Path(filepath.Join(resumeDir, askedFile)))
	if err != nil {
		return fmt.Errorf("the run was killed before any worker joined, and its settings could not be read: %w; run the scenario again", err)
	}
	var was asked
	if err := json.Unmarshal(text, &was); err != nil {
		return fmt.Errorf("the run was killed before any worker joined, and its settings in %s could not be parsed: %w; run the scenario again", r.dir.Path(filepath.Join(resumeDir, askedFile)), err)
	}
	for _, name := range []string{record.EventsFile, filepath.Join(resumeDir, journalFile)} {
		if err := os.Remove(r.dir.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if r.options.Scenario, err = r.readScenario(&was.Run); err != nil {
		return err
	}
	if was.Run.Dilation > 1 {
		r.options.Scenario.Real.Dilation = was.Run.Dilation
	}
	if err := r.resolve(&was.Run); err != nil {
		return err
	}
	r.spec.Qlog = was.Qlog
	r.stage("the run was killed before any worker had joined, so it starts again from the beginning")
	return nil
}

// resolve resolves the scenario of a run for its policy.
func (r *recorder) resolve(was *record.Run) error {
	name, err := os.ReadFile(r.dir.Path(filepath.Join(resumeDir, policyFile)))
	if err != nil {
		name = []byte(was.Policy) // in a run of an earlier version
	}
	if r.spec.Scenario, err = r.options.Scenario.Resolve(string(name)); err != nil {
		return err
	}
	r.spec.Scenario.PolicyName = was.Policy
	r.sum = record.NewSummarizer(r.spec.Scenario.Setup())
	r.spec.Links = was.Links
	return nil
}

var errOver = errors.New("the run has ended; there is nothing to resume")

// Resume resumes the run in a directory, all of whose processes have been
// killed, from the last complete checkpoint. Its record continues where it was
// cut off, and the summary covers the whole run. Only the options Dir, Hosts,
// Command and Progress are used: a run is resumed as it began, but possibly on
// other hosts.
func Resume(ctx context.Context, o Options) (*scenarios.Scenario, record.Summary, error) {
	r := &recorder{options: o}
	lock, err := r.reopen()
	if err == nil && o.Hosts != nil {
		r.options.Links = r.spec.Links
		err = checkHosts(&r.options)
		if l := r.spec.Links; l != network.LinksUser {
			err = errs.Usagef("the run uses %s links, which work on one host only; resume it without --hosts", l)
		}
		if err != nil {
			lock.Close()
		}
	}
	if err != nil {
		return nil, record.Summary{}, fmt.Errorf("resuming the run in %s: %w", o.Dir, err)
	}
	defer lock.Close()
	if o.Hosts == nil {
		err = r.play(ctx, &cluster.Cluster{})
	} else {
		err = r.playOnHosts(ctx)
	}
	sum, werr := r.conclude(err)
	if err == nil {
		r.tidy(lock)
	}
	return r.options.Scenario, sum, errors.Join(err, werr)
}

// reopen takes over a run directory.
func (r *recorder) reopen() (lock *os.File, err error) {
	abs, err := filepath.Abs(r.options.Dir)
	if err != nil {
		return nil, err
	}
	r.dir = record.Dir(abs)
	if _, err := os.Stat(r.dir.Path(resumeDir)); err != nil {
		return nil, r.whyGone(err)
	}
	if r.spec.Name, lock, err = claim(r.dir); err != nil {
		return nil, err
	}
	events, err := r.reopenRecord()
	switch joined := slices.ContainsFunc(events, func(e record.Event) bool { return e.Type == record.Join }); {
	case err != nil:
	case joined:
		err = r.recall(events)
	default:
		err = r.begin()
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// whyGone explains why there is no state to resume from.
func (r *recorder) whyGone(err error) error {
	file, rerr := os.Open(r.dir.Path(record.EventsFile))
	if rerr != nil {
		if errors.Is(rerr, fs.ErrNotExist) {
			return fmt.Errorf("the directory contains no %s; name the directory of a run", record.EventsFile)
		}
		return fmt.Errorf("reading the record of the run: %w", rerr)
	}
	defer file.Close()
	events, _ := record.Read(file) // up to the first invalid line
	if slices.ContainsFunc(events, func(e record.Event) bool { return e.Type == record.RunEnd }) {
		return errOver
	}
	return fmt.Errorf("the directory contains no saved state from which the run could continue: %w; run the scenario again", err)
}

// reopenRecord reads the record, which must be as the run has left it, and
// removes the summary of an interrupted run: the run goes on.
func (r *recorder) reopenRecord() ([]record.Event, error) {
	if _, _, err := r.dir.ReadSummary(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var began record.Environment
	switch text, err := os.ReadFile(r.dir.Path(record.EnvironmentFile)); {
	case err == nil:
		if err := json.Unmarshal(text, &began); err != nil {
			return nil, fmt.Errorf("reading %s: %w", r.dir.Path(record.EnvironmentFile), err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if err := r.dir.Verify(began.SHA256); err != nil { // earlier versions have none
		return nil, err
	}
	if changed := began.Trainer.Changed(); len(changed) > 0 {
		return nil, fmt.Errorf("the trainer has changed since the run began: %s; restore the old version, or run the scenario again", strings.Join(changed, ", "))
	}
	events, err := r.dir.ReadEvents()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.Remove(r.dir.Path(record.SummaryFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return events, nil
}

// recall finds out from the record what was run, which workers are alive, and
// where to resume.
func (r *recorder) recall(events []record.Event) error {
	was := events[0].Run
	var err error
	if r.options.Scenario, err = r.readScenario(was); err != nil {
		return err
	}
	if err := r.resolve(was); err != nil {
		return err
	}
	present, gone, led := map[string]bool{}, map[string]bool{}, map[int]record.Event{}
	incarnations := map[string]int{}
	for _, e := range events {
		r.sum.Add(&e)
		r.spec.Reported = max(r.spec.Reported, e.Seq)
		switch e.Type {
		case record.Join:
			present[e.Node], gone[e.Node], incarnations[e.Node] = true, false, e.Incarnation
		case record.Evict, record.Crash, record.Fail:
			gone[e.Node] = true
		case record.State:
			led[e.Round] = e
		case record.RunEnd:
			return errOver
		}
	}
	r.spec.Resume = &node.Resume{}
	r.spec.Incarnations = map[policy.ID]int{}
	for _, w := range r.spec.Scenario.Workers {
		name := w.ID.Node()
		r.spec.Incarnations[w.ID] = incarnations[name]
		switch {
		case gone[name]:
			r.spec.Gone = append(r.spec.Gone, w.ID)
			r.spec.Incarnations[w.ID]++ // of the next process
		case present[name]:
			r.spec.Resume.Holders = append(r.spec.Resume.Holders, w.ID)
		}
	}
	if len(r.spec.Resume.Holders) == 0 {
		return errors.New("no worker was alive when the run was killed; run the scenario again")
	}
	from, err := r.lastCheckpoint(led)
	r.spec.Resume.OuterSteps, r.spec.Resume.Hash = from.OuterSteps, from.Hash
	return err
}

// readScenario reads the copy of the scenario in the run directory.
func (r *recorder) readScenario(was *record.Run) (*scenarios.Scenario, error) {
	file, err := r.dir.ScenarioFile()
	if err != nil {
		return nil, err
	}
	source, err := scenarios.Find(file)
	if err != nil {
		return nil, err
	}
	s, err := source.Parse()
	if err != nil {
		return nil, err
	}
	s.Name = was.Scenario
	if was.TimeScale != s.Real.TimeScale {
		if err := s.Rescale(was.TimeScale); err != nil {
			return nil, err
		}
	}
	return recallTrainer(s, r.dir.Path(resumeDir))
}

// lastCheckpoint finds the last complete checkpoint of this run for which each
// holder's own state exists; otherwise the last complete one. Files of later
// outer steps are put aside, because the run will have other states after them.
// led has the State events of outer steps.
func (r *recorder) lastCheckpoint(led map[int]record.Event) (last state.Checkpoint, err error) {
	dir := r.dir.Path(resumeDir)
	all, err := checkpoints(dir)
	if err != nil {
		return last, err
	}
	if len(all) == 0 {
		return last, fmt.Errorf("the run was killed before it saved a checkpoint (outer steps between checkpoints: %d); run the scenario again", r.spec.Scenario.CheckpointEvery)
	}
	var problems []error
	for _, steps := range slices.Backward(all) {
		c, err := r.readCheckpoint(steps)
		if hash := led[steps].Hash; err == nil && hash != "" && hash != c.Hash {
			err = fmt.Errorf("the state in the checkpoint has the hash %s, but the record contains the hash %s", c.Hash, hash)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", checkpointName(steps), err)
			r.stage("a checkpoint cannot be used: " + err.Error())
			problems = append(problems, err)
			continue
		}
		missing := r.withoutOwn(c, led[steps].Participants)
		if last.OuterSteps == 0 || len(missing) == 0 {
			last = c
		}
		if len(missing) == 0 {
			break
		}
		r.stage(fmt.Sprintf("%s: the run was killed before these workers had saved their own state: %s", checkpointName(steps), strings.Join(missing, ", ")))
	}
	if last.OuterSteps == 0 {
		err = fmt.Errorf("no checkpoint of the run can be used: %w; run the scenario again", errors.Join(problems...))
	}
	return last, errors.Join(err, putAside(dir, last.OuterSteps))
}

// withoutOwn are the participants of an outer step whose own state is not kept
// with its checkpoint. Nil participants stand for all.
func (r *recorder) withoutOwn(c state.Checkpoint, participants []policy.ID) (missing []string) {
	if !r.spec.Scenario.WorkersKeep() || c.Of == nil {
		return nil
	}
	for _, id := range r.spec.Resume.Holders {
		name := id.Node()
		_, err := os.Stat(r.dir.Path(filepath.Join(resumeDir, residualName(c.OuterSteps, name))))
		if err != nil && *c.Of != id && (participants == nil || slices.Contains(participants, id)) {
			missing = append(missing, name)
		}
	}
	return missing
}

func (r *recorder) readCheckpoint(steps int) (state.Checkpoint, error) {
	file, err := os.Open(filepath.Join(r.dir.Path(resumeDir), checkpointName(steps)))
	if err != nil {
		return state.Checkpoint{}, err
	}
	defer file.Close()
	c, err := state.ReadCheckpoint(file)
	switch {
	case err != nil:
		return c, err
	case c.Run != r.spec.Name:
		return c, errors.New("the checkpoint belongs to another run")
	case c.Stateless:
		return c, errors.New("the checkpoint contains no outer state")
	case c.OuterSteps != steps || c.Parameters != r.spec.Scenario.Parameters:
		return c, fmt.Errorf("the checkpoint contains outer step %d and %d parameters, but outer step %d and %d parameters are expected", c.OuterSteps, c.Parameters, steps, r.spec.Scenario.Parameters)
	}
	return c, nil
}
