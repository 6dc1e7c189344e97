package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"testbed/node/host"
	"testbed/runlog"
	"testbed/scenarios"
	"testbed/sim"
	"testbed/sweep"
)

type sweepFlags struct {
	realFlags
	set      []string
	list     string
	seeds    string
	policies []string
	real     bool
	repeat   int
	resume   bool
}

func sweepCommand() *cobra.Command {
	var flags sweepFlags
	cmd := &cobra.Command{
		Use: "sweep SCENARIO --set FIELD=V1,V2,…", Short: "Vary fields of a scenario and compare the policies", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Plays a scenario with every combination of the values given for its fields,
every seed and every policy: in the simulator, on all processors, or with --real
on a real network, one after the other.

A field is named by its path in the scenario file, a value is written as there:

  testbed sweep persistent_straggler --set policy.straggler.k=1,2,3,5 --seeds 1..10
  testbed sweep homogeneous --set workers.count=4,16,64 --set 'workers[*].inner_step_jitter=0,100,300'

workers.count is the number of workers; beyond those in the file, copies of them
in turn. --list reads assignments from a file, one JSON object a line.

The directory of results has results.jsonl and results.csv, a row a point, and
summary.json. A sweep that was interrupted goes on with --resume --out DIR.`,
	}
	flags.declare(cmd)
	cmd.Flags().StringArrayVar(&flags.set, "set", nil, "FIELD=V1,V2,…: vary this field; may be given several times")
	cmd.Flags().StringVar(&flags.list, "list", "", "file with assignments, one JSON object a line")
	cmd.Flags().StringVar(&flags.seeds, "seeds", "", "A..B: play each point with each of these seeds (default: the scenario's)")
	cmd.Flags().StringSliceVar(&flags.policies, "policy", scenarios.PolicyNames, "policies to play")
	cmd.Flags().BoolVar(&flags.real, "real", false, "play on a real network")
	cmd.Flags().IntVar(&flags.repeat, "repeat", 1, "how often to play each point on the real network")
	cmd.Flags().BoolVar(&flags.resume, "resume", false, "skip what the directory of --out has already")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := flags.plan(args[0])
		if err != nil {
			return err
		}
		return flags.run(cmd, p)
	}
	return cmd
}

// plan says what is to be played.
func (f *sweepFlags) plan(name string) (*sweep.Plan, error) {
	switch {
	case f.repeat < 1:
		return nil, usageError{fmt.Errorf("--repeat %d must be at least 1", f.repeat)}
	case f.repeat > 1 && !f.real:
		return nil, usageError{errors.New("--repeat needs --real: the simulator gives the same result each time; vary --seeds")}
	case f.resume && f.out == "":
		return nil, usageError{errors.New("--resume needs --out: the directory of the sweep to go on with")}
	}
	p := &sweep.Plan{World: runlog.Sim, Repeats: f.repeat}
	source, err := scenarios.Find(name)
	if err != nil {
		return nil, err
	}
	if p.Scenario, err = source.Parse(); err != nil {
		return nil, err
	}
	p.Text = source.Text
	if f.real {
		_, o, err := f.realFlags.load(name)
		if err != nil {
			return nil, err
		}
		p.Scenario, p.World, p.How = o.Scenario, runlog.Real, fmt.Sprintf("links %s, time scale %v", f.links, f.timeScale)
	}
	for i, policyName := range f.policies {
		if _, err := p.Scenario.Machine(policyName); err != nil {
			return nil, err
		}
		if slices.Contains(f.policies[:i], policyName) {
			return nil, usageError{fmt.Errorf("--policy names %s twice", policyName)}
		}
	}
	p.Policies = f.policies
	p.Seeds = []uint64{p.Scenario.Seed}
	if f.seeds != "" {
		if p.Seeds, err = sweep.ParseSeeds(f.seeds); err != nil {
			return nil, err
		}
	}
	if p.Cells, err = f.cells(); err != nil {
		return nil, err
	}
	return p, p.Check()
}

func (f *sweepFlags) cells() ([]sweep.Assignment, error) {
	var list []sweep.Assignment
	if f.list != "" {
		text, err := os.ReadFile(f.list)
		if err != nil {
			return nil, usageError{fmt.Errorf("reading --list: %w", err)}
		}
		if list, err = sweep.ParseList(f.list, text); err != nil {
			return nil, err
		}
	}
	var axes []sweep.Axis
	for _, text := range f.set {
		axis, err := sweep.ParseAxis(text)
		if err != nil {
			return nil, fmt.Errorf("--set %w", err)
		}
		axes = append(axes, axis)
	}
	return sweep.Grid(list, axes)
}

func (f *sweepFlags) run(cmd *cobra.Command, p *sweep.Plan) (err error) {
	dir, err := f.directory(p)
	if err != nil {
		return err
	}
	keys := p.Keys()
	table, done, err := sweep.OpenTable(dir.Path(sweep.TableFile), p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	left := 0
	for _, key := range keys {
		if _, ok := done[key]; !ok {
			left++
		}
	}
	show := newSweepProgress(cmd.ErrOrStderr(), len(keys), left)
	// The simulator makes much garbage that is small beside any machine.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	workers, play := runtime.GOMAXPROCS(0), sweep.Player(simulatePoint)
	if f.real {
		workers, play = 1, f.realPlayer(cmd, dir)
	}
	var invalid error
	failed := p.Play(cmd.Context(), workers, keys, done, play, func(r sweep.Row) error {
		done[r.Key] = r
		show.step()
		if err := table.Add(r); err != nil {
			return err
		}
		if f.real && (!r.Complete || r.Fidelity == "invalid" || r.BitIdentical != nil && !*r.BitIdentical) {
			invalid = errInvalid
		}
		if f.real || show.due() {
			return table.Flush()
		}
		return nil
	})
	show.end()
	s := p.Summarize(keys, done)
	s.Dir = string(dir)
	if err := errors.Join(table.Flush(), writeCSV(dir, p, keys, done), dir.WriteJSON(runlog.SummaryFile, s)); err != nil {
		return errors.Join(failed, err)
	}
	if failed != nil || cmd.Context().Err() != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d points are done; go on with --resume --out %s\n", s.Done, s.Points, dir)
		return errors.Join(failed, cmd.Context().Err())
	}
	if f.json {
		err = printJSON(cmd, s)
	} else {
		err = sweep.WriteText(cmd.OutOrStdout(), s)
	}
	return errors.Join(err, invalid)
}

// directory makes the directory of results, or opens that of an interrupted
// sweep.
func (f *sweepFlags) directory(p *sweep.Plan) (runlog.Dir, error) {
	out := f.out
	if out == "" {
		out = host.DefaultDir(p.Scenario.Name, "sweep")
	}
	if f.resume {
		if _, err := os.Stat(filepath.Join(out, sweep.TableFile)); err == nil {
			abs, err := filepath.Abs(out)
			return runlog.Dir(abs), err
		}
	}
	dir, err := runlog.CreateDir(out)
	if err != nil {
		return "", err
	}
	text, err := p.Scenario.Text()
	if err != nil {
		return "", err
	}
	return dir, dir.WriteScenario("scenario.json", text, p.Scenario.Traces)
}

func writeCSV(dir runlog.Dir, p *sweep.Plan, keys []string, done map[string]sweep.Row) error {
	file, err := os.Create(dir.Path(sweep.CSVFile))
	if err != nil {
		return fmt.Errorf("writing the table of results: %w", err)
	}
	return errors.Join(sweep.WriteCSV(file, p, keys, done), file.Close())
}

func simulatePoint(ctx context.Context, s *scenarios.Scenario, _ string, pt sweep.Point) (runlog.Summary, error) {
	if err := ctx.Err(); err != nil {
		return runlog.Summary{}, err
	}
	return sim.Run(s, pt.Policy, nil)
}

// realPlayer plays points on a real network, each with a run directory in dir.
func (f *sweepFlags) realPlayer(cmd *cobra.Command, dir runlog.Dir) sweep.Player {
	return func(ctx context.Context, s *scenarios.Scenario, key string, pt sweep.Point) (runlog.Summary, error) {
		if err := ctx.Err(); err != nil {
			return runlog.Summary{}, err
		}
		text, err := s.Text()
		if err != nil {
			return runlog.Summary{}, err
		}
		record := filepath.Join("points", key)
		if err := os.RemoveAll(dir.Path(record)); err != nil { // of a run that was cut short
			return runlog.Summary{}, fmt.Errorf("removing an old record: %w", err)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s seed %d repeat %d\n", strings.TrimSpace(pt.Set.String()), pt.Seed, pt.Repeat)
		show := newProgress(cmd.ErrOrStderr(), s, pt.Policy)
		sum, err := host.Run(ctx, host.Options{
			Scenario: s, File: s.Name + ".json", Source: text, Policy: pt.Policy, Links: f.links,
			Dir: dir.Path(record), Progress: show.step,
		})
		show.end()
		sum.Dir = record
		return sum, err
	}
}

// sweepProgress says how many points are done and how long the others will
// take: a bar on a terminal, lines elsewhere.
type sweepProgress struct {
	out               io.Writer
	bar               *progressbar.ProgressBar // nil where there is no terminal
	all, left, played int
	begin, told       time.Time
	flushed           time.Time
}

func newSweepProgress(out io.Writer, all, left int) *sweepProgress {
	p := &sweepProgress{out: out, all: all, left: left, begin: time.Now(), told: time.Now(), flushed: time.Now()}
	if left < all {
		fmt.Fprintf(out, "%d of %d points are done already\n", all-left, all)
	}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(left, progressbar.OptionSetWriter(f), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(true), progressbar.OptionSetWidth(20), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetDescription("points"))
	}
	return p
}

// step counts a point.
func (p *sweepProgress) step() {
	p.played++
	if p.bar != nil {
		_ = p.bar.Add(1) // cosmetic
		return
	}
	if time.Since(p.told) < 5*time.Second {
		return
	}
	p.told = time.Now()
	rest := time.Since(p.begin) / time.Duration(p.played) * time.Duration(p.left-p.played)
	fmt.Fprintf(p.out, "%d of %d points, about %v left\n", p.all-p.left+p.played, p.all, rest.Round(time.Second))
}

// due says, once a second, that results should be written to disk.
func (p *sweepProgress) due() bool {
	if time.Since(p.flushed) < time.Second {
		return false
	}
	p.flushed = time.Now()
	return true
}

func (p *sweepProgress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
