package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"testbed/policy"
	"testbed/record"
	"testbed/report/words"
	"testbed/scenarios"
)

// progress shows a run as it happens: a bar that counts rounds on a terminal,
// plain lines elsewhere, and lines for unusual events on both.
type progress struct {
	out      io.Writer
	json     bool
	scenario *scenarios.Scenario
	policy   string
	bar      *progressbar.ProgressBar // nil without a terminal
	begin    time.Time
	arrived  int
	members  int
	done     int // rounds
}

// progressFlag asks for progress for programs: lines of JSON, in place of a bar
// or text. The flag is for the Python package and the like, and is not in help
// texts.
func progressFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String("progress", "text", "how to show progress on stderr: text or json")
	_ = cmd.PersistentFlags().MarkHidden("progress") // it was declared just above
}

func progressAsJSON(cmd *cobra.Command) bool {
	f := cmd.Flag("progress")
	return f != nil && f.Value.String() == "json"
}

// progressLine is a line of --progress json.
type progressLine struct {
	Policy  string  `json:"policy,omitempty"`
	Seconds float64 `json:"seconds"` // since the beginning
	Done    int     `json:"done"`    // rounds of a run, or points of a sweep
	Of      int     `json:"of"`
	Text    string  `json:"text"`
}

func (l progressLine) write(out io.Writer) {
	text, err := json.Marshal(l)
	if err != nil {
		return // never: everything in it can be written
	}
	fmt.Fprintf(out, "%s\n", text)
}

// newProgress returns the progress of a run of the scenario under a policy. If
// stderr is not a terminal there are only lines.
func newProgress(cmd *cobra.Command, s *scenarios.Scenario, policyName string) *progress {
	out := cmd.ErrOrStderr()
	p := &progress{out: out, json: progressAsJSON(cmd), scenario: s, policy: policyName, begin: time.Now()}
	if f, ok := out.(*os.File); ok && !p.json && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(s.TargetOuterSteps,
			progressbar.OptionSetWriter(f), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetWidth(20), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetDescription(policyName))
	}
	return p
}

func (p *progress) line(format string, args ...any) {
	if p.json {
		progressLine{p.policy, time.Since(p.begin).Seconds(), p.done, p.scenario.TargetOuterSteps, fmt.Sprintf(format, args...)}.write(p.out)
		return
	}
	if p.bar != nil {
		_ = p.bar.Clear() // cosmetic
	}
	fmt.Fprintf(p.out, "%-9s %5.1f s  %s\n", p.policy, time.Since(p.begin).Seconds(), fmt.Sprintf(format, args...))
	if p.bar != nil {
		_ = p.bar.RenderBlank()
	}
}

func (p *progress) describe(format string, args ...any) {
	if p.bar != nil {
		p.bar.Describe(p.policy + ": " + fmt.Sprintf(format, args...))
	}
}

// step shows one step of the run: a stage of the set-up, or an event.
func (p *progress) step(stage string, e *record.Event) {
	if stage != "" {
		p.line("%s", stage)
		return
	}
	switch e.Type {
	case record.Join:
		p.members++
		if e.T > p.scenario.FirstJoin() {
			p.line("%s joins", e.Node)
		}
	case record.Arrive:
		if !e.Late {
			p.arrived++
			p.describe("round %d: %d of %d workers arrived", e.Round, p.arrived, p.members)
		}
	case record.RoundClose:
		p.arrived = 0
		p.describe("round %d: all-reduce of %s", e.Round, words.Count(len(e.Participants), "worker"))
	case record.OuterStep:
		p.done = e.Round
		if p.bar != nil {
			_ = p.bar.Set(e.Round)
			p.describe("round %d: workers take inner steps", e.Round+1)
			return
		}
		p.line("round %d of %d is complete, with contributions of %s", e.Round, p.scenario.TargetOuterSteps, words.Workers(e.Participants))
	case record.Sideline:
		p.line("%s was sidelined in round %d: %s", e.Node, e.Round, words.Because(e.Reason))
	case record.Evict:
		p.members--
		p.line("%s was evicted in round %d: %s", e.Node, e.Round, words.Because(e.Reason))
	case record.Rejoin:
		p.line("%s arrived in time again in round %d", e.Node, e.Round)
	case record.CoordinatorCrash:
		if e.Cause != "" {
			p.line("the coordinator died unexpectedly and is replaced: %s", e.Cause)
			break
		}
		p.line("the coordinator has crashed")
	case record.CoordinatorBack:
		p.line("the coordinator is back")
	case record.Crash, record.Restart, record.Fail, record.FailReduce, record.Preempt, record.Leave, record.Restore, record.Pause, record.Resume:
		p.line("%s %s", e.Node, faultWords[e.Type])
	case record.Slow:
		p.line("%s is slower by a factor of %g", e.Node, e.Factor)
	case record.ReduceAbort:
		p.line("all-reduce %d was aborted in round %d: %s", e.Epoch, e.Round, abortWords(e.Reason))
	case record.Diverged:
		p.line("outer step %d was taken a second time, by %s: the run has split, and its new part is lineage %d (see docs/torchft.md)", e.Round, words.Workers(e.Participants), e.Lineage)
	case record.Undone:
		p.line("lineage %d has lost its last %s", e.Lineage, words.Count(e.Step, "outer step"))
	case record.FetchStart:
		p.describe("%s fetches the outer state from %s", e.Node, e.From)
	case record.Horizon:
		p.line("the run has reached the horizon, which is the scenario's time limit")
	}
}

// abortWords say why an all-reduce was aborted.
func abortWords(r *policy.Reason) string {
	if r == nil {
		return "no reason recorded"
	}
	switch r.Rule {
	case policy.RuleLost:
		return "a participant is gone"
	case policy.RuleReduceFailed:
		return "it failed for a participant"
	case policy.RuleProgress:
		return "it had stalled"
	case policy.RuleTimeout:
		return "the outer step had taken too long"
	}
	return "the rule was " + string(r.Rule)
}

// faultWords say what a fault does to a worker.
var faultWords = map[record.Type]string{
	record.Crash: "crashes", record.Restart: "restarts", record.Fail: "gives up", record.FailReduce: "fails an all-reduce",
	record.Preempt: "is told that it will be preempted", record.Leave: "leaves", record.Restore: "is as fast as before",
	record.Pause: "pauses", record.Resume: "resumes",
}

// end removes the bar.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
