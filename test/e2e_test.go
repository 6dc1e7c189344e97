//go:build linux

package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"testbed/emulation/sandbox"
	"testbed/experiment/sweep"
	"testbed/internal/rapidtest"
	"testbed/internal/testenv"
	"testbed/internal/testprogram"
	"testbed/record"
	"testbed/report"
	"testbed/train/program/wire"
)

// program is the file of the command under test.
var program string

// TestMain builds the command, once for all tests.
func TestMain(m *testing.M) {
	if os.Getenv(wire.EnvSocket) != "" { // it is a trainer of a test
		testprogram.Main()
	}
	os.Setenv("PATH", "/usr/bin:/bin:"+os.Getenv("PATH")) // the system's Python comes first
	flag.Parse()
	parallel := "10" // runs wait more than they compute
	if testenv.AskedToMeasure() {
		parallel = "4"
	}
	_ = flag.Set("test.parallel", parallel)
	dir, err := os.MkdirTemp("", "testbed")
	if err == nil {
		err = os.Chmod(dir, 0o755) // for tests that are an ordinary user
	}
	program = filepath.Join(dir, "testbed")
	if err == nil {
		err = build(program)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build compiles the command, with further arguments of go build.
func build(file string, args ...string) error {
	out, err := exec.Command("go", slices.Concat([]string{"build", "-o", file}, args, []string{"testbed/cmd/testbed"})...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the command: %w\n%s", err, out)
	}
	return nil
}

// Exit codes, as the reference of the command line promises them.
const (
	exitError       = 1
	exitUsage       = 2
	exitInvalid     = 3
	exitUnsupported = 4
)

// mark is in the environment of every process of a command under test.
const mark = "TESTBED_UNDER_TEST"

// needSandbox skips where the machine allows no sandbox.
func needSandbox(t *testing.T) {
	t.Helper()
	testenv.Need(t, sandbox.Check())
}

// result is what came of the command.
type result struct {
	code           int
	stdout, stderr string
}

var watch sync.Once

// watchSources has the go command run a test again if the command has changed.
func watchSources(t *testing.T) {
	t.Helper()
	watch.Do(func() { testenv.WatchSources(t, "..") })
}

// command prepares the command with the arguments, in a directory of its own.
func command(t *testing.T, ctx context.Context, id string, args ...string) *exec.Cmd {
	t.Helper()
	watchSources(t)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), mark+"="+id, "TMPDIR="+temporary(t))
	cmd.Dir = t.TempDir()
	return cmd
}

// temporary is the folder for temporary files of all commands of a test.
func temporary(t *testing.T) string { return filepath.Dir(t.TempDir()) }

// testbed runs the command to its end.
func testbed(t *testing.T, args ...string) result {
	t.Helper()
	return call(t, nil, append([]string{program}, args...)...)
}

