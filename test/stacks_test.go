//go:build linux

package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/internal/rapidtest"
	"testbed/internal/testenv"
	"testbed/policy"
	"testbed/record"
	"testbed/shaping/kernel"
	"testbed/stacks"
)

// ofStack is the result of a run of a stack.
func ofStack(t *testing.T, r result) (sum record.Summary) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || sum.Stack == nil {
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	return sum
}

// needStack skips the test if the stack is not installed. It returns the interpreter that
// has the stack's software.
func needStack(t *testing.T, name string) (python string) {
	t.Helper()
	s, err := stacks.Find(name)
	var ready stacks.Ready
	if err == nil {
		ready, err = s.Check(t.Context())
	}
	// .ci/run installs PCCL where it can: its only wheel is for Python 3.12, which Debian 12
	// does not have.
	if name == "pccl" && errors.Is(err, errors.ErrUnsupported) && exec.Command("python3.12", "-c", "import ensurepip").Run() != nil {
		t.Skipf("%v; there is no python3.12 to install it for", err)
	}
	testenv.Need(t, err)
	return ready.Python
}

// small2 has two workers that take two rounds; a worker that nobody can ask to leave is
// asked to, and one is to crash when all is over.
const small2 = small + `injects: [{op: Leave, id: 1, at: 100}, {op: Crash, id: 0, at: 999000}]
real: {time_scale: 100, parameters: 1000}
`

// TestStackMisbehaves: whatever an adapter does, there is one clear error or a mark in the
// result, and nothing stays behind.
func TestStackMisbehaves(t *testing.T) {
	needSandbox(t)
	folder, err := filepath.Abs("testdata/stack")
	if err != nil {
		t.Fatal(err)
	}
	needStack(t, folder)
	t.Parallel()
	before := look(t)
	tcp := "reno"
	if kernel.TCPAllowed("bbr") == nil {
		tcp = "bbr"
	}
	for mode, c := range map[string]struct {
		code     int
		rounds   int
		stderr   string
		failures []string // these among others; none: there are none
		disputes []string
	}{
		"0": {0, 2, "", nil, nil},
		"1": {exitInvalid, 1, "(its last line: ValueError: it was bound to happen)", []string{" exited with code 1"}, nil},
		"2": {exitInvalid, 1, "no program reported any progress for 20 s (still running: w0, w1)", []string{"no program reported any progress for 20 s (still running: w0, w1)"}, nil},
		"3": {0, 2, "", nil, []string{"w1: invalid mark on descriptor"}},
		"4": {0, 2, "", nil, []string{"round 1: w1 reports that it took part with 2 inner steps, but its own average lacks its work"}},
		"5": {0, 2, "", nil, nil},
		"6": {0, 2, "", []string{"coordinator exited with code 1", "w1 exited with code 0 after round 1 of 2"}, nil},
		"7": {exitInvalid, 0, "after 0 outer steps: w1 exited with code 0 before the programs began", []string{"w1 exited with code 0 after round 0 of 2"}, nil},
		"8": {0, 2, "w1: invalid mark on descriptor", nil, []string{
			"w1: the mark commit is ignored: its field round is -1", "w1: the mark step is ignored: its field round is 1e+300",
			"w1: the mark commit is ignored: its field node is \"w0\"", "w1: the mark agreed is ignored: its field members is [\"w0\",\"w1\",\"w7\"]",
			"w1: the duration_us of the mark fetch_end is 1000000000000000000", "w1: invalid mark on descriptor 3", "w1: the programs of the node wrote too many marks (more than 10288, or 64 MiB)",
			"round 2: the average has work of w1, but w1 has not reported its outer step",
		}},
	} {
		t.Run(mode, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			r := fed(t, small2, "run", "-", "--stack", folder+":mode="+mode, "--json", "--set", "real.tcp="+tcp, "--out", dir)
			sum := ofStack(t, r)
			// A busy machine makes the emulation invalid, which is no matter here.
			if mode0 := c.code == 0; mode0 && r.code == exitInvalid && sum.Complete && strings.Contains(r.stderr, "fidelity invalid") {
				r.code = 0
			}
			if r.code != c.code || len(sum.Rounds) != c.rounds || sum.Complete != (c.code == 0) || !strings.Contains(r.stderr, c.stderr) {
				t.Errorf("exit code %d, %d rounds, complete: %v\n%s", r.code, len(sum.Rounds), sum.Complete, r.stderr)
			}
			for what, lists := range map[string][2][]string{"failures": {sum.Stack.Failures, c.failures}, "disputes": {sum.Stack.Disputes, c.disputes}} {
				got, want := lists[0], lists[1]
				for _, text := range want {
					if !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, text) }) {
						t.Errorf("%s: no %q in %q", what, text, got)
					}
				}
				// In mode 8, w1 may be the first to end: it has not reported its last round.
				if len(want) == 0 && len(got) > 0 && !(mode == "8" && what == "failures" && slices.Equal(got, []string{"w1 exited with code 0 after round 1 of 2"})) {
					t.Errorf("%s: %q", what, got)
				}
			}
			if version := map[bool]string{true: "fake 1"}[c.rounds > 0]; sum.Stack.Version != version {
				t.Errorf("version %q", sum.Stack.Version)
			}
			if sum.Policy != "stack:"+folder+":mode="+mode || sum.Stack.TCP != tcp || len(sum.Stack.LeftOut) != 1 || !strings.Contains(sum.Stack.LeftOut[0], "nobody can leave") ||
				!slices.Equal(sum.Stack.Missed, []string{"all programs had ended before these injects: Crash w0"}) {
				t.Errorf("%s: %+v", sum.Policy, sum.Stack)
			}
			if mode == "0" {
				html := filepath.Join(t.TempDir(), "report.html")
				if r := testbed(t, "report", dir, "--out", html); r.code != 0 {
					t.Errorf("the report: exit code %d, %s", r.code, r.stderr)
				}
				// A run overwrites no other.
				if r := fed(t, small2, "run", "-", "--stack", folder, "--out", dir); r.code != exitError || !strings.HasSuffix(r.stderr, " is not empty; choose another with --out\n") {
					t.Errorf("into the same directory: exit code %d, %s", r.code, r.stderr)
				}
				if text, err := os.ReadFile(html); err != nil || !strings.Contains(string(text), "stack:"+folder) {
					t.Errorf("the report: %v", err)
				}
			}
		})
	}
	expectNothing(t, t.Name(), before)
}

