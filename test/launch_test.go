//go:build linux

package test

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"testbed/internal/lines"
	"testbed/internal/rapidtest"
	"testbed/internal/testenv"
	"testbed/record"
)

// programLines are the lines of a text in order, without those of testbed itself.
func programLines(text string) (all []string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "testbed: ") {
			all = append(all, strings.TrimRight(line, "\n"))
		}
	}
	slices.Sort(all)
	return all
}

// lastLine is the last line of a text.
func lastLine(text string) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return all[len(all)-1]
}

// TestLaunch: the program runs once in every worker's node, with the variables that
// distributed programs expect; its output is prefixed, and kept as it was.
func TestLaunch(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	out := filepath.Join(t.TempDir(), "out")
	r := testbed(t, "launch", "homogeneous", "--clock", "command", "--out", out, "--", "sh", "-c",
		`echo $(hostname) $TESTBED_NODE $TESTBED_WORKER $RANK $WORLD_SIZE $NODE_RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR:$MASTER_PORT $JAX_COORDINATOR_ADDRESS $PET_NNODES $PET_NODE_RANK $GLOO_SOCKET_IFNAME $OMP_NUM_THREADS $TESTBED_INCARNATION $TESTBED_ADDR_W3; printf 'two\rthree'; cat; echo bad >&2`)
	var want, bad []string
	for k := range 4 {
		want = append(want, fmt.Sprintf("w%d: three", k), fmt.Sprintf("w%d: two", k),
			fmt.Sprintf("w%d: w%d w%d %d %d 4 %d 0 1 %d 10.0.0.2:29500 10.0.0.2:29500 4 %d eth0 1 0 10.0.0.5", k, k, k, k, k, k, k, k))
		bad = append(bad, fmt.Sprintf("w%d: bad", k))
	}
	slices.Sort(want)
	if got := programLines(r.stdout); r.code != 0 || !slices.Equal(got, want) {
		t.Errorf("exit code %d\n%s\nwant\n%s\n%s", r.code, strings.Join(got, "\n"), strings.Join(want, "\n"), r.stderr)
	}
	if got := programLines(r.stderr); !slices.Equal(got, bad) || !strings.HasPrefix(lastLine(r.stderr), "testbed: the network was ") {
		t.Errorf("stderr %q", r.stderr)
	}
	log, err := os.ReadFile(filepath.Join(out, "logs", "w3.out"))
	if err != nil || !strings.HasSuffix(string(log), "10.0.0.5\ntwo\rthreebad\n") && !strings.HasSuffix(string(log), "10.0.0.5\nbad\ntwo\rthree") && !strings.HasSuffix(string(log), "10.0.0.5\ntwo\rthree") {
		t.Errorf("the log: %q, %v", log, err)
	}
	expectNothing(t, t.Name(), before)
}

