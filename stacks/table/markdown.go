//go:build linux

package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"testbed/internal/stats"
	"testbed/record"
	"testbed/shaping/fidelity"
	"testbed/stacks"
	"testbed/stacks/measure"
)

// unfair is what makes the comparison unfair.
var unfair = []string{
	"Time-outs decide much of the result. So each stack plays with its defaults, and tuned by one rule: " + stacks.TunedRule + ".",
	"Policies of Testbed reduce over QUIC, with float32 (32) or with codes of 8 bits (8). Stacks reduce float32 over TCP, whose congestion control decides more than the library on links that lose packets.",
	"Bytes and processor time count from the start of the scenario's clock. The imports of a worker that comes late or is restarted are counted. Stacks are Python programs, workers of Testbed are Go programs.",
	"hivemind encrypts its connections, and looks for a group in each round. PCCL's peers spin while a ring waits.",
	"The loops around gloo, PCCL and hivemind are Testbed's. They decide when to try again.",
	"After a failed reduction torchft discards the round, PCCL repeats it, and hivemind keeps parts of it. So seconds a round favour hivemind. Useful steps and states show the difference.",
	"A `Crash` cuts the links before it kills, as a power cut does. So nobody gets a reset.",
	"An incomplete run ends after its stack's `silence_s` without marks, or by the time limit of the campaign. Its gap and its useful steps depend on these.",
}

// columns explain the tables.
var columns = []string{
	"*round*: seconds from one commit to the next, the median of a run's rounds. *p95*: the 95th percentile; of five rounds, the longest.",
	"*useful*: inner steps in committed averages, per second of a worker that is there.",
	"*gap*: the longest time between two commits after a fault. *open*: the run ended before another commit.",
	"*without*: from a fault to the first commit without the worker. *never*: the fault ended before, or the run.",
	"*back*: from the end of a fault, a restart, or the coming of a late worker to the first commit with its own work.",
	"*lost*: completed inner steps that no committed average has.",
	"*differ*: committed rounds whose participants ended with different states, of all such rounds.",
	"*disputes*: contradictions between workers' marks and the averages.",
	"*wire*: bytes that the workers' nodes sent, divided by those of ideal all-reduces of float32, 2 (W − 1) / W × 4 N a worker.",
	"*processor*: processor seconds of all workers' nodes a committed round.",
}

