package convert_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"testbed/allreduce/entropy"
	"testbed/allreduce/reduction"
	"testbed/internal/rapidtest"
	"testbed/policy"
	"testbed/scenarios"
	"testbed/scenarios/convert"
	"testbed/shaping"
)

var whole = cmp.Exporter(func(reflect.Type) bool { return true })

func text(t testing.TB, s *scenarios.Scenario, to convert.Format) string {
	t.Helper()
	text, lost, err := convert.Text(s, to)
	if err != nil || to != convert.Churn && lost != nil {
		t.Fatalf("%s as %s: %v, lost %q", s.Name, to, err, lost)
	}
	return string(text)
}

// TestTheLibraryReadsBack from either format, and from one by way of the other.
func TestTheLibraryReadsBack(t *testing.T) {
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		back := s
		for _, to := range []convert.Format{convert.YAML, convert.JSON, convert.YAML} {
			file := filepath.Join(t.TempDir(), s.Name+to.Extension())
			if _, err := convert.File(back, to, file); err != nil {
				t.Fatal(err)
			}
			if back, err = scenarios.Load(file); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s, back, whole); diff != "" {
				t.Errorf("%s changes as %s:\n%s", s.Name, to, diff)
			}
			written, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if convert.FormatOf(written) != to || (to == convert.JSON) != json.Valid(written) {
				t.Errorf("%s is not written as %s:\n%s", s.Name, to, written)
			}
		}
	}
}

// random draws a scenario with something of every section.
func random(t *rapid.T) *scenarios.Scenario {
	s, err := scenarios.Load(rapid.SampledFrom([]string{"churn_storm", "mobile_uplink", "three_regions", "partition_heal", "spot_fleet"}).Draw(t, "of"))
	if err != nil {
		t.Fatal(err)
	}
	s.Traces = maps.Clone(s.Traces)
	s.Description = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"", "yes", "on", "12:30:45", "0x10", "~", "# no comment", "a: b", " a ", "- a", "'", `"`, "{a}", "a\nb\n", "\n a", "é\u0085\u2028", "1e3", "=", "\ufeffa", "\t",
	})).Draw(t, "description")
	s.Seed = rapid.Uint64().Draw(t, "seed")
	for i := range s.Workers {
		w := &s.Workers[i]
		w.InnerStepMean = policy.Time(rapid.Int64Range(1, 1e12).Draw(t, "mean"))
		if s.Work == nil {
			w.InnerStepJitter = policy.Time(rapid.Int64Range(0, int64(w.InnerStepMean)).Draw(t, "jitter"))
		}
	}
	for i := range s.Injects {
		if f := s.Injects[i].Factor; f != nil {
			*f = rapid.Float64Range(1e-300, 1e6).Draw(t, "factor")
		}
	}
	s.StateBytes = rapid.Int64Range(0, 1e15).Draw(t, "state_bytes")
	if rapid.Bool().Draw(t, "rejoin") {
		s.Policy.Rejoin, s.Policy.RejoinRounds = policy.RejoinAfterRounds, rapid.IntRange(0, 9).Draw(t, "rounds")
	}
	s.Policy.StalenessWeight = rapid.Float64Range(0, 1).Draw(t, "staleness")
	s.Real.Parameters = rapid.IntRange(1, 1<<30).Draw(t, "parameters")
	s.Real.AllReduce.Entropy = rapid.SampledFrom(entropy.Modes).Draw(t, "entropy")
	if s.Real.AllReduce.Algorithm == "ring" && rapid.Bool().Draw(t, "rates") {
		s.Real.AllReduce.Order = reduction.OrderGivenRates
		for range s.Workers {
			row := rapid.SliceOfN(rapid.Int64Range(1000, 1e12), len(s.Workers), len(s.Workers)).Draw(t, "row")
			rates := make([]shaping.Rate, len(row))
			for k, r := range row {
				rates[k] = shaping.Rate(r)
			}
			s.Real.AllReduce.Rates = append(s.Real.AllReduce.Rates, rates)
		}
	}
	return s
}

// TestRandomScenariosReadBack, and what is text in their YAML is text for a
// reader that knows no scenarios.
func TestRandomScenariosReadBack(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		s := random(t)
		if !strings.Contains(s.Description, "\ufffd") { // else not every character was one
			s.Description = strings.ToValidUTF8(s.Description, "")
		}
		dir, err := os.MkdirTemp("", "convert")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		for _, to := range []convert.Format{convert.JSON, convert.YAML} {
			file := filepath.Join(dir, s.Name+to.Extension())
			if _, err := convert.File(s, to, file); err != nil {
				t.Fatal(err)
			}
			back, err := scenarios.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s, back, whole); diff != "" {
				t.Fatalf("as %s it changes:\n%s", to, diff)
			}
			var plain map[string]any
			written, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(written, &plain); err != nil {
				t.Fatal(err)
			}
			if d, given := plain["description"]; given && d != any(s.Description) {
				t.Fatalf("as %s the description reads %#v:\n%s", to, d, written)
			}
		}
	})
}

