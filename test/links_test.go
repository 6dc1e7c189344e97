//go:build linux

package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/internal/testenv"
	"testbed/report"
)

// TestCompareLinks plays a scenario on two backends: the bytes and who takes part
// do not depend on who carries packets. How long it takes is not judged here,
// beyond that the exit code says what the table says.
func TestCompareLinks(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "compare")
	r := testbed(t, "compare", scenario(t, 2, "100mbit", ""), "--policy", "baseline", "--links", "user,htb", "--json", "--out", dir)
	if r.code == exitUnsupported {
		testenv.Need(t, errors.New(r.stderr))
	}
	var c report.Comparison
	if err := json.Unmarshal([]byte(r.stdout), &c); err != nil {
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	first, other := c.Real["baseline"], c.OtherLinks["htb"][0]["baseline"]
	if first.Links != "user" || other.Links != "htb" || !slices.Equal(c.Links, []string{"user", "htb"}) {
		t.Errorf("on %s and %s of %q", first.Links, other.Links, c.Links)
	}
	b := c.Agreement.Rows[1].Comparison
	if b.Ratio.N != 1 || len(b.OtherDecisions) > 0 || b.Rounds != 3 || b.SameBytes != 3 {
		t.Errorf("%+v\n%s", b, r.stderr)
	}
	if valid := first.Fidelity.Verdict != "invalid" && other.Fidelity.Verdict != "invalid"; (r.code == 0) != (valid && c.Agreement.Agree) || r.code != 0 && r.code != exitInvalid {
		t.Errorf("exit code %d: %s\n%s", r.code, c.Agreement.Verdict, r.stderr)
	}
	for _, text := range []string{"baseline on user links, seed 7\n", "baseline on htb links, seed 7\n"} {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("stderr does not say %q:\n%s", text, r.stderr)
		}
	}
	r = testbed(t, "report", dir)
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || r.code != 0 || !bytes.Contains(page, []byte("<h2>Links side by side</h2>")) || !bytes.Contains(page, []byte("<td>htb</td>")) {
		t.Errorf("the report, exit code %d, %v: %s", r.code, err, r.stderr)
	}
}

// TestCompareOnLinksThatAreNotThere: the mend, and nothing else.
func TestCompareOnLinksThatAreNotThere(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	file, dir := scenario(t, 2, "100mbit", ""), filepath.Join(t.TempDir(), "compare")
	if testbed(t, "net", file, "--links", "netem", "--", "true").code != exitUnsupported {
		t.Skip("this machine has netem")
	}
	r := testbed(t, "compare", file, "--links", "user,netem", "--out", dir)
	_, err := os.Stat(dir)
	if r.code != exitUnsupported || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "modprobe sch_netem") || !r.noResult() || err == nil {
		t.Errorf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
}