// markdown is the table.
func markdown(players []player, all []result, predicted []prediction, set settings, missing map[string]string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Stacks and policies under the same faults\n")
	line("Runs: %d. A cell has the median over the runs, and their range in brackets. A dash: not measured.\n", len(all))
	for _, text := range places(all, set) {
		line("- %s", text)
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		line("- Not played: %s", missing[name])
	}
	line("\n## What is unfair\n")
	for _, text := range unfair {
		line("- %s", text)
	}
	line("\n## Columns\n")
	for _, text := range columns {
		line("- %s", text)
	}
	for _, scenario := range played {
		if !slices.ContainsFunc(all, func(r result) bool { return r.Scenario == scenario }) {
			continue
		}
		line("\n## %s\n", scenario)
		line("| player | runs | round | p95 | useful | gap | without | back | lost | differ | disputes | wire | processor |")
		line("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
		for _, p := range players {
			if runs := of(all, scenario, p.Name); len(runs) > 0 {
				line("| %s | %s |", p.Name, strings.Join(row(runs), " | "))
			}
		}
	}
	line("\n## Options of the stacks\n")
	line("| player | version | options |")
	line("|---|---|---|")
	for _, p := range players {
		k := slices.IndexFunc(all, func(r result) bool { return r.Player == p.Name && r.record.Summary.Stack != nil })
		if k < 0 {
			continue
		}
		s := all[k].record.Summary.Stack
		var options []string
		for _, name := range slices.Sorted(maps.Keys(s.Options)) {
			options = append(options, fmt.Sprintf("%s=%g", name, s.Options[name]))
		}
		line("| %s | %s | %s |", p.Name, s.Version, strings.Join(options, ", "))
	}
	line("\n## What the simulator predicts\n")
	line("The time to the last commit, simulated on the planned links without a calibration. A policy predicts itself, the policy `torchft` the stack of that name, and `baseline` the other stacks. A cell has the error, the predicted seconds, the median of the complete runs, and the rounds in which the same workers took part with their own work in all runs.\n")
	line("| player | predicted by | %s |", strings.Join(played, " | "))
	line("|---|---|%s", strings.Repeat("---|", len(played)))
	for _, p := range players {
		k := slices.IndexFunc(predicted, func(q prediction) bool { return q.Player == p.Name })
		if k < 0 {
			continue
		}
		cells := []string{p.Name, "`" + predicted[k].Policy + "`"}
		for _, scenario := range played {
			cells = append(cells, predictionCell(predicted, of(all, scenario, p.Name), scenario, p.Name))
		}
		line("| %s |", strings.Join(cells, " | "))
	}
	return b.String()
}

// of are the runs of a player in a scenario.
func of(all []result, scenario, player string) (runs []result) {
	for _, r := range all {
		if r.Scenario == scenario && r.Player == player {
			runs = append(runs, r)
		}
	}
	return runs
}

// places says where and when the runs were played.
func places(all []result, set settings) []string {
	machines, programs, links, days, controls := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range all {
		e := r.record.Environment
		machines[fmt.Sprintf("%s, %d processors, %.0f GB, Linux %s", e.Processor, e.Processors, float64(e.MemoryBytes)/1e9, e.Kernel)] = true
		programs[strings.Join(strings.Fields(e.Version+" "+e.Revision+" "+e.Go), " ")] = true
		links[r.record.Summary.Links] = true
		if s := r.record.Summary.Stack; s != nil && s.TCP != "" {
			controls[s.TCP] = true
		}
		if day, _, found := strings.Cut(e.Began, "T"); found {
			days[day] = true
		}
	}
	list := func(m map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(m)), "; ") }
	tcp := list(controls)
	if tcp == "" {
		tcp = "not on record"
	}
	return []string{
		"When: " + list(days), "Machine: " + list(machines), "Testbed: " + list(programs), "Links: " + list(links),
		fmt.Sprintf("Time scale: %g; congestion control of TCP in the nodes of stacks: %s", set.TimeScale, tcp),
	}
}

// row are the cells of a player in a scenario.
func row(runs []result) []string {
	n := len(runs)
	optional := func(get func(*measure.Measures) *float64) string {
		var values []float64
		for k := range runs {
			if v := get(&runs[k].Measures); v != nil {
				values = append(values, *v)
			}
		}
		return spread(values, n)
	}
	count := func(get func(*measure.Measures) *int) string {
		return optional(func(m *measure.Measures) *float64 {
			v := get(m)
			if v == nil {
				return nil
			}
			return new(float64(*v))
		})
	}
	ofRounds := func(of func([]float64) float64) func(*measure.Measures) *float64 {
		return func(m *measure.Measures) *float64 {
			if len(m.Rounds) == 0 {
				return nil
			}
			return new(of(m.Rounds))
		}
	}
	return []string{
		verdicts(runs), optional(ofRounds(stats.Median)), optional(ofRounds(slowest)),
		optional(func(m *measure.Measures) *float64 { return m.Useful }),
		faultCells(runs, func(measure.Fault) bool { return true }, func(f measure.Fault) (*float64, bool) {
			if f.Gap == nil {
				return nil, false
			}
			return &f.Gap.Seconds, f.Gap.Open
		}, "–"),
		faultCells(runs, func(f measure.Fault) bool { return f.Type != record.Join }, func(f measure.Fault) (*float64, bool) { return f.Without, false }, "never"),
		faultCells(runs, func(f measure.Fault) bool { return true }, func(f measure.Fault) (*float64, bool) { return f.Back, false }, "–"),
		count(func(m *measure.Measures) *int { return m.Lost }), differing(runs), count(func(m *measure.Measures) *int { return m.Disputes }),
		optional(func(m *measure.Measures) *float64 { return m.Wire }), optional(func(m *measure.Measures) *float64 { return m.Processor }),
	}
}