// rude is the folder of a stack of shell scripts whose workers fork, leave their session,
// heed no signal, and write temporary files.
func rude(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "rude")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"stack.yaml": "description: d\npython: [/bin/sh]\ncentral: [central]\nworker: [worker]\nprobe: probe\nremedy: none\n",
		"probe":      "setsid sleep 100 & sleep 0.1; echo 1",
		"central":    "setsid sleep 100 & touch $(dirname $0)/../meeting/coordinator; exec sleep 100",
		"worker": `trap '' TERM INT HUP
			setsid sleep 100 & (setsid sh -c 'sleep 100 & sleep 100') &
			head -c 100000 /dev/zero >/dev/shm/` + filepath.Base(filepath.Dir(folder)) + filepath.Base(t.Name()) + `
			mktemp "${TMPDIR:-/tmp}/testbed-rude.XXXXXX" >/dev/null
			mount -t tmpfs none /mnt 2>/dev/null
			echo '{"type": "start"}' >&3
			while :; do echo line; echo '{"type": "step", "round": 1, "step": 1}' >&3; sleep 0.1; done`,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestStackInterrupted: one signal ends a run soon, even if its programs heed none. The
// partial record says so.
func TestStackInterrupted(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	folder := rude(t)
	before := look(t)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		dir := filepath.Join(t.TempDir(), "run")
		cmd := command(t, t.Context(), t.Name(), "run", "-", "--stack", folder, "--json", "--out", dir)
		var stdout, stderr bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(small2), &stdout, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		log := filepath.Join(dir, "stack", "logs", "all")
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			if text, _ := os.ReadFile(log); strings.Contains(string(text), "w0: line") {
				break
			} else if time.Now().After(deadline) {
				_ = cmd.Process.Kill()
				t.Fatalf("no program runs\n%s", &stderr)
			}
		}
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // an exit code
		var printed struct{ Error struct{ Message string } }
		if err := json.Unmarshal(stdout.Bytes(), &printed); err != nil || cmd.ProcessState.ExitCode() != exitError || printed.Error.Message != "interrupted" || !strings.Contains(stderr.String(), "the record of the unfinished run is in "+dir) {
			t.Errorf("%v: exit code %d, %v, %s\n%s", s, cmd.ProcessState.ExitCode(), err, &stdout, &stderr)
		}
		var sum record.Summary
		text, err := os.ReadFile(filepath.Join(dir, record.SummaryFile))
		if err != nil || json.Unmarshal(text, &sum) != nil || sum.Complete || len(sum.Fidelity.Reasons) != 1 || sum.Fidelity.Reasons[0] != "the run was cut short" {
			t.Errorf("%v: %v, %+v", s, err, sum.Fidelity)
		}
	}
	expectNothing(t, t.Name(), before)
}

