package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"testbed/internal/wallsteps"
)

// played are the scenarios of the library that end within a minute.
var played = []string{
	"coordinator_crash", "crash_mid_round", "diurnal", "donor_dies", "flapping_link", "graceful_leave", "homogeneous", "joiner_dies", "late_join",
	"mixed_gpus", "noisy_neighbours", "partition_heal", "pause_resume", "persistent_straggler", "short_stalls", "three_regions", "transient_slow",
}

// undisturbed are the scenarios among them without planned events that could
// fall into another part of a round than planned.
var undisturbed = []string{"homogeneous", "mixed_gpus", "noisy_neighbours", "persistent_straggler", "three_regions"}

var playedPolicies = []string{"baseline", "straggler", "adaptive", "backup"}

// troubles are disturbances of a run besides its scenario.
var troubles = []string{"nothing", "stop", "stop for good", "kill", "kill and resume", "hang up", "full disk", "small files", "load"}

// runMark is in the environment of all processes of a run.
const runMark = "TESTBED_EXPLORED"

// player plays testbed run again and again, and checks the results.
type player struct {
	program, dir string
	log          *log
	rand         *rand.Rand
}

// playedRun is a run.
type playedRun struct {
	number                    int
	scenario, policy, trouble string
	dir, mark                 string
	patience                  time.Duration
	out                       bytes.Buffer
	code                      int
	hit                       string        // process that was hit
	hitFor                    time.Duration // length of the stall
	problems                  []string
}

func (r *playedRun) fail(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// playRuns plays runs whose wall clock is set again and again, each with a
// trouble.
func playRuns(length time.Duration, seed uint64, l *log) error {
	dir, err := os.MkdirTemp("", "explore")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := wallsteps.Overlay(dir, 300*time.Millisecond, wallsteps.Usual)
	if err != nil {
		return err
	}
	p := &player{program: filepath.Join(dir, "testbed"), dir: dir, log: l, rand: rand.New(rand.NewPCG(seed, 0))}
	if out, err := exec.Command("go", "build", overlay, "-o", p.program, "./cmd/testbed").CombinedOutput(); err != nil {
		return fmt.Errorf("building the command: %w\n%s", err, out)
	}
	for n, end := 1, time.Now().Add(length); time.Now().Before(end); n++ {
		r := &playedRun{
			number: n, scenario: pick(p.rand, played), policy: pick(p.rand, playedPolicies), trouble: pick(p.rand, troubles),
			mark: fmt.Sprintf("%s=%d-%d", runMark, os.Getpid(), n), patience: 5 * time.Minute,
		}
		began := time.Now()
		p.play(r)
		verdict := "ok"
		if len(r.problems) > 0 {
			verdict = "FAILED"
			l.found++
		}
		line := fmt.Sprintf("%s play seed=%d run=%d %s %.0fs %s %s, %s %s %v: exit %d %s\n", began.UTC().Format(time.RFC3339), seed, n, verdict, time.Since(began).Seconds(),
			r.scenario, r.policy, r.trouble, r.hit, r.hitFor, r.code, strings.Join(r.problems, "; "))
		fmt.Print(line)
		if _, err := l.file.WriteString(line); err != nil {
			return err
		}
		if len(r.problems) > 0 {
			kept := fmt.Sprintf("%s.play-%d-%d", l.name, seed, n)
			if err := os.WriteFile(kept+".txt", append([]byte(line), r.out.Bytes()...), 0o644); err != nil {
				return err
			}
			_ = os.CopyFS(kept, os.DirFS(r.dir)) // as much as exists
		}
		if err := os.RemoveAll(filepath.Dir(r.dir)); err != nil {
			return err
		}
	}
	return nil
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// play plays a run, and notes problems.
func (p *player) play(r *playedRun) {
	base := filepath.Join(p.dir, fmt.Sprint(r.number))
	r.dir = filepath.Join(base, "run")
	if err := os.MkdirAll(filepath.Join(base, "tmp"), 0o755); err != nil {
		r.fail("%v", err)
		return
	}
	args := []string{"run", r.scenario, "--policy", r.policy, "--out", r.dir}
	switch r.trouble {
	case "full disk":
		size := 64 + p.rand.IntN(1000) // KiB
		disk := filepath.Join(base, "disk")
		_ = os.Mkdir(disk, 0o755) // the mount reports errors
		if err := unix.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%dk", size)); err == nil {
			defer unix.Unmount(disk, unix.MNT_DETACH)
			r.dir = filepath.Join(disk, "run")
			args[len(args)-1] = r.dir
			r.hit = fmt.Sprintf("%d KiB", size)
		} else {
			r.trouble = "nothing" // an ordinary user cannot mount
		}
	case "load":
		defer busy(4)()
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.patience)
	defer cancel()
	cmd := p.command(ctx, r, args...)
	if r.trouble == "small files" {
		size := 1 + p.rand.IntN(200) // of 1,024 bytes
		cmd = exec.CommandContext(ctx, "bash", append([]string{"-c", fmt.Sprintf(`ulimit -f %d; exec "$@"`, size), "bash"}, cmd.Args...)...)
		r.hit = fmt.Sprintf("%d KiB", size)
	}
	p.start(r, cmd)
	if err := cmd.Start(); err != nil {
		r.fail("%v", err)
		return
	}
	var striking sync.WaitGroup
	striking.Go(func() { p.strike(ctx, r, cmd.Process) })
	_ = cmd.Wait() // the exit code shows it
	ended := ctx.Err() == nil
	cancel()
	striking.Wait()
	r.code = cmd.ProcessState.ExitCode()
	if !ended {
		r.fail("the run does not end within %v", r.patience)
	}
	p.nothingLeft(r)
	if r.trouble == "kill and resume" && r.code == -1 {
		ctx, cancel := context.WithTimeout(context.Background(), r.patience)
		defer cancel()
		cmd := p.command(ctx, r, "run", "--resume", r.dir)
		p.start(r, cmd)
		_ = cmd.Run() // likewise
		r.code = cmd.ProcessState.ExitCode()
		if ctx.Err() != nil {
			r.fail("the resumed run does not end within %v", r.patience)
		}
		p.nothingLeft(r)
	}
	p.judge(r)
}

func (p *player) command(ctx context.Context, r *playedRun, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, p.program, args...)
}

