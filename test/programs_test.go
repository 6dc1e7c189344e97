//go:build linux

package test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"testbed/record"
)

// fed runs the command to its end, with text on standard input.
func fed(t *testing.T, text string, args ...string) result {
	t.Helper()
	cmd := command(t, t.Context(), t.Name(), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if _, is := err.(*exec.ExitError); !is {
			t.Fatal(err)
		}
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// noResult says that nothing is on standard output, but an error for programs.
func (r result) noResult() bool {
	var printed map[string]map[string]any
	return r.stdout == "" || json.Unmarshal([]byte(r.stdout), &printed) == nil && len(printed) == 1 && printed["error"]["message"] != nil
}

const small = `name: small
workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}]
inner_steps: 2
target_outer_steps: 2
horizon: 1000000
seed: 1
heartbeat_period: 1000
heartbeat_miss_threshold: 3
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
`

// TestScenarioOnStandardInput: - stands for a scenario on standard input, whatever verb
// takes one, or is refused in one line.
func TestScenarioOnStandardInput(t *testing.T) {
	t.Parallel()
	wrong := strings.Replace(small, "inner_steps: 2", "inner_steps: -1", 1)
	for _, args := range []string{
		"plan -", "simulate - --policy baseline", "run - --policy baseline", "compare -", "compare - --world sim", "sweep - --set inner_steps=1,2",
		"sweep - --real --set inner_steps=1,2", "tune - --points 2", "verify -", "convert - --to json", "calibrate -", "net - -- true", "bench ring -",
	} {
		r := fed(t, wrong, strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, "testbed: stdin:3: inner_steps is -1: it must ") {
			t.Errorf("testbed %s: exit code %d, %s", args, r.code, r.stderr)
		}
	}
	for args, want := range map[string]string{
		"net -":                               "would both read standard input",
		"manifests --image x --hosts 2 run -": "name a scenario file",
	} {
		r := fed(t, small, strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("testbed %s: exit code %d, %s", args, r.code, r.stderr)
		}
	}
	if r := fed(t, small, "plan", "-", "--json"); r.code != 0 || !json.Valid([]byte(r.stdout)) {
		t.Errorf("plan: exit code %d, %s", r.code, r.stderr)
	}
	if r := fed(t, small, "convert", "-", "--to", "yaml"); r.code != 0 || !strings.Contains(r.stdout, "inner_step_mean: 1000") {
		t.Errorf("convert: exit code %d, %s", r.code, r.stderr)
	}
	dir := filepath.Join(t.TempDir(), "compared")
	if r := fed(t, small, "compare", "-", "--world", "sim", "--out", dir); r.code != 0 {
		t.Errorf("compare: exit code %d, %s", r.code, r.stderr)
	}
	if r := testbed(t, "report", dir, "--out", filepath.Join(dir, "report.html")); r.code != 0 { // it has a scenario file
		t.Errorf("report: exit code %d, %s", r.code, r.stderr)
	}
	asJSON := fed(t, small, "convert", "-", "--to", "json")
	if r := fed(t, asJSON.stdout, "simulate", "-", "--policy", "baseline"); r.code != 0 {
		t.Errorf("JSON: exit code %d, %s", r.code, r.stderr)
	}
}

// TestErrorsAsJSON: with --json an error is one object on standard output, and a text on
// standard error as ever.
func TestErrorsAsJSON(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"simulate - --policy baseline":                     "scenario stdin inner_steps 2",
		"simulate homogeneous":                             "usage   2",
		"compare homogeneous --world sim --policy a,b":     "scenario  policy 2",
		"sweep homogeneous --set inner_steps=1 --seeds x":  "scenario  --seeds 2",
		"simulate homogeneous --policy baseline --jsn":     "usage   2",
		"simulate homogeneous --policy baseline --trace /": "error   1",
	} {
		r := fed(t, strings.Replace(small, "inner_steps: 2", "inner_steps: -1", 1), append(strings.Fields(args), "--json")...)
		var got map[string]struct {
			Kind, Message, File, Field string
			ExitCode                   int `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
			t.Errorf("testbed %s: %v\n%s", args, err, r.stdout)
			continue
		}
		e := got["error"]
		if text := strings.Join([]string{e.Kind, e.File, e.Field, string(rune('0' + e.ExitCode))}, " "); text != want || e.ExitCode != r.code || r.stderr != "testbed: "+e.Message+"\n" {
			t.Errorf("testbed %s: %q, want %q; exit code %d; %s", args, text, want, r.code, r.stderr)
		}
	}
	// Where there is a result that is not valid, the object is the result.
	short := strings.Replace(small, "horizon: 1000000", "horizon: 3000", 1)
	r := fed(t, short, "simulate", "-", "--policy", "baseline", "--json")
	var sum record.Summary
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || r.code != exitInvalid || sum.Scenario != "small" || sum.Complete {
		t.Errorf("incomplete: exit code %d, %v\n%s", r.code, err, r.stdout)
	}
	// Without --json nothing is on standard output.
	if r := testbed(t, "simulate", "homogeneous"); r.stdout != "" || r.code != exitUsage {
		t.Errorf("text: exit code %d, %s", r.code, r.stdout)
	}
}

// TestNamesOfWorlds: --network takes the names of the simulated worlds, and the result has
// them.
func TestNamesOfWorlds(t *testing.T) {
	t.Parallel()
	for network, want := range map[string]string{"churn": "sim", "sim": "sim", "links": "sim_links", "sim_links": "sim_links"} {
		r := fed(t, small, "simulate", "-", "--policy", "baseline", "--network", network, "--json")
		var sum record.Summary
		if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || r.code != 0 || sum.WorldName != want || sum.World != record.Sim {
			t.Errorf("--network %s: exit code %d, %v; the world is %s, want %s", network, r.code, err, sum.WorldName, want)
		}
	}
}
