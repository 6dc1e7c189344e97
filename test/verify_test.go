//go:build linux

package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"testbed/emulation"
	"testbed/emulation/network"
	"testbed/internal/testenv"
	"testbed/record"
	"testbed/shaping/fidelity"
	"testbed/shaping/probe"
)

// TestMeasuredVerify measures a network on which no two directions are alike. Rates
// and tails may fail on a busy machine, the others may not.
func TestMeasuredVerify(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	before := look(t)
	var planned map[string]probe.PairReport
	testenv.Measure(t, func() func(testenv.Machine) error {
		var off func(testenv.Machine) error
		planned, off = verifyAsymmetric(t)
		return off
	})
	there, back, lossy := planned["w0 w1"], planned["w1 w0"], planned["w0 w2"]
	if there.OneWayDelay.Planned != 30 || back.OneWayDelay.Planned != 10 || there.RTT.Planned != 40 || lossy.Loss.Planned != 0.2 {
		t.Errorf("planned %v, %v, %v ms and %v", there.OneWayDelay.Planned, back.OneWayDelay.Planned, there.RTT.Planned, lossy.Loss.Planned)
	}
	if there.Goodput.Planned > 9.73 || there.Goodput.Planned < 9.71 || back.Goodput.Planned > 29.2 || back.Goodput.Planned < 29.1 {
		t.Errorf("planned goodput %v and %v Mbit/s, want 97.2 %% of 10 and 30", there.Goodput.Planned, back.Goodput.Planned)
	}
	expectNothing(t, t.Name(), before)
}

// verifyAsymmetric measures the network once. What is off is late, or lost, where
// others take much of the machine, and never early.
func verifyAsymmetric(t *testing.T) (planned map[string]probe.PairReport, off func(testenv.Machine) error) {
	t.Helper()
	r := testbed(t, "verify", links(t, asymmetric), "--json")
	var report probe.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("exit code %d, stdout is not JSON: %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	if want := map[bool]int{true: 0, false: exitInvalid}[report.OK]; r.code != want {
		t.Errorf("exit code %d, but ok is %v", r.code, report.OK)
	}
	if !report.Whole || len(report.Pairs) != 12 {
		t.Errorf("%d pairs, whole %v, want all 12", len(report.Pairs), report.Whole)
	}
	planned = map[string]probe.PairReport{}
	for _, p := range report.Pairs {
		planned[p.From+" "+p.To] = p
		if p.RTT == nil || p.OneWayDelay == nil || p.Loss == nil || p.Goodput == nil || p.GoodputAll == nil || p.BusyDelay == nil {
			t.Errorf("%s to %s: %+v", p.From, p.To, p)
		}
	}
	if t.Failed() {
		t.Fatal(r.stderr)
	}
	return planned, func(m testenv.Machine) error {
		for name, p := range planned {
			for of, q := range map[string]*probe.Property{"rtt": p.RTT, "one-way delay": p.OneWayDelay, "loss": p.Loss} {
				if !q.OK && !late(m, q) {
					return fmt.Errorf("%s: %s %+v\n%s", name, of, q, r.stderr)
				}
			}
		}
		return nil
	}
}

// late says whether the machine explains that a property is above its tolerance: by as
// much as timers were late for a delay, in milliseconds, or as was taken for a share.
func late(m testenv.Machine, q *probe.Property) bool {
	most := q.Tolerance[1] + m.Taken
	if q.Planned > 1 { // a delay
		most = q.Tolerance[1] + 1000*m.Late.Seconds()
	}
	return q.Measured > q.Tolerance[1] && q.Measured <= most
}

func TestVerifyUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"verify": "name one scenario", "verify no_such": "nor such a scenario", "verify homogeneous --links x": "auto, netem, user or htb",
		"net": "name one scenario", "net homogeneous ping": `write "--"`, "net homogeneous --pcap w9 -- true": "no node", "net homogeneous --pcap-limit 0": "--pcap-limit",
		"in": "name a node", "in w0": "name a node", "in w0 true": "needs a network of testbed net",
	} {
		r := testbed(t, strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, stderr %q, want %q", args, r.code, r.stderr, want)
		}
	}
}

// run plays a scenario and returns its summary and directory, whatever the
// verdict.
func run(t *testing.T, args ...string) (record.Summary, record.Dir) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	r := testbed(t, append([]string{"run", "--json", "--out", dir}, args...)...)
	var sum record.Summary
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil {
		t.Fatalf("exit code %d, stdout is not JSON: %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	if invalid := sum.Fidelity.Verdict == "invalid"; invalid != (r.code == exitInvalid) {
		t.Errorf("exit code %d, but fidelity is %v", r.code, sum.Fidelity)
	}
	return sum, record.Dir(dir)
}