// TestStackOnFullDisk: a full disk is named in one line.
func TestStackOnFullDisk(t *testing.T) {
	needSandbox(t)
	needRoot(t)
	t.Parallel()
	folder := rude(t)
	before := look(t)
	for size, want := range map[string]string{"16k": "copying the folder of the stack rude: write ", "64k": "writing the "} {
		disk := filepath.Join(t.TempDir(), "disk")
		if err := os.Mkdir(disk, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("none", disk, "tmpfs", 0, "size="+size); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
		r := fed(t, small2, "run", "-", "--stack", folder, "--json", "--out", filepath.Join(disk, "run"))
		if last := lastLine(r.stderr); r.code != exitError || !strings.HasPrefix(last, "testbed: "+want) || !strings.HasSuffix(last, ": no space left on device") || !r.noResult() {
			t.Errorf("%s: exit code %d, %s\n%s", size, r.code, r.stderr, r.stdout)
		}
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Errorf("%s: %v", size, err)
		}
	}
	expectNothing(t, t.Name(), before)
}

// alive reports whether the process of this file in /proc has not ended: control groups
// lose a process that ends.
func alive(environ string) bool {
	text, err := os.ReadFile(environ)
	return err == nil && len(text) > 0
}

// TestKilledStackLeavesNothing kills the command at twenty moments, from the probe to the
// rounds, while programs of a rude stack run. Control groups cannot stay, because no
// process gets one of its own.
func TestKilledStackLeavesNothing(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	folder := rude(t)
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	before := look(t)
	random := rand.New(rand.NewPCG(rapidtest.Seed(), 2))
	processes := 0
	for i := range 4 {
		ids, commands := make([]string, 5), make([]*exec.Cmd, 5)
		for k := range ids {
			ids[k] = fmt.Sprintf("%s-%d-%d", t.Name(), i, k)
			commands[k] = command(t, t.Context(), ids[k], "run", "-", "--stack", folder, "--out", filepath.Join(t.TempDir(), "run"))
			commands[k].Stdin = strings.NewReader(small2)
			if err := commands[k].Start(); err != nil {
				t.Fatal(err)
			}
		}
		var moments []time.Duration
		for range ids {
			moments = append(moments, time.Duration(random.Int64N(int64(2*time.Second))))
		}
		slices.Sort(moments)
		began := time.Now()
		for k, moment := range moments {
			time.Sleep(time.Until(began.Add(moment)))
			for _, f := range marked(ids[k]) {
				if text, err := os.ReadFile(strings.TrimSuffix(f, "environ") + "cgroup"); err == nil && len(text) > 0 && alive(f) {
					processes++
					// A process that has just ended has no environment, and is in the root group.
					if now, _ := os.ReadFile(f); len(now) > 0 && string(text) != string(own) {
						t.Errorf("the control group of a process is %q, and that of the test %q", text, own)
					}
				}
			}
			if err := commands[k].Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = commands[k].Wait() // killed
		}
		for _, id := range ids {
			expectNothing(t, id, before)
		}
	}
	if processes < 100 {
		t.Errorf("there were only %d processes", processes)
	}
	if names, _ := filepath.Glob("/dev/shm/*" + filepath.Base(t.Name())); len(names) > 0 {
		t.Errorf("left behind: %q", names)
	}
}

