package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Seal is the field record of summary.json, which describes the rest of the
// record. Summaries of versions before 0.4 have none.
type Seal struct {
	// Version and Revision identify the program that wrote the summary.
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	// SHA256 are the digests of the record's files when the summary was written, in
	// hexadecimal, by their names.
	SHA256 map[string]string `json:"sha256"`
}

// sealed is the content of SummaryFile.
type sealed struct {
	*Summary
	Seal *Seal `json:"record,omitempty"`
}

// sealedFiles are the files of a run directory that readers of a record rely on.
var sealedFiles = []string{EventsFile, "scenario.yaml", "scenario.json", PlanFile, EnvironmentFile, FidelityFile, QueuesFile}

// WriteSummary writes the summary of a run whose record is complete. The summary
// gets the digests of the other files, among them those that the scenario names.
func (d Dir) WriteSummary(sum *Summary, named map[string][]byte) error {
	seal := &Seal{Version: Version, Revision: Revision(), SHA256: map[string]string{}}
	for _, name := range append(slices.Sorted(maps.Keys(named)), sealedFiles...) {
		hash, err := d.digest(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("writing %s: %w", SummaryFile, err)
		}
		seal.SHA256[name] = hash
	}
	return d.WriteJSON(SummaryFile, sealed{sum, seal})
}

// ScenarioDigests are the SHA-256 digests of the run's copy of its scenario and
// of the files that the scenario names, in hexadecimal, by name.
func (d Dir) ScenarioDigests(named map[string][]byte) (map[string]string, error) {
	file, err := d.ScenarioFile()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d, err)
	}
	all := map[string]string{}
	for _, name := range append(slices.Collect(maps.Keys(named)), filepath.Base(file)) {
		if all[name], err = d.digest(name); err != nil {
			return nil, fmt.Errorf("reading the record: %w", err)
		}
	}
	return all, nil
}

func (d Dir) digest(name string) (string, error) { return FileDigest(d.Path(name)) }

// FileDigest is the SHA-256 of a file, in hexadecimal.
func FileDigest(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Verify compares files of the directory with their digests. An error names the
// first that differs.
func (d Dir) Verify(digests map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		if !fs.ValidPath(name) {
			return fmt.Errorf("%s has a digest of %q, which is not a file of a record; the record is damaged: restore an intact copy", d.Path(SummaryFile), name)
		}
		switch hash, err := d.digest(name); {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s is missing, although the run wrote it; the record is damaged: restore an intact copy, or make the run again", d.Path(name))
		case err != nil:
			return fmt.Errorf("reading the record: %w", err)
		case hash != digests[name]:
			return fmt.Errorf("%s has changed since the run: its SHA-256 begins with %.12s instead of %.12s; restore an intact copy of the record, or make the run again", d.Path(name), hash, digests[name])
		}
	}
	return nil
}

// ReadSummary reads the summary of a run and compares the files of the record with the
// digests in it. The seal is nil in summaries of earlier versions.
func (d Dir) ReadSummary() (sum Summary, seal *Seal, err error) {
	fail := func(err error) (Summary, *Seal, error) { return Summary{}, nil, err }
	text, err := os.ReadFile(d.Path(SummaryFile))
	if err != nil {
		return fail(fmt.Errorf("reading the record: %w", err))
	}
	of := sealed{Summary: &sum}
	if err := json.Unmarshal(text, &of); err != nil {
		return fail(fmt.Errorf("%s: %w", d.Path(SummaryFile), err))
	}
	if sum.Policy == "" || sum.World == "" {
		return fail(fmt.Errorf("%s: the field policy or world is missing, so the file is not the summary of a run; name the directory of a run, or restore an intact copy", d.Path(SummaryFile)))
	}
	if of.Seal != nil {
		if of.Seal.SHA256[EventsFile] == "" {
			return fail(fmt.Errorf("%s has no digest of %s; the record is damaged: restore an intact copy", d.Path(SummaryFile), EventsFile))
		}
		if err := d.Verify(of.Seal.SHA256); err != nil {
			return fail(err)
		}
	}
	return sum, of.Seal, nil
}

// ReadEvents reads the events of the run, and checks them with Check. A run
// that was killed before it began has no events.
func (d Dir) ReadEvents() ([]Event, error) {
	file, err := os.Open(d.Path(EventsFile))
	if err != nil {
		return nil, fmt.Errorf("reading the record: %w", err)
	}
	defer file.Close()
	events, err := Read(file)
	if err == nil {
		err = Check(events)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Path(EventsFile), err)
	}
	return events, nil
}

// noScenarioError reports a directory without a scenario. It is a fs.ErrNotExist.
type noScenarioError struct{}

func (noScenarioError) Error() string {
	return "there is no scenario.yaml or scenario.json; name a directory that testbed run or testbed compare wrote"
}

func (noScenarioError) Is(target error) bool { return target == fs.ErrNotExist }

// ScenarioFile returns the name of the run's copy of its scenario, and fs.ErrNotExist
// if there is none. Callers name the directory.
func (d Dir) ScenarioFile() (string, error) {
	var found []string
	for _, name := range []string{"scenario.yaml", "scenario.json"} {
		switch _, err := os.Stat(d.Path(name)); {
		case err == nil:
			found = append(found, name)
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("%s cannot be read: %w", name, errors.Unwrap(err))
		}
	}
	switch len(found) {
	case 0:
		return "", noScenarioError{}
	case 1:
		return d.Path(found[0]), nil
	}
	return "", errors.New("there are both scenario.yaml and scenario.json, but a run leaves only one; remove the file that the run did not write")
}

