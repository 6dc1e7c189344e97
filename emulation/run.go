//go:build linux

package emulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"testbed/emulation/cluster"
	"testbed/emulation/monitor"
	"testbed/emulation/network"
	"testbed/emulation/sandbox"
	"testbed/internal/lines"
	"testbed/node"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/resolved"
	"testbed/shaping/fidelity"
	"testbed/shaping/userlink"
)

// KindScenario is the kind of the job of Play and Resume: RunScenario.
const KindScenario = "scenario"

// Options determine what to run and where to keep it.
type Options struct {
	Scenario *scenarios.Scenario
	// File and Text are the scenario's file name and text, for the copy in the
	// run directory.
	File   string
	Text   []byte
	Policy string
	Links  string // the backend, as in package emulation
	// Qlog makes each node record its QUIC connections.
	Qlog bool
	// Hosts asks for a run over several hosts; nil for this host alone.
	Hosts *cluster.Request
	// Place determines which nodes are on which host (cluster.ParsePlacement).
	// Empty: the best placement for the actual hosts.
	Place string
	// Command is the command line that asked for the run, for the record.
	Command []string
	// Dir is the run directory to make.
	Dir string
	// Progress is called with the run's steps, from one goroutine; it may be nil.
	Progress func(Progress)
}

// Progress is a step of a run: a stage of the set-up in words, or an event of
// the record.
type Progress struct {
	Stage string
	Event *record.Event
}

// scenarioSpec is the job of Play and Resume.
type scenarioSpec struct {
	Scenario *resolved.Scenario
	Links    string
	Qlog     bool   `json:",omitempty"`
	Name     string // of the run, in its journal and checkpoints
	// Resume is set for a run that is resumed. Gone are then the workers that no
	// longer take part, and Reported is the number of the coordinator's last event
	// in the record.
	Resume   *node.Resume
	Gone     []policy.ID
	Reported int
	// Incarnations are then the incarnations of the processes to start.
	Incarnations map[policy.ID]int `json:",omitempty"`
	// Layout has the host of each node, if there are several hosts.
	Layout *network.Layout `json:",omitempty"`
	// Processors are the hosts' processor types if they differ.
	Processors []string `json:",omitempty"`
}

// playerNote is a note of the job.
type playerNote struct {
	Event    *record.Event     `json:"event,omitempty"`
	Fidelity *fidelity.Verdict `json:"fidelity,omitempty"`
	// Underlay comes with Fidelity.
	Underlay []fidelity.Underlay `json:"underlay,omitempty"`
	// Drops come with Fidelity, too.
	Drops []userlink.NodeDrops `json:"drops,omitempty"`
}

// Play plays the scenario and returns its summary. When ctx ends, the run is
// cut short and nothing of it stays behind. The summary of the partial record
// is returned with the context's error.
func Play(ctx context.Context, o Options) (record.Summary, error) {
	r := &recorder{options: o, sum: record.NewSummarizer(o.Scenario.Setup())}
	if o.Hosts != nil || o.Place != "" {
		if err := checkHosts(&o); err != nil {
			return record.Summary{}, err
		}
	}
	if err := r.prepare(); err != nil {
		return record.Summary{}, err
	}
	var lock *os.File
	var err error
	if r.spec.Name, lock, err = claim(r.dir); err != nil {
		return record.Summary{}, err
	}
	defer lock.Close()
	if err := errors.Join(keepTrainer(o.Scenario, r.dir.Path(resumeDir)), r.keepPolicy()); err != nil {
		return record.Summary{}, err
	}
	r.spec.Links, r.spec.Qlog = o.Links, o.Qlog
	if o.Hosts == nil {
		err = r.play(ctx, &cluster.Cluster{})
	} else {
		err = r.playOnHosts(ctx)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		lock.Close()
		return record.Summary{}, errors.Join(err, os.RemoveAll(string(r.dir))) // nothing has run
	}
	sum, werr := r.conclude(err)
	if err == nil {
		r.tidy(lock)
	}
	return sum, errors.Join(err, werr)
}

// recorder is a run in the user's process, which keeps the record.
type recorder struct {
	options  Options
	dir      record.Dir
	spec     scenarioSpec
	sum      *record.Summarizer
	fidelity *fidelity.Verdict // nil before the end
	drops    []record.LinkDrops
	hosts    []record.Host // in a run over several
}

