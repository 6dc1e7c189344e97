//go:build linux

package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/experiment/sweep"
	"testbed/internal/testenv"
	"testbed/policy"
	"testbed/record"
)

// TestAPolicyOfOnesOwn: the policy that docs/policies.md shows is played by the
// simulator, on a real network, and in a sweep, and is reported on.
func TestAPolicyOfOnesOwn(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("testdata/patience.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```go\n"+string(code)+"```") || strings.Count(string(code), "\n") >= 60 {
		t.Error("docs/policies.md does not show testdata/patience.go as it is, in less than 60 lines")
	}
	own := patient(t)

	var sum record.Summary
	r := call(t, nil, own, "simulate", "persistent_straggler", "--policy", "patience:share=0.75:longer=0.5", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || !sum.Complete || sum.Policy != "patience:share=0.75:longer=0.5" || len(sum.Sidelined) == 0 {
		t.Errorf("simulated: exit code %d, %v, %+v\n%s", r.code, err, sum, r.stderr)
	}
	if r := call(t, nil, own, "simulate", "persistent_straggler", "--policy", "patience:share=2"); r.code != exitUsage || !strings.Contains(r.stderr, "policy.patience.share is 2: it must lie in (0, 1]") {
		t.Errorf("a parameter out of range: exit code %d, %s", r.code, r.stderr)
	}

	r = call(t, nil, own, "sweep", "persistent_straggler", "--policy", "patience", "--set", "policy.patience.longer=0,20", "--out", filepath.Join(t.TempDir(), "sweep"), "--json")
	var s sweep.Summary
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil || s.Done != 2 || s.Cells[0].WallClock["patience"].Median >= s.Cells[1].WallClock["patience"].Median {
		t.Errorf("swept: exit code %d, %v, %+v\n%s", r.code, err, s, r.stderr)
	}

	needSandbox(t)
	slow := "injects:\n  - {op: Slow, at: 0, id: 3, factor: 10}\n"
	// The others would have to be seconds late to be left out in its place.
	r = call(t, nil, own, "run", "--json", "--out", filepath.Join(t.TempDir(), "run"), scenario(t, 4, "100mbit", slow), "--policy", "patience:longer=3")
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || !slices.ContainsFunc(sum.Sidelined, func(m record.Membership) bool { return m.ID == 3 }) || len(sum.Evicted) > 0 {
		t.Fatalf("played: exit code %d, %v, sidelined %v, evicted %v\n%s", r.code, err, sum.Sidelined, sum.Evicted, r.stderr)
	}
	r = call(t, nil, own, "report", sum.Dir)
	text, err := os.ReadFile(filepath.Join(sum.Dir, "report.html"))
	if err != nil || r.code != 0 || !strings.Contains(string(text), "--policy patience:longer=3") || !strings.Contains(string(text), "took_us") {
		t.Errorf("reported: exit code %d, %v\n%s", r.code, err, r.stderr)
	}
}

// TestTheRecipeToTheLetter: what docs/policies.md says to do with its policy is done, with
// the text, the file's name and the commands of the page.
func TestTheRecipeToTheLetter(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Write your own\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, code, _ := strings.Cut(section, "```go\n")
	code, rest, _ := strings.Cut(code, "```")
	_, folder, _ := strings.Cut(rest, "Save it in `")
	folder, rest, _ = strings.Cut(folder, "` as ")
	file, rest, _ := strings.Cut(rest, ",")
	file = filepath.Join(folder, file)
	_, commands, _ := strings.Cut(rest, "```sh\n")
	commands, rest, found := strings.Cut(commands, "```")
	if !found || folder == "" {
		t.Fatalf("the page has no recipe: file %q, commands %q", file, commands)
	}
	above, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	goes, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	// The commands run as they stand, in a folder of their own: go sees the module with
	// one file more, and puts the program there.
	do := func(file, code, commands string) string {
		t.Helper()
		here := t.TempDir()
		files, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(above, file): filepath.Join(here, "code.go")}})
		if err != nil {
			t.Fatal(err)
		}
		shim := fmt.Sprintf("#!/bin/sh -e\nhere=$PWD verb=$1; shift; cd '%s'\ncase $verb in build) exec '%s' build -buildvcs=false -overlay='%s/overlay.json' -o \"$here/\" \"$@\";; esac\nexec '%[2]s' $verb -overlay='%[3]s/overlay.json' \"$@\"\n", above, goes, here)
		for name, text := range map[string]string{"code.go": code, "overlay.json": string(files), "bin/go": shim} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(here, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := testenv.WriteExecutable(filepath.Join(here, name), []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", commands)
		cmd.Dir, cmd.Env = here, append(os.Environ(), "PATH="+filepath.Join(here, "bin")+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", commands, err, out)
		}
		return string(out)
	}
	if out := do(file, code, commands); !strings.Contains(out, "patience") || !strings.Contains(out, "for 5 of 5 outer steps") {
		t.Errorf("%s prints\n%s", commands, out)
	}

	// To stay, among the others.
	for _, words := range []string{"belongs in `policy/`", "begins with `package policy`", "does not import `testbed/policy`", "omits `policy.` before names"} {
		if !strings.Contains(strings.Join(strings.Fields(rest), " "), words) {
			t.Errorf("the page does not say %q any more, and this test does it", words)
		}
	}
	code = strings.Replace(code, "package main", "package policy", 1)
	code = strings.Replace(code, "import \"testbed/policy\"\n\n", "", 1)
	code = strings.ReplaceAll(code, "policy.", "")
	do(filepath.Join("policy", "patience.go"), code, "go vet ./policy")
}

