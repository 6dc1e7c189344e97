package report

import (
	"fmt"
	"slices"
	"strings"

	"testbed/policy"
	"testbed/policy/program"
	"testbed/record"
	"testbed/report/runs"
	"testbed/report/words"
	"testbed/scenarios"
)

// Command is the command line that makes the same runs again.
func (p *page) Command() string {
	rec := p.Record
	source := rec.Scenario.Name
	if !rec.Library {
		source = words.Quote(rec.Source.File)
	}
	var links string
	most := 0
	for _, s := range p.Sides {
		most = max(most, len(s.Runs))
		if s.World == record.Real {
			links = " --links " + s.Run.Links
		}
	}
	if len(rec.Links) > 1 && links != "" && len(p.Sides) > 1 {
		links = " --links " + strings.Join(rec.Links, ",")
	}
	flags := links
	if scale := rec.Scenario.Real.TimeScale; scale != rec.OwnScale {
		flags += fmt.Sprintf(" --time-scale %g", scale)
	}
	if len(p.Sides) > 1 {
		if policies := p.policies(); !slices.Equal(policies, scenarios.PolicyNames) {
			flags = " --policy " + words.Quote(strings.Join(policies, ",")) + flags
		}
		if links == "" {
			flags += " --world sim"
		}
		if p.trained() {
			flags += " --train"
		}
		if most > 1 {
			flags += fmt.Sprintf(" --repeat %d", most)
		}
		return "testbed compare " + source + flags
	}
	verb := "run"
	if links == "" {
		verb = "simulate"
		if p.Sides[0].Run.Links == runs.Planned {
			flags += " --network links"
		}
		if p.trained() {
			flags += " --train"
		}
	}
	return fmt.Sprintf("testbed %s %s --policy %s%s", verb, source, words.Quote(p.Sides[0].Policy), flags)
}

// trained reports whether a simulated run has trained.
func (p *page) trained() bool {
	return slices.ContainsFunc(p.Record.Runs, func(run runs.Run) bool {
		return run.World == record.Sim && slices.ContainsFunc(run.Summary.Rounds, func(r record.Round) bool { return r.ModelHash != "" || r.Loss != nil })
	})
}

// Environment is the environment of the first run that has one.
func (p *page) Environment() *record.Environment {
	for _, s := range p.Sides {
		if s.Run.Environment != nil {
			return s.Run.Environment
		}
	}
	return nil
}

// PolicyParameters are the parameters of the shown policies.
func (p *page) PolicyParameters() string {
	s := p.Record.Scenario
	var all []string
	for _, side := range p.Sides {
		params, err := s.Policy.Named(side.Policy)
		if err != nil || program.Is(side.Policy) {
			continue // of a policy that this program does not have, or of another program
		}
		var parts []string
		for _, param := range policy.Parameters(params) {
			value := fmt.Sprint(param.Default)
			if t, ok := param.Default.(policy.Time); ok {
				value = words.Micros(t)
			}
			parts = append(parts, param.Name+"="+value)
		}
		if text := side.Policy + ": " + strings.Join(parts, ", "); len(parts) > 0 && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, "; ") + fmt.Sprintf(" (in real runs, deadlines that follow from arrivals are at least %s of real time after the first arrival)", s.Real.MinSlack)
}
