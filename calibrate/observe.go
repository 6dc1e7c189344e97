package calibrate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"testbed/allreduce/entropy"
	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
	"testbed/sim"
)

// Run is the record of a real run.
type Run struct {
	Name     string
	Scenario *scenarios.Scenario
	Policy   string
	Events   []runlog.Event
	Summary  runlog.Summary
	// Valid says which rounds the verdict on the emulation found valid; nil
	// means all.
	Valid map[int]bool
}

// ReadRuns reads the run directories in a directory, in the order of their names.
func ReadRuns(dir string) ([]*Run, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the runs of a calibration: %w", err)
	}
	var runs []*Run
	for _, e := range entries {
		inner := filepath.Join(dir, e.Name())
		if _, err := os.Stat(filepath.Join(inner, runlog.SummaryFile)); err != nil {
			continue
		}
		r, err := ReadRun(inner)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("no run in %s; name a directory that testbed calibrate has left", dir)
	}
	return runs, nil
}

// ReadRun reads a run directory.
func ReadRun(dir string) (*Run, error) {
	d := runlog.Dir(dir)
	fail := func(err error) (*Run, error) { return nil, fmt.Errorf("reading the run in %s: %w", dir, err) }
	files, err := filepath.Glob(d.Path("scenario.*"))
	if err != nil || len(files) != 1 {
		return fail(fmt.Errorf("%d scenario files, want one", len(files)))
	}
	source, err := os.ReadFile(files[0])
	if err != nil {
		return fail(err)
	}
	r := &Run{Name: filepath.Base(dir), Valid: map[int]bool{}}
	if r.Scenario, err = scenarios.Parse(files[0], source); err != nil {
		return fail(err)
	}
	f, err := os.Open(d.Path(runlog.EventsFile))
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	if r.Events, err = runlog.Read(f); err != nil {
		return fail(err)
	}
	var verdicts struct {
		Rounds []struct {
			Round   int
			Verdict fidelity.Level
		}
	}
	for name, to := range map[string]any{runlog.SummaryFile: &r.Summary, runlog.FidelityFile: &verdicts} {
		text, err := os.ReadFile(d.Path(name))
		if err == nil {
			err = json.Unmarshal(text, to)
		}
		if err != nil {
			return fail(err)
		}
	}
	for _, round := range verdicts.Rounds {
		r.Valid[round.Round] = round.Verdict == fidelity.Valid
	}
	r.Scenario.Name, r.Policy, r.Scenario.Real.TimeScale = r.Summary.Scenario, r.Summary.Policy, r.Summary.TimeScale
	return r, nil
}

func (r *Run) valid(round int) bool { return r.Valid == nil || r.Valid[round] }

// seconds converts scenario time to real time.
func (r *Run) seconds(t policy.Time) float64 {
	return float64(t) / 1e6 * r.Scenario.Real.TimeScale
}

// Observation is a time that was measured, beside the one that links alone
// explain. Times are in seconds of real time.
type Observation struct {
	Run      string
	Round    int
	Measured float64
	// Links is what the links take at an efficiency of 1 and no costs.
	Links float64
	// Hops of a reduction, bytes that all participants sent or that were
	// fetched, and whether somebody had to connect.
	Hops  int
	Bytes int64
	Cold  bool

	predict func(sim.Costs) float64 // of a reduction
}

// Observations are what the runs tell of each thing.
type Observations struct {
	Steps []Observation // an inner step, beside what the scenario says
	// Rounds are the control messages around the inner steps of a round, Orders
	// those around its reduction.
	Rounds, Orders []Observation
	Reductions     []Observation
	Fetches        []Observation
	Hellos         []Observation
	// Detections count from a crash to the eviction.
	Detections []Observation
	// Stalls count from a joiner's admission until it holds the state.
	Stalls []Observation
}