func readJSON(t *testing.T, file string, v any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

type fidelityFile struct {
	fidelity.Verdict
	Measured fidelity.Measurements
	Rounds   []struct {
		Round int
		fidelity.Verdict
		Measured fidelity.Measurements
	}
}

// TestMeasuredComfortableRunIsValid plays a run that the machine has room for.
func TestMeasuredComfortableRunIsValid(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	file := links(t, asymmetric)
	testenv.Measure(t, func() func(testenv.Machine) error {
		sum, dir := run(t, file, "--policy", "straggler")
		var f fidelityFile
		readJSON(t, dir.Path(record.FidelityFile), &f)
		if f.Verdict.Verdict != sum.Fidelity.Verdict || len(f.Rounds) != len(sum.Rounds) {
			t.Errorf("%s has verdict %v and %d rounds, the summary %v and %d", record.FidelityFile, f.Verdict, len(f.Rounds), sum.Fidelity, len(sum.Rounds))
		}
		for _, r := range f.Rounds {
			router := r.Measured.RouterPackets > 0 && r.Measured.RouterLatenessP99 > 0
			if r.Measured.RoundTime <= 0 || r.Measured.TimerLatenessP99 <= 0 || router != (sum.Links == network.LinksUser) {
				t.Errorf("round %d knows nothing: %+v", r.Round, r.Measured)
			}
		}
		// Three workers: each with the coordinator, and around the ring.
		var check probe.Report
		readJSON(t, dir.Path(emulation.LinkCheckFile), &check)
		if len(check.Pairs) != 6 || len(f.Measured.Pairs) != 6 {
			t.Fatalf("%d pairs checked, %d judged, want 6", len(check.Pairs), len(f.Measured.Pairs))
		}
		return func(m testenv.Machine) error {
			// Of 10 Mbit/s w0's reductions take seconds, with packets waiting.
			if b := f.Measured; b.BusyLink == "" || b.BusyShare < 0.9*(1-m.Taken) || b.BusyShare > 1.1 {
				return fmt.Errorf("of busy links is known: %q for %v at %v", b.BusyLink, b.BusyTime, b.BusyShare)
			}
			for _, p := range check.Pairs {
				if p.From == "w0" && p.To == "w1" && (p.RTT.Planned != 40 || p.RTT.Measured < 39.9 || p.RTT.Measured > 60+1000*m.Late.Seconds()) {
					return fmt.Errorf("w0 to w1: %+v", *p.RTT)
				}
			}
			// On a disturbed machine the verdict may be right.
			if valid := sum.Fidelity.Verdict == "valid"; !valid && m == (testenv.Machine{}) || !sum.Complete {
				return fmt.Errorf("complete %v, fidelity is %+v", sum.Complete, sum.Fidelity)
			}
			return nil
		}
	})
}

// TestMeasuredOverloadedRunIsInvalid plays a run whose pace the processors set, and
// not the links.
func TestMeasuredOverloadedRunIsInvalid(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	workers := 16 * min(runtime.NumCPU(), 8) // that many for each CPU are far too many
	sum, _ := run(t, scenario(t, workers, "1gbit", ""), "--policy", "baseline", "--time-scale", "20")
	if sum.Fidelity.Verdict != "invalid" || len(sum.Fidelity.Reasons) == 0 {
		t.Errorf("fidelity is %+v", sum.Fidelity)
	}
}

// TestMeasuredVerifyKnowsItsLanguage: every property of paths at its extremes, and rates
// far below a megabit, are found as planned on every backend that is here. Shares do not
// depend on the machine; a tail may be late on a busy one.
func TestMeasuredVerifyKnowsItsLanguage(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	for name, text := range testenv.Extremes {
		for _, backend := range []string{network.LinksUser, network.LinksHTB, network.LinksNetem} {
			t.Run(name+" on "+backend, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "extremes.yaml")
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				testenv.Measure(t, func() func(testenv.Machine) error {
					r := testbed(t, "verify", file, "--json", "--links", backend)
					if backend == network.LinksNetem && r.code == exitUnsupported {
						t.Log(r.stderr)
						return func(testenv.Machine) error { return nil }
					}
					var report probe.Report
					if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
						t.Fatalf("exit code %d, %v\n%s", r.code, err, r.stderr)
					}
					return func(m testenv.Machine) error {
						for _, p := range report.Pairs {
							names, all := p.Properties()
							for k, q := range all {
								waited := strings.HasSuffix(names[k], "_ms") && q.Measured > q.Tolerance[1] && q.Measured <= q.Tolerance[1]+1000*m.Late.Seconds()
								slower := strings.HasPrefix(names[k], "goodput") && q.Measured < q.Tolerance[0] && q.Measured >= q.Tolerance[0]*(1-m.Taken)
								if !q.OK && !waited && !slower {
									return fmt.Errorf("%s to %s: %s %v", p.From, p.To, names[k], q)
								}
							}
						}
						return nil
					}
				})
			})
		}
	}
}
