package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"testbed/experiment/calibrate"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/report"
	"testbed/report/runs"
	"testbed/scenarios"
	"testbed/sim"
)

// Simulator plays a scenario in the simulator. note is called with every event;
// it may be nil.
type Simulator func(s *scenarios.Scenario, policyName string, note func(record.Event)) (record.Summary, error)

// The simulator's models of the network.
const (
	NetworkChurn = "churn"
	NetworkLinks = "links"
)

// NewSimulator returns the simulator with the model of that name, and with a
// calibration unless c is nil. An unknown name is a *scenarios.Error.
func NewSimulator(network string, c *calibrate.Calibration) (Simulator, error) {
	switch {
	case network == NetworkLinks:
		costs := (&calibrate.Calibration{}).SimCosts()
		if c != nil {
			costs = c.SimCosts()
		}
		return func(s *scenarios.Scenario, policyName string, note func(record.Event)) (record.Summary, error) {
			if s.Unasked() {
				return record.Summary{}, &scenarios.Error{File: s.Name, Field: "real.parameters", Problem: "is not given, and only the program of train.program knows the number of parameters: give real.parameters, or use --train to ask the program"}
			}
			sum, err := OnLinks(s, policyName, costs, note)
			sum.Calibration = calibratedBy(c)
			return sum, err
		}, nil
	case network != NetworkChurn:
		return nil, &scenarios.Error{Field: "--network", Problem: fmt.Sprintf("there is no network model %q; choose %s or %s", network, NetworkChurn, NetworkLinks)}
	case c == nil:
		return OnChurn, nil
	}
	return func(s *scenarios.Scenario, policyName string, note func(record.Event)) (record.Summary, error) {
		priced, _, err := c.Price(s)
		if err != nil {
			return record.Summary{}, err
		}
		sum, err := OnChurn(priced, policyName, note)
		sum.Ignored = nil // the prices come from the links
		sum.Calibration = calibratedBy(c)
		return sum, err
	}, nil
}

// calibratedBy names a calibration in a result; c may be nil.
func calibratedBy(c *calibrate.Calibration) *record.Calibration {
	if c == nil {
		return nil
	}
	return &record.Calibration{File: c.File, Made: c.Made}
}

// OnChurn is the Simulator with churn's model of the network.
func OnChurn(s *scenarios.Scenario, policyName string, note func(record.Event)) (record.Summary, error) {
	r, err := s.ResolveWithoutLinks(policyName)
	if err != nil {
		return record.Summary{}, err
	}
	sum, err := sim.Run(r, note)
	sum.Ignored = s.Ignored(record.Sim, false)
	return sum, err
}

// OnLinks is the Simulator with the planned links, on a machine with these costs.
func OnLinks(s *scenarios.Scenario, policyName string, costs sim.Costs, note func(record.Event)) (record.Summary, error) {
	r, err := s.Resolve(policyName)
	if err != nil {
		return record.Summary{}, err
	}
	sum, err := sim.RunLinks(r, costs, note)
	sum.Ignored = s.Ignored(record.SimLinks, false)
	return sum, err
}

// Stdout is the file name of a trace that goes to standard output.
const Stdout = "-"

// Record simulates and writes the events to a file, if a name is given.
func (play Simulator) Record(s *scenarios.Scenario, policyName, file string) (sum record.Summary, err error) {
	if file == "" {
		return play(s, policyName, nil)
	}
	err = writeEvents(file, func(note func(record.Event)) error {
		sum, err = play(s, policyName, note)
		return err
	})
	return sum, err
}

func writeEvents(file string, fill func(note func(record.Event)) error) error {
	if file == Stdout {
		w := record.NewWriter(os.Stdout)
		return errors.Join(fill(w.Write), w.Flush())
	}
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	w := record.NewWriter(f)
	if err := fill(w.Write); err != nil {
		return errors.Join(err, w.Flush(), f.Close()) // the partial file stays
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		return fmt.Errorf("writing the trace: %w", err)
	}
	return nil
}

// Predict adds missing simulated runs to a record.
func Predict(rec *runs.Record) error {
	known := rec.Scenario
	for _, run := range rec.Runs {
		if e := run.Environment; known.Unasked() && e != nil && e.Trainer != nil && e.Trainer.Parameters > 0 {
			var err error
			if known, err = known.Sized(e.Trainer.Parameters); err != nil {
				return err
			}
		}
	}
	for _, m := range rec.Unsimulated() {
		s := *known
		s.Seed = m.Seed
		for _, network := range []string{NetworkChurn, NetworkLinks} {
			if network == NetworkLinks && s.Unasked() {
				continue // a record of an earlier version does not say how many parameters there are
			}
			play, err := NewSimulator(network, nil)
			if err != nil {
				return err
			}
			run := runs.Run{}
			if run.Summary, err = play(&s, m.Policy, func(e record.Event) { run.Events = append(run.Events, e) }); err != nil {
				return err
			}
			rec.Runs = append(rec.Runs, run)
		}
	}
	return nil
}

// Replay plays a recorded run with a policy that decides again, with settings
// changed. It writes the events to the file trace, if a name is given. A
// directory without a record is a *scenarios.Error.
func Replay(dir, policyName string, changed []scenarios.Setting, trace string) (report.Replay, error) {
	fail := func(err error) (report.Replay, error) { return report.Replay{}, err }
	s, note, err := readRecord(dir)
	if err != nil {
		return fail(err)
	}
	if s, err = s.With(changed...); err != nil {
		return fail(err)
	}
	played := *s
	if note[0].Run.World == record.Real {
		played.Real.TimeScale = note[0].Run.TimeScale
	}
	resolved, err := played.ResolveWithoutLinks(policyName)
	if err != nil {
		return fail(err)
	}
	recording, err := sim.NewRecording(resolved, note)
	if err != nil {
		return fail(err)
	}
	var replayed []record.Event
	if _, err := recording.Replay(func(e record.Event) { replayed = append(replayed, e) }); err != nil {
		return fail(err)
	}
	if trace != "" {
		err = writeEvents(trace, func(write func(record.Event)) error {
			for _, e := range replayed {
				write(e)
			}
			return nil
		})
	}
	return report.NewReplay(s, dir, note, replayed), err
}

// readRecord reads the scenario and the events of a run directory. The record
// of a run that was killed has no summary to compare with.
func readRecord(dir string) (*scenarios.Scenario, []record.Event, error) {
	d := record.Dir(dir)
	file, err := d.ScenarioFile()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, &scenarios.Error{File: dir, Problem: "there is no scenario.yaml or scenario.json; name the directory of a run"}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", dir, err)
	}
	s, err := scenarios.Load(file)
	if err != nil {
		return nil, nil, err
	}
	switch _, err := os.Stat(d.Path(record.EventsFile)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, &scenarios.Error{File: dir, Problem: "there is no " + record.EventsFile + "; name the directory of a run"}
	case err != nil:
		return nil, nil, &scenarios.Error{File: d.Path(record.EventsFile), Problem: "cannot be read: " + errs.Cause(err).Error()}
	}
	events, err := d.ReadEvents()
	if err != nil {
		return nil, nil, err
	}
	if len(events) == 0 {
		return nil, nil, fmt.Errorf("%s has no events: the run ended before it began; name the directory of another run", d.Path(record.EventsFile))
	}
	sum, seal, err := d.ReadSummary()
	switch {
	case err == nil:
		if err := sum.Follows(events, s.Setup(), seal); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", dir, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, nil, err
	}
	s.Name = events[0].Run.Scenario // the file's own name was lost
	return s, events, nil
}