// patient builds the command with the policy as one more file.
func patient(t *testing.T) (file string) {
	t.Helper()
	code, err := filepath.Abs("testdata/patience.go")
	if err != nil {
		t.Fatal(err)
	}
	main, err := filepath.Abs("../cmd/testbed/patience.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := json.Marshal(map[string]map[string]string{"Replace": {main: code}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(overlay, files, 0o644); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "testbed")
	if err := build(file, "-overlay", overlay); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPoliciesAreDocumented: the pages have every policy with all its parameters, as
// `list --policies` has them.
func TestPoliciesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	fields, err := os.ReadFile("../docs/fields.md")
	if err != nil {
		t.Fatal(err)
	}
	r := testbed(t, "list", "--policies", "--json")
	var listed []struct {
		Name       string
		Parameters []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &listed); err != nil || len(listed) != len(policy.Names()) {
		t.Fatalf("exit code %d, %v\n%s", r.code, err, r.stdout)
	}
	for _, p := range listed {
		if !strings.Contains(string(page), "\n### `"+p.Name+"`\n") {
			t.Errorf("docs/policies.md has no section on %s", p.Name)
		}
		for _, param := range p.Parameters {
			if row := fmt.Sprintf("\n| `policy.%s.%s` |", p.Name, param.Name); !strings.Contains(string(fields), row) {
				t.Errorf("docs/fields.md lacks the row %q", row)
			}
		}
	}
}

// TestTune searches a little, and plays what it finds.
func TestTune(t *testing.T) {
	t.Parallel()
	var got experiment.Tuned
	args := []string{"tune", scenario(t, 2, "100mbit", ""), "--policy", "baseline,deadline", "--points", "20", "--seeds", "2", "--held-out", "2", "--best", "1", "--repeat", "1", "--json", "--out"}
	r := testbed(t, append(args, filepath.Join(t.TempDir(), "tune"), "--world", "sim")...)
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 0 || got.Points < 10 || len(got.Chosen) != 1 || got.Comparison == nil || got.Comparison.Real != nil {
		t.Errorf("exit code %d, %v, %+v\n%s", r.code, err, got, r.stderr)
	}
	if r := testbed(t, append(args, filepath.Join(t.TempDir(), "tune"), "--repeat", "3")...); r.code != exitUsage || !strings.Contains(r.stderr, "--repeat 3 is more than the 2 seeds that are held out") {
		t.Errorf("exit code %d, %s", r.code, r.stderr)
	}
	needSandbox(t)
	r = testbed(t, append(args, filepath.Join(t.TempDir(), "tune"))...)
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 0 && r.code != exitInvalid || got.Comparison.Real["baseline"].WallClock == 0 {
		t.Errorf("exit code %d, %v\n%s", r.code, err, r.stderr)
	}
	if r := testbed(t, "report", filepath.Join(got.Dir, "chosen")); r.code != 0 {
		t.Errorf("reported: exit code %d, %s", r.code, r.stderr)
	}
}
