package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"

	"testbed/record"
	"testbed/report"
	"testbed/scenarios"
	"testbed/stacks"
)

// Comparison determines what to compare.
type Comparison struct {
	Run Run // with the first seed; its Policy is not used, its Dir is for all
	// Policies are at least one. The first is the reference for the others. Labels of
	// stacks may be among them if nothing is simulated.
	Policies []string
	Repeat   int // number of seeds, at least 1
	// Target is the validation loss for times to a loss; 0: the reference's final
	// loss.
	Target float64
	// Backends are the link backends to play each policy and seed on. The first is
	// the reference for the others and for the simulators. With fewer than two,
	// Real chooses the backend. Ready reports whether the machine has them. It is
	// called before anything is played.
	Backends []string
	Ready    func(links ...string) error
	// Real plays on a real network, Churn simulates with churn's network, Links on
	// the links of the plan. Nil ones are skipped.
	Real  Real
	Churn Simulator
	Links Simulator
}

// CheckPolicies reports whether a list of policies, and of stacks by their labels,
// can be played on a scenario. The error is a *scenarios.Error or *errs.UsageError.
func CheckPolicies(s *scenarios.Scenario, policies []string) error {
	if len(policies) == 0 {
		return &scenarios.Error{Field: "policy", Problem: "the list is empty; name at least one policy"}
	}
	for i, name := range policies {
		var err error
		if stack, is := stacks.Labelled(name); is {
			_, err = stacks.Choose(stack)
		} else {
			_, err = s.Machine(name)
		}
		if err != nil {
			return err
		}
		if slices.Contains(policies[:i], name) {
			return &scenarios.Error{Field: "policy", Problem: fmt.Sprintf("%s is in the list twice; keep one, or give the two different parameters", name)}
		}
	}
	return nil
}

// Compare plays the run under each policy, simulated and on the real network.
// The runs have the scenario's seed, then the next one, and so on, each the
// same in every world. With an error other than *InvalidError and
// ErrLinksDiffer, the result is nil, or has only the Dir of the partial record.
func Compare(ctx context.Context, o Comparison) (*report.Comparison, error) {
	if err := CheckPolicies(o.Run.Scenario, o.Policies); err != nil {
		return nil, err
	}
	backends := []string{""}
	if o.Real != nil && len(o.Backends) > 1 {
		if backends = o.Backends; o.Ready != nil {
			if err := o.Ready(backends...); err != nil {
				return nil, err
			}
		}
	}
	dir, err := record.CreateDir(o.Run.Dir)
	if err != nil {
		return nil, err
	}
	partial := &report.Comparison{Dir: string(dir)}
	var churn, links []report.Set // one for each seed
	real := map[string][]report.Set{}
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
			to     *[]report.Set
		}{{o.Churn, "sim-", &churn}, {o.Links, "sim-links-", &links}} {
			if s.play == nil {
				continue
			}
			set, err := s.play.set(run, o.Policies, dir, s.prefix, simulated)
			if err != nil {
				return partial, err
			}
			*s.to = append(*s.to, set)
		}
		if o.Real == nil {
			continue
		}
		sets, err := o.Real.sets(ctx, run, o.Policies, backends, n, dir, measured)
		if errors.Is(err, errors.ErrUnsupported) { // nothing has run
			return nil, errors.Join(err, os.RemoveAll(string(dir)))
		}
		if err != nil {
			return partial, err
		}
		for backend, set := range sets {
			real[backend] = append(real[backend], set)
		}
	}
	c := &report.Comparison{Scenario: o.Run.Scenario.Name, Policies: o.Policies, Target: o.Target, Dir: string(dir)}
	c.Sim, c.SimRepeats = split(churn)
	c.SimLinks, c.SimLinksRepeats = split(links)
	c.Real, c.Repeats = split(real[backends[0]])
	if len(backends) > 1 {
		c.Links, c.OtherLinks = backends, map[string][]report.Set{}
		for _, backend := range backends[1:] {
			c.OtherLinks[backend] = real[backend]
		}
	}
	c.Conclude()
	if err := dir.WriteJSON(record.ComparisonFile, c); err != nil {
		return partial, err
	}
	return c, judge(c, real)
}

// judge reports whether the results may be used, and whether the links agree.
func judge(c *report.Comparison, real map[string][]report.Set) error {
	for _, backend := range append([]string{""}, c.Links...) {
		var all []record.Summary
		for _, set := range real[backend] {
			for _, name := range c.Policies {
				all = append(all, set[name])
			}
		}
		if err := Usable(all...); err != nil && backend != "" {
			return fmt.Errorf("on %s links, %w", backend, err)
		} else if err != nil {
			return err
		}
	}
	if c.Agreement != nil && !c.Agreement.Agree {
		return ErrLinksDiffer
	}
	return nil
}

// split separates the first of the sets, if there is one, from the others.
func split(sets []report.Set) (first report.Set, others []report.Set) {
	if len(sets) == 0 {
		return nil, nil
	}
	return sets[0], sets[1:]
}

// folder names a run directory after a policy. Parameters may contain
// characters that a file name may not.
func folder(prefix, policyName, suffix string) string {
	return prefix + url.PathEscape(policyName) + suffix
}

// set simulates a run under each policy, into run directories of its own.
func (play Simulator) set(r Run, policies []string, root record.Dir, prefix, suffix string) (report.Set, error) {
	set := report.Set{}
	for _, name := range policies {
		dir, err := record.CreateDir(root.Path(folder(prefix, name, suffix)))
		if err != nil {
			return nil, err
		}
		sum, err := play.Record(r.Scenario, name, dir.Path(record.EventsFile))
		if err != nil {
			return nil, err
		}
		sum.Dir = string(dir)
		if err := errors.Join(dir.WriteScenario(r.File, r.Source, r.Scenario.Traces), dir.WriteSummary(&sum, r.Scenario.Traces)); err != nil {
			return nil, err
		}
		set[name] = sum
	}
	return set, nil
}

// sets plays the n-th seed of a run for real under each policy, and returns a
// set for each link backend. Runs on the backends follow one another. The order
// rotates, so that a machine that changes meanwhile favours no backend.
func (play Real) sets(ctx context.Context, r Run, policies, backends []string, n int, root record.Dir, suffix string) (map[string]report.Set, error) {
	sets := map[string]report.Set{}
	for i, name := range policies {
		for k := range backends {
			backend, prefix := backends[(n+i+k)%len(backends)], "real-"
			if backend != "" {
				prefix += backend + "-"
				r.Links, r.Title = backend, fmt.Sprintf("%s on %s links, seed %d", name, backend, r.Scenario.Seed)
			}
			r.Policy, r.Dir = name, root.Path(folder(prefix, name, suffix))
			sum, err := play(ctx, r)
			if err != nil {
				return nil, err
			}
			if sets[backend] == nil {
				sets[backend] = report.Set{}
			}
			sets[backend][name] = sum
		}
	}
	return sets, nil
}
