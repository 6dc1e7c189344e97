package calibrate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"testbed/allreduce/entropy"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/scenarios/faults"
	"testbed/shaping/fidelity"
	"testbed/sim"
	"testbed/train/work"
)

// Run is the record of a real run.
type Run struct {
	Name     string
	Scenario *scenarios.Scenario
	Policy   string
	Events   []record.Event
	Summary  record.Summary
	// Valid reports which rounds the verdict on the emulation found valid; nil
	// means all.
	Valid map[int]bool
	// Machine is the machine of the run, as far as its record describes it.
	Machine Machine
}

// ReadRuns reads the records of real runs in directories, at any depth, in the
// order of their paths. A directory may itself be a run. Simulated runs are
// skipped.
func ReadRuns(dirs ...string) ([]*Run, error) {
	var runs []*Run
	for _, dir := range dirs {
		before := len(runs)
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return fmt.Errorf("looking for runs: %w", err)
			}
			if e.IsDir() || e.Name() != record.SummaryFile {
				return nil
			}
			r, err := ReadRun(filepath.Dir(path))
			if err != nil || r == nil {
				return err
			}
			if r.Name, err = filepath.Rel(dir, r.Name); err == nil && r.Name == "." {
				r.Name = filepath.Base(dir)
			}
			if len(dirs) > 1 { // names distinguish runs
				r.Name = filepath.Dir(path)
			}
			runs = append(runs, r)
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(runs) == before {
			return nil, fmt.Errorf("%s has no run that ended on a real network; name a directory that testbed run, compare or calibrate wrote", dir)
		}
	}
	return runs, nil
}

// ReadRun reads a run directory. For a simulated run it returns nil.
func ReadRun(dir string) (*Run, error) {
	d := record.Dir(dir)
	fail := func(err error) (*Run, error) { return nil, fmt.Errorf("%s: %w", dir, err) }
	r := &Run{Name: dir, Valid: map[int]bool{}}
	var seal *record.Seal
	var err error
	if r.Summary, seal, err = d.ReadSummary(); err != nil {
		return nil, err
	}
	if r.Summary.World != record.Real {
		return nil, nil
	}
	file, err := d.ScenarioFile()
	if err != nil {
		return fail(err)
	}
	if r.Scenario, err = scenarios.Load(file); err != nil {
		return nil, err
	}
	if err := Fits(r.Scenario); err != nil {
		return fail(fmt.Errorf("%w; leave this run out", err))
	}
	if r.Events, err = d.ReadEvents(); err != nil {
		return nil, err
	}
	if err := r.Summary.Follows(r.Events, r.Scenario.Setup(), seal); err != nil {
		return fail(err)
	}
	var verdicts struct {
		Rounds []struct {
			Round   int
			Verdict fidelity.Level
		}
	}
	if err := readJSON(d.Path(record.FidelityFile), &verdicts); err != nil {
		return nil, err
	}
	for _, round := range verdicts.Rounds {
		r.Valid[round.Round] = round.Verdict == fidelity.Valid
	}
	var where record.Environment
	if err := readJSON(d.Path(record.EnvironmentFile), &where); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	r.Machine = Machine{Processor: cmp.Or(where.Processor, where.Arch), Cores: where.Processors, Kernel: where.Kernel, Go: where.Go}
	r.Scenario.Name, r.Policy, r.Scenario.Real.TimeScale = r.Summary.Scenario, r.Summary.Policy, r.Summary.TimeScale
	return r, nil
}

// Fits reports why a calibration does not cover the reductions of a scenario,
// if so.
func Fits(s *scenarios.Scenario) error {
	because := func(what string) error {
		return fmt.Errorf("the reductions of the scenario %s, which calibrations do not support", what)
	}
	switch x := s.Exchange(); {
	case len(x.Fragments) > 1:
		return because("exchange fragments of the parameters (train.outer.fragments)")
	case x.Overlap > 0:
		return because("overlap with inner steps (train.outer.overlap)")
	case s.Train.Ranks() > 1:
		return because("belong to the ranks of replica groups (train.group_world_size)")
	case s.Grouping() != nil:
		return because("belong to regions (train.regions)")
	case s.Real.Upload.Every > 0 && !s.Real.Upload.Yields:
		return because("share links with uploads (real.upload)")
	}
	return nil
}

