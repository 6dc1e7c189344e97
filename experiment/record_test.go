package experiment_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/experiment/calibrate"
	"testbed/record"
	"testbed/report/runs"
	"testbed/scenarios"
)

// readers are what reads the record of a run.
var readers = map[string]func(dir string) error{
	"report": func(dir string) error {
		_, err := runs.Read(dir)
		return err
	},
	"refit": func(dir string) error {
		_, err := calibrate.ReadRuns(dir)
		return err
	},
	"replay": func(dir string) error {
		_, err := experiment.Replay(dir, scenarios.Baseline, nil, "")
		return err
	},
}

// keptRun copies a real run into a directory; a sealed one has a summary of this version.
func keptRun(t *testing.T, from string, seal bool) record.Dir {
	t.Helper()
	d := record.Dir(filepath.Join(t.TempDir(), "run"))
	if err := os.CopyFS(string(d), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if !seal {
		return d
	}
	s, err := scenarios.Load(d.Path("scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	events, err := d.ReadEvents()
	if err != nil {
		t.Fatal(err)
	}
	then, _, err := d.ReadSummary()
	if err != nil {
		t.Fatal(err)
	}
	all := record.NewSummarizer(s.Setup())
	for i := range events {
		all.Add(&events[i])
	}
	sum := all.Summary()
	sum.Fidelity, sum.Dir = then.Fidelity, then.Dir
	if err := d.WriteSummary(&sum, nil); err != nil {
		t.Fatal(err)
	}
	return d
}

// damage is something that may happen to a record.
type damage struct {
	name string
	file string
	do   func(text []byte) []byte
	// own says that only a summary of this version shows it.
	own bool
}

// atLine returns what changes a line, counted from 0; from the end if it is negative.
func atLine(n int, do func(line []byte) []byte) func([]byte) []byte {
	return func(text []byte) []byte {
		all := bytes.SplitAfter(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
		all[len(all)-1] = append(all[len(all)-1], '\n')
		n := n
		if n < 0 {
			n += len(all)
		}
		all[n] = do(all[n])
		return bytes.Join(all, nil)
	}
}

func replaced(was, is string) func([]byte) []byte {
	return func(text []byte) []byte { return bytes.Replace(text, []byte(was), []byte(is), 1) }
}

var damages = []damage{
	{"empty", record.EventsFile, func([]byte) []byte { return nil }, false},
	{"cut in the middle", record.EventsFile, func(text []byte) []byte { return text[:len(text)/2] }, false},
	{"cut by two lines", record.EventsFile, func(text []byte) []byte {
		return atLine(-1, func([]byte) []byte { return nil })(atLine(-2, func([]byte) []byte { return nil })(text))
	}, false},
	{"cut by some bytes", record.EventsFile, func(text []byte) []byte { return text[:len(text)-5] }, true},
	{"doubled", record.EventsFile, func(text []byte) []byte { return append(bytes.Clone(text), text...) }, false},
	{"a line twice", record.EventsFile, atLine(10, func(line []byte) []byte { return append(bytes.Clone(line), line...) }), false},
	{"a line at another place", record.EventsFile, func(text []byte) []byte {
		var moved []byte
		text = atLine(3, func(line []byte) []byte { moved = bytes.Clone(line); return nil })(text)
		return atLine(20, func(line []byte) []byte { return append(bytes.Clone(line), moved...) })(text)
	}, true},
	{"without its beginning", record.EventsFile, atLine(0, func([]byte) []byte { return nil }), false},
	{"another loss", record.EventsFile, replaced(`"loss":0.`, `"loss":1.`), true},
	{"a schema to come", record.EventsFile, replaced(`"schema":1`, `"schema":2`), false},
	{"no schema", record.EventsFile, replaced(`"schema":1`, `"schema":0`), false},
	{"another wall-clock", record.SummaryFile, replaced(`"wall_clock_us": `, `"wall_clock_us": 1`), false},
	{"another end", record.SummaryFile, replaced(`"complete": true`, `"complete": false`), false},
	{"another wait", record.SummaryFile, replaced(`"barrier_wait_fraction": 0.`, `"barrier_wait_fraction": 0.1`), true},
	{"another round", record.SummaryFile, replaced(`"reduce_us": `, `"reduce_us": 1`), true},
	{"another scenario", "scenario.yaml", replaced("inner_steps: 2", "inner_steps: 3"), true},
	{"another verdict", record.FidelityFile, replaced(`"verdict": "`, `"verdict": "in`), false},
}

// TestARunMayBeWorseThanItsEmulation, as one is in which a healthy worker was taken for
// dead, but not better.
func TestARunMayBeWorseThanItsEmulation(t *testing.T) {
	for _, test := range []struct {
		run, emulation string
		whole          bool
	}{{"suspect", "valid", true}, {"invalid", "suspect", true}, {"valid", "suspect", false}, {"suspect", "invalid", false}} {
		d := keptRun(t, "../report/testdata/compare/real-baseline", false)
		for file, verdict := range map[string]string{record.SummaryFile: test.run, record.FidelityFile: test.emulation} {
			text, err := os.ReadFile(d.Path(file))
			if err != nil {
				t.Fatal(err)
			}
			if err := d.WriteFile(file, replaced(`"verdict": "valid"`, `"verdict": "`+verdict+`"`)(text)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := runs.Read(string(d)); (err == nil) != test.whole {
			t.Errorf("the run is %s, and its emulation was %s: %v", test.run, test.emulation, err)
		}
	}
}

// TestRecordsAreHeldAgainstThemselves: every reader refuses a record that is not as the run
// left it, also that of an earlier version, as far as that shows.
func TestRecordsAreHeldAgainstThemselves(t *testing.T) {
	const from = "../report/testdata/compare/real-baseline"
	for name, read := range readers {
		for _, seal := range []bool{false, true} {
			if err := read(string(keptRun(t, from, seal))); err != nil {
				t.Fatalf("%s, sealed %v: a whole record is refused: %v", name, seal, err)
			}
			for _, c := range damages {
				if c.own && !seal || !seal && name == "replay" && c.file == record.FidelityFile || !seal && name == "refit" && c.file == record.FidelityFile {
					continue
				}
				d := keptRun(t, from, seal)
				text, err := os.ReadFile(d.Path(c.file))
				if err != nil {
					t.Fatal(err)
				}
				changed := c.do(bytes.Clone(text))
				if bytes.Equal(changed, text) {
					t.Fatalf("%s changes nothing", c.name)
				}
				if err := d.WriteFile(c.file, changed); err != nil {
					t.Fatal(err)
				}
				err = read(string(d))
				if err == nil {
					t.Errorf("%s, sealed %v: a record with %s (%s) is taken for whole", name, seal, c.name, c.file)
				} else if !strings.Contains(err.Error(), c.file) && !strings.Contains(err.Error(), "summary.json does not follow") {
					t.Errorf("%s, sealed %v, %s: the error does not name %s: %v", name, seal, c.name, c.file, err)
				}
			}
		}
	}
}

// TestAllRunDirectoriesAreSealed: every run of a comparison has a summary that follows from
// its record, whatever is played.
func TestAllRunDirectoriesAreSealed(t *testing.T) {
	for _, name := range []string{"persistent_straggler", "late_join", "spot_fleet", "mobile_uplink", "coordinator_crash", "churn_storm", "torchft_t06"} {
		o := comparison(t, 2, &fake{})
		o.Run, o.Real, o.Policies = load(t, name), nil, []string{"baseline", "adaptive"}
		if _, err := experiment.Compare(t.Context(), o); err != nil {
			t.Fatal(name, err)
		}
		rec, err := runs.Read(o.Run.Dir)
		if err != nil {
			t.Fatal(name, err)
		}
		for _, run := range rec.Runs {
			text, err := os.ReadFile(filepath.Join(run.Dir, record.SummaryFile))
			if err != nil {
				t.Fatal(err)
			}
			var of struct{ Record record.Seal }
			if err := json.Unmarshal(text, &of); err != nil || len(of.Record.SHA256) < 2 || of.Record.Version != record.Version {
				t.Errorf("%s: its seal is %+v, %v", run.Dir, of.Record, err)
			}
		}
	}
}
