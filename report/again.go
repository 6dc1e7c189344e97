package report

import (
	"fmt"

	"testbed/report/record"
	"testbed/report/words"
	"testbed/runlog"
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
		if s.World == runlog.Real {
			links = " --links " + s.Run.Links
		}
	}
	flags := links
	if scale := rec.Scenario.Real.TimeScale; scale != rec.OwnScale {
		flags += fmt.Sprintf(" --time-scale %g", scale)
	}
	if len(p.Sides) == 2 {
		if most > 1 {
			flags += fmt.Sprintf(" --repeat %d", most)
		}
		return "testbed compare " + source + flags
	}
	verb := "run"
	if links == "" {
		verb = "simulate"
		if p.Sides[0].Run.Links == record.Planned {
			flags += " --network links"
		}
	}
	return fmt.Sprintf("testbed %s %s --policy %s%s", verb, source, p.Sides[0].Policy, flags)
}

// Environment is that of the first run which has one.
func (p *page) Environment() *runlog.Environment {
	for _, s := range p.Sides {
		if s.Run.Environment != nil {
			return s.Run.Environment
		}
	}
	return nil
}

func policyParameters(s *scenarios.Scenario) string {
	p := s.Policy.Straggler
	return fmt.Sprintf("quorum %g, k %g, window %d, min_history %d, min_slack %s (real runs: at least %s of real time), sideline_limit %d",
		p.Quorum, p.K, p.Window, p.MinHistory, words.Micros(p.MinSlack), s.Real.MinSlack, p.SidelineLimit)
}
