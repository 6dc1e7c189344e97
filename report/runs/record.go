// Package runs reads the directories of runs and comparisons.
package runs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
	"testbed/stacks"
)

// Run is one run, as stored in its directory.
type Run struct {
	record.Summary
	Events []record.Event
	// Rounds are the fidelity verdicts of rounds, if the record has them.
	Rounds []RoundVerdict
	// Queues are the queues of links, if the record has them.
	Queues []record.Queue
	// Environment is nil if the record has none.
	Environment *record.Environment

	whole []record.Event // including undone events
	seal  *record.Seal
}

// RoundVerdict is the fidelity of one round.
type RoundVerdict struct {
	Round   int            `json:"round"`
	Verdict fidelity.Level `json:"verdict"`
	Reasons []string       `json:"reasons"`
}

// Record has the runs of a report, all of one scenario.
type Record struct {
	// Dirs are the given directories.
	Dirs     []string
	Scenario *scenarios.Scenario
	// Library reports whether the scenario is the library's of that name.
	Library bool
	Runs    []Run

	// Links are the link backends given to compare, if there are several. A report
	// uses the real runs on the first one.
	Links []string

	// Target is the validation loss for times to a loss; 0 for the reference's
	// final one.
	Target float64

	Source   scenarios.Source
	OwnScale float64 // time scale in the file; a flag may have changed it

	scaled bool     // Scenario has the time scale of a real run
	given  []string // policies as given to compare
}

// Policies are the policies of the runs in the order in which they are shown:
// first as given to compare, then in the library's order, then in order of
// appearance. The first is the reference for the others.
func (rec *Record) Policies() (names []string) {
	played := func(name string) bool {
		return slices.ContainsFunc(rec.Runs, func(run Run) bool { return run.Policy == name })
	}
	order := slices.Concat(rec.given, scenarios.PolicyNames)
	for _, run := range rec.Runs {
		order = append(order, run.Policy)
	}
	for _, name := range order {
		if played(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Read reads the given directories of runs and of comparisons. All must be of
// the same scenario.
func Read(dirs ...string) (*Record, error) {
	rec := &Record{Dirs: dirs}
	for _, dir := range dirs {
		inner, err := runDirs(dir)
		if err != nil {
			return nil, err
		}
		var compared struct {
			Policies, Links []string
			Target          float64 `json:"target_loss"`
		}
		if err := readJSON(record.Dir(dir), record.ComparisonFile, &compared); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		rec.given, rec.Target = append(rec.given, compared.Policies...), max(rec.Target, compared.Target)
		for _, backend := range compared.Links {
			if !slices.Contains(rec.Links, backend) {
				rec.Links = append(rec.Links, backend)
			}
		}
		for _, d := range inner {
			run, err := readRun(d)
			if err != nil {
				return nil, err
			}
			if err := rec.readScenario(&run); err != nil {
				return nil, err
			}
			run.whole = nil
			rec.Runs = append(rec.Runs, run)
		}
	}
	if rec.Scenario == nil {
		return nil, fmt.Errorf("%s: there is no scenario.yaml or scenario.json; name a directory that testbed run or testbed compare wrote", strings.Join(dirs, ", "))
	}
	for _, run := range rec.Runs {
		if run.Scenario != rec.Scenario.Name {
			return nil, fmt.Errorf("%s is a run of %s, and other runs are of %s; make a report for each scenario", run.Dir, run.Scenario, rec.Scenario.Name)
		}
	}
	return rec, nil
}

// runDirs returns the directory itself if it is a run's, and those of its runs
// if it is a comparison's.
func runDirs(dir string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(dir, record.SummaryFile)); err == nil {
		return []string{dir}, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: there is no such directory", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record: %w", err)
	}
	var runs []string
	for _, e := range entries {
		inner := filepath.Join(dir, e.Name())
		world, _, _ := strings.Cut(e.Name(), "-")
		_, err := os.Stat(filepath.Join(inner, record.SummaryFile))
		if err == nil && (world == record.Sim || world == record.Real) {
			runs = append(runs, inner)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, record.EventsFile)); len(runs) == 0 && err == nil {
		return nil, fmt.Errorf("%s: the run has not ended, so there is no %s; wait for it or, if it was killed, resume it with testbed run --resume %[1]s", dir, record.SummaryFile)
	}
	if len(runs) == 0 {
		return nil, fmt.Errorf("%s: there is no %s and no run of a comparison; name a directory that testbed run or testbed compare wrote", dir, record.SummaryFile)
	}
	slices.SortFunc(runs, func(a, b string) int { return cmp.Or(cmp.Compare(repeat(a), repeat(b)), cmp.Compare(a, b)) })
	return runs, nil
}

// repeat is the number at the end of the name of a repeated run.
func repeat(dir string) int {
	n, _ := strconv.Atoi(dir[strings.LastIndex(dir, "-")+1:]) // 0 for a single one
	return n
}

func readRun(dir string) (Run, error) {
	var run Run
	d := record.Dir(dir)
	var err error
	if run.Summary, run.seal, err = d.ReadSummary(); err != nil {
		return run, err
	}
	run.Dir = dir // it may have been moved since
	if run.whole, err = d.ReadEvents(); err != nil {
		return run, err
	}
	run.Events = record.Lineage(slices.Clone(run.whole))
	if run.World == record.Sim {
		return run, nil
	}
	// Interrupted runs, and those of earlier versions, lack these.
	var note struct {
		Verdict fidelity.Level
		Rounds  []RoundVerdict
	}
	if err := readJSON(d, record.FidelityFile, &note); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return run, err
	}
	// The run as a whole may be worse than its emulation, never better.
	if run.Fidelity.Verdict.Severity() < note.Verdict.Severity() {
		return run, fmt.Errorf("%s says that the emulation was %s, but %s says %s; the record is damaged: restore an intact copy",
			d.Path(record.SummaryFile), run.Fidelity.Verdict, record.FidelityFile, note.Verdict)
	}
	run.Rounds = note.Rounds
	if run.Queues, err = readQueues(d); err != nil {
		return run, err
	}
	var env record.Environment
	switch err := readJSON(d, record.EnvironmentFile, &env); {
	case err == nil:
		run.Environment = &env
	case !errors.Is(err, fs.ErrNotExist):
		return run, err
	}
	return run, nil
}

