//go:build linux

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"testbed/shaping/probe"
)

// TestVerify measures a network on which no two directions are alike. Rates
// and tails may fail on a busy machine, the others may not.
func TestVerify(t *testing.T) {
	needSandbox(t)
	before := look(t)
	r := testbed(t, "verify", links(t, asymmetric), "--json")
	var report probe.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("exit code %d, stdout is no JSON: %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	if want := map[bool]int{true: 0, false: exitInvalid}[report.OK]; r.code != want {
		t.Errorf("exit code %d, but ok is %v", r.code, report.OK)
	}
	if !report.Whole || len(report.Pairs) != 12 {
		t.Errorf("%d pairs, whole %v, want all 12", len(report.Pairs), report.Whole)
	}
	planned := map[string]probe.PairReport{}
	for _, p := range report.Pairs {
		planned[p.From+" "+p.To] = p
		for name, q := range map[string]*probe.Property{"rtt": p.RTT, "one-way delay": p.OneWayDelay, "loss": p.Loss} {
			if q == nil || !q.OK {
				t.Errorf("%s to %s: %s %+v", p.From, p.To, name, q)
			}
		}
		if p.Goodput == nil || p.GoodputAll == nil || p.BusyDelay == nil {
			t.Errorf("%s to %s: no goodput", p.From, p.To)
		}
	}
	if t.Failed() {
		t.Fatal(r.stderr)
	}
	there, back, lossy := planned["w0 w1"], planned["w1 w0"], planned["w0 w2"]
	if there.OneWayDelay.Planned != 30 || back.OneWayDelay.Planned != 10 || there.RTT.Planned != 40 || lossy.Loss.Planned != 0.2 {
		t.Errorf("planned %v, %v, %v ms and %v", there.OneWayDelay.Planned, back.OneWayDelay.Planned, there.RTT.Planned, lossy.Loss.Planned)
	}
	if there.Goodput.Planned > 9.73 || there.Goodput.Planned < 9.71 || back.Goodput.Planned > 29.2 || back.Goodput.Planned < 29.1 {
		t.Errorf("planned goodput %v and %v Mbit/s, want 97.2 %% of 10 and 30", there.Goodput.Planned, back.Goodput.Planned)
	}
	expectNothing(t, t.Name(), before)
}

func TestVerifyUsage(t *testing.T) {
	for args, want := range map[string]string{
		"verify": "name one scenario", "verify no_such": "no such scenario", "verify homogeneous --links x": "auto, netem or user",
		"net": "name one scenario", "net homogeneous ping": "write --", "net homogeneous --pcap w9 -- true": "no node", "net homogeneous --pcap-limit 0": "--pcap-limit",
		"in": "name a node", "in w0": "name a node", "in w0 true": "inside of testbed net",
	} {
		r := testbed(t, strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, stderr %q, want %q", args, r.code, r.stderr, want)
		}
	}
}
