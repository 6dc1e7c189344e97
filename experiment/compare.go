package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"

	"testbed/report"
	"testbed/runlog"
	"testbed/scenarios"
)

// Comparison says what to compare.
type Comparison struct {
	Run    Run // of the first pair; its Policy is not used, its Dir is for all
	Repeat int // pairs on the real network, at least 1
	Real   Real
	Churn  Simulator // with churn's network
	Links  Simulator // on the links of the plan
}

// Compare plays the run under each policy, simulated and on the real network.
// The pairs have the scenario's seed, the next one, and so on, each the same in
// both worlds. If the error is no *InvalidError the result is nil, or has only
// the Dir in which the partial record is.
func Compare(ctx context.Context, o Comparison) (*report.Comparison, error) {
	dir, err := runlog.CreateDir(o.Run.Dir)
	if err != nil {
		return nil, err
	}
	partial := &report.Comparison{Dir: string(dir)}
	var churn, links, real []report.Pair
	for n := range o.Repeat {
		run, simulated, measured := o.Run, "", ""
		if o.Repeat > 1 {
			measured = fmt.Sprintf("-%d", n+1)
		}
		if n > 0 {
			simulated = measured
			if run, err = reseeded(run, run.Scenario.Seed+uint64(n)); err != nil {
				return partial, err
			}
		}
		for _, s := range []struct {
			play   Simulator
			prefix string
			to     *[]report.Pair
		}{{o.Churn, "sim-", &churn}, {o.Links, "sim-links-", &links}} {
			pair, err := s.play.pair(run, dir, s.prefix, simulated)
			if err != nil {
				return partial, err
			}
			*s.to = append(*s.to, pair)
		}
		pair, err := o.Real.pair(ctx, run, dir, measured)
		if errors.Is(err, errors.ErrUnsupported) { // nothing has run
			return nil, errors.Join(err, os.RemoveAll(string(dir)))
		}
		if err != nil {
			return partial, err
		}
		real = append(real, pair)
	}
	c := &report.Comparison{
		Scenario: o.Run.Scenario.Name, Dir: string(dir),
		Sim: churn[0], SimRepeats: churn[1:], SimLinks: links[0], SimLinksRepeats: links[1:], Real: real[0], Repeats: real[1:],
	}
	c.Conclude()
	if err := dir.WriteJSON("comparison.json", c); err != nil {
		return partial, err
	}
	var all []runlog.Summary
	for _, pair := range real {
		for _, name := range scenarios.PolicyNames {
			all = append(all, pair[name])
		}
	}
	return c, Usable(all...)
}

// pair simulates a run under each policy, into run directories of its own.
func (play Simulator) pair(r Run, root runlog.Dir, prefix, suffix string) (report.Pair, error) {
	pair := report.Pair{}
	for _, name := range scenarios.PolicyNames {
		dir, err := runlog.CreateDir(root.Path(prefix + name + suffix))
		if err != nil {
			return nil, err
		}
		sum, err := play.Record(r.Scenario, name, dir.Path(runlog.EventsFile))
		if err != nil {
			return nil, err
		}
		sum.Dir = string(dir)
		if err := errors.Join(dir.WriteScenario(r.File, r.Source, r.Scenario.Traces), dir.WriteJSON(runlog.SummaryFile, sum)); err != nil {
			return nil, err
		}
		pair[name] = sum
	}
	return pair, nil
}

// pair plays a run for real under each policy.
func (play Real) pair(ctx context.Context, r Run, root runlog.Dir, suffix string) (report.Pair, error) {
	pair := report.Pair{}
	for _, name := range scenarios.PolicyNames {
		r.Policy, r.Dir = name, root.Path("real-"+name+suffix)
		sum, err := play(ctx, r)
		if err != nil {
			return nil, err
		}
		pair[name] = sum
	}
	return pair, nil
}
