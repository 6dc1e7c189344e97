//go:build linux

package test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"testbed/allreduce/bench"
	"testbed/internal/testenv"
	"testbed/record"
	"testbed/shaping/probe"
)

// lead starts a command on the first host of a lab, for all of which the others are
// there: the leader's process and those of the others.
func (l *lab) lead(t *testing.T, id string, args ...string) (all []*process) {
	t.Helper()
	n := len(l.hosts)
	all = append(all, l.start(t, 0, id, args...))
	for k := 1; k < n; k++ {
		all = append(all, l.start(t, k, id, "host", "--index", strconv.Itoa(k), "--count", strconv.Itoa(n), "--leader", "192.168.77.1", "--name", fmt.Sprintf("h%d", k)))
	}
	return all
}

// end waits for the end of all, of which only the leader's may fail, with that code.
func end(t *testing.T, all []*process, code int) {
	t.Helper()
	for k, p := range all {
		_ = p.Wait() // the exit code says it
		if got := p.ProcessState.ExitCode(); got != 0 && (k > 0 || got != code) {
			t.Fatalf("host %d ended with exit code %d\n%s\nthe leader:\n%s\n%s", k, got, &p.stderr, &all[0].stdout, &all[0].stderr)
		}
	}
}

// TestMeasuredVerifyOverHosts: every pair is as planned, on one host and between two whose
// clocks are 1,000 s apart. In the lab both go by one clock, so that the error of
// their comparison is known: it lies within its bound, and one-way delays add no
// more than 0.2 ms to it.
func TestMeasuredVerifyOverHosts(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	l := newLab(t, 2, 1500)
	l.wrap = map[int][]string{1: ahead(1000)}
	file := roomy(t, scenario(t, 2, "20mbit", ""))
	testenv.Measure(t, func() func(testenv.Machine) error {
		all := l.lead(t, t.Name(), "verify", file, "--json", "--hosts", "2@192.168.77.1")
		end(t, all, exitInvalid)
		var report probe.Report
		if err := json.Unmarshal(all[0].stdout.Bytes(), &report); err != nil {
			t.Fatalf("stdout is not JSON: %v\n%s", err, &all[0].stderr)
		}
		if len(report.Hosts) != 2 || fmt.Sprint(report.Hosts[1].Nodes) != "[w1]" || len(report.Pairs) != 6 || report.Links != "user" {
			t.Fatalf("%+v, %d pairs over %s links", report.Hosts, len(report.Pairs), report.Links)
		}
		t.Logf("the clock is ahead by 1,000 s and %.1f µs, known to %.1f", report.Hosts[1].ClockOffset-1e9, report.Hosts[1].ClockBound)
		return func(m testenv.Machine) error {
			if h := report.Hosts[1]; math.Abs(h.ClockOffset-1e9) > h.ClockBound+0.01 || h.ClockBound > 1000 {
				return fmt.Errorf("%s is ahead by %.1f µs within %.1f, and really by 1,000 s", h.Name, h.ClockOffset, h.ClockBound)
			}
			for _, p := range report.Pairs {
				for of, q := range map[string]*probe.Property{"rtt": p.RTT, "one-way delay": p.OneWayDelay, "loss": p.Loss} {
					if !q.OK && !late(m, q) {
						return fmt.Errorf("%s→%s: %s %+v\n%s", p.From, p.To, of, q, &all[0].stderr)
					}
				}
				if q := p.Goodput; q.Measured < q.Planned/2 || q.Measured > q.Tolerance[1] { // a busy machine carries less
					return fmt.Errorf("%s→%s: goodput %+v", p.From, p.To, q)
				}
				if off := p.OneWayDelay.Measured - p.OneWayDelay.Planned; math.Abs(off) > 0.2 && !(off > 0 && off <= 0.2+1000*m.Late.Seconds()) {
					return fmt.Errorf("%s→%s takes %.3f ms one way, planned %g", p.From, p.To, p.OneWayDelay.Measured, p.OneWayDelay.Planned)
				}
			}
			return nil
		}
	})
}