// TestLaunchExitCodes: the first failure is the exit code, and the last line.
func TestLaunchExitCodes(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	for name, c := range map[string]struct {
		args []string
		code int
		last string // a regular expression
	}{
		"all well":     {[]string{"--", "true"}, 0, `^testbed: there is no verdict on the network, and no inject has happened: no worker sent a byte to another`},
		"one fails":    {[]string{"--", "sh", "-c", "[ $RANK != 2 ] && exec sleep 60; echo first; echo oops >&2; echo; exit 3"}, 3, `^testbed: w2 exited with code 3 after \d+\.\d s, the first failure among 4 programs \(its last line: oops\)$`},
		"a signal":     {[]string{"--", "sh", "-c", "[ $RANK != 1 ] && exec sleep 60; kill -SEGV $$"}, 139, `^testbed: w1 was ended by signal 11 \(segmentation fault\) after .* s, the first failure among 4 programs$`},
		"keep going":   {[]string{"--keep-going", "--", "sh", "-c", "[ $RANK != 1 ] && sleep 1 && echo went on && exit; exit 5"}, 5, `^testbed: w1 exited with code 5`},
		"by force":     {[]string{"--grace", "300ms", "--", "sh", "-c", `[ $RANK = 0 ] && exit 7; trap "" TERM; while :; do sleep 0.1; done`}, 7, `^testbed: w0 exited with code 7`},
		"no program":   {[]string{"--", "no-such-program"}, 127, `no-such-program`},
		"no file":      {[]string{"--", "sh", "-c", "exec ./no-such-program"}, 127, `exited with code 127`},
		"per node":     {[]string{"--per-node", "w2=sh -c 'exit 9'", "--per-node", "w1=true", "--", "sleep", "60"}, 9, `^testbed: w2 exited with code 9`},
		"central":      {[]string{"--central", "sleep 60", "--", "true"}, 0, `^testbed: there is no verdict on the network, and no inject has happened: no worker sent a byte to another`},
		"central dies": {[]string{"--central", "true", "--", "sleep", "60"}, 1, `^testbed: coordinator exited with code 0 while programs of workers were still running \(\d+\.\d s after its start\), the first failure among 5 programs$`},
	} {
		t.Run(name, func(t *testing.T) {
			r := testbed(t, append([]string{"launch", "homogeneous"}, c.args...)...)
			if r.code != c.code || !regexp.MustCompile(c.last).MatchString(lastLine(r.stderr)) {
				t.Errorf("exit code %d, want %d; the last line is %q, want %s\n%s", r.code, c.code, lastLine(r.stderr), c.last, r.stdout)
			}
			if name == "keep going" && strings.Count(r.stdout, "went on") != 3 {
				t.Errorf("%s", r.stdout)
			}
		})
	}
	expectNothing(t, t.Name(), before)
}

// TestLaunchRefuses: what is asked for in vain is named in one line.
func TestLaunchRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"launch homogeneous", "no program for w0"},
		{"launch homogeneous true", `write "--" before the program`},
		{"launch homogeneous --per-node w9=true -- true", "--per-node w9=…: there is no worker w9; the workers are w0 w1 w2 w3"},
		{"launch homogeneous --per-node coordinator=true -- true", "there is no worker coordinator"},
		{"launch homogeneous --per-node w1 -- true", "--per-node w1: write NODE=CMD"},
		{"launch homogeneous --per-node w1= -- true", "the command is empty; write NODE=CMD"},
		{"launch homogeneous --per-node w1=true --per-node w1=true -- true", "w1 already has a command"},
		{"launch homogeneous --per-node w1='true -- true", "a quotation mark is not closed"},
		{"launch homogeneous --central  -- true", "--central is empty"},
		{"launch homogeneous --grace -1s -- true", "--grace -1s: the time must not be below 0"},
		{"launch homogeneous --clock now -- true", "--clock now: choose command, traffic or mark"},
		{"net homogeneous --clock traffic --hosts 2@127.0.0.1 -- true", "--clock traffic sees the workers of one host only"},
		{"mark start", "needs a network of testbed launch or testbed net"},
		{"mark", "name the type of the mark"},
		{"mark step round", "round: write each field as NAME=VALUE"},
		{"launch homogeneous --master-port 0 -- true", "--master-port 0: the port must be between"},
	} {
		r := testbed(t, strings.Split(c.args, " ")...)
		if r.code != exitUsage || !strings.Contains(r.stderr, c.want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("testbed %s: exit code %d, %q", c.args, r.code, r.stderr)
		}
	}
}

// TestLaunchSignals: a signal reaches all programs, and a second one kills them, whatever
// they make of it.
func TestLaunchSignals(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	for name, c := range map[string]struct {
		signal syscall.Signal
		again  bool // it is sent once more when the programs have heard it
		script string
		code   int
		stdout string
	}{
		"heeded":   {syscall.SIGINT, false, "trap 'echo bye; exit 8' INT; echo up; sleep 60 & wait", 8, "bye"},
		"to sleep": {syscall.SIGTERM, false, "echo up; exec sleep 60", 143, ""},
		"outlived": {syscall.SIGINT, true, "trap 'echo heard' INT; trap '' TERM; echo up; while :; do sleep 0.1; done", 137, ""},
	} {
		cmd := command(t, t.Context(), t.Name(), "launch", "homogeneous", "--", "sh", "-c", c.script)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 4*len("w0: up\n"))); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		if c.again {
			// Signals of one kind are one until the first has arrived.
			if _, err := io.ReadFull(out, make([]byte, 4*len("w0: heard\n"))); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
		}
		rest, _ := io.ReadAll(out)
		_ = cmd.Wait() // an exit code
		if got := cmd.ProcessState.ExitCode(); got != c.code || c.stdout != "" && strings.Count(string(rest), c.stdout) != 4 {
			t.Errorf("%s: exit code %d, want %d; %q", name, got, c.code, rest)
		}
	}
	expectNothing(t, t.Name(), before)
}

