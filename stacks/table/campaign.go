//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"testbed/internal/filelock"
	"testbed/record"
	"testbed/stacks"
	"testbed/stacks/measure"
)

// played are the scenarios of the campaign.
var played = []string{"homogeneous", "persistent_straggler", "crash_mid_round", "late_join", "partition_heal", "pause_resume"}

// options are what the user asks for.
type options struct {
	out      string
	runs     int
	only     *regexp.Regexp
	players  []player
	settings settings
	limit    time.Duration
}

// settings are the same for all runs of a campaign.
type settings struct {
	TimeScale float64 `json:"time_scale"`
	TCP       string  `json:"tcp,omitempty"`
}

// player is a stack with its options, or a policy of Testbed with its reduction.
type player struct {
	Name   string
	Stack  *stacks.Chosen // nil: Policy plays
	Policy string
	Bits   int // of a value in the reduction of Policy
}

// defaultStacks are the library's stacks, each with its defaults and tuned.
func defaultStacks() (all []string) {
	for _, name := range stacks.Names() {
		all = append(all, name)
		if s, err := stacks.Find(name); err == nil && len(s.Tuned) > 0 {
			all = append(all, name+":tuned")
		}
	}
	return all
}

// players are these stacks, and our policies with float32 and with codes of 8 bits.
func players(names []string) (all []player, err error) {
	for _, name := range names {
		s, err := stacks.Choose(name)
		if err != nil {
			return nil, err
		}
		all = append(all, player{Name: name, Stack: s})
	}
	for _, policy := range []string{"baseline", "straggler", "adaptive"} {
		for _, bits := range []int{32, 8} {
			all = append(all, player{Name: fmt.Sprintf("%s-%d", policy, bits), Policy: policy, Bits: bits})
		}
	}
	return all, nil
}

// job is a run to play.
type job struct {
	scenario string
	player   player
	run      int
}

func (j job) String() string { return fmt.Sprintf("%s %s %d", j.scenario, j.player.Name, j.run) }

// Files of a campaign's folder.
const (
	settingsFile = "campaign.json"
	lockFile     = "lock"
	tableFile    = "table.md"
	measuresFile = "measures.json"
	// doneFile is in the folder of a run, when its record is complete.
	doneFile = "played.json"
)

// campaign is a folder of runs. The folder of a run is SCENARIO/PLAYER/RUN.
type campaign struct {
	options
	lock    *os.File
	missing map[string]string // what is missing here, by the name of the stack
}

// done is the content of doneFile.
type done struct {
	Exit    int     `json:"exit"` // code of testbed run
	Seconds float64 `json:"seconds"`
}

// open makes the folder of a campaign, or goes on with an existing one.
func open(o options) (*campaign, error) {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of the campaign: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(o.out, lockFile), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the folder of the campaign: %w", err)
	}
	if err := filelock.Try(lock); err != nil && !errors.Is(err, filelock.ErrUnsupported) {
		lock.Close()
		return nil, fmt.Errorf("the campaign in %s is being played: %w", o.out, err)
	}
	c := &campaign{options: o, lock: lock, missing: map[string]string{}}
	var had settings
	err = readJSON(filepath.Join(o.out, settingsFile), &had)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = record.Dir(o.out).WriteJSON(settingsFile, o.settings)
	case err == nil && had != o.settings:
		err = fmt.Errorf("the campaign in %s was begun with -time-scale %g and -tcp %q, not %g and %q; choose another folder", o.out, had.TimeScale, had.TCP, o.settings.TimeScale, o.settings.TCP)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return c, nil
}

func (c *campaign) close() { c.lock.Close() }

func (c *campaign) dir(j job) string {
	return filepath.Join(c.out, j.scenario, j.player.Name, strconv.Itoa(j.run))
}

// jobs are the runs of the campaign: first one of each, so that a part of a campaign has
// a whole table.
func (c *campaign) jobs() (all []job) {
	for run := 1; run <= c.runs; run++ {
		for _, scenario := range played {
			for _, p := range c.players {
				if j := (job{scenario, p, run}); c.only.MatchString(j.String()) {
					all = append(all, j)
				}
			}
		}
	}
	return all
}

// isDone reports whether a run has a complete record.
func (c *campaign) isDone(j job) bool {
	return readJSON(filepath.Join(c.dir(j), doneFile), new(done)) == nil
}

// play plays what has not been played. A run that could not be played is shown, and left
// for the next time; the error counts these.
func (c *campaign) play(ctx context.Context, play func(ctx context.Context, j job, dir string) (exit int, err error), out io.Writer) error {
	jobs, failed := c.jobs(), 0
	for k, j := range jobs {
		if c.isDone(j) || j.player.Stack != nil && c.missing[j.player.Stack.Name] != "" {
			continue
		}
		dir := c.dir(j)
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Dir(dir), 0o755)); err != nil { // of a run that was killed
			return fmt.Errorf("making the folder of a run: %w", err)
		}
		fmt.Fprintf(out, "%d of %d: %s: ", k+1, len(jobs), j)
		began := time.Now()
		exit, err := play(ctx, j, dir)
		if ctx.Err() != nil {
			fmt.Fprintln(out, "interrupted")
			return nil
		}
		if errors.Is(err, errors.ErrUnsupported) && j.player.Stack != nil {
			c.missing[j.player.Stack.Name] = err.Error()
			fmt.Fprintln(out, err)
			continue
		}
		if err != nil {
			failed++
			fmt.Fprintln(out, err)
			continue
		}
		if err := record.Dir(dir).WriteJSON(doneFile, done{exit, time.Since(began).Seconds()}); err != nil {
			return err
		}
		fmt.Fprintf(out, "exit code %d after %.0f s\n", exit, time.Since(began).Seconds())
	}
	if failed > 0 {
		return fmt.Errorf("runs that could not be played: %d; the same command plays them again", failed)
	}
	return nil
}

// result is a run with its measures.
type result struct {
	Scenario string `json:"scenario"`
	Player   string `json:"player"`
	Run      int    `json:"run"`
	measure.Measures
	record *measure.Record
}

// results reads all runs that were played, whatever this call was to play.
func (c *campaign) results() (all []result, err error) {
	for _, scenario := range played {
		for _, p := range c.players {
			entries, err := os.ReadDir(filepath.Join(c.out, scenario, p.Name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			var runs []int
			for _, e := range entries {
				if n, err := strconv.Atoi(e.Name()); err == nil {
					runs = append(runs, n)
				}
			}
			slices.Sort(runs)
			for _, n := range runs {
				j := job{scenario, p, n}
				if !c.isDone(j) {
					continue
				}
				r, err := measure.Read(c.dir(j))
				if err != nil {
					return nil, err
				}
				r.Programs = slices.DeleteFunc(r.Programs, func(e record.ProgramEvent) bool { return e.Type == record.ProgramMark && e.Mark == "step" })
				all = append(all, result{scenario, p.Name, n, measure.Of(r), r})
			}
		}
	}
	return all, nil
}

// write writes the table and the measures.
func (c *campaign) write(ctx context.Context, simulate simulator) error {
	all, err := c.results()
	if err != nil {
		return err
	}
	predicted, err := predict(ctx, c.players, all, simulate)
	if err != nil {
		return err
	}
	dir := record.Dir(c.out)
	text := markdown(c.players, all, predicted, c.settings, c.missing)
	return errors.Join(dir.WriteFile(tableFile, []byte(text)), dir.WriteJSON(measuresFile, all))
}

func readJSON(file string, to any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
