package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/estimate"
)

// estimated runs the verb and returns what it printed and its error.
func estimated(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{"estimate"}, args...))
	err := cmd.Execute()
	return out.String(), err
}

// written writes a file and returns its name.
func written(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestEstimateOfAFile(t *testing.T) {
	file := written(t, "run.yaml", "parameters: 300e9\nuseHierarchy: true\n")
	out, err := estimated(file, "--set", "numNodes=36", "--variant", "document", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var got estimate.Estimate
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	want := estimate.Defaults()
	want.Parameters, want.UseHierarchy, want.NumNodes = 300e9, true, 36
	if got.Inputs != want || got.Variant != estimate.Document || got.Results != estimate.Compute(want, estimate.Document) {
		t.Errorf("%+v", got)
	}
	if len(got.Warnings) == 0 || len(got.Terms) == 0 || len(got.Derivatives) == 0 {
		t.Error("warnings, terms or derivatives are missing")
	}
}

func TestEstimateSaysWhatIsWrong(t *testing.T) {
	yaml := written(t, "run.yaml", "numNodes: 80\nlatencyms: 3\n")
	impossible := written(t, "run.json", "{\"numNodes\": 80,\n\"mfu\": 3}")
	bare, full := written(t, "bare.json", `{"schema": 1, "costs": {"efficiency": {"value": 1}}}`), written(t, "full.json", calibration)
	failing := written(t, "f.yaml", "n_nodes: 4\ngpus_per_node: 8\n")
	for _, c := range []struct {
		want string
		args []string
	}{
		{yaml + ":2: latencyms: unknown field; did you mean latencyMs?", []string{yaml}},
		{impossible + ":2: mfu is 3: it must be from 0.0001 to 1", []string{impossible}},
		{"--set mfu is 2: it must be from 0.0001 to 1", []string{impossible, "--set", "mfu=2"}},
		{"--set innerSteps is 1.5: it must be a whole number", []string{"--set", "innerSteps=1.5"}},
		{`--set "mfu" must be NAME=VALUE, such as numNodes=16`, []string{"--set", "mfu"}},
		{`--variant "both" must be page or document`, []string{"--variant", "both"}},
		{"FILE, --preset, --reliability and --list exclude each other", []string{yaml, "--list"}},
		{"--preset gpt-5: there is no such preset; choose one of page-defaults", []string{"--preset", "gpt-5"}},
		{failing + ":1: time_s is missing: add it", []string{"--reliability", failing}},
		{"name at most one file", []string{yaml, yaml}},
		{"--calibration: reading the calibration: open nowhere.json", []string{"--calibration", "nowhere.json"}},
		{"--calibration " + bare + ": straggler has no coefficient: calibrate again", []string{"--calibration", bare}},
		{"--calibration shows all variants; leave --variant out", []string{"--calibration", bare, "--variant", "page"}},
		{"--calibration, --sweep and --html apply only to the estimate of a run", []string{"--list", "--sweep", "mfu=0.3"}},
		{"--csv needs --sweep", []string{"--csv"}},
		{"--csv and --json cannot be combined", []string{"--csv", "--json", "--sweep", "numNodes=16,32"}},
		{"--html cannot be combined with --csv or --json", []string{"--html", "x.html", "--json"}},
		{"--set nodeSpread: unknown field", []string{"--set", "nodeSpread=0.2"}},
		{"--set nodeSpread is 2: it must be from 0 to 0.4", []string{"--calibration", full, "--set", "nodeSpread=2"}},
		{"--sweep mfu is 3: it must be from 0.0001 to 1 (with mfu=3)", []string{"--sweep", "mfu=0.3,3"}},
		{"--sweep mfus: unknown field; did you mean mfu?", []string{"--sweep", "mfus=3"}},
		{`--sweep "mfu" must be NAME=V1,V2,…`, []string{"--sweep", "mfu"}},
	} {
		_, err := estimated(c.args...)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || exitCode(err) != exitUsage {
			t.Errorf("%q: error %v (exit code %d), want %s", c.args, err, exitCode(err), c.want)
		}
	}
}

func TestEstimateOfPresetsAndReliability(t *testing.T) {
	out, err := estimated("--list")
	if err != nil || !strings.Contains(out, "100 inner steps: reported 38 min, estimated 31.21 (0.82 times as much)") {
		t.Errorf("--list: %v\n%s", err, out)
	}
	out, err = estimated("--preset", "page-as-opened")
	if err != nil || !strings.HasPrefix(out, "7,858 days (21.53 years), beyond the limit of 136.9 days for a run") {
		t.Errorf("--preset: %v\n%s", err, out)
	}
	file := written(t, "failures.json", `{"n_nodes": 625, "gpus_per_node": 50, "time_s": 47336400, "params": 250e9, "bytes_per_param": 16, "vram_gb": 4000, "mode": "synchronous", "checkpoint_mode": "async"}`)
	out, err = estimated("--reliability", file, "--json")
	var got struct {
		Inputs  estimate.ReliabilityInputs
		Outputs estimate.ReliabilityOutputs
	}
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Inputs.Nodes != 625 || got.Outputs.Goodput != estimate.Reliability(got.Inputs).Goodput {
		t.Errorf("--reliability: %v\n%s", err, out)
	}
	if out, err = estimated("--reliability", file); err != nil || !strings.Contains(out, "goodput") {
		t.Errorf("--reliability: %v\n%s", err, out)
	}
}

// calibration is a calibration.json, as far as an estimate reads it.
const calibration = `{"schema": 1, "costs": {"efficiency": {"value": 0.9}, "hop": {"value": -0.5, "unit": "ms"}, "reduce": {"value": 2, "unit": "ms"}},
"document": {"straggler": [{"sigma": 0.1, "coefficient": {"value": 0.045}}, {"sigma": 0.2, "coefficient": {"value": 0.098}}]}}`

func TestEstimateWithACalibration(t *testing.T) {
	file, run := written(t, "calibration.json", calibration), written(t, "run.yaml", "numNodes: 16\nnodeSpread: 0.2\n")
	out, err := estimated(run, "--calibration", file, "--set", "fragments=4", "--json")
	if err != nil {
		t.Fatal(err)
	}
	var got estimate.Comparison
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	want := estimate.Run{Inputs: estimate.Defaults(), Further: estimate.DefaultFurther()}
	want.NumNodes, want.NodeSpread, want.Fragments = 16, 0.2, 4
	m := estimate.Measurements{Efficiency: 0.9, Reduce: 0.002, Stragglers: []estimate.Straggler{{Sigma: 0.1, Coefficient: 0.045}, {Sigma: 0.2, Coefficient: 0.098}}}
	if got.Measured.Inputs != want.Inputs || got.Further != want.Further || got.Measured.Results != estimate.ComputeMeasured(want, &m) || got.Page.Results != estimate.Compute(want.Inputs, estimate.Page) || len(got.Changes) == 0 || len(got.Ratios) == 0 {
		t.Errorf("%s", out)
	}
	if out, err = estimated(run, "--calibration", file); err != nil || !strings.Contains(out, "nodeSpread 0.2") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestEstimateSweeps(t *testing.T) {
	out, err := estimated("--sweep", "numNodes=16,72", "--sweep", "bandwidthMbps=100,400", "--csv")
	if lines := strings.Split(out, "\n"); err != nil || len(lines) != 6 || !strings.HasPrefix(lines[3], "72,100,page,Data Parallel (DiLoCo),491.13") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = estimated("--calibration", written(t, "calibration.json", calibration), "--sweep", "nodeSpread=0,0.2", "--json")
	var got struct {
		Inputs estimate.Run
		Axes   []estimate.Axis
		Points []estimate.Point
	}
	if err != nil || json.Unmarshal([]byte(out), &got) != nil || len(got.Points) != 6 || got.Inputs.Fragments != 8 || got.Points[5].Set["nodeSpread"] != 0.2 || got.Points[5].Variant != estimate.Measured {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err = estimated("--sweep", "numNodes=16,72"); err != nil || !strings.Contains(out, "491.1 !") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestEstimatesAsPages: --html, and report of what --json printed, make one
// page.
func TestEstimatesAsPages(t *testing.T) {
	dir := t.TempDir()
	calibrated := written(t, "calibration.json", calibration)
	for name, args := range map[string][]string{
		"sweep":    {"--calibration", calibrated, "--set", "nodeSpread=0.2", "--sweep", "bandwidthMbps=100,400"},
		"document": {"--variant", "document", "--sweep", "numNodes=8,16", "--sweep", "precision=FP16,FP8"},
		"run":      {"--set", "latencyMs=30"},
		"three":    {"--calibration", calibrated},
	} {
		direct, read := filepath.Join(dir, name+"-direct.html"), filepath.Join(dir, name+".html")
		if out, err := estimated(append(args, "--html", direct)...); err != nil || out != direct+"\n" {
			t.Fatalf("%s: %v, %q", name, err, out)
		}
		text, err := estimated(append(args, "--json")...)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, name+".json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd := root()
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"report", file})
		if err := cmd.Execute(); err != nil || out.String() != read+"\n" {
			t.Fatalf("%s: %v, %q", name, err, out.String())
		}
		a, err := os.ReadFile(direct)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(read)
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %v, or the pages differ", name, err)
		}
	}
}

func TestReportsOfEstimatesSayWhatIsWrong(t *testing.T) {
	file := written(t, "run.json", "{}")
	for want, args := range map[string][]string{
		file + ": the file has no inputs; name a file with the output of testbed estimate --json": {file},
		"a report shows one estimate, but 2 files are named; make a report for each file":         {file, file},
		"--trace needs a run, and an estimate contains none":                                      {file, "--trace", "t.json"},
	} {
		cmd := root()
		cmd.SetArgs(append([]string{"report"}, args...))
		if err := cmd.Execute(); err == nil || !strings.HasPrefix(err.Error(), want) || exitCode(err) != exitUsage {
			t.Errorf("%q: error %v, want %s", args, err, want)
		}
	}
}
