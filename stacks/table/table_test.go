//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/internal/errs"
	"testbed/policy"
	"testbed/record"
	"testbed/scenarios"
	"testbed/stacks/measure"
)

// fake plays runs: it writes their records. The runs named in kills end the campaign in
// their middle, and those in fails fail, each once.
type fake struct {
	t            *testing.T
	kill         context.CancelFunc
	kills, fails map[string]bool
	played       []string
}

func (f *fake) play(_ context.Context, j job, dir string) (int, error) {
	name := j.String()
	f.played = append(f.played, name)
	d, err := record.CreateDir(dir) // refuses the rest of a killed run
	if err != nil {
		return 0, err
	}
	if f.kills[name] {
		delete(f.kills, name)
		f.kill()
		return 0, d.WriteFile(record.SummaryFile, []byte("{}"))
	}
	if f.fails[name] {
		delete(f.fails, name)
		return 0, errors.New("it failed")
	}
	if j.player.Stack != nil && j.player.Stack.Name == "pccl" {
		return exitUnsupported, errors.Join(os.RemoveAll(dir), &errs.UnsupportedError{Missing: "there is no pccl", Fix: "install it"})
	}
	source, err := scenarios.Find(j.scenario)
	if err != nil {
		return 0, err
	}
	summary := record.Summary{Policy: j.player.Name, TimeScale: 1000, Complete: true, Work: &record.Work{StepsDone: 14}}
	if j.player.Stack != nil {
		summary.Stack = &record.Stack{Name: j.player.Stack.Name, Version: "1.0", Options: j.player.Stack.Values, TCP: "reno"}
		if err := os.Mkdir(d.Path("stack"), 0o755); err != nil {
			return 0, err
		}
		if err := d.WriteFile(filepath.Join("stack", record.ProgramsFile), nil); err != nil {
			return 0, err
		}
	}
	end := 5000 + 100*j.run
	events := fmt.Sprintf(`{"t_us":0,"type":"slow","node":"w3"}
{"t_us":2500,"type":"outer_step","round":1,"participants":[0,1,2]}
{"t_us":%d,"type":"outer_step","round":2,"participants":[0,1,2,3]}
`, end)
	return 0, errors.Join(
		d.WriteFile("scenario.yaml", source.Text), d.WriteJSON(record.SummaryFile, summary), d.WriteJSON(record.EnvironmentFile, record.Environment{Began: "2026-11-28T12:00:00Z", Kernel: "6.1"}),
		d.WriteFile(record.EventsFile, []byte(events)))
}

func (f *fake) simulate(context.Context, string, string, int) (measure.Measures, error) {
	return measure.Measures{Complete: true, Length: 5, Took: [][]policy.ID{{0, 1, 2}, {0, 1, 2}}}, nil
}

// call is one call of the command.
func (f *fake) call(o options) (played []string, err error) {
	f.t.Helper()
	c, err := open(o)
	if err != nil {
		return nil, err
	}
	defer c.close()
	ctx, cancel := context.WithCancel(f.t.Context())
	defer cancel()
	f.kill, f.played = cancel, nil
	err = c.play(ctx, f.play, f.t.Output())
	if ctx.Err() == nil {
		err = errors.Join(err, c.write(ctx, f.simulate))
	}
	return f.played, err
}

