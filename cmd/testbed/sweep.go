package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"testbed/experiment"
	"testbed/experiment/sweep"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/scenarios"
)

type sweepFlags struct {
	realFlags
	set      []string
	list     string
	seeds    string
	policies []string
	network  string
	train    bool
	loss     float64
	real     bool
	repeat   int
	resume   bool
}

// maxLoss is above any loss of a model that learns.
const maxLoss = 1000

// lossFlag asks for the validation loss for times to a loss.
func lossFlag(cmd *cobra.Command, loss *float64, otherwise string) {
	cmd.Flags().Float64Var(loss, "loss", 0, "target validation loss: a policy's time ends when the loss reaches it (default: "+otherwise+")")
}

func validLoss(loss float64) bool { return loss >= 0 && loss <= maxLoss }

func wrongLoss(loss float64) error {
	return errs.Usagef("--loss %v must lie between 0 and %d", loss, maxLoss)
}

func sweepCommand() *cobra.Command {
	var flags sweepFlags
	cmd := &cobra.Command{
		Use: "sweep SCENARIO --set FIELD=V1,V2,…", Short: "Vary fields of a scenario, and compare policies", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Plays a scenario with every combination of the given field values, seeds and
policies: in the simulator, on all processors, or with --real on a real network,
one after the other.

A field is named by its path in the scenario file. A value is written as in the
file:

  testbed sweep persistent_straggler --set policy.straggler.k=1,2,3,5 --seeds 1..10
  testbed sweep homogeneous --set workers.count=4,16,64 --set 'workers[*].inner_step_jitter=0,100,300'

A policy may have parameters, and may be given several times with different ones:
--policy baseline,straggler:k=1,straggler:k=5. The first policy is the reference
of speed-ups.

With --train every point trains as the section train says. The results contain
losses, the time to a loss, and the cost of policies and fields at equal tokens
and at equal rounds. Training that several points share is computed once.

  testbed sweep charlm_straggler --train --network links --seeds 1..5 --policy baseline,straggler,backup
  testbed sweep lognormal_16 --train --network links --set train.task=charlm --set target_outer_steps=30

workers.count is the number of workers. Workers beyond those in the file are copies
of them, in turn. --list reads assignments from a file, one JSON object a line.

The directory of results contains results.jsonl and results.csv with a row for each
point, columns.json, and summary.json. --resume --out DIR continues an interrupted
sweep.`,
	}
	flags.declare(cmd)
	cmd.Flags().StringArrayVar(&flags.set, "set", nil, "FIELD=V1,V2,…: vary this field; may be given several times")
	cmd.Flags().StringVar(&flags.list, "list", "", "file with assignments, one JSON object a line")
	cmd.Flags().StringVar(&flags.seeds, "seeds", "", "A..B: play each point with every seed from A to B (default: the scenario's seed)")
	cmd.Flags().StringSliceVar(&flags.policies, "policy", scenarios.PolicyNames, "policies to play, the reference first")
	networkFlag(cmd, &flags.network, "network model of the simulator: churn or links")
	cmd.Flags().BoolVar(&flags.train, "train", false, "train in the simulator, as the scenario's section train says")
	lossFlag(cmd, &flags.loss, "the final loss of the first policy in the first cell")
	cmd.Flags().BoolVar(&flags.real, "real", false, "play on a real network")
	cmd.Flags().IntVar(&flags.repeat, "repeat", 1, "how often to play each point on the real network")
	cmd.Flags().BoolVar(&flags.resume, "resume", false, "skip points whose results are already in the directory of --out")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := flags.plan(args[0])
		if err != nil {
			return err
		}
		return flags.run(cmd, p)
	}
	return cmd
}

// plan returns the plan to play.
func (f *sweepFlags) plan(name string) (*sweep.Plan, error) {
	switch {
	case f.repeat < 1:
		return nil, errs.Usagef("--repeat %d must be at least 1", f.repeat)
	case f.repeat > 1 && !f.real:
		return nil, errs.Usagef("--repeat needs --real: the simulator gives the same result each time; vary --seeds")
	case f.resume && f.out == "":
		return nil, errs.Usagef("--resume needs --out: the directory of the sweep to resume")
	case f.real && (f.train || f.network != experiment.NetworkChurn):
		return nil, errs.Usagef("--train and --network apply to the simulator only; remove them, or remove --real (real runs always train)")
	case !validLoss(f.loss):
		return nil, wrongLoss(f.loss)
	case f.loss > 0 && !f.train && !f.real:
		return nil, errs.Usagef("--loss needs --train, because the simulator otherwise trains no model; add --train")
	}
	p := &sweep.Plan{World: record.Sim, Repeats: f.repeat, Train: f.train, Target: f.loss}
	if f.network != experiment.NetworkChurn {
		p.Network = f.network
	}
	if f.train || p.Network != "" {
		p.How = fmt.Sprintf("network %s, trained %v", f.network, f.train)
	}
	source, err := scenarios.Find(name)
	if err != nil {
		return nil, err
	}
	if p.Scenario, err = source.Parse(); err != nil {
		return nil, err
	}
	p.Text = source.Text
	if f.real {
		r, err := f.realFlags.load(name)
		if err != nil {
			return nil, err
		}
		p.Scenario, p.World, p.Train, p.How = r.Scenario, record.Real, r.Scenario.Train.Real(), fmt.Sprintf("links %s, time scale %v", f.links, f.timeScale)
	}
	if err := experiment.CheckPolicies(p.Scenario, f.policies); err != nil {
		return nil, err
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
			return nil, errs.Usagef("reading --list: %w", err)
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

func (f *sweepFlags) run(cmd *cobra.Command, p *sweep.Plan) error {
	show := newSweepProgress(cmd)
	o := experiment.SweepOptions{Resume: f.resume, Progress: show.step}
	var err error
	if o.Dir, err = f.dir(p.Scenario.Name, "sweep"); err != nil {
		return err
	}
	if o.Simulate, err = experiment.NewSimulator(f.network, nil); err != nil {
		return err
	}
	end := func() error { return nil }
	if f.train {
		o.Simulate, end = o.Simulate.TrainedOnce(cmd.Context())
	}
	if f.real {
		o.Real = f.player(cmd, true)
	}
	s, failed := experiment.Sweep(cmd.Context(), p, o)
	failed = errors.Join(failed, end())
	show.end()
	if failed != nil && !invalid(failed) {
		if s.Dir != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "the sweep has stopped after %d of %d points; to resume it, repeat its command with --resume --out %s\n", s.Done, s.Points, s.Dir)
		}
		return failed
	}
	if f.json {
		return errors.Join(printJSON(cmd, s), failed)
	}
	return errors.Join(sweep.WriteText(cmd.OutOrStdout(), s), failed)
}

// sweepProgress shows how many points are done and how long the others will
// take: a bar on a terminal, lines elsewhere.
type sweepProgress struct {
	out         io.Writer
	json        bool
	bar         *progressbar.ProgressBar // nil without a terminal
	before      int                      // points that were done at the beginning
	begin, told time.Time                // zero until then
}

func newSweepProgress(cmd *cobra.Command) *sweepProgress {
	return &sweepProgress{out: cmd.ErrOrStderr(), json: progressAsJSON(cmd)}
}

// step is called first of all and after each point, with the number of finished
// points.
func (p *sweepProgress) step(done, points int) {
	if p.json {
		if p.begin.IsZero() {
			p.begin = time.Now()
		}
		if time.Since(p.told) >= 100*time.Millisecond || done == points {
			p.told = time.Now()
			progressLine{"", time.Since(p.begin).Seconds(), done, points, fmt.Sprintf("points done: %d of %d", done, points)}.write(p.out)
		}
		return
	}
	switch {
	case p.begin.IsZero():
		p.start(done, points)
	case p.bar != nil:
		_ = p.bar.Add(1) // cosmetic
	case time.Since(p.told) >= 5*time.Second:
		p.told = time.Now()
		rest := time.Since(p.begin) / time.Duration(done-p.before) * time.Duration(points-done)
		fmt.Fprintf(p.out, "points done: %d of %d, about %v left\n", done, points, rest.Round(time.Second))
	}
}

func (p *sweepProgress) start(done, points int) {
	p.before, p.begin, p.told = done, time.Now(), time.Now()
	if done > 0 {
		fmt.Fprintf(p.out, "points done already: %d of %d\n", done, points)
	}
	if f, ok := p.out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(points-done, progressbar.OptionSetWriter(f), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetPredictTime(true), progressbar.OptionSetWidth(20), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetDescription("points"))
	}
}

func (p *sweepProgress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