// churnFields are those of the example in churn's README.
var churnFields = []string{"seed", "workers", "injects", "inner_steps", "target_outer_steps", "horizon",
	"heartbeat_period", "heartbeat_miss_threshold", "base_latency", "bandwidth_bpus", "state_bytes"}

// TestForChurn: the file has exactly churn's fields, and what is in it is the
// scenario's.
func TestForChurn(t *testing.T) {
	all, err := scenarios.Library()
	if err != nil {
		t.Fatal(err)
	}
	converted := 0
	for _, s := range all {
		text, lost, err := convert.Text(s, convert.Churn)
		if err != nil {
			var bad *scenarios.Error
			if !errors.As(err, &bad) || bad.File != s.Name || bad.Field == "" {
				t.Errorf("%s: %v", s.Name, err)
			}
			continue
		}
		converted++
		var fields map[string]json.RawMessage
		var workers, injects []map[string]json.RawMessage
		if err := errors.Join(json.Unmarshal(text, &fields), json.Unmarshal(fields["workers"], &workers), json.Unmarshal(fields["injects"], &injects)); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		same := func(what string, got map[string]json.RawMessage, want ...string) {
			if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(slices.Values(want))) {
				t.Errorf("%s: %s has %v, want %v", s.Name, what, slices.Sorted(maps.Keys(got)), want)
			}
		}
		same("the scenario", fields, churnFields...)
		for _, w := range workers {
			same("a worker", w, "id", "join_at", "inner_step_mean", "inner_step_jitter")
		}
		for i, in := range injects {
			want := []string{"op", "at", "id"}
			switch {
			case s.Injects[i].IDs != nil:
				want = []string{"op", "at", "ids"}
			case s.Injects[i].ID == nil:
				want = []string{"op", "at"}
			case s.Injects[i].Factor != nil:
				want = append(want, "factor")
			}
			same("an inject", in, want...)
		}
		back, err := scenarios.Parse(s.Name+".json", text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s, back, whole, cmpopts.IgnoreFields(scenarios.Scenario{}, "Description", "Policy", "Real", "Train", "Traces")); diff != "" {
			t.Errorf("%s is another scenario for churn:\n%s", s.Name, diff)
		}
		if said := strings.Join(lost, "\n"); !strings.Contains(said, "real is left out") || strings.Contains(said, "real.injects") != (s.Real.Injects != nil) {
			t.Errorf("%s: lost %q", s.Name, lost)
		}
		if _, lost, err := convert.Text(back, convert.Churn); err != nil || slices.ContainsFunc(lost, func(l string) bool { return !strings.Contains(l, "a partition") }) {
			t.Errorf("churn's own %s loses %q, %v", s.Name, lost, err)
		}
	}
	if converted < 8 || converted == len(all) {
		t.Errorf("%d of %d scenarios of the library convert", converted, len(all))
	}
}

// TestChurnRefuses what would make another scenario of it.
func TestChurnRefuses(t *testing.T) {
	for name, want := range map[string]string{
		"pause_resume": "pause_resume: injects[0].op: churn does not support the inject Pause; remove it, or choose one of Crash, Leave, Slow, Restore, Partition, ClearPartition",
		"mixed_gpus":   "mixed_gpus: work: churn's steps vary by inner_step_jitter alone; remove the section, and write the resulting inner_step_mean and inner_step_jitter to the workers",
	} {
		s, err := scenarios.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = convert.Text(s, convert.Churn); err == nil || err.Error() != want {
			t.Errorf("error\n  %v\nwant\n  %s", err, want)
		}
	}
}

// TestYAMLIsForPeople: blocks, short things on one line, quotes where a reader
// would see something else than text.
func TestYAMLIsForPeople(t *testing.T) {
	s, err := scenarios.Load("partition_heal")
	if err != nil {
		t.Fatal(err)
	}
	s.Description = "yes"
	got := text(t, s, convert.YAML)
	for _, line := range []string{`description: "yes"`, "  - {id: 0, join_at: 0, inner_step_mean: 1000, inner_step_jitter: 0}", "horizon: 5000000", "  links:"} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("there is no line %q in\n%s", line, got)
		}
	}
	if convert.FormatOf([]byte(got)) != convert.YAML {
		t.Errorf("it looks like JSON:\n%s", got)
	}
}

func TestAFileThatLacksItsTrace(t *testing.T) {
	s, err := scenarios.Load("mobile_uplink")
	if err != nil {
		t.Fatal(err)
	}
	s.Real.Injects[0].File = "elsewhere.trace"
	var bad *scenarios.Error
	if _, err := convert.File(s, convert.YAML, filepath.Join(t.TempDir(), "x.yaml")); !errors.As(err, &bad) || bad.Field != "real.injects[0].file" {
		t.Errorf("error %v", err)
	}
}