func (p *player) start(r *playedRun, cmd *exec.Cmd) {
	cmd.Env = append(os.Environ(), r.mark, "TMPDIR="+filepath.Join(p.dir, fmt.Sprint(r.number), "tmp"))
	cmd.Stdout, cmd.Stderr = &r.out, &r.out
	cmd.WaitDelay = 10 * time.Second
}

// strike applies the run's trouble to one of its processes, at a random moment.
func (p *player) strike(ctx context.Context, r *playedRun, user *os.Process) {
	if !slices.Contains([]string{"stop", "stop for good", "kill", "kill and resume", "hang up"}, r.trouble) {
		return
	}
	wait := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-ctx.Done():
			return false
		}
	}
	if !wait(time.Duration(500+p.rand.IntN(6000)) * time.Millisecond) {
		return
	}
	switch r.trouble {
	case "kill and resume":
		r.hit = "testbed run"
		_ = user.Kill() // it may have ended
		return
	case "hang up":
		r.hit = "testbed run"
		_ = user.Signal(syscall.SIGHUP)
		return
	}
	all := processes(r.mark)
	delete(all, user.Pid)
	pids := make([]int, 0, len(all))
	for pid := range all {
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		return
	}
	slices.Sort(pids)
	pid := pick(p.rand, pids)
	if r.hit = all[pid]; r.trouble == "kill" {
		_ = unix.Kill(pid, unix.SIGKILL)
		return
	}
	if unix.Kill(pid, unix.SIGSTOP) != nil {
		r.hit = ""
		return
	}
	r.hitFor = time.Hour
	if r.trouble == "stop" {
		length := time.Duration(100+p.rand.IntN(3000)) * time.Millisecond
		if wait(length) {
			r.hitFor = length
		}
		_ = unix.Kill(pid, unix.SIGCONT)
	}
}

// processes are the processes of a run, each with its name in ps.
func processes(mark string) map[int]string {
	all := map[int]string{}
	names, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, name := range names {
		env, err := os.ReadFile(name + "/environ")
		if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), mark) {
			continue
		}
		comm, err := os.ReadFile(name + "/comm")
		if pid, _ := strconv.Atoi(filepath.Base(name)); err == nil && pid != os.Getpid() {
			all[pid] = strings.TrimSpace(string(comm))
		}
	}
	return all
}

// nothingLeft looks for things that the run has left behind.
func (p *player) nothingLeft(r *playedRun) {
	for end := time.Now().Add(10 * time.Second); len(processes(r.mark)) > 0 && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	for pid, name := range processes(r.mark) {
		r.fail("the process %d (%s) is left behind", pid, name)
		_ = unix.Kill(pid, unix.SIGKILL) // the next run needs the machine
	}
	if left, err := os.ReadDir(filepath.Join(p.dir, fmt.Sprint(r.number), "tmp")); err != nil || len(left) > 0 {
		r.fail("the folder for temporary files is not empty, or cannot be read: files %v, error %v", left, err)
	}
}