// Observe takes the observations from a run. Rounds that the verdict found not
// valid are left out.
func (o *Observations) Observe(r *Run) error {
	if r.Scenario.Real.AllReduce.Entropy != entropy.Off {
		return fmt.Errorf("the run %s has entropy coding, whose bytes depend on the values; fit runs with all_reduce.entropy off", r.Name)
	}
	times, err := sim.NewTimes(r.Scenario, sim.Costs{})
	if err != nil {
		return err
	}
	w := observer{o: o, run: r, times: times, joined: map[string]policy.Time{}, fetching: map[string]runlog.Event{}, busy: map[string]policy.Time{}, known: map[string]int{}, lagging: map[string]bool{}}
	for _, e := range r.Events {
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

	start    policy.Time            // of the round
	reduce   runlog.Event           // the reduction that has begun
	before   []policy.ID            // participants of the one before
	joined   map[string]policy.Time // by node
	fetching map[string]runlog.Event
	busy     map[string]policy.Time // in inner steps of the round
	crashed  map[string]policy.Time
	slow     bool // somebody has been slowed; steps say nothing more
	lagging  map[string]bool
	known    map[string]int // outer steps, by node
}

func (w *observer) event(e runlog.Event) error {
	r := w.run
	switch e.Type {
	case runlog.Slow, runlog.Restore:
		w.slow = true
	case runlog.Crash:
		w.crashed = map[string]policy.Time{e.Node: e.T}
	case runlog.Evict:
		if at, ok := w.crashed[e.Node]; ok {
			predicted, err := detection(r)
			if err != nil {
				return err
			}
			w.o.Detections = append(w.o.Detections, Observation{Run: r.Name, Round: e.Round, Measured: r.seconds(e.T - at), Links: predicted})
		}
	case runlog.Join:
		_, again := w.joined[e.Node]
		w.joined[e.Node] = e.T
		delete(w.crashed, e.Node)
		if spec, ok := r.Scenario.Worker(number(e.Node)); ok && !again && spec.JoinAt > r.Scenario.FirstJoin() && r.valid(e.Round) {
			w.o.Hellos = append(w.o.Hellos, Observation{Run: r.Name, Round: e.Round,
				Measured: r.seconds(e.T - spec.JoinAt), Links: w.times.Hello(spec.ID).Seconds()})
		}
	case runlog.Step:
		w.step(e)
	case runlog.Arrive:
		// Those that fetched began at a time of their own.
		if !e.Late && e.Round > 0 && r.valid(e.Round) && !w.lagging[e.Node] {
			w.o.Rounds = append(w.o.Rounds, Observation{Run: r.Name, Round: e.Round,
				Measured: r.seconds(e.T - w.start - w.busy[e.Node]), Links: w.times.Control(number(e.Node)).Seconds()})
		}
	case runlog.ReduceStart:
		w.reduce = e
	case runlog.ReduceDone:
		w.reduced(e)
	case runlog.OuterStep:
		w.start, w.before = e.T, e.Participants
		clear(w.busy)
		clear(w.lagging)
		for _, id := range e.Participants {
			w.known[scenarios.NodeName(id)] = e.Round
		}
	case runlog.FetchStart:
		w.fetching[e.Node] = e
		w.lagging[e.Node] = true
	case runlog.FetchDone:
		w.fetched(e)
	}
	return nil
}

// step compares with the mean, and so takes runs in which steps do not vary and
// nobody is slow.
func (w *observer) step(e runlog.Event) {
	w.busy[e.Node] += e.Duration
	spec, ok := w.run.Scenario.Worker(number(e.Node))
	if !ok || w.slow || spec.InnerStepJitter != 0 || w.run.Scenario.Work != nil || !w.run.valid(e.Round) {
		return
	}
	w.o.Steps = append(w.o.Steps, Observation{Run: w.run.Name, Round: e.Round,
		Measured: w.run.seconds(e.Duration), Links: w.run.seconds(spec.InnerStepMean)})
}

func (w *observer) reduced(e runlog.Event) {
	r, n := w.run, len(e.Participants)
	if !r.valid(e.Round) || e.Epoch != w.reduce.Epoch || n < 2 {
		return
	}
	cold := !slices.Equal(w.before, e.Participants)
	before, ids := w.before, e.Participants
	w.o.Reductions = append(w.o.Reductions, Observation{
		Run: r.Name, Round: e.Round, Measured: r.seconds(e.Duration),
		Links: w.times.Reduction(ids, before).Seconds(), Hops: w.times.Hops(n), Bytes: w.times.Sent(n), Cold: cold,
		predict: func(c sim.Costs) float64 { return w.times.With(c).Reduction(ids, before).Seconds() },
	})
	control := w.times.Control(e.Participants[0])
	for _, id := range e.Participants {
		control = max(control, w.times.Control(id))
	}
	w.o.Orders = append(w.o.Orders, Observation{Run: r.Name, Round: e.Round,
		Measured: r.seconds(e.T - w.reduce.T - e.Duration), Links: control.Seconds()})
}

func (w *observer) fetched(e runlog.Event) {
	start, ok := w.fetching[e.Node]
	delete(w.fetching, e.Node)
	if !ok || start.Reason == nil {
		return
	}
	known := w.known[e.Node]
	w.known[e.Node] = start.Round - 1
	if start.Reason.Rule == policy.RuleJoin {
		if at, ok := w.joined[e.Node]; ok {
			w.o.Stalls = append(w.o.Stalls, Observation{Run: w.run.Name, Round: e.Round, Measured: w.run.seconds(e.T - at)})
		}
	}
	if !w.run.valid(e.Round) {
		return
	}
	id, donor := number(e.Node), number(start.From)
	outcomes := 0 // the whole state
	if start.Reason.Rule == policy.RuleResync {
		outcomes = start.Round - 1 - known
	}
	w.o.Fetches = append(w.o.Fetches, Observation{Run: w.run.Name, Round: e.Round,
		Measured: w.run.seconds(e.T - start.T), Links: (w.times.Fetch(id, w.donors(donor), outcomes) + w.times.Control(id)).Seconds(),
		Bytes: w.times.FetchBytes(outcomes)})
}

// donors are the first donor of a fetch and those that help it. The record does
// not name them: they are two of those that took part in the last round.
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

// detection is how long the simulator takes to notice the crash of a run.
func detection(r *Run) (float64, error) {
	var crash, evict policy.Time
	_, err := sim.RunLinks(r.Scenario, r.Policy, sim.Costs{}, func(e runlog.Event) {
		switch e.Type {
		case runlog.Crash:
			crash = e.T
		case runlog.Evict:
			evict = e.T
		}
	})
	return r.seconds(evict - crash), err
}

// number is a worker's ID.
func number(node string) policy.ID {
	id, _ := strconv.Atoi(strings.TrimPrefix(node, "w")) // written by runlog
	return policy.ID(id)
}