// Check reports signs that events are not from one run, or not in order and
// complete. A record may end early, because runs are killed. The summary and
// its digests show whether the record has its full length.
func Check(events []Event) error {
	if len(events) == 0 {
		return nil
	}
	if first := &events[0]; first.Type != RunStart || first.Run == nil {
		return fmt.Errorf("event in line 1: the event is %s, but a record begins with %s; restore an intact copy of the record", first.Type, RunStart)
	}
	switch schema := events[0].Run.Schema; {
	case schema > Schema:
		return fmt.Errorf("the record has format version %d, but this testbed knows versions up to %d; use a newer testbed", schema, Schema)
	case schema < 1:
		return fmt.Errorf("the record has format version %d, which does not exist; restore an intact copy of the record", schema)
	}
	simulated := events[0].Run.World == Sim
	var numbered, before *Event // the last of each kind
	for i := range events {
		e := &events[i]
		wrong := func(format string, args ...any) error {
			return fmt.Errorf("event in line %d: "+format+"; restore an intact copy of the record", append([]any{i + 1}, args...)...)
		}
		switch {
		case i > 0 && e.Type == RunStart:
			return wrong("there is a second %s: the file contains the record of one run twice, or the records of two runs", RunStart)
		case e.T < 0:
			return wrong("the event is at %d µs, before the run began", e.T)
		case simulated && before != nil && e.T < before.T:
			return wrong("the event is at %d µs, but an earlier line is at %d µs: lines are out of order", e.T, before.T)
		}
		before = e
		if e.Seq == 0 {
			continue
		}
		last := 0
		if numbered != nil {
			last = numbered.Seq
		}
		switch {
		case e.Seq <= last:
			return wrong("the event has number %d, but an earlier line has number %d: lines are out of order or repeated", e.Seq, last)
		case e.Seq > last+1:
			return wrong("the event has number %d, but the previous number is %d: lines are missing in between", e.Seq, last)
		case numbered != nil && e.T < numbered.T:
			return wrong("the event is at %d µs, but an earlier line is at %d µs: lines are out of order", e.T, numbered.T)
		}
		numbered = e
	}
	return nil
}

// once has the types of events of which no two are equal. Other lines may
// repeat, if the scenario has an inject twice.
var once = map[Type]bool{
	RunStart: true, Step: true, Arrive: true, RoundClose: true, ReduceStart: true, ReduceAbort: true, Reduced: true, ReduceDone: true,
	OuterStep: true, Merge: true, State: true, Contributed: true, FetchDone: true, Checkpoint: true, RunEnd: true,
}

// Follows reports how a summary differs from a summary computed from the events
// of its run. For a summary of another version only the plain facts are
// compared, because versions may count more, or in another way. seal is the
// summary's.
func (s *Summary) Follows(events []Event, setup Setup, seal *Seal) error {
	all := NewSummarizer(setup)
	for i := range events {
		all.Add(&events[i])
	}
	now, then := all.Summary(), *s
	if len(events) == 0 { // the run was killed before it began
		now.Scenario, now.Policy, now.World, now.Links, now.Seed, now.TimeScale, now.Dilation = s.Scenario, s.Policy, s.World, s.Links, s.Seed, s.TimeScale, s.Dilation
	}
	own := seal != nil && seal.Version == Version && seal.Revision == Revision() && !bytes.HasSuffix([]byte(seal.Revision), []byte("+"))
	if !own {
		now, then = now.plain(), then.plain()
	}
	a, err := now.comparable()
	if err != nil {
		return err
	}
	b, err := then.comparable()
	if err != nil {
		return err
	}
	names := maps.Clone(a)
	for _, name := range fromEvents {
		names[name] = nil
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if x, y := a[name], b[name]; !bytes.Equal(x, y) {
			return fmt.Errorf("%s does not follow from %s: %s is %s, but by the events it is %s; restore an intact copy of the record, or repeat the run",
				SummaryFile, EventsFile, name, brief(y), brief(x))
		}
	}
	return nil
}

// fromEvents are the fields of a summary that are absent if no event has
// anything to do with them. Fields that the player of a run adds besides its
// events are not among them.
var fromEvents = []string{"returned", "diverged", "undone", "outages", "resumed_from", "uploads"}

// plain are the facts of a run that every version counts alike.
func (s *Summary) plain() Summary {
	return Summary{
		Scenario: s.Scenario, Policy: s.Policy, World: s.World, Links: s.Links, Seed: s.Seed, TimeScale: s.TimeScale,
		Complete: s.Complete, WallClock: s.WallClock, OuterSteps: s.OuterSteps,
	}
}

// comparable has the fields that follow from events as JSON, by their names.
func (s Summary) comparable() (map[string]json.RawMessage, error) {
	other := []string{"world_name", "dir", "fidelity", "hosts", "churn_like_utilization", "not_simulated", "ignored", "calibration"}
	if s.World == Sim { // training is computed besides the events, and a calibration changes the scenario
		other = append(other, "work", "initial_loss", "tokens_seen", "tokens_lost", "time_to_loss", "layer_errors", "contributed_nothing")
		s.Rounds = slices.Clone(s.Rounds)
		for i := range s.Rounds {
			r := &s.Rounds[i]
			r.Loss, r.ModelHash, r.Regions, r.PseudoGradients = nil, "", nil, nil
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	for _, name := range other {
		delete(fields, name)
	}
	return fields, nil
}

// brief shortens a value for an error.
func brief(text []byte) string {
	const most = 60
	switch {
	case len(text) == 0:
		return "absent"
	case len(text) > most:
		return string(text[:most]) + "…"
	}
	return string(text)
}