// TestCompareStack: a stack is measured beside policies, and the report of both is made.
func TestCompareStack(t *testing.T) {
	needSandbox(t)
	folder, err := filepath.Abs("testdata/stack")
	if err != nil {
		t.Fatal(err)
	}
	needStack(t, folder)
	t.Parallel()
	before := look(t)
	dir := filepath.Join(t.TempDir(), "compared")
	r := fed(t, small2, "compare", "-", "--policy", "baseline", "--stack", folder, "--json", "--out", dir)
	var c struct {
		Policies []string
		Real     map[string]record.Summary
	}
	if err := json.Unmarshal([]byte(r.stdout), &c); err != nil || r.code != 0 && r.code != exitInvalid {
		t.Fatalf("exit code %d, %v\n%s", r.code, err, r.stderr)
	}
	label := "stack:" + folder
	if !slices.Equal(c.Policies, []string{"baseline", label}) || len(c.Real[label].Rounds) != 2 || c.Real[label].Stack == nil || len(c.Real["baseline"].Rounds) != 2 {
		t.Errorf("%v\n%s", c, r.stderr)
	}
	if r := testbed(t, "report", dir, "--out", filepath.Join(t.TempDir(), "report.html")); r.code != 0 {
		t.Errorf("the report: exit code %d, %s", r.code, r.stderr)
	}
	expectNothing(t, t.Name(), before)
}

// TestStackRefuses: errors in the request are named in one line.
func TestStackRefuses(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"run homogeneous --stack nothing":                  "there is no stack \"nothing\": the stacks are ",
		"run homogeneous --stack ./nothing":                "./nothing is not the folder of a stack",
		"run homogeneous --stack=":                         "--stack is empty",
		"run homogeneous --stack gloo:x=1":                 "there is no option \"x\"",
		"run homogeneous --stack gloo --policy baseline":   "--policy and --stack cannot be combined",
		"compare homogeneous --stack gloo --world sim":     "the simulator cannot play stacks",
		"run homogeneous --stack gloo --hosts 2@127.0.0.1": "cannot be combined with --stack",
	} {
		r := testbed(t, append(strings.Fields(args), "--out", filepath.Join(t.TempDir(), "out"))...)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("testbed %s: exit code %d, %q", args, r.code, r.stderr)
		}
	}
}

