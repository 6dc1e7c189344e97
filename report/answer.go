package report

import (
	"fmt"
	"strings"

	"testbed/internal/stats"
	"testbed/record"
	"testbed/report/learning"
	"testbed/report/words"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
)

// answer is the answer of a comparison: in loss if something was trained, in
// wall-clock, and whether the result can be trusted.
func (c *Comparison) answer(s *scenarios.Scenario) (lines []string) {
	world := c.shownWorld()
	if learnt := c.Learning[world]; learnt != nil {
		lines = append(lines, words.Capital(learnt.Headline()))
	}
	if len(c.Policies) > 1 {
		lines = append(lines, c.speedAnswer(s, world))
	}
	return append(lines, c.trustAnswer(world))
}

// shownWorld is the world of the answer: measured, if anything was measured.
func (c *Comparison) shownWorld() string {
	switch {
	case c.Real != nil:
		return record.Real
	case c.SimLinks != nil:
		return record.SimLinks
	}
	return record.Sim
}

// in returns the policies' results in a world, on the first link backend.
func (c *Comparison) in(world string) (all []Against) {
	known := map[string]bool{}
	for _, a := range c.Comparisons {
		if a.World == world && !known[a.Policy] {
			known[a.Policy] = true
			all = append(all, a)
		}
	}
	return all
}

// speedAnswer names the fastest policy, and its gain.
func (c *Comparison) speedAnswer(s *scenarios.Scenario, world string) string {
	reference := c.Policies[0]
	var best *Against
	for _, a := range c.in(world) {
		if a.Speedup.N > 0 && (best == nil || a.Speedup.Median > best.Speedup.Median) {
			best = &a
		}
	}
	where := map[string]string{record.Real: ", measured", record.SimLinks: ", simulated on the planned links", record.Sim: ", simulated"}[world]
	if best == nil {
		return fmt.Sprintf("No speed-up is known (%s): no seed has complete runs under both %s and another policy.", strings.TrimPrefix(where, ", "), reference)
	}
	e := best.Speedup
	ratio := words.Times(e.Median)
	if i := e.Interval; i != nil {
		ratio += fmt.Sprintf(" (%.2f to %.2f, %.3g %% interval of %d seeds)", i.Low, i.High, 100*i.Level, e.N)
	}
	sets := c.sets(world)
	took := fmt.Sprintf("%s instead of %s", c.wallAnswer(s, world, sets, best.Policy), c.wallAnswer(s, world, sets, reference))
	text := fmt.Sprintf("%s was %s as fast as %s: %s%s.", words.Policy(best.Policy), ratio, words.Policy(reference), took, where)
	switch {
	case e.NoDifference() && e.Interval == nil:
		text = fmt.Sprintf("no difference in wall-clock: %s was exactly as fast as %s%s.", words.Policy(best.Policy), words.Policy(reference), where)
	case e.NoDifference():
		text = fmt.Sprintf("no difference shown in wall-clock: %s", text)
	case len(c.Policies) > 2 && e.Median <= 1:
		text = fmt.Sprintf("none of the other %d policies was faster than %s. The best of them: %s", len(c.Policies)-1, words.Policy(reference), text)
	case len(c.Policies) > 2:
		text = fmt.Sprintf("of %d policies, %s was the fastest: it %s", len(c.Policies), words.Policy(best.Policy), strings.TrimPrefix(text, words.Policy(best.Policy)+" "))
	}
	if world == record.Real {
		text += c.simulatedAnswer(best.Policy)
	}
	return words.Capital(text)
}

// wallAnswer is a typical wall-clock in words.
func (c *Comparison) wallAnswer(s *scenarios.Scenario, world string, sets []Set, name string) string {
	wall := median(sets, name)
	if world == record.Real {
		return fmt.Sprintf("%.1f s", s.RealDuration(wall).Seconds())
	}
	if wall >= 1e6 {
		return learning.Seconds(float64(wall) / 1e6)
	}
	return words.Micros(wall)
}

// simulatedAnswer gives the simulations' predictions for a policy.
func (c *Comparison) simulatedAnswer(name string) string {
	var parts []string
	for _, world := range []string{record.Sim, record.SimLinks} {
		for _, a := range c.in(world) {
			if a.Policy == name && a.Speedup.N > 0 {
				parts = append(parts, fmt.Sprintf("%s %s", words.Times(a.Speedup.Median), worldText(world)))
			}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " Predicted: " + strings.Join(parts, ", ") + "."
}

// trustAnswer says whether the result can be trusted.
func (c *Comparison) trustAnswer(world string) string {
	seeds := len(c.sets(world))
	if world != record.Real {
		return "Simulated only." + chance(seeds, c.in(world))
	}
	worst, why, compared := fidelity.Valid, "", true
	tell := func(level fidelity.Level, sum record.Summary, reason string) {
		if why == "" || level.Severity() > worst.Severity() {
			worst, why = level, fmt.Sprintf("%s with seed %d: %s", sum.Policy, sum.Seed, reason)
		}
	}
	for _, sum := range c.measured() {
		compared = compared && sum.BitIdentical != nil
		switch {
		case !sum.Complete:
			tell(fidelity.Invalid, sum, "the run ended early, after "+words.Count(sum.OuterSteps, "outer step"))
		case sum.BitIdentical != nil && !*sum.BitIdentical:
			tell(fidelity.Invalid, sum, "workers ended a round with different bytes")
		case sum.Fidelity.Verdict != fidelity.Valid && sum.Fidelity.Verdict != "":
			reason := string(sum.Fidelity.Verdict)
			if len(sum.Fidelity.Reasons) > 0 {
				reason = sum.Fidelity.Reasons[0]
			}
			tell(sum.Fidelity.Verdict, sum, reason)
		}
	}
	text := "The result can be trusted: the network was as planned, and workers ended every round with the same bytes."
	switch {
	case why == "" && !compared: // stacks may allow small differences
		text = "The result can be trusted: the network was as planned. The bytes of the workers were not compared."
	case why != "" && worst == fidelity.Invalid:
		text = "The result cannot be trusted: " + why + "."
	case why != "":
		text = "Take the result with care: " + why + "."
	}
	return text + chance(seeds, c.in(world))
}

// chance says whether there are enough seeds to separate a difference from
// chance.
func chance(seeds int, compared []Against) string {
	if len(compared) == 0 || seeds >= stats.LeastRepeats {
		return ""
	}
	verb := "say"
	if seeds == 1 {
		verb = "says"
	}
	return fmt.Sprintf(" %s %s nothing about chance: use --repeat %d.", words.Capital(words.Count(seeds, "seed")), verb, 5)
}