// TestLaunchEndsDaemons: what a program leaves behind in its node when it fails ends,
// whatever session it is in and whoever its parent is now, while the others go on. So it
// does for an ordinary user.
func TestLaunchEndsDaemons(t *testing.T) {
	needSandbox(t)
	needTool(t, "python3")
	t.Parallel()
	before := look(t)
	const script = `
import os, subprocess, sys, time
def sleepers():
    n = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try: n += b"sleep\0004321" in open("/proc/%s/cmdline" % pid, "rb").read()
        except OSError: pass
    return n
def until(n):
    for _ in range(3000):
        if sleepers() == n: return True
        time.sleep(0.01)
    return False
if os.environ["RANK"] == "3":
    subprocess.Popen(["setsid", "sleep", "4321"])
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: os.execvp("sleep", ["sleep", "4321"])
        os._exit(0)
    subprocess.Popen("(trap '' HUP TERM INT; sleep 4321 & wait) &", shell=True)
    if not until(3): sys.exit(9)
    time.sleep(0.5)
    sys.exit(3)
print("seen", until(3), "gone", until(0), flush=True)
`
	for name, credential := range map[string]*syscall.Credential{"as we are": nil, "ordinary user": {Uid: 65534, Gid: 65534}} {
		t.Run(name, func(t *testing.T) {
			if credential != nil {
				needRoot(t)
			}
			cmd := command(t, t.Context(), t.Name(), "launch", "homogeneous", "--keep-going", "--", "python3", "-c", script)
			cmd.Dir = "/"
			if credential != nil {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
			}
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != 3 || strings.Count(string(out), ": seen True gone True\n") != 3 {
				t.Errorf("exit code %d\n%s", code, out)
			}
			expectNothing(t, t.Name(), before)
		})
	}
}