func readJSON(file string, to any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the record: %w", err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

func (r *Run) valid(round int) bool { return r.Valid == nil || r.Valid[round] }

// seconds converts scenario time to real time.
func (r *Run) seconds(t policy.Time) float64 {
	return float64(t) / 1e6 * r.Scenario.Real.TimeScale
}

// took converts a duration of the record to real time. A record has whole
// microseconds of scenario time, rounded down: half a microsecond is missing on
// average.
func (r *Run) took(d policy.Time) float64 { return r.seconds(d) + r.seconds(1)/2 }

// Observation is a measured time, with the time that links alone explain. Times
// are in seconds of real time.
type Observation struct {
	Run      string
	Round    int
	Measured float64
	// Links is the links' time at an efficiency of 1 and no costs.
	Links float64
	// Hops of a reduction, bytes that all participants sent or that were fetched,
	// and whether a participant had to connect.
	Hops  int
	Bytes int64
	Cold  bool

	predict func(sim.Costs) float64 // of a reduction
}

// Observations are all observations of the runs, by kind.
type Observations struct {
	Steps []Observation // of an inner step, with the scenario's duration
	// Rounds are the control messages around the inner steps of a round, Orders
	// those around its reduction.
	Rounds, Orders []Observation
	Reductions     []Observation
	Fetches        []Observation
	Hellos         []Observation
	// Detections count from a crash to the eviction.
	Detections []Observation
	// Stalls are the times from a joiner's admission until it holds the state.
	Stalls []Observation
	// Coded is the number of Reductions with shortened codes.
	Coded  int
	ratios []stepRatio
	// left counts the rounds whose reduction was left out, by reason.
	left map[string]int
}

// Why rounds are left out.
const (
	leftInvalid  = "the emulation was not valid"
	leftLinks    = "links changed (real.injects)"
	leftCut      = "workers were cut off or stalled"
	leftNobody   = "the coordinator was down, a reduction was made to fail, or the run was resumed"
	leftNoBytes  = "the codes were entropy-coded, but the record lacks the number of bytes sent"
	leftNoOthers = "only one worker took part"
)

// Observe takes the observations from a run. It leaves out rounds that the
// verdict found not valid, and rounds in which an inject changed the times of
// the planned links. If entropy coding shortened codes, the bytes are those of
// the record.
func (o *Observations) Observe(r *Run) error {
	resolved, err := r.Scenario.Resolve(r.Policy)
	if err != nil {
		return err
	}
	times := sim.NewTimes(resolved, sim.Costs{})
	if o.left == nil {
		o.left = map[string]int{}
	}
	w := observer{o: o, run: r, times: times, known: map[policy.ID]int{}, crashed: map[policy.ID]policy.Time{}, odd: map[policy.ID]policy.Time{},
		out: map[policy.ID]bool{}, speeds: map[policy.ID]*work.Speed{}, rng: rand.New(rand.NewPCG(7, 8))}
	for _, e := range record.Lineage(r.Events) {
		if err := w.event(e); err != nil {
			return err
		}
	}
	return nil
}

type observer struct {
	o     *Observations
	run   *Run
	times *sim.Times

	tracker record.Tracker // the run as it was before the event
	before  []policy.ID    // participants of the reduction before
	zero    []policy.ID    // participants of the reduction that contributed zeros
	crashed map[policy.ID]policy.Time
	known   map[policy.ID]int // outer steps
	// odd is the time until which a worker is slow, or stalls.
	odd map[policy.ID]policy.Time
	// disturbed is the reason why the round does not follow from the planned
	// links. It persists while links are changed and while workers are out.
	disturbed string
	changed   int
	out       map[policy.ID]bool // paused, or cut off
	speeds    map[policy.ID]*work.Speed
	rng       *rand.Rand // replaces the parts of microseconds that records cut off
}

// calm forgets disturbances of the round before that are over.
func (w *observer) calm() {
	switch {
	case w.changed > 0:
		w.disturbed = leftLinks
	case len(w.out) > 0:
		w.disturbed = leftCut
	default:
		w.disturbed = ""
	}
}

// leftOut is the reason why the round does not count, or empty.
func (w *observer) leftOut(round int) string {
	if !w.run.valid(round) {
		return leftInvalid
	}
	return w.disturbed
}

func (w *observer) event(e record.Event) error {
	r := w.run
	id, _ := e.Worker()
	switch e.Type {
	case record.Slow:
		w.odd[id] = math.MaxInt64
	case record.Restore:
		w.odd[id] = e.T
	case record.LinkFault:
		w.changed++
		w.disturbed = leftLinks
	case record.LinkRestored:
		w.changed--
		w.disturbed = leftLinks
	case record.Pause, record.Resume, record.Partition, record.Heal:
		w.disturbed = leftCut
	case record.FailReduce, record.CoordinatorCrash, record.CoordinatorBack, record.RunResume:
		w.disturbed = leftNobody
	case record.Crash:
		w.crashed[id] = e.T
	case record.Evict:
		delete(w.out, id) // no member waits for it
		if at, ok := w.crashed[id]; ok && crashesOnly(r.Scenario) {
			predicted, err := detection(r)
			if err != nil {
				return err
			}
			w.o.Detections = append(w.o.Detections, Observation{Run: r.Name, Round: e.Round, Measured: r.seconds(e.T - at), Links: predicted})
		}
	case record.Join:
		before := w.tracker.Worker(id)
		delete(w.crashed, id)
		if spec, ok := r.Scenario.Worker(id); ok && !before.Member && !before.Evicted && spec.JoinAt > r.Scenario.FirstJoin() && e.Incarnation == 0 && w.leftOut(e.Round) == "" {
			w.o.Hellos = append(w.o.Hellos, Observation{Run: r.Name, Round: e.Round,
				Measured: r.seconds(e.T - spec.JoinAt), Links: w.times.Hello(spec.ID).Seconds()})
		}
	case record.Step:
		w.step(id, e)
	case record.Arrive:
		w.arrived(id, e)
	case record.ReduceDone:
		w.reduced(e)
	case record.OuterStep:
		w.before, w.zero = e.Participants, w.tracker.Reduction.Zero
		w.calm()
		for _, id := range e.Participants {
			w.known[id] = e.Round
		}
	case record.FetchDone:
		w.fetched(id, e)
	}
	for _, c := range w.tracker.Add(&e) {
		switch {
		case c.Condition != record.Paused && c.Condition != record.CutOff:
		case c.Begins:
			w.out[c.ID] = true
		default:
			delete(w.out, c.ID)
		}
	}
	return nil
}

// arrived compares the round of a worker until its arrival. It began with the
// round if the worker took part in the round before. Other workers fetched, or
// were at the steps of an earlier round.
func (w *observer) arrived(id policy.ID, e record.Event) {
	worker := w.tracker.Worker(id)
	fetched := len(worker.Fetch) > 0 || worker.Fetched > 0
	began := w.before == nil || slices.Contains(w.before, id) && !slices.Contains(w.zero, id)
	if e.Late || e.Round == 0 || w.leftOut(e.Round) != "" || fetched || !began {
		return
	}
	cut := w.run.seconds(policy.Time(w.run.Scenario.InnerSteps)) / 2 // see took
	w.o.Rounds = append(w.o.Rounds, Observation{Run: w.run.Name, Round: e.Round,
		Measured: w.run.seconds(e.T-w.tracker.Start-worker.Busy) - cut, Links: w.times.Control(id).Seconds()})
}

// step compares with the mean. So it only uses workers whose steps do not vary
// and that are not slow.
func (w *observer) step(id policy.ID, e record.Event) {
	spec, ok := w.run.Scenario.Worker(id)
	if !ok || e.T-e.Duration < w.odd[id] || !w.run.valid(e.Round) {
		return
	}
	w.ratio(spec.ID, spec.InnerStepMean, e.T-e.Duration, e.Duration)
	if spec.InnerStepJitter != 0 || w.run.Scenario.Work != nil {
		return
	}
	w.o.Steps = append(w.o.Steps, Observation{Run: w.run.Name, Round: e.Round,
		Measured: w.run.took(e.Duration), Links: w.run.seconds(spec.InnerStepMean)})
}

func (w *observer) reduced(e record.Event) {
	r, n := w.run, len(e.Participants)
	if e.Epoch != w.tracker.Reduction.Epoch {
		return
	}
	times, bytes, why := w.times, w.times.Sent(n), w.leftOut(e.Round)
	coding := r.Scenario.Real.AllReduce.Entropy != entropy.Off && e.BytesSent != bytes
	switch {
	case why != "":
	case n < 2:
		why = leftNoOthers
	case coding && e.BytesSent == 0:
		why = leftNoBytes
	}
	if why != "" {
		w.o.left[why]++
		return
	}
	if coding {
		times, bytes = w.times.Sending(n, e.BytesSent), e.BytesSent
		w.o.Coded++
	}
	cold := !slices.Equal(w.before, e.Participants)
	before, ids := w.before, e.Participants
	w.o.Reductions = append(w.o.Reductions, Observation{
		Run: r.Name, Round: e.Round, Measured: r.took(e.Duration),
		Links: times.Reduction(ids, before).Seconds(), Hops: times.Hops(n), Bytes: bytes, Cold: cold,
		predict: func(c sim.Costs) float64 { return times.With(c).Reduction(ids, before).Seconds() },
	})
	control := w.times.Control(e.Participants[0])
	for _, id := range e.Participants {
		control = max(control, w.times.Control(id))
	}
	w.o.Orders = append(w.o.Orders, Observation{Run: r.Name, Round: e.Round,
		Measured: r.seconds(e.T-w.tracker.Reduction.T) - r.took(e.Duration), Links: control.Seconds()})
}

func (w *observer) fetched(id policy.ID, e record.Event) {
	worker := w.tracker.Worker(id)
	if len(worker.Fetch) == 0 || worker.Fetch[len(worker.Fetch)-1].Reason == nil {
		return
	}
	start := worker.Fetch[len(worker.Fetch)-1]
	known := w.known[id]
	w.known[id] = start.Round - 1
	if start.Reason.Rule == policy.RuleJoin {
		w.o.Stalls = append(w.o.Stalls, Observation{Run: w.run.Name, Round: e.Round, Measured: w.run.seconds(e.T - worker.Joined)})
	}
	if w.leftOut(e.Round) != "" {
		return
	}
	donor, _ := policy.ParseNode(start.From)
	outcomes := 0 // the whole state
	if start.Reason.Rule == policy.RuleResync {
		outcomes = start.Round - 1 - known
	}
	w.o.Fetches = append(w.o.Fetches, Observation{Run: w.run.Name, Round: e.Round,
		Measured: w.run.seconds(e.T - start.T), Links: (w.times.Fetch(id, w.donors(donor), outcomes) + w.times.Control(id)).Seconds(),
		Bytes: w.times.FetchBytes(outcomes)})
}

// donors are the first donor of a fetch and those that help it. The record does
// not name the helpers: they are two participants of the last round.
func (w *observer) donors(first policy.ID) []policy.ID {
	const most = 3
	all := []policy.ID{first}
	for _, id := range w.before {
		if id != first && len(all) < most {
			all = append(all, id)
		}
	}
	return all
}

// crashesOnly reports that the only inject is a crash, so that its detection is
// the only one.
func crashesOnly(s *scenarios.Scenario) bool {
	return len(s.Injects) == 1 && s.Injects[0].Op == faults.Crash && len(s.Real.Injects) == 0
}

// detection is the time in which the simulator notices the crash of a run.
func detection(r *Run) (float64, error) {
	var crash, evict policy.Time
	resolved, err := r.Scenario.Resolve(r.Policy)
	if err != nil {
		return 0, err
	}
	_, err = sim.RunLinks(resolved, sim.Costs{}, func(e record.Event) {
		switch e.Type {
		case record.Crash:
			crash = e.T
		case record.Evict:
			evict = e.T
		}
	})
	return r.seconds(evict - crash), err
}