func readQueues(d record.Dir) ([]record.Queue, error) {
	f, err := os.Open(d.Path(record.QueuesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record: %w", err)
	}
	defer f.Close()
	queues, err := record.ReadQueues(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Path(record.QueuesFile), err)
	}
	return queues, nil
}

func readJSON(d record.Dir, name string, v any) error {
	data, err := os.ReadFile(d.Path(name))
	if err != nil {
		return fmt.Errorf("reading the record: %w", err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", d.Path(name), err)
	}
	return nil
}

// readScenario reads the scenario of a run, and checks the summaries of this
// run and of further runs against it.
func (rec *Record) readScenario(run *Run) error {
	dir, sum := run.Dir, run.Summary
	file, err := record.Dir(dir).ScenarioFile()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another run's will do
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	source, err := scenarios.Find(file)
	if err != nil {
		return err
	}
	s, err := source.Parse()
	if err != nil {
		return err
	}
	if err := sum.Follows(run.whole, s.Setup(), run.seal); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	s.Name = sum.Scenario
	if rec.Scenario == nil {
		rec.Scenario, rec.Source, rec.OwnScale = s, source, s.Real.TimeScale
		known, err := scenarios.Find(s.Name)
		rec.Library = err == nil && bytes.Equal(known.Text, source.Text)
	}
	switch scale := &rec.Scenario.Real.TimeScale; {
	case !rec.same(source, s):
		return fmt.Errorf("%s differs from the scenario of the other runs; make a report for each scenario", file)
	case sum.World == record.Sim:
	case rec.scaled && sum.TimeScale != *scale:
		return fmt.Errorf("%s was run with a time scale of %g, and other runs with %g; make a report for each time scale", dir, sum.TimeScale, *scale)
	default:
		*scale, rec.scaled = sum.TimeScale, true
	}
	return nil
}

// same reports whether a scenario is the record's. The seed may differ: runs
// with several seeds are repeats, and compare writes their scenarios as JSON.
func (rec *Record) same(source scenarios.Source, s *scenarios.Scenario) bool {
	if s.Name != rec.Scenario.Name || bytes.Equal(source.Text, rec.Source.Text) {
		return s.Name == rec.Scenario.Name
	}
	mine, theirs := *rec.Scenario, *s
	theirs.Seed, theirs.Real.TimeScale = mine.Seed, mine.Real.TimeScale // the actual run determines the scale
	a, err := mine.Text()
	b, err2 := theirs.Text()
	return err == nil && err2 == nil && bytes.Equal(a, b)
}

// Planned is the value of a run's Links if it was simulated on the links of the
// plan.
const Planned = record.OnPlan

// Of returns the runs of a world under a policy. Runs simulated on planned
// links count as the simulator's only if there are no others. Runs on other
// links than the first do not count.
func (rec *Record) Of(world, name string) (runs []Run) {
	for _, run := range rec.Runs {
		other := run.World == record.Real && slices.Index(rec.Links, run.Links) > 0
		if run.World == world && run.Policy == name && run.Links != Planned && !other {
			runs = append(runs, run)
		}
	}
	measured := func(run Run) bool { return run.World == record.Real }
	if len(runs) > 0 || world != record.Sim || slices.ContainsFunc(rec.Runs, measured) {
		return runs
	}
	return rec.OnLinks(name)
}

// OnLinks returns the runs that were simulated on the links of the plan.
func (rec *Record) OnLinks(name string) (runs []Run) {
	for _, run := range rec.Runs {
		if run.World == record.Sim && run.Policy == name && run.Links == Planned {
			runs = append(runs, run)
		}
	}
	return runs
}

// Missing is a simulated run that the record lacks.
type Missing struct {
	Policy string
	Seed   uint64
}

// Unsimulated lists the policies and seeds of real runs without a simulated run
// in the record.
func (rec *Record) Unsimulated() (missing []Missing) {
	for _, run := range rec.Runs {
		m := Missing{run.Policy, run.Seed}
		if _, stack := stacks.Labelled(m.Policy); stack {
			continue // there is no simulator of it
		}
		if run.World == record.Real && !slices.Contains(missing, m) && Seeded(rec.Of(record.Sim, m.Policy), m.Seed, 0) == nil {
			missing = append(missing, m)
		}
	}
	return missing
}

// Seeded returns the n-th of the runs with a seed, counted from 0, or nil.
func Seeded(runs []Run, seed uint64, n int) *Run {
	for k := range runs {
		if runs[k].Seed != seed {
			continue
		}
		if n == 0 {
			return &runs[k]
		}
		n--
	}
	return nil
}

// Typical returns the run with the median wall-clock, or the faster of the two
// middle ones.
func Typical(runs []Run) *Run {
	if len(runs) == 0 {
		return nil
	}
	sorted := slices.Clone(runs)
	slices.SortStableFunc(sorted, func(a, b Run) int { return cmp.Compare(a.WallClock, b.WallClock) })
	return &sorted[(len(sorted)-1)/2]
}