// TestLaunchLateJoiner: a worker with join_at is started then, and not if there is nobody
// any more.
func TestLaunchLateJoiner(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	const script = `echo $(date +%s%N); exec sleep `
	r := testbed(t, "launch", "late_join", "--clock", "command", "--", "sh", "-c", script+"3")
	at := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^(w\d): (\d+)$`).FindAllStringSubmatch(r.stdout, -1) {
		at[m[1]] = number(t, m[2]) / 1e9
	}
	// join_at is 5000 µs, and time_scale 300: 1.5 s.
	if late := at["w3"] - max(at["w0"], at["w1"], at["w2"]); r.code != 0 || len(at) != 4 || late <= 0 {
		t.Errorf("exit code %d; w3 was started %v s after the others\n%s%s", r.code, late, r.stdout, r.stderr)
	}
	r = testbed(t, "launch", "late_join", "--clock", "command", "--", "sh", "-c", script+"0")
	if r.code != 0 || strings.Contains(r.stdout, "w3: ") || !strings.Contains(r.stderr, "testbed: w3 was not started: all other programs had ended before its join_at\n") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// TestLaunchOutputNobodyReads: programs end when nobody reads what they print.
func TestLaunchOutputNobodyReads(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	cmd := command(t, t.Context(), t.Name(), "launch", "homogeneous", "--", "yes")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 1<<20)); err != nil { // much, and nothing piles up
		t.Fatal(err)
	}
	out.Close()
	_ = cmd.Wait() // an exit code
	if code := cmd.ProcessState.ExitCode(); code != 141 {
		t.Errorf("exit code %d, want that of SIGPIPE", code)
	}
}

// TestKilledLaunchLeavesNothing kills the command at twenty moments, with daemons and
// programs that heed nothing.
func TestKilledLaunchLeavesNothing(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	random := rand.New(rand.NewPCG(rapidtest.Seed(), 1))
	for i := range 4 {
		var all sync.WaitGroup
		ids := make([]string, 5)
		for k := range ids {
			ids[k] = fmt.Sprintf("%s-%d-%d", t.Name(), i, k)
			cmd := command(t, t.Context(), ids[k], "launch", "homogeneous", "--out", filepath.Join(t.TempDir(), "out"), "--central", "sleep 100", "--",
				"sh", "-c", "trap '' TERM INT HUP; setsid sleep 100 & (setsid sh -c 'sleep 100 & sleep 100') & while :; do echo line; sleep 0.1; done")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			moment := time.Duration(random.Int64N(int64(2 * time.Second)))
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

// TestLaunchOverHosts: programs on other hosts are started, reach each other, are heard
// and ended as those on this one.
func TestLaunchOverHosts(t *testing.T) {
	needSandbox(t)
	needTool(t, "python3")
	t.Parallel()
	before := look(t)
	l := newLab(t, 2, 1500)
	const script = `
import os, socket, subprocess, sys, time
rank = int(os.environ["RANK"])
if rank == 3: # on the other host
    subprocess.Popen(["setsid", "sleep", "4321"])
    s = socket.create_server(("", 5000))
    print("listens", flush=True)
    for _ in range(3): s.accept()[0].recv(9)
    sys.stderr.write("enough\n")
    sys.exit(3)
while True:
    try:
        s = socket.create_connection(("w3", 5000))
        break
    except OSError: time.sleep(0.05)
s.sendall(b"x")
print("sent", flush=True)
time.sleep(60)
`
	// A busy machine carries little between the hosts, and late.
	all := l.lead(t, t.Name(), "launch", roomy(t, scenario(t, 4, "20mbit", "")), "--hosts", "2@192.168.77.1", "--", "python3", "-c", script)
	end(t, all, 3)
	want := []string{"w0: sent", "w1: sent", "w2: sent", "w3: listens"}
	text := all[0].stderr.String()
	if got := programLines(all[0].stdout.String()); !slices.Equal(got, want) || !strings.HasPrefix(lastLine(text), "testbed: w3 exited with code 3 after ") || !strings.HasSuffix(lastLine(text), "(its last line: enough)") {
		t.Errorf("%q; stderr %s", got, text)
	}
	all = l.lead(t, t.Name(), "launch", injecting(t, "op: Restart, at: 1000, id: 2", "op: Crash, at: 1000, id: 0"), "--clock", "mark", "--hosts", "2@192.168.77.1", "--",
		"sh", "-c", fmt.Sprintf(`(setsid sleep 1000 &); echo up $TESTBED_INCARNATION; touch %[1]s/$RANK
			[ $RANK = 1 ] && while ! [ -e %[1]s/0 -a -e %[1]s/2 ]; do sleep 0.1; done && sleep 0.2 && testbed mark start && exit
			[ $TESTBED_INCARNATION = 1 ] || sleep 1000`, t.TempDir()))
	end(t, all, 0)
	want = []string{"w0: up 0", "w1: up 0", "w2: up 0", "w2: up 1"}
	if got, text := programLines(all[0].stdout.String()), all[0].stderr.String(); !slices.Equal(got, want) || !strings.Contains(text, "Restart w2 affected ") || !strings.Contains(text, "Crash w0 affected ") {
		t.Errorf("%q; stderr %s", got, text)
	}
	expectNothing(t, t.Name(), before)
}

// programEvents reads the record of programs.
func programEvents(t *testing.T, dir string) (all []record.ProgramEvent) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, record.ProgramsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = lines.Read(f, record.ProgramsFile, func(_ int, _ []byte, e *record.ProgramEvent) error {
		all = append(all, *e)
		return nil
	})
	if err != nil || len(all) == 0 || all[0].Run == nil {
		t.Fatalf("%+v, %v", all, err)
	}
	return all
}

// happened are the events of some types, in a few words.
func happened(events []record.ProgramEvent, types ...record.Type) (words []string) {
	for _, e := range events {
		if slices.Contains(types, e.Type) {
			words = append(words, strings.TrimSpace(fmt.Sprint(e.Type, " ", e.Node, e.Mark, e.Cause)))
		}
	}
	return words
}

// injecting is a scenario of three workers with these injects. A tenth of a millisecond of it
// is ten of real time.
func injecting(t *testing.T, injects ...string) string {
	t.Helper()
	file := links(t, "\n")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, fmt.Appendf(nil, "injects:\n  - {%s}\n%s", strings.Join(injects, "}\n  - {"), text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// cutting is a scenario of which a worker is cut off for a while.
func cutting(t *testing.T) string {
	t.Helper()
	return injecting(t, "op: Partition, at: 1000, ids: [2]", "op: ClearPartition, at: 3000, ids: [2]")
}

// TestClockOfMarks: injects and late workers count from the mark of a program on, whoever
// starts it: nothing before it does.
func TestClockOfMarks(t *testing.T) {
	needSandbox(t)
	needTool(t, "ping")
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	const script = `ping -q -c 1 $MASTER_ADDR >/dev/null
sleep 0.5
[ $RANK = 1 ] && echo '{"type": "ready", "n": 3}' >&$TESTBED_MARKS && testbed mark start
sleep 2; testbed mark step round=1 who=me`
	r := testbed(t, "launch", cutting(t), "--clock", "mark", "--out", out, "--", "sh", "-c", script)
	events := programEvents(t, out)
	got := happened(events, record.ProgramMark, record.ProgramClock, record.Partition, record.Heal)
	if len(got) > 5 {
		slices.Sort(got[5:]) // of workers at the same time
	}
	want := []string{"mark w1ready", "mark w1start", "clock testbed mark start in w1", "partition", "heal", "mark w0step", "mark w1step", "mark w2step"}
	if r.code != 0 || !slices.Equal(got, want) || !strings.Contains(r.stderr, "testbed: the network was ") {
		t.Errorf("exit code %d, %q, want %q\n%s", r.code, got, want, r.stderr)
	}
	for _, e := range events {
		if e.Mark == "step" && (e.Fields["round"] != 1.0 || e.Fields["who"] != "me") || e.Mark == "ready" && e.Fields["n"] != 3.0 {
			t.Errorf("%+v", e)
		}
	}

	r = testbed(t, "net", cutting(t), "--clock", "mark", "--out", out, "--", "sh", "-c", "sleep 0.5; testbed in w0 testbed mark start && sleep 0.5 && testbed mark over")
	got = happened(programEvents(t, out), record.ProgramMark, record.ProgramClock, record.Partition, record.Heal)
	want = []string{"mark w0start", "clock testbed mark start in w0", "partition", "heal", "mark the hubover"}
	if r.code != 0 || !slices.Equal(got, want) || !strings.Contains(r.stderr, "testbed: the network was ") {
		t.Errorf("net: exit code %d, %q, want %q\n%s", r.code, got, want, r.stderr)
	}
	r = testbed(t, "net", cutting(t), "--clock", "mark", "--", "true")
	if r.code != 0 || !strings.Contains(r.stderr, "testbed: there is no verdict on the network, and no inject has happened: testbed mark start was not called") {
		t.Errorf("no mark: exit code %d\n%s", r.code, r.stderr)
	}
}

// TestClockOfTraffic: what starts the clock is a byte from worker to worker; one for the
// coordinator is none, and a packet that reaches nobody is.
func TestClockOfTraffic(t *testing.T) {
	needSandbox(t)
	needTool(t, "ping")
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	const script = `ping -q -c 2 -i 0.1 coordinator >/dev/null; sleep 0.5; [ $RANK = 2 ] && ping -q -c 1 w0; sleep 1`
	r := testbed(t, "launch", cutting(t), "--out", out, "--", "sh", "-c", script)
	events := programEvents(t, out)
	got := happened(events, record.ProgramClock)
	// w0, which answers, may be noticed before w2.
	if r.code != 0 || len(got) != 1 || !strings.HasPrefix(got[0], "clock the first byte between workers, from w") {
		t.Errorf("exit code %d, %q\n%s%s", r.code, got, r.stdout, r.stderr)
	}
	for _, e := range events {
		if e.Type == record.ProgramClock && e.T < 500_000 {
			t.Errorf("the clock has started after %d µs, with what went to the coordinator", e.T)
		}
	}
	r = testbed(t, "net", cutting(t), "--clock", "traffic", "--out", out, "--", "sh", "-c", "testbed in w1 ping -q -c 1 coordinator; testbed mark one; testbed in w0 ping -q -c 1 -W 1 w2")
	got = happened(programEvents(t, out), record.ProgramClock, record.ProgramMark)
	if r.code != 0 || len(got) != 2 || got[0] != "mark the hubone" || !strings.HasPrefix(got[1], "clock the first byte between workers, from w") {
		t.Errorf("net: exit code %d, %q\n%s%s", r.code, got, r.stdout, r.stderr)
	}
}

// found is Python that counts the processes with these words in their command line, by
// their states.
const found = `
import os, re, socket, subprocess, sys, time
from collections import Counter
def states(*words):
    all = Counter()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if open("/proc/%s/cmdline" % pid, "rb").read().split(b"\0")[:-1] == [w.encode() for w in words]:
                all[open("/proc/%s/stat" % pid).read().rsplit(")", 1)[1].split()[0]] += 1
        except OSError: pass
    return "".join(sorted(all.elements()))
def until(what, wanted):
    for _ in range(6000):
        if what() == wanted: return
        time.sleep(0.01)
    sys.exit("waited for %r in vain, it is %r" % (wanted, what()))
def mark(*what): subprocess.run(["testbed", "mark", *what], check=True)
rank, incarnation = int(os.environ["RANK"]), int(os.environ["TESTBED_INCARNATION"])
`

// TestLaunchCrash: what crashes sends nothing more, as after a power cut, and nothing of it
// is left. What restarts begins anew, with its number, and reaches the others.
func TestLaunchCrash(t *testing.T) {
	needSandbox(t)
	needTool(t, "python3")
	t.Parallel()
	before := look(t)
	const script = found + `
if rank == 0:
    s = socket.create_server(("", 5000))
    def peer():
        while True:
            c = s.accept()[0]
            text = c.recv(9, socket.MSG_WAITALL).decode()
            print("heard", text, flush=True)
            yield c, text
    first = dict((text, c) for c, text in (lambda p: [next(p), next(p)])(peer()))
    until(lambda: states("sleep", "4321"), "SSSS")
    mark("start")
    until(lambda: states("sleep", "4321"), "")
    for c in first.values():
        c.settimeout(0.7)
        try: print("told", c.recv(1), flush=True)
        except TimeoutError: print("told nothing", flush=True)
        except OSError as e: print("told", e, flush=True)
    c, text = next(peer())
    c.sendall(b"well")
    print(c.recv(4, socket.MSG_WAITALL).decode(), flush=True)
else:
    if incarnation == 0:
        subprocess.Popen(["setsid", "sleep", "4321"])
        subprocess.Popen("(trap '' HUP TERM INT; setsid sleep 4321 & exit 0)", shell=True)
    while True:
        try: s = socket.create_connection(("w0", 5000)); break
        except OSError: time.sleep(0.05)
    s.sendall(b"worker %d%d" % (rank, incarnation))
    if incarnation: s.sendall(s.recv(4, socket.MSG_WAITALL))
    else: time.sleep(600)
`
	out := filepath.Join(t.TempDir(), "out")
	file := injecting(t, "op: Crash, at: 1000, id: 1", "op: Restart, at: 1000, id: 2, after: 20000", "op: Leave, at: 1000, id: 0", "op: CoordinatorCrash, at: 100, down: 100")
	r := testbed(t, "launch", file, "--clock", "mark", "--out", out, "--", "python3", "-c", script)
	got := programLines(r.stdout)
	want := []string{"w0: heard worker 10", "w0: heard worker 20", "w0: heard worker 21", "w0: told nothing", "w0: told nothing", "w0: well"}
	slices.Sort(want)
	if r.code != 0 || !slices.Equal(got, want) {
		t.Errorf("exit code %d, %q, want %q\n%s", r.code, got, want, r.stderr)
	}
	for _, line := range []string{"injects that cannot apply to programs are left out: Leave w0, CoordinatorCrash", "Crash w1 affected 3 processes", "Restart w2 affected 3 processes", "the program of w2 starts again, as incarnation 1"} {
		if !strings.Contains(r.stderr, line) {
			t.Errorf("no %q in\n%s", line, r.stderr)
		}
	}
	injects := 0
	for _, e := range programEvents(t, out) {
		if e.Type == record.ProgramInject {
			injects++
			if e.Processes == nil || *e.Processes != 3 || e.Left != 0 || e.Node != map[string]string{"Crash": "w1", "Restart": "w2"}[e.Op] {
				t.Errorf("%+v", e)
			}
		}
	}
	if injects != 2 { // Leave and CoordinatorCrash are none
		t.Errorf("%d injects are on record", injects)
	}
	expectNothing(t, t.Name(), before)
}

// TestLaunchPause: all that runs in a node stops, whatever session it is in, and goes on;
// a signal reaches it all the same.
func TestLaunchPause(t *testing.T) {
	needSandbox(t)
	needTool(t, "python3")
	t.Parallel()
	before := look(t)
	const script = found + `
if rank == 0:
    until(lambda: states("sleep", "4321"), "SS")
    mark("start")
    until(lambda: states("sleep", "4321"), "TT"); print("paused", flush=True)
    until(lambda: states("sleep", "4321"), "SS"); print("resumed", flush=True)
    until(lambda: states("sleep", "4321"), "TT"); print("paused", flush=True)
    sys.exit(7)
elif rank == 1:
    subprocess.Popen(["setsid", "sleep", "4321"])
    subprocess.Popen("(trap '' HUP; setsid sleep 4321 & exit 0)", shell=True)
    import signal
    def over(*_):
        print("terminated", flush=True)
        sys.exit(1)
    signal.signal(signal.SIGTERM, over)
    while True: time.sleep(1)
`
	file := injecting(t, "op: Pause, at: 1000, id: 1", "op: Resume, at: 10000, id: 1", "op: Pause, at: 20000, id: 1", "op: Pause, at: 500, id: 2, heartbeats: true")
	r := testbed(t, "launch", file, "--clock", "mark", "--grace", "60s", "--", "python3", "-c", script)
	want := []string{"w0: paused", "w0: paused", "w0: resumed", "w1: terminated"}
	if got := programLines(r.stdout); r.code != 7 || !slices.Equal(got, want) || !strings.Contains(r.stderr, "Pause w1 affected 3 processes") || !strings.Contains(r.stderr, "Pause w2 with heartbeats: true cuts w2 off") {
		t.Errorf("exit code %d, %q, want %q\n%s", r.code, got, want, r.stderr)
	}
	expectNothing(t, t.Name(), before)
}

// TestLaunchCentralRestarts: the central program crashes, too, and is started again.
func TestLaunchCentralRestarts(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	file := injecting(t, "op: CoordinatorCrash, at: 1000, down: 2000", "op: Preempt, at: 100, id: 2, notice: 100000")
	again := filepath.Join(t.TempDir(), "again")
	r := testbed(t, "launch", file, "--clock", "mark", "--central", fmt.Sprintf(`sh -c 'echo central $TESTBED_INCARNATION; [ $TESTBED_INCARNATION = 0 ] || touch %s; exec sleep 60'`, again),
		"--", "sh", "-c", fmt.Sprintf("[ $RANK != 2 ] || { trap 'echo notice; exit 5' TERM; testbed mark start; }; until [ -e %s ]; do sleep 0.1; done; [ $RANK != 2 ] || sleep 60", again))
	want := []string{"coordinator: central 0", "coordinator: central 1", "w2: notice"}
	if got := programLines(r.stdout); r.code != 0 || !slices.Equal(got, want) {
		t.Errorf("exit code %d, %q, want %q\n%s", r.code, got, want, r.stderr)
	}
}

// TestMeasuredLaunchSlow: a node that is to be five times slower has a fifth of the
// processor time that it had, whatever its processes are, and then all of it again.
func TestMeasuredLaunchSlow(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	needTool(t, "python3")
	// Processes compute in turn in w1, for 3 s each. They say how many rounds they did, and
	// in how many milliseconds of processor time.
	const script = found + `
if rank == 1:
    spin = """
import time
n, end, used = 0, time.monotonic() + 3, time.process_time()
while time.monotonic() < end: n += 1
print(n, round(1000 * (time.process_time() - used)), flush=True)
"""
    for k in range(3):
        if k == 1: mark("start")
        subprocess.run(["setsid", "python3", "-c", spin])
`
	file := injecting(t, "op: Slow, at: 10, id: 1, factor: 5", "op: Restore, at: 31000, id: 1")
	testenv.Measure(t, func() func(testenv.Machine) error {
		out := filepath.Join(t.TempDir(), "out")
		r := testbed(t, "launch", file, "--clock", "mark", "--out", out, "--", "python3", "-c", script)
		var counts, used []float64
		for _, m := range regexp.MustCompile(`(?m)^w1: (\d+) (\d+)$`).FindAllStringSubmatch(r.stdout, -1) {
			counts, used = append(counts, number(t, m[1])), append(used, number(t, m[2]))
		}
		return func(m testenv.Machine) error {
			if r.code != 0 || len(counts) != 3 {
				return fmt.Errorf("exit code %d, %v\n%s", r.code, counts, r.stderr)
			}
			for _, e := range programEvents(t, out) {
				if e.Type == record.ProgramSlowed {
					if got := e.ShareBefore / e.ShareUsed; math.Abs(got-5) > 0.5+5*m.Taken {
						return fmt.Errorf("on record it was %.2f times slower, want 5", got)
					}
				}
			}
			slow, again := used[0]/used[1], counts[2]/counts[0]
			if math.Abs(slow-5) > 1+5*m.Taken || again < 0.8-m.Taken {
				return fmt.Errorf("%v ms of processor time: %.2f times less, want 5; %v rounds: then %.2f of before", used, slow, counts, again)
			}
			// Some virtual processors do a third less in the same time when they rest every few
			// milliseconds.
			if slow := counts[0] / counts[1]; slow < 4-5*m.Taken {
				return fmt.Errorf("%v rounds: %.2f times slower, want at least 4", counts, slow)
			}
			return nil
		}
	})
}

// TestLaunchReport: what was launched, and what ran on a network, has a report.
func TestLaunchReport(t *testing.T) {
	needSandbox(t)
	needTool(t, "python3")
	t.Parallel()
	for name, args := range map[string][]string{
		"launch": {"launch", cutting(t), "--", "python3", "-c", `
import os, socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(150):
    s.sendto(bytes(1000), ("w0" if os.environ["RANK"] != "0" else "w1", 9))
    time.sleep(0.01)
`},
		"net": {"net", cutting(t), "--", "testbed", "in", "w0", "ping", "-q", "-c", "15", "-i", "0.1", "w1"},
	} {
		out := filepath.Join(t.TempDir(), name)
		r := testbed(t, slices.Insert(args, 2, "--out", out)...)
		if r.code != 0 {
			t.Fatalf("%s: exit code %d\n%s", name, r.code, r.stderr)
		}
		samples := map[string]bool{}
		for _, e := range programEvents(t, out) {
			if e.Type == record.ProgramSample && *e.BytesSent > 0 {
				samples[e.Node] = true
			}
		}
		if !samples["w0"] || !samples["w1"] {
			t.Errorf("%s: what nodes sent is on record of %v", name, samples)
		}
		r = testbed(t, "report", out, "--trace", filepath.Join(out, "trace.json"))
		page, err := os.ReadFile(filepath.Join(out, "report.html"))
		if r.code != 0 || err != nil || !strings.Contains(string(page), "Partition w2") || !strings.Contains(string(page), "exit code 0") {
			t.Errorf("%s: exit code %d, %v\n%s", name, r.code, err, r.stderr)
		}
	}
}