// TestMeasuredResumeOverHosts: the leader of a run over three hosts is killed, and the run goes
// on over two, from what it left: it comes to the same bytes as a run that nobody
// disturbed, on one host.
func TestMeasuredResumeOverHosts(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	l := newLab(t, 3, 1500)
	file := roomy(t, scenario(t, 3, "20mbit", "  checkpoint_every: 1\n  parameters: 100000\n  all_reduce: {error_feedback: true}\n"))
	lengthen(t, file, 8)
	dir := filepath.Join(t.TempDir(), "run")
	all := l.lead(t, t.Name(), "run", file, "--policy", "baseline", "--out", dir, "--hosts", "3@192.168.77.1")
	waitFor(t, func() bool { return wholeBefore(dir, 3) > 0 })
	if err := all[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = all[0].Wait() // killed
	others := all[1:] // who find out for themselves
	l.hosts = l.hosts[:2]
	all = l.lead(t, t.Name(), "run", "--resume", dir, "--json", "--hosts", "2@192.168.77.1")
	end(t, all, exitInvalid)
	var sum record.Summary
	if err := json.Unmarshal(all[0].stdout.Bytes(), &sum); err != nil || !sum.Complete || len(sum.ResumedFrom) != 1 || !*sum.BitIdentical {
		t.Fatalf("complete %v, resumed from %v, %v\n%s", sum.Complete, sum.ResumedFrom, err, &all[0].stderr)
	}
	for _, p := range others {
		_ = p.Wait() // the exit code says it
		if code := p.ProcessState.ExitCode(); code != exitInvalid {
			t.Errorf("a host ended with exit code %d after the death of the leader\n%s", code, &p.stderr)
		}
	}
	whole := complete(t, file, "--policy", "baseline", "--links", "user")
	hashes := map[int]string{}
	for _, e := range readEvents(t, whole.Dir) {
		if e.Type == record.State {
			hashes[e.Round] = e.Hash
		}
	}
	last := 0
	for i, e := range readEvents(t, dir) {
		if e.Type == record.State && e.Hash != hashes[e.Round] {
			t.Errorf("event %d: outer step %d led to %s, and without a death to %s", i, e.Round, e.Hash, hashes[e.Round])
		}
		if e.Type == record.State {
			last = e.Round
		}
	}
	if last != 8 {
		t.Errorf("the last state is of outer step %d", last)
	}
	if r := testbed(t, "run", "--resume", dir, "--hosts", "2"); r.code != exitUsage {
		t.Errorf("resumed on hosts of no address: exit code %d, %s", r.code, r.stderr)
	}
}

// TestMeasuredNetOverHosts: a program reaches all nodes, wherever they are, and what it starts
// in one on another host is as if it were here: its files, its exit code, signals.
func TestMeasuredNetOverHosts(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	needTool(t, "ping")
	l := newLab(t, 2, 1500)
	before := look(t)
	const script = `echo $TESTBED_NODES $TESTBED_ADDR_W3
		testbed in w3 sh -c 'echo $TESTBED_NODE of $TESTBED_NODES; ls /sys/class/net; echo bad >&2; exit 6' </dev/null 2>err; echo $? $(cat err)
		testbed in w0 ping -q -c 3 -i 0.2 $TESTBED_ADDR_W3 | grep -o '3 received'
		testbed in w3 ping -q -c 3 -i 0.2 $TESTBED_ADDR_W1 </dev/null | grep -o '3 received'
		head -c 3000000 /dev/urandom >big; testbed in w2 cat <big | cmp - big; echo $?
		testbed in w3 sh -c 'kill -9 $$' </dev/null; echo $?
		testbed in w3 no-such-program </dev/null 2>err; echo $? $(grep -c no-such-program err)
		testbed in w3 sh -c 'trap "exit 9" TERM; echo up >&2; sleep 60 & wait' </dev/null >out 2>&1 & while ! grep -q up out; do sleep 0.05; done; kill -TERM $!; wait $!; echo $?
		testbed in w2 yes </dev/null | head -n 1; exit 5`
	const want = "coordinator w0 w1 w2 w3 10.0.0.5\nw3 of coordinator w0 w1 w2 w3\neth0\nlo\n6 bad\n3 received\n3 received\n0\n137\n127 1\n9\ny\n"
	all := l.lead(t, t.Name(), "net", "homogeneous", "--hosts", "2@192.168.77.1", "--", "sh", "-c", script)
	end(t, all, 5)
	if got := all[0].stdout.String(); got != want || !strings.Contains(all[0].stderr.String(), "testbed: the network was ") {
		t.Errorf("stdout %q, want %q; stderr %q", got, want, &all[0].stderr)
	}

	up := filepath.Join(t.TempDir(), "up")
	all = l.lead(t, t.Name(), "net", "homogeneous", "--hosts", "2@192.168.77.1", "--", "sh", "-c", "testbed in w3 sh -c 'echo up; sleep 60' >"+up)
	waitFor(t, func() bool {
		text, err := os.ReadFile(up)
		return err == nil && len(text) > 0
	})
	if err := all[1].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = all[0].Wait(), all[1].Wait() // the exit code says it
	if code, text := all[0].ProcessState.ExitCode(), all[0].stderr.String(); code != exitInvalid || !strings.Contains(text, "the host h1 has not responded") {
		t.Errorf("exit code %d after the death of a host, stderr %q", code, text)
	}
	expectNothing(t, t.Name(), before)
}

// TestMeasuredBenchRingOverHosts: ranks on hosts whose clocks are far apart begin at the same
// time, and end with the same bytes.
func TestMeasuredBenchRingOverHosts(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	l := newLab(t, 2, 1500)
	l.wrap = map[int][]string{1: ahead(1000)}
	testenv.Measure(t, func() func(testenv.Machine) error {
		all := l.lead(t, t.Name(), "bench", "ring", "--workers", "4", "--elements", "100000", "--repeat", "2", "--one-way-delay", "5ms", "--json", "--hosts", "2@192.168.77.1")
		for _, p := range all {
			_ = p.Wait() // the exit code says it
		}
		return func(testenv.Machine) error {
			code, text := all[0].ProcessState.ExitCode(), all[0].stderr.String()
			var r bench.Ring
			if err := json.Unmarshal(all[0].stdout.Bytes(), &r); err != nil || code != 0 || all[1].ProcessState.ExitCode() != 0 {
				return fmt.Errorf("exit codes %d and %d, %v\n%s\n%s", code, all[1].ProcessState.ExitCode(), err, text, &all[1].stderr)
			}
			if !r.BitIdentical || len(r.Seconds) != 2 || r.SecondsMedian < 0.02 || r.SecondsMedian > 500 || len(r.Links.Hosts) != 2 || fmt.Sprint(r.Links.Hosts[1].Nodes) != "[w2 w3]" {
				return fmt.Errorf("bit-identical %v, %v s, over %+v", r.BitIdentical, r.Seconds, r.Links.Hosts)
			}
			return nil
		}
	})
	if r := testbed(t, "bench", "ring", "--against", "iperf3", "--hosts", "slurm:2@10.0.0.1"); r.code != exitUsage || !strings.Contains(r.stderr, "--against works on one host only") {
		t.Errorf("exit code %d, %q", r.code, r.stderr)
	}
}