// summary has the examined fields of a summary, real or simulated.
type summary struct {
	Complete bool  `json:"complete"`
	Wall     int64 `json:"wall_clock_us"`
	Evicted  []struct {
		ID     int             `json:"id"`
		Reason json.RawMessage `json:"reason"`
	} `json:"evicted"`
	Work *struct {
		FalseEvicted int `json:"false_evicted"`
	} `json:"work"`
	Rounds   []playedRound `json:"rounds"`
	Fidelity struct {
		Verdict string   `json:"verdict"`
		Reasons []string `json:"reasons"`
	} `json:"fidelity"`
}

type playedRound struct {
	Participants []int `json:"participants"`
}

// judge checks the result and the record.
func (p *player) judge(r *playedRun) {
	if !slices.Contains([]int{0, 1, 3, -1}, r.code) {
		r.fail("exit code %d", r.code)
	}
	text := r.out.String()
	logs, _ := filepath.Glob(filepath.Join(r.dir, "logs", "*.log"))
	for _, name := range logs {
		if data, err := os.ReadFile(name); err == nil && strings.Contains(string(data), "goroutine ") {
			r.fail("%s contains a panic", filepath.Base(name))
		}
	}
	if strings.Contains(text, "goroutine ") {
		r.fail("the command panicked")
	}
	events, err := os.ReadFile(filepath.Join(r.dir, "events.jsonl"))
	if err == nil && bytes.IndexByte(events, '\n') > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cmd := p.command(ctx, r, "report", r.dir, "--out", filepath.Join(p.dir, "report.html"))
		cmd.Env = os.Environ()
		out, err := cmd.CombinedOutput()
		_, lacks := os.Stat(filepath.Join(r.dir, "summary.json"))
		if r.code != 0 && lacks != nil && strings.Contains(string(out), "has not ended") {
			err = nil // it was killed, or there was no room for a summary, and it reports that
		}
		if err != nil {
			r.fail("report cannot read the record: %v: %s", err, bytes.TrimSpace(out))
		}
	}
	var sum summary
	if err := readJSON(filepath.Join(r.dir, "summary.json"), &sum); err != nil {
		if r.code == 0 {
			r.fail("the run ended with exit code 0 but left no summary: %v", err)
		}
		return
	}
	valid := sum.Fidelity.Verdict == "valid"
	if r.code == 0 && (!sum.Complete || sum.Fidelity.Verdict == "invalid") {
		r.fail("exit code 0, but in the summary complete is %v and the verdict is %s", sum.Complete, sum.Fidelity.Verdict)
	}
	if valid && sum.Work != nil && sum.Work.FalseEvicted > 0 {
		for _, e := range sum.Evicted {
			for _, rule := range []string{"heartbeat", "progress", "connection", "gave_up"} {
				if strings.Contains(string(e.Reason), `"`+rule+`"`) {
					r.fail("the run is valid, but w%d was evicted without a cause in the scenario (%s)", e.ID, rule)
				}
			}
		}
	}
	if !valid || !sum.Complete || r.trouble == "kill and resume" || !slices.Contains(undisturbed, r.scenario) {
		return
	}
	var planned summary
	out, err := p.command(context.Background(), r, "simulate", r.scenario, "--policy", r.policy, "--network", "links", "--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &planned)
	}
	if err != nil {
		r.fail("simulating the run: %v", err)
		return
	}
	// Arrivals that are close to each other decide which workers are late. The
	// times agree with the plan if the decisions do.
	same := slices.EqualFunc(sum.Rounds, planned.Rounds, func(a, b playedRound) bool { return slices.Equal(a.Participants, b.Participants) })
	if !same {
		return
	}
	if off := float64(sum.Wall)/float64(max(planned.Wall, 1)) - 1; planned.Complete && (off < -0.15 || off > 0.35) {
		r.fail("the run is valid, but took %d µs: %+.0f %% of the %d µs of its plan", sum.Wall, 100*off, planned.Wall)
	}
}

func readJSON(name string, to any) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}

// busy keeps some processors busy until stopped.
func busy(count int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range count {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		cmd.Stdout = io.Discard
		all.Go(func() {
			var ended *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &ended) {
				fmt.Fprintln(os.Stderr, "explore:", err)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}
