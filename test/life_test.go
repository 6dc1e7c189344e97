//go:build linux

package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"testbed/internal/testenv"
	"testbed/record"
)

// processOf returns the number of the process that writes a log of a run, 0 if there is
// none.
func processOf(dir, name string) (pid int) {
	log := record.Dir(dir).Log(name)
	links, _ := filepath.Glob("/proc/[0-9]*/fd/2") // the pattern is right
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == log {
			pid, _ = strconv.Atoi(strings.Split(link, "/")[2])
			if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && strings.HasPrefix(string(status), "testbed: ") {
				return pid
			}
		}
	}
	return 0
}

// startStopped starts a run and halts one of its processes when its first round is done, for a
// length or, if that is 0, until the run is over. It returns what came of the run once that
// has ended, at most after patience.
func startStopped(t *testing.T, stop halt, name string, length, patience time.Duration) (r result, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir = filepath.Join(t.TempDir(), "run")
	var out, errors strings.Builder
	cmd := command(t, ctx, t.Name(), "run", scenario(t, 4, "20mbit", ""), "--policy", "baseline", "--out", dir)
	cmd.Stdout, cmd.Stderr = &out, &errors
	cmd.WaitDelay = time.Second // what is frozen for good keeps its standard error open
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped, over := make(chan int, 1), make(chan struct{})
	defer close(over)
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			text, _ := os.ReadFile(filepath.Join(dir, record.EventsFile))
			if pid := processOf(dir, name); pid > 0 && strings.Contains(string(text), `"outer_step"`) {
				resume, err := stop(pid)
				if err == nil {
					stopped <- pid
				} else {
					t.Errorf("stopping %s: %v", name, err)
				}
				switch {
				case resume == nil:
				case length > 0:
					time.Sleep(length)
					resume()
				default:
					go func() {
						<-over
						resume()
					}()
				}
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	err := cmd.Wait()
	if ctx.Err() != nil {
		t.Fatalf("with %s stopped the run does not end\n%s", name, errors.String())
	}
	if pid := <-stopped; pid == 0 {
		t.Fatalf("%s was not stopped: %v\n%s", name, err, errors.String())
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errors.String()}, dir
}

// TestMeasuredStandingStillIsSeen: whoever is stopped from outside for a while is named,
// and nobody is evicted because the coordinator was away.
func TestMeasuredStandingStillIsSeen(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	for how, stop := range halts(t) {
		for name, length := range map[string]time.Duration{"w1": time.Second, "coordinator": 3 * time.Second, "router": time.Second} {
			t.Run(how+"/"+name, func(t *testing.T) { stalls(t, stop, name, length) })
		}
	}
}

// stalls plays a run in which a process is stopped for a while.
func stalls(t *testing.T, stop halt, name string, length time.Duration) {
	t.Parallel()
	testenv.Measure(t, func() func(testenv.Machine) error {
		r, _ := startStopped(t, stop, name, length, 2*time.Minute)
		if strings.Contains(r.stdout, "fidelity: valid") {
			t.Errorf("the run is valid, although %s stalled for %v\n%s%s", name, length, r.stdout, r.stderr)
		}
		if name == "coordinator" && !strings.Contains(r.stdout, "no worker was sidelined or evicted") {
			t.Errorf("somebody was judged by the silence of the coordinator's absence\n%s", r.stdout)
		}
		return func(testenv.Machine) error {
			// The verdict names the longest stall, and on a busy machine another process
			// may have one that is longer.
			if !strings.Contains(r.stdout, name+" stalled for ") {
				return fmt.Errorf("the verdict does not name %s, which stalled for %v\n%s%s", name, length, r.stdout, r.stderr)
			}
			return nil
		}
	})
}

// TestResumeBeforeItBegan: a run that was killed before anybody had joined begins anew, as
// it was asked for.
func TestResumeBeforeItBegan(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	file := scenario(t, 3, "100mbit", "")
	var dir string
	for try := 1; ; try++ {
		dir = filepath.Join(t.TempDir(), "run")
		cmd := command(t, t.Context(), t.Name(), "run", file, "--policy", "straggler:k=3", "--time-scale", "200", "--out", dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool {
			_, err := os.Stat(record.Dir(dir).Log("sandbox")) // the sandbox starts
			return err == nil
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if events, _ := os.ReadFile(filepath.Join(dir, record.EventsFile)); !strings.Contains(string(events), `"join"`) {
			break
		}
		if try == 10 {
			t.Fatal("a worker had joined before the kill, ten times")
		}
	}
	cmd := command(t, t.Context(), t.Name(), "run", "--resume", dir)
	if out, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() != exitInvalid || !strings.Contains(string(out), "starts again from the beginning") {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, record.EventsFile))
	if err != nil || !strings.Contains(string(text), `"policy":"straggler:k=3"`) || !strings.Contains(string(text), `"time_scale":200`) {
		t.Errorf("it is another run than was asked for: %v\n%.300s", err, text)
	}
}

// TestMeasuredEveryRunEnds: a run whose sandbox, router or coordinator never runs again
// ends, and its error names the silent process.
func TestMeasuredEveryRunEnds(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	ways := halts(t)
	for name, says := range map[string]string{
		"sandbox": "the sandbox's init process (testbed: sandbox) has not responded for", "router": "the process of router (testbed: router) has not responded for",
		"coordinator": "the process of coordinator (testbed: coordinator) has not responded for",
	} {
		for how, stop := range ways {
			t.Run(how+"/"+name, func(t *testing.T) {
				t.Parallel()
				r, dir := startStopped(t, stop, name, 0, 4*time.Minute)
				if r.code != exitError || !strings.Contains(r.stderr, says) {
					t.Errorf("exit %d, want %q\n%s%s", r.code, says, r.stdout, r.stderr)
				}
				for began := time.Now(); processOf(dir, "w1") > 0; time.Sleep(100 * time.Millisecond) {
					if time.Since(began) > time.Minute { // what version 1 has frozen ends when it thaws
						t.Fatalf("w1 is left behind, as process %d", processOf(dir, "w1"))
					}
				}
			})
		}
	}
}