// slowest is the 95th percentile by the nearest rank: of few values, the largest.
func slowest(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(math.Ceil(0.95*float64(len(sorted))-1e-9))-1]
}

// verdicts counts the runs that are complete, and the verdicts on the emulation.
func verdicts(runs []result) string {
	complete, by := 0, map[fidelity.Level]int{}
	for _, r := range runs {
		if by[r.Verdict]++; r.Complete {
			complete++
		}
	}
	text := fmt.Sprintf("%d of %d complete", complete, len(runs))
	for _, level := range []fidelity.Level{fidelity.Valid, fidelity.Suspect, fidelity.Invalid} {
		if by[level] > 0 {
			text += fmt.Sprintf(", %d %s", by[level], level)
		}
	}
	return text
}

// differing sums up the rounds whose states differ.
func differing(runs []result) string {
	differ, compared := 0, 0
	for _, r := range runs {
		if compared += r.Compared; r.Differ != nil {
			differ += *r.Differ
		}
	}
	if compared == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d", differ, compared)
}

// faultCells are values of faults, each with its worker, in the order of the faults.
func faultCells(runs []result, has func(measure.Fault) bool, get func(measure.Fault) (v *float64, open bool), none string) string {
	type values struct {
		all  []float64
		open int
	}
	var names []string
	by := map[string]*values{}
	for _, r := range runs {
		seen := map[string]int{}
		for _, f := range r.Faults {
			if !has(f) {
				continue
			}
			name := f.Node
			if seen[name]++; seen[name] > 1 {
				name = fmt.Sprintf("%s (%d)", f.Node, seen[f.Node])
			}
			if by[name] == nil {
				names, by[name] = append(names, name), &values{}
			}
			if v, open := get(f); v != nil {
				by[name].all = append(by[name].all, *v)
				if open {
					by[name].open++
				}
			}
		}
	}
	var cells []string
	some := false
	for _, name := range names {
		text := none
		if v := by[name]; len(v.all) > 0 {
			if text = spread(v.all, len(runs)); v.open > 0 {
				text += fmt.Sprintf(", %d open", v.open)
			}
		}
		if some = some || text != "–"; len(names) > 1 {
			text = name + " " + text
		}
		cells = append(cells, text)
	}
	if !some {
		return "–"
	}
	return strings.Join(cells, "; ")
}

// spread is the median and the range of values of n runs.
func spread(values []float64, n int) string {
	if len(values) == 0 {
		return "–"
	}
	text := short(stats.Median(values))
	if least, most := short(slices.Min(values)), short(slices.Max(values)); least != most {
		text += fmt.Sprintf(" (%s–%s)", least, most)
	}
	if len(values) < n {
		text += fmt.Sprintf(" in %d of %d", len(values), n)
	}
	return text
}

// short is a number with three digits, or with all of its whole part.
func short(x float64) string {
	if math.Abs(x) >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// predictionCell compares a prediction with the runs.
func predictionCell(predicted []prediction, runs []result, scenario, player string) string {
	k := slices.IndexFunc(predicted, func(q prediction) bool { return q.Player == player && q.Scenario == scenario })
	if k < 0 {
		return "–"
	}
	q := predicted[k]
	var lengths []float64
	for _, r := range runs {
		if r.Complete {
			lengths = append(lengths, r.Length)
		}
	}
	switch {
	case !q.Complete:
		return fmt.Sprintf("predicted incomplete; complete: %d of %d", len(lengths), len(runs))
	case len(lengths) == 0:
		return fmt.Sprintf("predicted %s s; no run is complete", short(q.Length))
	}
	real := stats.Median(lengths)
	return fmt.Sprintf("%+.0f %%: %s s for %s s; same in %d of %d", 100*(q.Length-real)/real, short(q.Length), short(real), same(q, runs), len(q.Took))
}

// same counts the rounds that have the predicted workers in all runs.
func same(q prediction, runs []result) (n int) {
	for k, took := range q.Took {
		if !slices.ContainsFunc(runs, func(r result) bool { return k >= len(r.Took) || !slices.Equal(r.Took[k], took) }) {
			n++
		}
	}
	return n
}