// TestResumption: a campaign that was killed goes on. It plays again what was killed or
// failed, and nothing else. The rest of a killed run is removed.
func TestResumption(t *testing.T) {
	all, err := players([]string{"gloo", "gloo:tuned", "pccl"})
	if err != nil {
		t.Fatal(err)
	}
	o := options{out: filepath.Join(t.TempDir(), "campaign"), runs: 2, players: all, settings: settings{TimeScale: 1000}}
	o.only = regexp.MustCompile("^(homogeneous|late_join) (gloo|pccl|baseline-8)")
	f := &fake{
		t: t, kills: map[string]bool{"late_join gloo:tuned 1": true}, fails: map[string]bool{"homogeneous baseline-8 1": true},
	}
	for k, want := range []string{
		"homogeneous gloo 1, homogeneous gloo:tuned 1, homogeneous pccl 1, homogeneous baseline-8 1, late_join gloo 1, late_join gloo:tuned 1",
		"homogeneous pccl 1, homogeneous baseline-8 1, late_join gloo:tuned 1, late_join baseline-8 1, " +
			"homogeneous gloo 2, homogeneous gloo:tuned 2, homogeneous baseline-8 2, late_join gloo 2, late_join gloo:tuned 2, late_join baseline-8 2",
		"homogeneous pccl 1",
	} {
		got, err := f.call(o)
		if err != nil && k > 0 {
			t.Errorf("call %d: %v", k, err)
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("call %d played %s\nwant %s", k, text, want)
		}
	}
	table, err := os.ReadFile(filepath.Join(o.out, tableFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Runs: 12.", "- Not played: there is no pccl; install it\n", "- When: 2026-11-28\n", "- Time scale: 1000; congestion control of TCP in the nodes of stacks: reno\n", "\n## late_join\n",
		// Rounds of 2.5 and 2.6 or 2.7 s; 14 inner steps in 4 times 5.1 or 5.2 s.
		"\n| gloo:tuned | 2 of 2 complete | 2.58 (2.55–2.6) | 2.65 (2.6–2.7) | 0.68 (0.673–0.686) | 2.65 (2.6–2.7) | 2.5 | – | 0 | – | 0 | – | – |\n",
		"\n| gloo | 1.0 | quiet_s=2, timeout_s=10 |\n",
		"\n| gloo | `baseline` | -3 %: 5 s for 5.15 s; same in 1 of 2 | – | – | -3 %: ",
	} {
		if !bytes.Contains(table, []byte(want)) {
			t.Errorf("the table lacks %q", want)
		}
	}
	if bytes.Contains(table, []byte("pause_resume\n")) || t.Failed() {
		t.Errorf("the table:\n%s", table)
	}
	o.settings.TCP = "bbr"
	if _, err := f.call(o); err == nil || !strings.Contains(err.Error(), "was begun with -time-scale") {
		t.Errorf("other settings: %v", err)
	}
}

// TestOneAtATime: two calls do not play one campaign.
func TestOneAtATime(t *testing.T) {
	o := options{out: t.TempDir()}
	c, err := open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if _, err := open(o); err == nil || !strings.Contains(err.Error(), "is being played") {
		t.Errorf("a second call: %v", err)
	}
}

// TestPlan: the campaign has every stack with its defaults and tuned, and our policies at
// two widths.
func TestPlan(t *testing.T) {
	all, err := players(defaultStacks())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range all {
		names = append(names, p.Name)
	}
	want := []string{"gloo", "gloo:tuned", "hivemind", "hivemind:tuned", "pccl", "torchft", "torchft:tuned", "baseline-32", "baseline-8", "straggler-32", "straggler-8", "adaptive-32", "adaptive-8"}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	c := &campaign{options: options{runs: 3, players: all, only: regexp.MustCompile("")}}
	if n := len(c.jobs()); n != 6*len(want)*3 {
		t.Errorf("%d runs", n)
	}
}

// TestPredictor: the policy torchft has the stack's options, in scenario time.
func TestPredictor(t *testing.T) {
	all, err := players([]string{"torchft:tuned", "hivemind"})
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range []string{
		"torchft:min_replicas=3:join_timeout=3000:heartbeat_timeout=5000:quorum_timeout=60000:timeout=5000:quorum_retries=3:sync=true:init_sync=false 32",
		"baseline 32", "baseline 32", "baseline 8",
	} {
		policy, bits, err := predictor(all[k], "homogeneous", 1000)
		if got := fmt.Sprint(policy, " ", bits); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", all[k].Name, got, err, want)
		}
		s, err := scenarios.Load("homogeneous")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Machine(policy); err != nil {
			t.Errorf("%s: %v", policy, err)
		}
	}
}

// TestCells: an open gap, a worker that was never left out, several workers, and runs that
// lack a value are said.
func TestCells(t *testing.T) {
	run := func(faults ...measure.Fault) result { return result{Measures: measure.Measures{Faults: faults}} }
	crash := func(gap float64, open bool, without *float64) measure.Fault {
		return measure.Fault{Type: record.Crash, Node: "w2", Gap: &measure.Gap{Seconds: gap, Open: open}, Without: without}
	}
	pause := measure.Fault{Type: record.Pause, Node: "w1", Back: new(3.25)}
	for name, c := range map[string]struct {
		runs []result
		want [3]string
	}{
		"no fault":        {[]result{run()}, [3]string{"–", "–", "–"}},
		"one crash":       {[]result{run(crash(6, false, new(5.5))), run(crash(57, true, nil))}, [3]string{"31.5 (6–57), 1 open", "5.5 in 1 of 2", "–"}},
		"crash and pause": {[]result{run(crash(6, false, nil), pause)}, [3]string{"w2 6; w1 –", "w2 never; w1 never", "w2 –; w1 3.25"}},
	} {
		cells := row(c.runs)
		if got := [3]string(cells[4:7]); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestPlay: a run without a record is an error with its last line, a stack that is missing
// is unsupported, and a run that takes too long is interrupted.
func TestPlay(t *testing.T) {
	for name, c := range map[string]struct {
		script      string
		exit        int
		unsupported bool
		want        string
	}{
		"well":      {`mkdir -p $5; echo {} > $5/summary.json`, 0, false, ""},
		"invalid":   {`mkdir -p $5; echo {} > $5/summary.json; exit 3`, 3, false, ""},
		"missing":   {`echo "testbed: there is no gloo; install it" >&2; exit 4`, 4, true, "there is no gloo; install it"},
		"broken":    {`echo "testbed: no memory" >&2; echo "{"; exit 1`, 1, false, "testbed: no memory"},
		"no record": {`echo fine`, 0, false, "summary.json: no such file"},
		"stubborn":  {`trap 'n=x$n; [ $n = xx ] && { echo {} > $5/summary.json; exit 1; }' INT; mkdir -p $5; while :; do sleep 0.1; done`, 1, false, ""},
		"too long":  {`trap 'echo {} > $5/summary.json; exit 1' INT; mkdir -p $5; while :; do sleep 0.1; done`, 1, false, ""},
	} {
		dir := t.TempDir()
		b := &testbed{program: filepath.Join(dir, "testbed"), settings: settings{TimeScale: 1000}, limit: 3 * time.Second, patience: 6 * time.Second}
		if err := os.WriteFile(b.program, []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		exit, err := b.play(t.Context(), job{"homogeneous", player{Name: "baseline-8", Policy: "baseline", Bits: 8}, 1}, filepath.Join(dir, "run"))
		if exit != c.exit || errors.Is(err, errors.ErrUnsupported) != c.unsupported || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: exit code %d, %v", name, exit, err)
		}
	}
}
