package node

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/internal/memnet"
	"testbed/internal/testenv"
	"testbed/policy/program"
	"testbed/record"
	"testbed/scenarios"
)

// started has a policy's program started outside of the bubble in which it is to be
// asked: what waits for a process would let no time pass there.
func started(t *testing.T, s *scenarios.Scenario, file string) (spec string) {
	t.Helper()
	_, err := exec.LookPath("python3")
	testenv.Need(t, err)
	spec = "program:" + file
	t.Cleanup(program.End)
	if _, err := s.Machine(spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// written writes a program whose answer to enough is a line of Python with the question
// as q, and which counts its runs.
func written(t *testing.T, answer string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "program.py")
	text := `#!/usr/bin/env python3
import json, sys
runs = 0
for line in sys.stdin:
    q = json.loads(line)
    a = {"n": q["n"]}
    if q["ask"] == "hello":
        a.update(version=1, answers=["enough"])
    elif q["ask"] == "reset":
        runs += 1
    else:
        ` + answer + `
    print(json.dumps(a), flush=True)
`
	if err := testenv.WriteExecutable(file, []byte(text)); err != nil {
		t.Fatal(err)
	}
	return file
}

// slowed is a world in which worker 3 gets slow, and the coordinator dies in the
// reduction of the second round.
func slowed(t *testing.T, s *scenarios.Scenario) *world {
	w := newWorld(t, s)
	w.onEvent = func(e record.Event) {
		switch {
		case e.Type == record.RunStart:
			w.command(3, Command{Op: OpSlow, Factor: 8})
		case e.Type == record.ReduceStart && e.Round == 2:
			w.crashCoordinator(3000, true)
		}
	}
	return w
}

// TestProgramsInVirtualTime: policies in Python decide as those in Go, also with another
// coordinator that replays the journal to them.
func TestProgramsInVirtualTime(t *testing.T) {
	for _, name := range []string{"straggler", "backup", "deadline"} {
		t.Run(name, func(t *testing.T) {
			s := worldScenario(t, 4)
			decisions := func(spec string) (of []string) {
				err := memnet.TryBubble(t, func(t *testing.T) {
					w := slowed(t, s)
					sum, events := w.play(spec, time.Hour)
					if err := checkLineage(s, events); err != nil || len(w.failed) > 0 || !sum.Complete || len(sum.Outages) != 1 {
						t.Errorf("%s: %v, %q, complete %v, %d outages", spec, err, w.failed, sum.Complete, len(sum.Outages))
					}
					for _, e := range events {
						switch e.Type {
						case record.RoundClose, record.Sideline, record.Rejoin, record.Evict, record.OuterStep, record.RunEnd:
							of = append(of, fmt.Sprint(e.Type, e.Round, e.Node, e.Participants, e.Missing, e.Reason.Rule, e.Reason.Needed, e.Reason.Misses, e.Reason.Limit))
						}
					}
				})
				if err != nil {
					t.Error(err)
				}
				return of
			}
			want, got := decisions(name), decisions(started(t, s, "../policy/program/testdata/"+name+".py"))
			if !slices.Equal(got, want) {
				t.Errorf("in Python\n%s\nin Go\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if !strings.Contains(strings.Join(want, "\n"), "sideline") {
				t.Errorf("nothing to decide:\n%s", strings.Join(want, "\n"))
			}
		})
	}
}

// TestProgramThatDecidesAnew: the second coordinator sees that the program does not
// decide as it did, and says which decision it is about.
func TestProgramThatDecidesAnew(t *testing.T) {
	s := worldScenario(t, 4)
	spec := started(t, s, written(t, `a.update(enough=False, needed=runs)`))
	err := memnet.TryBubble(t, func(t *testing.T) {
		w := slowed(t, s)
		_, events := w.play(spec, time.Minute)
		failed := strings.Join(w.failed, "\n")
		if !strings.Contains(failed, "on replay the policy decided [{") || !strings.Contains(failed, `"type":"round_close","round":1`) {
			t.Errorf("failed with %s", failed)
		}
		if last := events[len(events)-1]; last.Type == record.RunEnd {
			t.Errorf("the run ended as if all was well: %+v", last)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestProgramThatDies ends the run: the workers hear of it, and the record says why.
func TestProgramThatDies(t *testing.T) {
	s := worldScenario(t, 4)
	spec := started(t, s, written(t, `a.update(enough=False) if q["round"]["number"] < 3 else sys.exit("enough of this")`))
	err := memnet.TryBubble(t, func(t *testing.T) {
		w := newWorld(t, s)
		sum, events := w.play(spec, time.Minute)
		last := events[len(events)-1]
		for _, e := range events {
			if e.Type == record.RunEnd {
				last = e
			}
		}
		if last.Type != record.RunEnd || *last.Complete || last.Reason.Rule != "policy_failed" || !strings.Contains(last.Cause, `died when it was asked the question "enough": exit status 1; its last line of output: "enough of this"`) {
			t.Errorf("the record ends with %+v", last)
		}
		if sum.Complete || sum.OuterSteps != 2 || len(w.failed) != 1 || w.failed[0] != "coordinator: "+last.Cause {
			t.Errorf("complete %v, %d outer steps, failed: %q", sum.Complete, sum.OuterSteps, w.failed)
		}
	})
	if err != nil {
		t.Error(err)
	}
}