func (r *recorder) prepare() error {
	o := &r.options
	var err error
	if r.spec.Scenario, err = o.Scenario.Resolve(o.Policy); err != nil {
		return err
	}
	if n := o.Scenario.Real.Parameters; n > scenarios.MaxRealParameters {
		_ = os.Remove(o.Dir) // if it was made for this run alone
		return &scenarios.Error{File: o.File, Field: "real.parameters", Problem: fmt.Sprintf("is %d: it must be at most %d in a real run; testbed plan and testbed simulate --network links allow more", n, scenarios.MaxRealParameters)}
	}
	if err := o.Scenario.CheckTime(r.spec.Scenario); err != nil {
		_ = os.Remove(o.Dir) // likewise
		return err
	}
	if r.dir, err = record.CreateDir(o.Dir); err != nil {
		return err
	}
	if err := os.Mkdir(r.dir.Path(record.LogsDir), 0o755); err != nil {
		return fmt.Errorf("making the run directory: %w", err)
	}
	if err := r.dir.WriteScenario(o.File, o.Text, o.Scenario.Traces); err != nil {
		return err
	}
	environment := monitor.Environment(o.Command)
	if t := o.Scenario.Train; t.Foreign() {
		environment.Trainer = t.Made
	}
	if environment.SHA256, err = r.dir.ScenarioDigests(o.Scenario.Traces); err != nil {
		return err
	}
	return errors.Join(r.dir.WriteJSON(record.PlanFile, r.spec.Scenario.Plan), r.dir.WriteJSON(record.EnvironmentFile, environment))
}

// play lets a sandbox play the scenario, on this host and the connected ones,
// and writes the record as it arrives.
func (r *recorder) play(ctx context.Context, hosts *cluster.Cluster) error {
	r.stage("run directory " + r.options.Dir)
	log, err := lines.AppendText(r.dir.Log("sandbox"))
	if err != nil {
		return err
	}
	defer log.Close()
	job := hosts.Job(KindScenario, r.spec)
	job.Dir = r.dir
	playing, err := network.Start(ctx, job, sandbox.Config{Stderr: log})
	if err != nil {
		return err
	}
	defer playing.Close()
	return r.listen(playing)
}

func (r *recorder) stage(words string) { r.progress(Progress{Stage: words}) }

// progress reports a step to the user.
func (r *recorder) progress(p Progress) {
	if r.options.Progress != nil {
		r.options.Progress(p)
	}
}

// listen handles the notes of the sandbox's init until it is done.
func (r *recorder) listen(job *network.Job) error {
	file, err := lines.Append(r.dir.Path(record.EventsFile))
	if err != nil {
		return err
	}
	defer file.Close()
	note := record.NewWriter(file)
	for {
		n, err := job.Next()
		switch {
		case errors.Is(err, network.ErrSandboxEnded):
			return errors.Join(fmt.Errorf("%w; see %s", err, r.dir.Log("sandbox")), note.Flush())
		case err != nil:
			return err
		case n.Done:
			return nil
		case n.Stage != "":
			r.stage(n.Stage)
			continue
		}
		var p playerNote
		if err := json.Unmarshal(n.Data, &p); err != nil {
			return fmt.Errorf("internal error: parsing a message of the sandbox: %w", err)
		}
		if p.Fidelity != nil {
			r.fidelity = p.Fidelity
			for _, d := range p.Drops {
				r.drops = append(r.drops, record.LinkDrops(d))
			}
			boundClocks(r.hosts, p.Underlay)
		}
		if p.Event != nil {
			note.Write(*p.Event)
			if err := note.Flush(); err != nil { // the summary covers the written record
				return fmt.Errorf("writing the record: %w", err)
			}
			r.sum.Add(p.Event)
			r.progress(Progress{Event: p.Event})
		}
	}
}

// conclude writes the summary. An interrupted run keeps a partial one.
func (r *recorder) conclude(failed error) (record.Summary, error) {
	sum := r.sum.Summary()
	sum.Ignored = r.options.Scenario.Ignored(record.Real, false)
	sum.Dir, sum.Hosts, sum.PlannedDrops = string(r.dir), r.hosts, r.drops
	if s := r.spec.Scenario; sum.Scenario == "" { // it did not reach run_start
		sum.Scenario, sum.Policy, sum.World, sum.Links = s.Name, s.PolicyName, record.Real, r.spec.Links
		sum.Seed, sum.TimeScale, sum.Dilation = s.Seed, s.TimeScale, s.Slowdown()
	}
	sum.Fidelity = fidelity.Verdict{Verdict: fidelity.Invalid, Reasons: []string{"the run was cut short"}}
	if failed == nil && r.fidelity != nil {
		sum.Fidelity = *r.fidelity
	}
	if sum.Work != nil && len(sum.Work.Unasked) > 0 {
		if sum.Fidelity.Verdict == fidelity.Valid {
			sum.Fidelity.Verdict = fidelity.Suspect
		}
		sum.Fidelity.Reasons = append(slices.Clone(sum.Fidelity.Reasons),
			"workers were evicted as dead, although the scenario neither slowed nor ended them: "+strings.Join(sum.Work.Unasked, ", "))
	}
	return sum, r.dir.WriteSummary(&sum, r.options.Scenario.Traces)
}
