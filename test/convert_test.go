//go:build linux

package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/record"
)

// TestConvert writes a scenario for churn and as YAML, and both play as before.
func TestConvert(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mine.json")
	trace := func(scenario string) string {
		t.Helper()
		r := testbed(t, "simulate", scenario, "--policy", "straggler", "--trace", "-")
		if r.code != 0 || !strings.Contains(r.stderr, "20,053 µs for 5 of 5 outer steps") {
			t.Fatalf("exit code %d: %s", r.code, r.stderr)
		}
		events, err := record.Read(strings.NewReader(r.stdout))
		if err != nil || len(events) == 0 {
			t.Fatalf("%d events, %v", len(events), err)
		}
		_, rest, _ := strings.Cut(r.stdout, "\n") // the first names the scenario
		return rest
	}
	want := trace("persistent_straggler")
	for format, said := range map[string]string{"churn": "testbed: persistent_straggler: real is left out: churn simulates neither a real network nor links\n", "yaml": "", "json": ""} {
		r := testbed(t, "convert", "persistent_straggler", "--to", format)
		if r.code != 0 || r.stderr != said || json.Valid([]byte(r.stdout)) != (format != "yaml") {
			t.Errorf("%s: exit code %d, said %q\n%s", format, r.code, r.stderr, r.stdout)
		}
		if w := testbed(t, "convert", "persistent_straggler", "--to", format, "--out", file); w.code != 0 || w.stdout != "" || w.stderr != said {
			t.Errorf("%s: exit code %d: %s%s", format, w.code, w.stdout, w.stderr)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != r.stdout {
			t.Errorf("%s: the file holds something else, %v\n%s", format, err, text)
		}
		if got := trace(file); got != want {
			t.Errorf("as %s it plays differently", format)
		}
	}
}

// TestListedScenariosLoad from a file of their own.
func TestListedScenariosLoad(t *testing.T) {
	t.Parallel()
	var all []json.RawMessage
	if err := json.Unmarshal([]byte(testbed(t, "list", "--json").stdout), &all); err != nil || len(all) < 15 {
		t.Fatalf("%d scenarios, %v", len(all), err)
	}
	file := filepath.Join(t.TempDir(), "one.json")
	for _, one := range all {
		if err := os.WriteFile(file, one, 0o644); err != nil {
			t.Fatal(err)
		}
		var named struct{ Name string }
		if err := json.Unmarshal(one, &named); err != nil || named.Name == "" {
			t.Errorf("%q, %v", named.Name, err)
		}
		if r := testbed(t, "convert", file, "--to", "json"); r.code != 0 {
			t.Errorf("%s: exit code %d: %s", named.Name, r.code, r.stderr)
		}
	}
}

func TestConvertUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"convert homogeneous":                                            "name the format: --to churn, json or yaml",
		"convert homogeneous --to toml":                                  `"--to" flag: there is no format "toml"; choose churn, json or yaml; see testbed convert --help`,
		"convert --to json":                                              "name one scenario",
		"convert pause_resume --to churn":                                "pause_resume: injects[0].op: churn does not support the inject Pause; remove it",
		"convert lognormal_16 --to churn":                                "lognormal_16: work: churn's steps vary by inner_step_jitter alone; remove the section",
		"calibrate homogeneous --format xml --refit x":                   `"--format" flag: there is no format "xml"; choose churn, json or yaml`,
		"calibrate spot_fleet --format churn --refit x":                  "spot_fleet: injects[0].op: churn does not support the inject ",
		"simulate homogeneous --policy baseline --json --trace -":        `--trace "-" and --json would both write to stdout`,
		"simulate --replay somewhere --policy baseline --json --trace -": `--trace "-" and --json would both write to stdout`,
	} {
		if r := testbed(t, strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 || !r.noResult() {
			t.Errorf("%s: exit code %d, %s%s, want %q", args, r.code, r.stdout, r.stderr, want)
		}
	}
}
