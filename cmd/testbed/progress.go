package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"testbed/record"
	"testbed/report/words"
	"testbed/scenarios"
)

// progress shows a run as it happens: a bar that counts rounds on a terminal,
// plain lines elsewhere, and lines for what is out of the ordinary on both.
type progress struct {
	out      io.Writer
	scenario *scenarios.Scenario
	policy   string
	bar      *progressbar.ProgressBar // nil where there is no terminal
	begin    time.Time
	arrived  int
	members  int
}

// newProgress returns the progress of a run of the scenario under a policy. If out is no
// terminal there are only lines.
func newProgress(out io.Writer, s *scenarios.Scenario, policyName string) *progress {
	p := &progress{out: out, scenario: s, policy: policyName, begin: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(s.TargetOuterSteps,
			progressbar.OptionSetWriter(f), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetElapsedTime(true), progressbar.OptionSetPredictTime(false),
			progressbar.OptionSetWidth(20), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetDescription(policyName))
	}
	return p
}

func (p *progress) line(format string, args ...any) {
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

// step takes one step of the run: a stage of the set-up, or an event.
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
			p.describe("round %d, %d of %d have arrived", e.Round, p.arrived, p.members)
		}
	case record.RoundClose:
		p.arrived = 0
		p.describe("round %d, %d workers reduce", e.Round, len(e.Participants))
	case record.OuterStep:
		if p.bar != nil {
			_ = p.bar.Set(e.Round)
			p.describe("round %d, inner steps", e.Round+1)
			return
		}
		p.line("round %d of %d done with %s", e.Round, p.scenario.TargetOuterSteps, words.Workers(e.Participants))
	case record.Sideline:
		p.line("%s sidelined in round %d: %s", e.Node, e.Round, words.Because(e.Reason))
	case record.Evict:
		p.members--
		p.line("%s evicted in round %d (%s)", e.Node, e.Round, e.Reason.Rule)
	case record.Rejoin:
		p.line("%s back in time in round %d", e.Node, e.Round)
	case record.CoordinatorCrash:
		if e.Cause != "" {
			p.line("the coordinator died of itself: %s; another one takes its place", e.Cause)
			break
		}
		p.line("the coordinator has crashed")
	case record.CoordinatorBack:
		p.line("the coordinator is back")
	case record.Crash, record.Restart, record.Fail, record.FailReduce, record.Preempt, record.Leave, record.Restore, record.Pause, record.Resume:
		p.line("%s: %s", e.Node, e.Type)
	case record.Slow:
		p.line("%s: slower by a factor of %g", e.Node, e.Factor)
	case record.ReduceAbort:
		p.line("reduction %d of round %d aborted (%s)", e.Epoch, e.Round, e.Reason.Rule)
	case record.Diverged:
		p.line("outer step %d is taken again, by workers %v: lineage %d", e.Round, e.Participants, e.Lineage)
	case record.Undone:
		p.line("the last %d outer steps of lineage %d are lost", e.Step, e.Lineage)
	case record.FetchStart:
		p.describe("%s fetches the outer state from %s", e.Node, e.From)
	case record.Horizon:
		p.line("horizon reached")
	}
}

// end removes the bar.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