// TestStackNotInstalled: a stack whose software is missing says so with the remedy, and
// leaves no run directory.
func TestStackNotInstalled(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	folder, dir := filepath.Join(t.TempDir(), "mine"), filepath.Join(t.TempDir(), "run")
	for name, text := range map[string]string{
		"stack.yaml": "description: d\npython: [python3]\nworker: [w.py]\nprobe: w.py\nremedy: pay for it\n", "w.py": "import no_such_module\n",
	} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := testbed(t, "run", "homogeneous", "--stack", folder, "--out", dir)
	if r.code != exitUnsupported || !strings.Contains(lastLine(r.stderr), "No module named 'no_such_module'; pay for it") {
		t.Errorf("exit code %d, %s", r.code, r.stderr)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("there is a run directory")
	}
	cmd := command(t, t.Context(), t.Name(), "run", "homogeneous", "--stack", folder)
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != exitUnsupported {
		t.Errorf("without --out: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(cmd.Dir, "runs")); err != nil || len(left) > 0 {
		t.Errorf("without --out: there is a run directory: %v, %v", left, err)
	}
}

// everyScenario is set with go test -run MeasuredStack ./test -every-scenario, which takes
// twenty minutes.
var everyScenario = flag.Bool("every-scenario", false, "stacks play all six scenarios of docs/notes/stacks.md, not just one each")

// slowRounds is the time scale of the measured runs. It makes the inner steps of a round
// take two seconds, so that the stack's time-outs are a few rounds.
const slowRounds = "1000"

// promise is what a stack's records have.
type promise int

const (
	nothing    promise = iota // states differ in the last bits
	identical                 // all states are bit-identical
	undisputed                // and averages have just what workers say
)

// playStack plays a scenario of the library with a stack. The record must be complete,
// and as the stack promises.
func playStack(t *testing.T, stack, scenario string, p promise) record.Summary {
	t.Helper()
	r := testbed(t, "run", scenario, "--stack", stack, "--json", "--time-scale", slowRounds, "--out", filepath.Join(t.TempDir(), "run"))
	sum := ofStack(t, r)
	if !sum.Complete || len(sum.Rounds) != 5 || len(sum.Stack.Failures) > 0 || p >= identical && (sum.BitIdentical == nil || !*sum.BitIdentical) || p >= undisputed && len(sum.Stack.Disputes) > 0 {
		t.Errorf("%s with %s: exit code %d, %+v\n%s", scenario, stack, r.code, sum.Stack, r.stderr)
	}
	if len(sum.Rounds) != 5 {
		t.FailNow()
	}
	return sum
}

// realTime is scenario time of a run as real time.
func realTime(sum record.Summary, d policy.Time) time.Duration {
	return time.Duration(float64(d)*sum.TimeScale) * time.Microsecond
}

// everywhere reports whether the same workers took part in all rounds from one on.
func everywhere(sum record.Summary, from int, ids ...policy.ID) bool {
	return !slices.ContainsFunc(sum.Rounds, func(r record.Round) bool { return r.Round >= from && !slices.Equal(r.Participants, ids) })
}

// TestMeasuredStackGloo: our loop around gloo plays scenarios. The averages show who took
// part, and times are those of its time-outs.
func TestMeasuredStackGloo(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	needStack(t, "gloo")
	before := look(t)
	// At the latest a round has just begun. Then its reduction times out after 10 s, and
	// nobody else may come for 2 s.
	goesOn(t, "gloo", undisputed, 2*time.Second, 16*time.Second)
	if *everyScenario {
		// A reduction of 4 MB on 200 Mbit/s takes 0.24 s at least.
		fiveRounds(t, "gloo", 15*time.Second, undisputed)
		// The straggler's round takes longer than the time-out. It takes part again in the
		// last round at the earliest.
		if sum := playStack(t, "gloo", "persistent_straggler", undisputed); slices.Contains(sum.Rounds[0].Participants, 3) {
			t.Errorf("persistent_straggler: %+v", sum.Rounds)
		}
		if sum := playStack(t, "gloo", "late_join", undisputed); !slices.Equal(sum.Rounds[0].Participants, []policy.ID{0, 1, 2}) || !everywhere(sum, 5, 0, 1, 2, 3) || sum.JoinerStall == 0 {
			t.Errorf("late_join: %+v", sum)
		}
		// Both are shorter than the time-out: TCP sends again what was lost.
		if sum := playStack(t, "gloo", "partition_heal", undisputed); !everywhere(sum, 1, 0, 1, 2, 3) {
			t.Errorf("partition_heal: %+v", sum.Rounds)
		}
		if sum := playStack(t, "gloo", "pause_resume", undisputed); !everywhere(sum, 1, 0, 1, 2, 3, 4) {
			t.Errorf("pause_resume: %+v", sum.Rounds)
		}
	}
	expectNothing(t, t.Name(), before)
}

// TestMeasuredStackTorchft: torchft plays scenarios with its lighthouse. A group that heals
// contributes the donor's work, so that the donor counts twice.
func TestMeasuredStackTorchft(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	needStack(t, "torchft")
	before := look(t)
	// Heartbeats are missed for 5 s. In a reduction, its time-out of 10 s comes first.
	goesOn(t, "torchft", identical, 3*time.Second, 22*time.Second)
	if *everyScenario {
		fiveRounds(t, "torchft", 20*time.Second, undisputed)
		fiveRounds(t, "torchft:diloco=1", 20*time.Second, undisputed)
		// A quorum waits a minute for a group that sends heartbeats.
		for scenario, ids := range map[string][]policy.ID{"persistent_straggler": {0, 1, 2, 3}, "partition_heal": {0, 1, 2, 3}} {
			if sum := playStack(t, "torchft", scenario, identical); !everywhere(sum, 2, ids...) {
				t.Errorf("%s: %+v", scenario, sum.Rounds)
			}
		}
		// A newcomer, and a worker that was paused for longer than the heartbeat time-out,
		// bring the donor's share in their first round.
		for scenario, ids := range map[string][]policy.ID{"late_join": {0, 1, 2, 3}, "pause_resume": {0, 1, 2, 3, 4}} {
			twice := func(d string) bool { return strings.Contains(d, " has unequal shares, from ") }
			if sum := playStack(t, "torchft", scenario, identical); !everywhere(sum, 5, ids...) || sum.JoinerStall == 0 || !slices.ContainsFunc(sum.Stack.Disputes, twice) {
				t.Errorf("%s: %+v, %q", scenario, sum.Rounds, sum.Stack.Disputes)
			}
		}
	}
	expectNothing(t, t.Name(), before)
}

// TestMeasuredStackHivemind: hivemind's averager plays scenarios. A peer that is killed
// costs its all-reduce time-out at most, and the others wait for a full group in vain from
// then on.
func TestMeasuredStackHivemind(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	needStack(t, "hivemind")
	before := look(t)
	sockets := socketsOf(t, "hivemind")
	// A reduction took 1 s. A group that misses somebody waits for 3 s.
	fiveRounds(t, "hivemind", 45*time.Second, nothing)
	if *everyScenario {
		testenv.Measure(t, func() func(testenv.Machine) error {
			sum := playStack(t, "hivemind", "crash_mid_round", nothing)
			// A group need not find all who live, but it cannot have the dead worker.
			for _, r := range sum.Rounds[1:] {
				if slices.Contains(r.Participants, 2) || len(r.Participants) < 2 {
					t.Errorf("crash_mid_round: %+v", r)
				}
			}
			return func(m testenv.Machine) error {
				var longest time.Duration
				for _, r := range sum.Rounds {
					longest = max(longest, realTime(sum, r.End-r.Start))
				}
				// The steps, a hung all-reduce of 20 s, a group that waits 3 s in vain, and
				// the next all-reduce.
				if most := 40 * time.Second; longest < 4*time.Second || longest > stretch(most, m) {
					return fmt.Errorf("the longest round took %v, want 4 s to %v", longest, most)
				}
				return nil
			}
		})
		for _, scenario := range []string{"persistent_straggler", "late_join", "partition_heal", "pause_resume"} {
			sum := playStack(t, "hivemind", scenario, nothing)
			for _, r := range sum.Rounds {
				if len(r.Participants) < 2 {
					t.Errorf("%s: %+v", scenario, r)
				}
			}
			// Who was missed brings the work of the round in which it was missed, and a
			// worker that loses one of its peers gets parts of the average only.
			for _, d := range sum.Stack.Disputes {
				if !strings.Contains(d, " has work of w") && !strings.Contains(d, ": parts of the average of w") {
					t.Errorf("%s: %s", scenario, d)
				}
			}
		}
	}
	if after := socketsOf(t, "hivemind"); !slices.Equal(after, sockets) {
		t.Errorf("before there were %q, and now %q", sockets, after)
	}
	expectNothing(t, t.Name(), before)
}

// TestMeasuredStackPCCL: PCCL plays scenarios, admits a newcomer, and gives it the shared
// state. All states are equal.
func TestMeasuredStackPCCL(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	needStack(t, "pccl")
	before := look(t)
	if sum := playStack(t, "pccl", "late_join", undisputed); !slices.Equal(sum.Rounds[0].Participants, []policy.ID{0, 1, 2}) || !everywhere(sum, 5, 0, 1, 2, 3) {
		t.Errorf("late_join: %+v", sum.Rounds)
	}
	if *everyScenario {
		fiveRounds(t, "pccl", 20*time.Second, undisputed) // 0.7 s for each vote and reduction
		// Over four connections, a part of the vector on each, and with codes of 8 bits.
		var sent []int64
		for _, options := range []string{":connections=4", ":connections=4:quantisation=2"} {
			sum := playStack(t, "pccl"+options, "homogeneous", undisputed)
			if !everywhere(sum, 1, 0, 1, 2, 3) {
				t.Errorf("homogeneous%s: %+v", options, sum.Rounds)
			}
			sent = append(sent, sum.Rounds[4].BytesSent)
		}
		if sent[1] <= 0 || 3*sent[1] > sent[0] {
			t.Errorf("with codes of 8 bits a round has %d bytes, with float32 %d", sent[1], sent[0])
		}
		// PCCL has no time-out: everybody waits for the straggler, the paused, the cut off.
		for scenario, ids := range map[string][]policy.ID{"persistent_straggler": {0, 1, 2, 3}, "partition_heal": {0, 1, 2, 3}, "pause_resume": {0, 1, 2, 3, 4}} {
			if sum := playStack(t, "pccl", scenario, undisputed); !everywhere(sum, 1, ids...) {
				t.Errorf("%s: %+v", scenario, sum.Rounds)
			}
		}
		// The links are cut before the crash, so no peer gets a reset: all wait for ever.
		r := testbed(t, "run", "crash_mid_round", "--stack", "pccl", "--json", "--time-scale", slowRounds, "--out", filepath.Join(t.TempDir(), "run"))
		if sum := ofStack(t, r); sum.Complete || r.code != exitInvalid || !strings.Contains(r.stderr, "no program reported any progress for 240 s") {
			t.Errorf("crash_mid_round: exit code %d, %+v\n%s", r.code, sum.Stack, r.stderr)
		}
	}
	expectNothing(t, t.Name(), before)
}

// goesOn plays the scenario crash_mid_round: the others go on without the dead worker, that
// long after its crash.
func goesOn(t *testing.T, stack string, p promise, least, most time.Duration) {
	t.Helper()
	testenv.Measure(t, func() func(testenv.Machine) error {
		sum := playStack(t, stack, "crash_mid_round", p)
		if !everywhere(sum, 2, 0, 1, 3) || len(sum.Detected) != 1 || sum.Detected[0].ID != 2 || sum.Detected[0].After == nil {
			t.Errorf("crash_mid_round: %+v, %+v", sum.Detected, sum.Rounds)
			return func(testenv.Machine) error { return nil }
		}
		return func(m testenv.Machine) error {
			if after := realTime(sum, *sum.Detected[0].After); after < least || after > stretch(most, m) {
				return fmt.Errorf("the others went on %v after the crash, want %v to %v", after, least, most)
			}
			return nil
		}
	})
}

// fiveRounds plays the scenario homogeneous: five rounds of two seconds of steps each, and
// their reductions, take at most that long.
func fiveRounds(t *testing.T, stack string, most time.Duration, p promise) {
	t.Helper()
	testenv.Measure(t, func() func(testenv.Machine) error {
		sum := playStack(t, stack, "homogeneous", p)
		if p >= identical && !everywhere(sum, 1, 0, 1, 2, 3) {
			t.Errorf("homogeneous: %+v", sum.Rounds)
		}
		return func(m testenv.Machine) error {
			if real := realTime(sum, sum.WallClock); real < 11*time.Second || real > stretch(most, m) {
				return fmt.Errorf("five rounds took %v, want 11 s to %v", real, most)
			}
			return nil
		}
	})
}

// socketsOf are files of a library in /tmp.
func socketsOf(t *testing.T, library string) []string {
	t.Helper()
	names, err := filepath.Glob("/tmp/" + library + "-*")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// stretch is a limit on a time on a machine that others use, too.
func stretch(most time.Duration, m testenv.Machine) time.Duration {
	return time.Duration(float64(most) / (1 - m.Taken))
}
