package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"testbed/policy"
	"testbed/runlog"
	"testbed/scenarios"
)

// add counts another run in.
func (s *Sidelining) add(o Sidelining) {
	s.Left += o.Left
	s.Right += o.Right
	s.Excused += o.Excused
	s.Slow += o.Slow
	s.Caught += o.Caught
}

// quality puts precision and recall of sidelining into words.
func quality(s Sidelining) string {
	var parts []string
	if precision, ok := s.Precision(); ok {
		parts = append(parts, fmt.Sprintf("of %d times that a worker was left out as late, %d met one that the scenario had slowed down (precision %.2f)", s.Left-s.Excused, s.Right, precision))
	} else {
		parts = append(parts, "nobody was left out as late without another cause")
	}
	if s.Excused > 0 {
		parts = append(parts, fmt.Sprintf("%d times it met a worker that was not slow, but cut off, crashed, paused, on a changed link or joining", s.Excused))
	}
	if recall, ok := s.Recall(); ok {
		parts = append(parts, fmt.Sprintf("of %d times that a slow worker could have been left out, it was %d times (recall %.2f)", s.Slow, s.Caught, recall))
	}
	return "Sidelining: " + strings.Join(parts, "; ") + "."
}

// brief is quality in one short line.
func brief(s Sidelining) string {
	precision, left := s.Precision()
	recall, slow := s.Recall()
	switch {
	case left && slow:
		return fmt.Sprintf("Sidelining of slowed workers: precision %.2f, recall %.2f.", precision, recall)
	case left:
		return fmt.Sprintf("Sidelining: precision %.2f; nobody was slow at a deadline.", precision)
	case slow:
		return fmt.Sprintf("Sidelining: nobody was left out as late; recall %.2f.", recall)
	}
	return "Sidelining: nobody was slow at a deadline, nor left out without another cause."
}

// Sidelining compares who was left out of rounds with whom the scenario had
// slowed down. It counts a worker once for every round.
type Sidelining struct {
	Left    int `json:"left_out"` // left out as late
	Right   int `json:"right"`    // of these, slowed down by the scenario
	Excused int `json:"excused"`  // of these, not slow, but cut off, crashed, paused, on a changed link, or joining
	// Slow counts slowed-down workers at the close of a round that had a
	// deadline, and Caught those of them that were left out.
	Slow   int `json:"slow"`
	Caught int `json:"caught"`
}

// Precision is the share of those left out that were slow, of those that
// nothing else excuses; ok is false where there was none.
func (s Sidelining) Precision() (share float64, ok bool) {
	n := s.Left - s.Excused
	return float64(s.Right) / float64(max(n, 1)), n > 0
}

// Recall is the share of the slow that were left out.
func (s Sidelining) Recall() (share float64, ok bool) {
	return float64(s.Caught) / float64(max(s.Slow, 1)), s.Slow > 0
}

// sidelining counts over a run. A worker is slow in a round if it began a step
// of the round while slowed down: a step under way is not changed by an
// inject.
func sidelining(s *scenarios.Scenario, events []runlog.Event) Sidelining {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b runlog.Event) int { return cmp.Compare(a.T, b.T) })
	var sum Sidelining
	slowed := map[string]bool{}  // now
	slow := map[string]bool{}    // in the round under way
	cut := map[string]bool{}     // now
	faults := map[string]int{}   // upon it now, other than cuts
	excused := map[string]bool{} // in the round under way
	joining := map[string]bool{} // has not taken part yet
	dead := map[string]bool{}    // its process has ended
	var first *policy.Time       // time of the first join
	begin := func(name string) { // a step
		slow[name] = slow[name] || slowed[name]
	}
	for _, e := range events {
		switch e.Type {
		case runlog.Join:
			if first == nil {
				first = &e.T
			}
			joining[e.Node] = e.T > *first
			begin(e.Node)
		case runlog.Slow:
			slowed[e.Node] = e.Factor > 1
		case runlog.Restore:
			slowed[e.Node] = false
		case runlog.Step:
			if e.Step < s.InnerSteps {
				begin(e.Node)
			}
		case runlog.FetchDone:
			begin(e.Node)
		case runlog.Crash, runlog.Fail, runlog.Restart:
			faults[e.Node] += deaths(dead, e)
			excused[e.Node] = true
		case runlog.Pause:
			faults[e.Node]++
			excused[e.Node] = true
		case runlog.Resume:
			faults[e.Node]--
		case runlog.Partition:
			for _, id := range e.IDs {
				cut[scenarios.NodeName(id)], excused[scenarios.NodeName(id)] = true, true
			}
		case runlog.Heal:
			for _, id := range e.IDs {
				cut[scenarios.NodeName(id)] = false
			}
			if len(e.IDs) == 0 {
				clear(cut)
			}
		case runlog.LinkFault, runlog.LinkRestored:
			by := 1
			if e.Type == runlog.LinkRestored {
				by = -1
			}
			for _, name := range []string{e.Node, e.From, e.To} {
				if name != "" {
					faults[name] += by
					excused[name] = true
				}
			}
		case runlog.RoundClose:
			sum.close(e, slow, excused, joining)
		case runlog.OuterStep:
			clear(slow)
			clear(excused)
			maps.Copy(excused, cut)
			for name, n := range faults {
				excused[name] = excused[name] || n > 0
			}
			for _, id := range e.Participants {
				joining[scenarios.NodeName(id)] = false
				begin(scenarios.NodeName(id))
			}
		}
	}
	return sum
}

// deaths is by how many workers more are dead after an event than before.
func deaths(dead map[string]bool, e runlog.Event) (more int) {
	is := e.Type != runlog.Restart
	switch {
	case is && !dead[e.Node]:
		more = 1
	case !is && dead[e.Node]:
		more = -1
	}
	dead[e.Node] = is
	return more
}

func (s *Sidelining) close(e runlog.Event, slow, excused, joining map[string]bool) {
	deadline := e.Reason != nil && e.Reason.Deadline != nil
	for _, id := range e.Missing {
		name := scenarios.NodeName(id)
		s.Left++
		switch {
		case slow[name]:
			s.Right++
		case excused[name] || joining[name]:
			s.Excused++
		}
		if slow[name] && deadline {
			s.Slow++
			s.Caught++
		}
	}
	for _, id := range e.Participants {
		if slow[scenarios.NodeName(id)] && deadline {
			s.Slow++
		}
	}
}