// call runs a build of the command to its end, with further variables of the
// environment.
func call(t *testing.T, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	cmd := command(t, ctx, t.Name(), args[1:]...)
	cmd.Path, cmd.Env = args[0], append(cmd.Env, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("testbed %s: %v", strings.Join(args, " "), err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// once runs a scenario for real, and returns what came of it. Workers who took an
// outer step have the same bytes after it, also if the run was cut short.
func once(t *testing.T, args ...string) (sum record.Summary, r result) {
	t.Helper()
	r = testbed(t, append([]string{"run", "--json", "--out", filepath.Join(t.TempDir(), "run")}, args...)...)
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil {
		t.Fatalf("exit code %d, stdout is not JSON: %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	if r.code != 0 && !(r.code == exitInvalid && (sum.Fidelity.Verdict == "invalid" || !sum.Complete)) {
		t.Fatalf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	if same := sum.BitIdentical; same != nil && !*same || same == nil && sum.Complete {
		t.Fatalf("complete %v, and not shown to be bit-identical\n%s\n%s", sum.Complete, r.stdout, r.stderr)
	}
	_, err := os.Stat(filepath.Join(sum.Dir, record.QlogDir))
	if slices.Contains(args, "--qlog") != (err == nil) {
		t.Errorf("qlog files under %v: %v", args, err)
	}
	return sum, r
}

// complete plays a run that has to come to its end, and returns what came of it. It is
// for runs in which no clock decides anything: the patience of heartbeats and
// deadlines is seconds beyond what a busy machine may be late.
func complete(t *testing.T, args ...string) record.Summary {
	t.Helper()
	sum, r := once(t, args...)
	if !sum.Complete {
		t.Fatalf("incomplete\n%s\n%s", r.stdout, r.stderr)
	}
	return sum
}

// play plays a run that is measured: wrong says what is not as it should be. It
// returns the last one, which was complete and not wrong.
func play(t *testing.T, wrong func(record.Summary) error, args ...string) (sum record.Summary) {
	t.Helper()
	testenv.Measure(t, func() func(testenv.Machine) error {
		var r result
		sum, r = once(t, args...)
		return func(testenv.Machine) error {
			if !sum.Complete {
				return fmt.Errorf("incomplete\n%s\n%s", r.stdout, r.stderr)
			}
			return wrong(sum)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return sum
}

// evicts is wrong unless the run evicts these.
func evicts(want string) func(record.Summary) error {
	return func(sum record.Summary) error {
		if who(sum.Evicted) != want {
			return fmt.Errorf("evicted %q, want %q", who(sum.Evicted), want)
		}
		return nil
	}
}

func who(members []record.Membership) string {
	var parts []string
	for _, m := range members {
		parts = append(parts, fmt.Sprintf("%d:w%d%s", m.Round, m.ID, m.Reason))
	}
	return strings.Join(parts, " ")
}

// TestMeasuredHeadline is the main job: the gain, the decisions, and the report.
func TestMeasuredHeadline(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	var c headline
	testenv.Measure(t, func() func(testenv.Machine) error {
		r := testbed(t, "compare", "persistent_straggler", "--json")
		c = headline{}
		if err := json.Unmarshal([]byte(r.stdout), &c); err != nil {
			t.Fatalf("exit code %d, stdout is not JSON: %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
		}
		for name, real := range c.Real {
			if same := real.BitIdentical; same != nil && !*same || same == nil && real.Complete {
				t.Errorf("%s is not bit-identical\n%s", name, r.stderr)
			}
		}
		return c.wrong
	})
	if !t.Failed() {
		reportOf(t, c)
	}
}

// headline is the result of a comparison under both policies.
type headline struct {
	Sim, Real map[string]record.Summary
	Speedup   struct{ Sim, Real float64 }
	Dir       string
}

// wrong holds the measured runs against the simulated ones. On a busy machine, in runs
// that call themselves disturbed, healthy workers may be late, too.
func (c headline) wrong(m testenv.Machine) error {
	if c.Speedup.Real < 3.5*(1-m.Taken) {
		return fmt.Errorf("measured speed-up %.2f, want at least 3.5", c.Speedup.Real)
	}
	for _, name := range []string{"baseline", "straggler"} {
		sim, real := c.Sim[name], c.Real[name]
		if !real.Complete {
			return fmt.Errorf("%s: the run ended early, after %d outer steps, with the reasons %q", name, real.OuterSteps, real.Fidelity.Reasons)
		}
		if m != (testenv.Machine{}) && real.Fidelity.Verdict != "valid" {
			if evicted := slices.ContainsFunc(real.Evicted, slow); evicted != (name == "straggler") {
				return fmt.Errorf("%s: evicted %q", name, who(real.Evicted))
			}
			continue
		}
		if who(sim.Sidelined) != who(real.Sidelined) || who(sim.Evicted) != who(real.Evicted) {
			return fmt.Errorf("%s: simulated sidelined %q evicted %q, measured sidelined %q evicted %q", name,
				who(sim.Sidelined), who(sim.Evicted), who(real.Sidelined), who(real.Evicted))
		}
		for _, m := range real.Sidelined {
			if !slow(m) {
				return fmt.Errorf("%s: healthy worker %d was sidelined in round %d", name, m.ID, m.Round)
			}
		}
	}
	return nil
}

// slow is the slow worker of the headline.
func slow(m record.Membership) bool { return m.ID == 3 }

// reportOf has a comparison shown, and one of its runs traced.
func reportOf(t *testing.T, c headline) {
	t.Helper()
	dir := c.Dir
	r := testbed(t, "report", dir)
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || r.code != 0 || strings.TrimSpace(r.stdout) != filepath.Join(dir, "report.html") {
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	texts := []string{`"kind":"all-gather"`, "testbed compare persistent_straggler"}
	if c.wrong(testenv.Machine{}) == nil {
		texts = append(texts, "<strong>straggler left w3 out</strong>", "w2 → w0")
	}
	for _, text := range texts {
		if !bytes.Contains(page, []byte(text)) {
			t.Errorf("the report does not say %q", text)
		}
	}
	trace, drawn := filepath.Join(t.TempDir(), "trace.json"), filepath.Join(t.TempDir(), "run.svg")
	r = testbed(t, "report", filepath.Join(dir, "real-straggler"), "--trace", trace, "--picture", drawn, "--out", filepath.Join(t.TempDir(), "one.html"))
	if picture, err := os.ReadFile(drawn); err != nil || !bytes.Contains(picture, []byte("straggler, measured")) {
		t.Errorf("%v\n%.500s", err, picture)
	}
	text, err := os.ReadFile(trace)
	if err != nil || r.code != 0 || !json.Valid(text) || !bytes.Contains(text, []byte("reduce-scatter")) || !bytes.Contains(text, []byte("waiting for rate_up")) {
		t.Errorf("exit code %d, %v\n%s\n%s\n%.500s", r.code, err, r.stdout, r.stderr, text)
	}
}

func TestReportRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "name the directory of a run or a comparison"},
		{[]string{"nowhere"}, exitError, "nowhere: there is no such directory"},
		{[]string{os.Args[0], "--picture", "x.svg"}, exitUsage, "--picture draws runs only"},
	} {
		if r := testbed(t, append([]string{"report"}, c.args...)...); r.code != c.code || !strings.Contains(r.stderr, c.want) || !r.noResult() {
			t.Errorf("report %v: exit code %d, stdout %q, stderr %q", c.args, r.code, r.stdout, r.stderr)
		}
	}
}

// borne is the heartbeat_miss_threshold of a scenario with these sections: 15 s where
// nobody is lost, and otherwise so short that losses are soon noticed (see unhurried).
func borne(extra string) int {
	for _, op := range []string{"Crash", "Partition", "Refuse", "Pause", "Restart"} {
		if strings.Contains(extra, op) {
			return 5
		}
	}
	return 50
}

// scenario writes a scenario of n workers and returns its file.
func scenario(t *testing.T, n int, rate string, extra string) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "seed: 7\ninner_steps: 2\ntarget_outer_steps: 3\nhorizon: 5000000\nheartbeat_period: 1000\nheartbeat_miss_threshold: %d\n", borne(extra))
	b.WriteString("base_latency: 100\nbandwidth_bpus: 10\nstate_bytes: 100\nworkers:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {id: %d, inner_step_mean: 1000}\n", i)
	}
	fmt.Fprintf(&b, "real:\n  time_scale: 300\n  links: {default: {rate_up: %s, rate_down: %s, one_way_delay: 5ms}}\n%s", rate, rate, extra)
	file := filepath.Join(t.TempDir(), "made.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// unhurried is a scenario, a file or one of the library, that notices losses so late
// that no busy machine loses anybody.
func unhurried(t *testing.T, scenario string) (file string) {
	t.Helper()
	if !strings.HasSuffix(scenario, ".yaml") {
		scenario = "../scenarios/library/" + scenario + ".yaml"
	}
	text, err := os.ReadFile(scenario)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), filepath.Base(scenario))
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	amend(t, file, "heartbeat_miss_threshold: 5\n", "heartbeat_miss_threshold: 20\n")
	return file
}

// lengthen has the run of such a scenario take so many outer steps.
func lengthen(t *testing.T, file string, steps int) {
	t.Helper()
	amend(t, file, "target_outer_steps: 3", fmt.Sprintf("target_outer_steps: %d", steps))
}

// roomy gives such a scenario paths so long that the network of a lab has room in
// them, however late the machine is.
func roomy(t *testing.T, file string) string {
	t.Helper()
	amend(t, file, "one_way_delay: 5ms", "one_way_delay: 50ms")
	return file
}

// amend has a file say something else in one place.
func amend(t *testing.T, file, was, is string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil && bytes.Count(text, []byte(was)) != 1 {
		err = fmt.Errorf("%s does not say once %q", file, was)
	}
	if err == nil {
		err = os.WriteFile(file, bytes.Replace(text, []byte(was), []byte(is), 1), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRunSizes: all take part in every round, since no deadline comes before them.
func TestRunSizes(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	for _, c := range []struct {
		workers int
		rate    string
	}{{2, "100mbit"}, {16, "20mbit"}} {
		t.Run(fmt.Sprint(c.workers), func(t *testing.T) {
			t.Parallel()
			if err := together(c.workers)(complete(t, scenario(t, c.workers, c.rate, "  min_slack: 20s\n"), "--policy", "straggler")); err != nil {
				t.Error(err)
			}
		})
	}
}

// together is wrong unless all workers take part in every round.
func together(workers int) func(record.Summary) error {
	return func(sum record.Summary) error {
		for _, r := range sum.Rounds {
			if len(r.Participants) != workers {
				return fmt.Errorf("round %d had participants %v of %d workers", r.Round, r.Participants, workers)
			}
		}
		return nil
	}
}

func TestRunMembership(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	for _, c := range []struct {
		scenario, evicted string
		stalled           bool
	}{
		{scenario: "crash_mid_round", evicted: "w2"}, // by what, is a matter of time
		{scenario: "graceful_leave", evicted: "w2leave"},
		{scenario: "late_join", stalled: true},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			t.Parallel()
			sum := complete(t, unhurried(t, c.scenario), "--policy", "baseline")
			// The round depends on how long communication took before.
			_, evicted, _ := strings.Cut(who(sum.Evicted), ":")
			if len(sum.Sidelined) > 0 || !strings.HasPrefix(evicted, c.evicted) || (evicted == "") != (c.evicted == "") || strings.Contains(evicted, " ") {
				t.Errorf("sidelined %q, evicted %q, want evicted %q", who(sum.Sidelined), who(sum.Evicted), c.evicted)
			}
			if c.stalled != (sum.JoinerStall > 0) {
				t.Errorf("joiner stall %d µs", sum.JoinerStall)
			}
		})
	}
}

// rings are the orders of a run's reductions, of four workers.
func rings(t *testing.T, sum record.Summary) (all []*record.Ring, err error) {
	t.Helper()
	for _, e := range readEvents(t, sum.Dir) {
		if e.Type == record.ReduceStart {
			if e.Ring == nil || len(e.Ring.Order) != 4 {
				return nil, fmt.Errorf("the ring of round %d is %+v", e.Round, e.Ring)
			}
			all = append(all, e.Ring)
		}
	}
	if len(all) < 3 {
		return nil, fmt.Errorf("%d reductions began", len(all))
	}
	return all, nil
}

// TestMeasuredRingOrderedByRates: the way from each worker to the next has a twentieth of
// the rate. The ring goes round it, as rates were measured before the run, and is
// faster than one that does not can be. With rates that were given the same.
func TestMeasuredRingOrderedByRates(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	const slow = 5.0 // Mbit/s
	for _, order := range []string{"measured_rates", "given_rates, rates: " +
		"[[unlimited, 5mbit, 1gbit, 1gbit], [1gbit, unlimited, 5mbit, 1gbit], [1gbit, 1gbit, unlimited, 5mbit], [5mbit, 1gbit, 1gbit, unlimited]]"} {
		name, _, given := strings.Cut(order, ",")
		t.Run(name, func(t *testing.T) {
			file := scenario(t, 4, "100mbit", "  all_reduce: {entropy: 'off', order: "+order+"}\n")
			text, err := os.ReadFile(file)
			if err == nil {
				pairs := "5ms}, pairs: [{from: w0, to: w1, rate: 5mbit}, {from: w1, to: w2, rate: 5mbit}, {from: w2, to: w3, rate: 5mbit}, {from: w3, to: w0, rate: 5mbit}]}"
				err = os.WriteFile(file, []byte(strings.Replace(string(text), "5ms}}", pairs, 1)), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			play(t, func(sum record.Summary) error {
				all, err := rings(t, sum)
				if err != nil {
					return err
				}
				for _, r := range all {
					for k, id := range r.Order {
						if r.Order[(k+1)%4] == (id+1)%4 {
							return fmt.Errorf("the ring %v goes a slow way", r.Order)
						}
					}
					// Where the machine is short of time, measured rates are lower.
					if r.NaiveRateMbit > 1.02*slow || r.RateMbit < 2*r.NaiveRateMbit || given && (r.RateMbit != 1000 || r.NaiveRateMbit != slow) {
						return fmt.Errorf("the slowest hop has %v Mbit/s, in naive order %v", r.RateMbit, r.NaiveRateMbit)
					}
				}
				// 2(N-1)/N bytes of each of a million values go the slow way.
				const least = 1.5 * 8 / slow * 1e6 / 300 // µs of scenario time
				for _, r := range sum.Rounds {
					if float64(r.Reduce) >= least {
						return fmt.Errorf("a reduction took %d µs, as long as over a slow way", r.Reduce)
					}
				}
				return nil
			}, file, "--policy", "baseline")
		})
	}
}

// TestMeasuredRingAcrossRegions: the ring goes by the delays that were measured, and the
// hierarchical algorithm by the groups of the links.
func TestMeasuredRingAcrossRegions(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	for _, reduce := range []string{"order: measured", "algorithm: hierarchical"} {
		t.Run(reduce, func(t *testing.T) {
			file := scenario(t, 4, "100mbit", "  all_reduce: {"+reduce+"}\n")
			text, err := os.ReadFile(file)
			if err == nil {
				regions := "5ms}, groups: {a: {nodes: [w0, w2]}, b: {nodes: [w1, w3]}}, paths: [{between: [a, b], one_way_delay: 40ms}]}"
				err = os.WriteFile(file, []byte(strings.Replace(string(text), "5ms}}", regions, 1)), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			play(t, func(sum record.Summary) error {
				if reduce != "order: measured" {
					return nil
				}
				all, err := rings(t, sum)
				if err != nil {
					return err
				}
				for _, r := range all {
					// Three of six hops in a row cross between the regions, or all.
					if (r.Order[0]^r.Order[1])&1 == (r.Order[1]^r.Order[2])&1 {
						return fmt.Errorf("the ring is %+v", r)
					}
					if gain := float64(r.NaiveLatency) / float64(r.Latency); gain < 1.5 || gain > 1.9 {
						return fmt.Errorf("latency %d µs, in naive order %d µs", r.Latency, r.NaiveLatency)
					}
				}
				return nil
			}, file, "--policy", "baseline")
		})
	}
}

// TestMeasuredCrashDuringReduction kills a worker while it reduces: the others abort
// and reduce again without it.
func TestMeasuredCrashDuringReduction(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	// The first round's reduction lasts from about 2,100 to 2,700 µs.
	crash := "injects:\n  - {op: Crash, id: 2, at: 2350}\n"
	three := func(evicted string) func(record.Summary) error {
		return func(sum record.Summary) error {
			if first := sum.Rounds[0]; len(first.Participants) != 3 || len(sum.Detected) != 1 || sum.Detected[0].After == nil {
				return fmt.Errorf("the first round ended with %v, detected %+v", first.Participants, sum.Detected)
			}
			return evicts(evicted)(sum)
		}
	}
	sum := play(t, three("1:w2heartbeat"), scenario(t, 4, "100mbit", crash), "--policy", "baseline")
	// Nobody listens there any more.
	heed := play(t, three("1:w2connection"), scenario(t, 4, "100mbit", "  heed_unreachable: true\n"+crash), "--policy", "baseline")
	if slow, fast := *sum.Detected[0].After, *heed.Detected[0].After; 2*fast > slow {
		t.Errorf("the crash was noticed after %v µs by heartbeat, and after %v by the network's word", slow, fast)
	}
}

// TestMeasuredPartitionHeals cuts a worker off for less than the heartbeats tolerate:
// the baseline waits for it, the straggler policy goes on and takes it back.
func TestMeasuredPartitionHeals(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	play(t, func(sum record.Summary) error {
		return errors.Join(evicts("")(sum), together(4)(sum))
	}, "partition_heal", "--policy", "baseline")
	// Fewer values than in the library, and a later cut: the first round is over
	// long before it, on a slow machine too.
	file := filepath.Join(t.TempDir(), "partition_heal.yaml")
	text, err := os.ReadFile("../scenarios/library/partition_heal.yaml")
	if err == nil {
		later := strings.NewReplacer("at: 3000", "at: 3600", "parameters: 1000000", "parameters: 100000")
		err = os.WriteFile(file, []byte(later.Replace(string(text))), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	testenv.Measure(t, func() func(testenv.Machine) error {
		sum, _ := once(t, file, "--policy", "straggler")
		cut := func(m record.Membership) bool { return m.ID == 1 }
		// w1 is cut off from 3,600 to 6,000 µs. A slow machine may have nobody wait
		// for it just then.
		waited := slices.ContainsFunc(readEvents(t, sum.Dir), func(e record.Event) bool {
			return e.Type == record.Arrive && e.Node != "w1" && e.T > 3600 && e.T < 5000
		})
		return func(testenv.Machine) error {
			switch {
			case !sum.Complete:
				return errors.New("incomplete")
			case len(sum.Evicted) > 0 || !slices.ContainsFunc(sum.Sidelined, cut) || !slices.ContainsFunc(sum.Rejoined, cut):
				return fmt.Errorf("straggler: sidelined %q, rejoined %q, evicted %q, want w1 sidelined, rejoined and not evicted; somebody waited for it: %v",
					who(sum.Sidelined), who(sum.Rejoined), who(sum.Evicted), waited)
			// A machine that is too busy for the run makes others late as well, and
			// the verdict says so.
			case sum.Fidelity.Verdict == "valid" && !cut(sum.Sidelined[0]):
				return fmt.Errorf("straggler: sidelined %q, and the run is valid", who(sum.Sidelined))
			}
			return nil
		}
	})
}

// TestMeasuredLinkInjects slows an access link down during one reduction and cuts a
// path, one way, during another: both take longer, and are done all the same.
func TestMeasuredLinkInjects(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	file := scenario(t, 3, "100mbit", `  injects:
    - {op: Link, at: 1800, until: 4000, id: 1, rate_up: 10mbit}
    - {op: Cut, at: 6000, until: 9000, from: w0, to: w1}
`)
	sum := play(t, func(sum record.Summary) error {
		// Reduced to a tenth of the rate, 2/3 of a megabyte takes 1.07 s, 3,560 µs;
		// the last round has the links as they are.
		if first, last := sum.Rounds[0].Reduce, sum.Rounds[2].Reduce; first < 2*last {
			return fmt.Errorf("the reduction over the slow link took %d µs, that over a good one %d", first, last)
		}
		return nil
	}, file, "--policy", "baseline")
	events, err := os.ReadFile(filepath.Join(sum.Dir, record.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"type":"link","node":"w1"`, `"type":"link_restored","node":"w1"`, `"from":"w0","to":"w1"`} {
		if !bytes.Contains(events, []byte(want)) {
			t.Errorf("the record has no %s", want)
		}
	}
}

// TestMeasuredRunWithATrace keeps the trace in the record, from which the run can be
// done again.
func TestMeasuredRunWithATrace(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	file := scenario(t, 2, "100mbit", `  injects:
    - {op: LinkTrace, at: 0, id: 1, direction: up, file: traces/steady.trace}
    - {op: Flap, at: 20000, between: [w0, coordinator], period: 1000, down: 100}
`)
	// One packet each 2 ms: 6.06 Mbit/s.
	trace := filepath.Join(filepath.Dir(file), "traces", "steady.trace")
	if err := errors.Join(os.Mkdir(filepath.Dir(trace), 0o755), os.WriteFile(trace, []byte("2\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	r := testbed(t, "plan", file)
	for _, want := range []string{"LinkTrace w1 up", "traces/steady.trace: repeats every 100ms, 6.06 Mbit/s on average", "Flap w0–coordinator", "down for 30ms of every 300ms"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("the plan has no %q:\n%s%s", want, r.stdout, r.stderr)
		}
	}
	sum := play(t, func(sum record.Summary) error {
		// Each of the two sends a megabyte: 1.39 s at that rate, or 4,600 µs.
		for _, round := range sum.Rounds {
			if round.Reduce < 4200 || round.Reduce > 7000 {
				return fmt.Errorf("the reduction of round %d took %d µs, want 4,600", round.Round, round.Reduce)
			}
		}
		return nil
	}, file, "--policy", "baseline")
	if r := testbed(t, "simulate", filepath.Join(sum.Dir, "scenario.yaml"), "--policy", "baseline"); r.code != 0 || !strings.Contains(r.stdout, "churn's network has no links, so the simulator leaves out: LinkTrace w1 up, Flap w0–coordinator") {
		t.Errorf("the record's scenario: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// TestRefusedWorkerIsOut: its connection ends at once, by plan, so that the run
// is none the worse for it.
func TestRefusedWorkerIsOut(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	sum := complete(t, unhurried(t, scenario(t, 3, "100mbit", "  injects:\n    - {op: Refuse, at: 1500, until: 4000, id: 2}\n")), "--policy", "baseline")
	if err := evicts("1:w2heartbeat")(sum); err != nil {
		t.Error(err)
	}
	for _, reason := range sum.Fidelity.Reasons {
		if strings.Contains(reason, "unexpectedly") {
			t.Errorf("the plan counts as a failure: %s", reason)
		}
	}
}

// TestPartitionBeyondTheHeartbeats evicts who stays away.
func TestPartitionBeyondTheHeartbeats(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	file := scenario(t, 3, "100mbit", "injects:\n  - {op: Partition, ids: [2], at: 1500}\n")
	if err := evicts("1:w2heartbeat")(complete(t, unhurried(t, file), "--policy", "baseline")); err != nil {
		t.Error(err)
	}
}

// TestMeasuredPauseResume stops a worker for a while, which is left out of a round and
// comes back, and another for longer than the heartbeat time-out.
func TestMeasuredPauseResume(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	play(t, func(sum record.Summary) error {
		w1 := func(m record.Membership) bool { return m.ID == 1 }
		back := slices.ContainsFunc(sum.Rejoined, w1)
		// Where workers arrive far apart the policy waits so long that it comes in time.
		inTime := sum.Fidelity.Verdict != "valid" && !slices.ContainsFunc(sum.Sidelined, w1)
		if _, evicted, _ := strings.Cut(who(sum.Evicted), ":"); evicted != "w2heartbeat" || !back && !inTime {
			return fmt.Errorf("sidelined %q, rejoined %q, evicted %q, want w1 back and w2 evicted", who(sum.Sidelined), who(sum.Rejoined), who(sum.Evicted))
		}
		if d := sum.Detected; len(d) != 1 || d[0].After == nil {
			return fmt.Errorf("detected %+v, want one, and how long after its pause", d)
		}
		return nil
		// The pause of w1 has to come after the first reduction, which with the
		// scenario's own scale ends 0.2 s before it on a machine that does nothing else.
		// With the scenario's own times, w1 finishes its steps just when the third round
		// closes, on which depends whether the run lasts until w2 is missed.
	}, "pause_resume", "--policy", "straggler", "--time-scale", "600", "--set", "injects[1].at=6300", "--set", "injects[2].at=7000")
}

// TestMeasuredTransientSlow sidelines a worker while it is slow and takes it back when
// it is not: that has to be possible with a fetch of the outer state between.
func TestMeasuredTransientSlow(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	sum := play(t, func(sum record.Summary) error {
		if len(sum.Evicted) > 0 || len(sum.Sidelined) == 0 || sum.Sidelined[0].ID != 3 || len(sum.Rejoined) == 0 || sum.Rejoined[0].ID != 3 {
			return fmt.Errorf("sidelined %q, rejoined %q, evicted %q, want w3 sidelined, rejoined and not evicted",
				who(sum.Sidelined), who(sum.Rejoined), who(sum.Evicted))
		}
		return nil
	}, "transient_slow", "--policy", "straggler")
	r := testbed(t, "simulate", "--replay", sum.Dir, "--policy", "straggler", "--json")
	var replay report.Replay
	if err := json.Unmarshal([]byte(r.stdout), &replay); err != nil || !replay.Same || replay.Replayed.OuterSteps != sum.OuterSteps {
		t.Errorf("its replay under the same policy: %v\n%s\n%s", err, r.stdout, r.stderr)
	}
}

// outside is what a run must leave as it was.
type outside struct {
	mounts     []string // but those of other programs, below the folder for temporary files
	interfaces []string
	temporary  []string
	namespaces string
}

func look(t *testing.T) outside {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var o outside
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[1]; !strings.HasPrefix(at, os.TempDir()+"/") || strings.HasPrefix(at, temporary(t)+"/") {
			o.mounts = append(o.mounts, line)
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		o.interfaces = append(o.interfaces, l.Name)
	}
	if o.temporary, err = filepath.Glob(filepath.Join(temporary(t), "testbed*")); err != nil {
		t.Fatal(err)
	}
	named, _ := filepath.Glob("/run/netns/*") // the pattern is right
	o.namespaces = strings.Join(named, " ")
	return o
}

// marked returns the processes that carry the mark of a command under test.
func marked(id string) []string {
	var found []string
	for _, f := range filesOf("environ") {
		env, err := os.ReadFile(f)
		if err == nil && slices.Contains(strings.Split(string(env), "\x00"), mark+"="+id) {
			found = append(found, f)
		}
	}
	return found
}

// expectNothing waits until no process of the command is left and compares the
// machine with how it was.
func expectNothing(t *testing.T, id string, before outside) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for left := marked(id); len(left) > 0; left = marked(id) {
		if time.Now().After(deadline) {
			t.Fatalf("processes left behind: %v", left)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if after := look(t); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("left behind:\nbefore %+v\nafter  %+v", before, after)
	}
}

// TestKilledRunLeavesNothing kills the command at many moments, from the
// first instructions to the rounds. That the kernel then frees the namespaces
// and links themselves is shown by the sandbox's own tests.
func TestKilledRunLeavesNothing(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	random := rand.New(rand.NewPCG(rapidtest.Seed(), 0))
	for i := range 2 {
		var all sync.WaitGroup
		ids := make([]string, 6)
		for k := range ids {
			ids[k] = fmt.Sprintf("%s-%d-%d", t.Name(), i, k)
			cmd := command(t, t.Context(), ids[k], "run", "persistent_straggler", "--policy", "straggler", "--out", filepath.Join(t.TempDir(), "run"))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			moment := time.Duration(random.Int64N(int64(4 * time.Second)))
			all.Go(func() {
				time.Sleep(moment)
				if err := cmd.Process.Kill(); err != nil {
					t.Error(err)
				}
				_ = cmd.Wait() // killed
			})
		}
		all.Wait()
		for _, id := range ids {
			expectNothing(t, id, before)
		}
	}
}

// TestInterruptKeepsRecord: a run ends when it is told to, and its record is whole.
func TestInterruptKeepsRecord(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP} { // a terminal that is closed hangs up
		interrupt(t, filepath.Join(t.TempDir(), "run"), signal)
	}
	expectNothing(t, t.Name(), before)
}

// TestMeasuredInterrupt: it ends soon.
func TestMeasuredInterrupt(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	before := look(t)
	testenv.Measure(t, func() func(testenv.Machine) error {
		took := interrupt(t, filepath.Join(t.TempDir(), "run"), syscall.SIGINT)
		expectNothing(t, t.Name(), before)
		return func(m testenv.Machine) error {
			if most := 2 * time.Second; took > time.Duration(float64(most)/max(1-m.Taken, 0.1))+m.Late {
				return fmt.Errorf("ended %v after the interrupt, want at most %v", took, most)
			}
			return nil
		}
	})
}

// interrupt interrupts a run after its first outer step, and returns how long it
// took to end.
func interrupt(t *testing.T, dir string, signal syscall.Signal) (took time.Duration) {
	t.Helper()
	cmd := command(t, t.Context(), t.Name(), "run", "persistent_straggler", "--policy", "baseline", "--out", dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(stderr.String())
		}
	})
	waitFor(t, func() bool {
		events, _ := os.ReadFile(filepath.Join(dir, record.EventsFile))
		return bytes.Contains(events, []byte(`"type":"outer_step"`))
	})
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	interrupted := time.Now()
	_ = cmd.Wait() // an exit code, looked at below
	took = time.Since(interrupted)
	if code := cmd.ProcessState.ExitCode(); code != exitError {
		t.Errorf("exit code %d, want %d\n%s", code, exitError, stderr.String())
	}
	var sum record.Summary
	data, err := os.ReadFile(filepath.Join(dir, record.SummaryFile))
	if err == nil {
		err = json.Unmarshal(data, &sum)
	}
	if err != nil || sum.Complete || sum.OuterSteps < 1 || sum.Fidelity.Verdict != "invalid" {
		t.Errorf("partial summary: %v\n%s", err, data)
	}
	return took
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited a minute in vain")
		}
	}
}

// TestWorkerDiesDuringStartUp takes a worker's life before the run has begun.
func TestWorkerDiesDuringStartUp(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	// 2³⁰ parameters need vectors of 4 GiB: under a limit on its address space the
	// worker's start-up fails at the first of them.
	file := scenario(t, 1, "100mbit", "  parameters: 1073741824\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `ulimit -v 4000000; exec "$0" "$@"`, program, "run", file, "--policy", "baseline", "--out", filepath.Join(t.TempDir(), "run"))
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != exitError {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := "ended during start-up"; !strings.Contains(string(out), want) {
		t.Errorf("output has no %q:\n%s", want, out)
	}
	expectNothing(t, t.Name(), before)
}

// TestIncompleteSimulation: a simulation that does not come to its end has the exit code
// of a run that does not, and prints its result all the same.
func TestIncompleteSimulation(t *testing.T) {
	r := testbed(t, "simulate", "torchft_t06", "--policy", "baseline", "--json")
	var sum record.Summary
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || r.code != exitInvalid || sum.Complete || !strings.Contains(r.stderr, "the run ended early, after 10 outer steps") {
		t.Errorf("%v, exit code %d, complete %v: %s", err, r.code, sum.Complete, r.stderr)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("seed: 1\nworkerz: []\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		code   int
		stderr string
	}{
		{"list", 0, ""},
		{"plan persistent_straggler", 0, ""},
		{"plan persistent_straggler --json", 0, ""},
		{"simulate persistent_straggler --policy straggler", 0, ""},
		{"frobnicate", exitUsage, "unknown command"},
		{"simulate", exitUsage, "name one scenario"},
		{"simulate persistent_straggler", exitUsage, "--policy"},
		{"simulate persistent_straggler --policy nice", exitUsage, "is not a policy"},
		{"simulate no_such --policy baseline", exitUsage, "nor such a scenario"},
		{"simulate " + bad + " --policy baseline", exitUsage, "bad.yaml:2: workerz: unknown field; did you mean workers?"},
		{"simulate --policy baseline --replay /nowhere", exitUsage, "there is no scenario.yaml"},
		{"simulate --policy baseline --replay /nowhere --set inner_steps=3", exitUsage, "the record fixes all others"},
		{"simulate late_join --policy baseline --replay /nowhere", exitUsage, "remove the scenario argument"},
		{"simulate late_join --policy baseline --set inner_steps", exitUsage, "has no value"},
		{"sweep late_join --set inner_stepz=1", exitUsage, "did you mean inner_steps?"},
		{"sweep late_join --set inner_steps=1,0", exitUsage, "late_join with inner_steps=0: inner_steps is 0"},
		{"sweep late_join --set seed=1", exitUsage, "give the seeds with --seeds"},
		{"sweep late_join --seeds 3..1", exitUsage, "not a range"},
		{"sweep late_join --repeat 2", exitUsage, "--real"},
		{"sweep late_join --resume", exitUsage, "--out"},
		{"sweep late_join --policy nice", exitUsage, "is not a policy"},
		{"run persistent_straggler --policy baseline --links carrier-pigeon", exitUsage, "auto, netem, user or htb"},
		{"run persistent_straggler --policy baseline --time-scale -1", exitUsage, "--time-scale"},
		{"run persistent_straggler --policy baseline --dilation 0.5", exitUsage, "real.dilation is 0.5: it must lie in [1, 1000]"},
		{"run charlm_regions --policy torchft", exitUsage, "choose another policy, or remove train.regions"},
		{"run late_join --policy baseline --hosts kubernetes", exitUsage, "testbed manifests"},
		{"manifests run late_join --policy baseline", exitUsage, "--image"},
		{"manifests --image x", exitUsage, "for example: testbed manifests"},
		{"manifests --image x run --policy baseline late_join", exitUsage, "name a command and its scenario"},
		{"manifests --image x run late_join", exitUsage, "name the policy"},
		{"manifests --image x run late_join --polizy baseline", exitUsage, "testbed run: unknown flag: --polizy"},
		{"manifests --image x run late_join --policy baseline --hosts 3", exitUsage, "must come before the command"},
		{"manifests --image x run no_such --policy baseline", exitUsage, "nor such a scenario"},
		{"manifests --image x --hosts 9 run late_join --policy baseline", exitUsage, "--hosts 9: the number of hosts must be from 2 to"},
		{"manifests --image x --hosts 1 run late_join --policy baseline", exitUsage, "must be from 2 to"},
		{"manifests --image x --name Ä run late_join --policy baseline", exitUsage, "--name Ä"},
		{"manifests --image x --namespace a/b run late_join --policy baseline", exitUsage, "--namespace a/b"},
		{"manifests --image x plan late_join", exitUsage, "cannot run on several hosts"},
		{"manifests --image x frobnicate late_join", exitUsage, "unknown command"},
		{"compare persistent_straggler --repeat 0", exitUsage, "--repeat"},
		{"compare persistent_straggler --links user,user", exitUsage, "user is in the list twice"},
		{"compare persistent_straggler --links user,pigeon", exitUsage, "choose netem, user or htb"},
		{"compare persistent_straggler --links auto,htb", exitUsage, "auto stands for another backend"},
		{"run persistent_straggler --policy baseline --links user,htb", exitUsage, "auto, netem, user or htb"},
		{"compare persistent_straggler --world moon", exitUsage, "sim, real or both"},
		{"compare persistent_straggler --world sim --links user", exitUsage, "apply to real runs only"},
		{"compare persistent_straggler --world sim --policy baseline,nice", exitUsage, "is not a policy"},
		{"compare persistent_straggler --world sim --policy baseline,baseline", exitUsage, "in the list twice"},
		{"sweep late_join --policy straggler,straggler", exitUsage, "in the list twice"},
		{"list --frob", exitUsage, "unknown flag"},
	} {
		t.Run(c.args, func(t *testing.T) {
			r := testbed(t, strings.Fields(c.args)...)
			if r.code != c.code || !strings.Contains(r.stderr, c.stderr) {
				t.Errorf("exit code %d, stderr %q; want %d and %q", r.code, r.stderr, c.code, c.stderr)
			}
			// A scenario may have several errors, a line each.
			if c.code != 0 && (!r.noResult() || strings.Count(r.stderr, "\n") != 1 && !strings.Contains(c.args, "bad.yaml")) {
				t.Errorf("want one line of error and no output, got stdout %q, stderr %q", r.stdout, r.stderr)
			}
		})
	}
}

func TestSimulateJSON(t *testing.T) {
	t.Parallel()
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	r := testbed(t, "simulate", "persistent_straggler", "--policy", "straggler", "--trace", trace, "--json")
	var sum record.Summary
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil {
		t.Fatal(err)
	}
	if sum.WallClock != 20_053 || who(sum.Sidelined) != "2:w3 3:w3" || who(sum.Evicted) != "4:w3straggler" {
		t.Errorf("got wall-clock %d, sidelined %q, evicted %q", sum.WallClock, who(sum.Sidelined), who(sum.Evicted))
	}
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	events, err := record.Read(f)
	if err != nil || len(events) == 0 || events[0].Type != record.RunStart || events[len(events)-1].Type != record.RunEnd {
		t.Errorf("trace of %d events: %v", len(events), err)
	}
}

// TestCompareSimulated: policies in the order given, without a sandbox, and the
// report of what that leaves.
func TestCompareSimulated(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "compare")
	r := testbed(t, "compare", "persistent_straggler", "--world", "sim", "--policy", "straggler,baseline", "--repeat", "3", "--json", "--out", dir)
	var c struct {
		Policies []string
		Sim      map[string]record.Summary
		Real     any
		Speedup  struct{ Sim float64 }
	}
	if err := json.Unmarshal([]byte(r.stdout), &c); err != nil || r.code != 0 {
		t.Fatalf("exit code %d, %v: %s", r.code, err, r.stderr)
	}
	if !slices.Equal(c.Policies, []string{"straggler", "baseline"}) || c.Sim["straggler"].WallClock != 20_053 || c.Real != nil || c.Speedup.Sim > 0.22 {
		t.Errorf("%+v", c)
	}
	r = testbed(t, "report", dir)
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if want := "testbed compare persistent_straggler --policy straggler,baseline --world sim --repeat 3<"; err != nil || r.code != 0 || !bytes.Contains(page, []byte(want)) {
		t.Errorf("the report, exit code %d, %v, does not say %q: %s", r.code, err, want, r.stderr)
	}
}

// TestSweepResumes interrupts a sweep, tears the last line of its table, and
// goes on: what comes of it is what an undisturbed sweep makes.
func TestSweepResumes(t *testing.T) {
	t.Parallel()
	args := []string{"sweep", "homogeneous", "--set", "target_outer_steps=100", "--set", "workers[*].inner_step_jitter=0,100,200", "--seeds", "1..200", "--json"}
	whole, torn := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "torn")
	r := testbed(t, append(args, "--out", whole)...)
	var want sweep.Summary
	if err := json.Unmarshal([]byte(r.stdout), &want); err != nil || want.Done != 1200 || want.Cells[0].Finding != "no difference shown" {
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}

	cmd := command(t, t.Context(), t.Name(), append(args, "--out", torn)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	table := filepath.Join(torn, sweep.TableFile)
	waitFor(t, func() bool { _, err := os.Stat(table); return err == nil })
	time.Sleep(100 * time.Millisecond)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // an exit code; the sweep may have been done
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(table, text[:len(text)-20], 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("interrupted after %d of 1200 points", bytes.Count(text, []byte("\n"))-1)
	if r := testbed(t, append(args, "--out", torn)...); r.code != exitError || !strings.Contains(r.stderr, "not empty") {
		t.Errorf("without --resume: exit code %d, %s", r.code, r.stderr)
	}
	if r := testbed(t, append(args, "--out", torn, "--resume")...); r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.stderr)
	}
	for _, name := range []string{sweep.TableFile, sweep.CSVFile} {
		a, err := os.ReadFile(filepath.Join(whole, name))
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(torn, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == sweep.TableFile { // an interrupt may leave gaps that are filled at the end
			a, b = sortedLines(a), sortedLines(b)
		}
		if !bytes.Equal(a, b) {
			t.Errorf("%s differs from that of a sweep at one go", name)
		}
	}
}

func sortedLines(text []byte) []byte {
	lines := bytes.Split(text, []byte("\n"))
	slices.SortFunc(lines, bytes.Compare)
	return bytes.Join(lines, []byte("\n"))
}

// TestSweepReal plays two points on the real network.
func TestSweepReal(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sweep")
	args := []string{"sweep", scenario(t, 2, "100mbit", ""), "--real", "--time-scale", "100", "--policy", "baseline", "--set", "inner_steps=1,6", "--out", dir, "--json"}
	r := testbed(t, args...)
	var s sweep.Summary
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil || s.Done != 2 || s.World != record.Real {
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	one, six := s.Cells[0].WallClock["baseline"], s.Cells[1].WallClock["baseline"]
	// Each takes at least the time of its inner steps, three times.
	if one.N != 1 || six.N != 1 || one.Median < 3*1000 || six.Median < 3*6*1000 {
		t.Errorf("wall-clocks %+v and %+v", one, six)
	}
	runs, err := filepath.Glob(filepath.Join(dir, "points", "*", record.EventsFile))
	if err != nil || len(runs) != 2 {
		t.Errorf("records %v, %v", runs, err)
	}
	if r := testbed(t, append(args, "--resume")...); !strings.Contains(r.stderr, "points done already: 2 of 2") {
		t.Errorf("resumed: exit code %d\n%s", r.code, r.stderr)
	}
}

// TestUploads: the store gets the outer states that the workers have, and the
// simulator says when.
func TestUploads(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	file := links(t, "\n  parameters: 20000\n  upload: {every: 2}\n  links: {default: {rate_up: 50mbit, rate_down: 50mbit, one_way_delay: 5ms}}\n")
	lengthen(t, file, 7)
	sum := complete(t, file, "--policy", "baseline")
	states := map[int]string{}
	var uploads []record.Event
	for _, e := range readEvents(t, sum.Dir) {
		switch e.Type {
		case record.State: // may be heard of later than the upload
			states[e.Round] = e.Hash
		case record.UploadDone:
			uploads = append(uploads, e)
		}
	}
	for _, e := range uploads {
		if e.Hash == "" || e.Hash != states[e.Round] || e.BytesSent == 0 || e.Duration == 0 {
			t.Errorf("the store got %+v; the state after outer step %d has the hash %s", e, e.Round, states[e.Round])
		}
	}
	// One that is late has the next wait, and the newest alone.
	if n := len(uploads); n < 1 || n > 3 || n != len(sum.Uploads) {
		t.Errorf("%d uploads, %+v in the summary", len(uploads), sum.Uploads)
	}
	r := testbed(t, "simulate", file, "--policy", "baseline", "--network", "links", "--json")
	var sim record.Summary
	if err := json.Unmarshal([]byte(r.stdout), &sim); err != nil || len(sim.Uploads) != 3 || sim.Uploads[0].Round != 2 {
		t.Errorf("simulated: %+v, %v", sim.Uploads, err)
	}
}
