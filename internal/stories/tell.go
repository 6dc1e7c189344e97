// Package stories knows the failures that torchft's assumptions page warns of, one
// scenario of the library each, and tells in words what became of a run's quorums,
// in whichever world it was played. Tests hold the worlds against each other by it.
package stories

import (
	"fmt"
	"slices"
	"strings"

	"testbed/policy"
	"testbed/runlog"
)

// attempt is what one or more quorums of the same members came to.
type attempt struct {
	id, lastID   int64
	participants []policy.ID
	without      []policy.ID // those that did not commit
	steps        []int
	failed       policy.Rule // or the steps count
	tries        int
}

// Tell says which quorums came about, what they came to, who healed and who died,
// in order:
//
//	quorum 1 of 0 1 2 3 takes 1-4, w3 dies (quorum_timeout), quorum 2 of 0 1 2 fails 5 twice (timeout), complete
//
// What happens again in the same way is said once.
func Tell(events []runlog.Event) string {
	t := teller{}
	for _, e := range events {
		t.add(e)
	}
	t.flush()
	return strings.Join(t.said, ", ")
}

type teller struct {
	said    []string
	running attempt // begun, and not known how it ends
	decided bool    // some have committed it
	last    attempt // said when something else happens
}

func (t *teller) add(e runlog.Event) {
	switch e.Type {
	case runlog.ReduceStart:
		t.decided = false
		t.running = attempt{id: e.Reason.QuorumID, lastID: e.Reason.QuorumID, participants: e.Participants}
	case runlog.OuterStep:
		t.decided = true
		t.running.without = slices.DeleteFunc(slices.Clone(t.running.participants), func(id policy.ID) bool { return slices.Contains(e.Participants, id) })
		t.ended(e.Round, "")
	case runlog.ReduceAbort:
		if !t.decided {
			t.ended(e.Round, e.Reason.Rule)
		}
	case runlog.Diverged:
		t.say(fmt.Sprintf("%s take %d a second time", list(e.Participants), e.Round))
	case runlog.Undone:
		t.say(fmt.Sprintf("%d steps are lost", e.Step))
	case runlog.FetchStart:
		t.say(e.Node + " heals")
	case runlog.Evict:
		if e.Reason.Rule != policy.RuleReplaced && e.Reason.Rule != policy.RuleLeave {
			t.say(fmt.Sprintf("%s dies (%s)", e.Node, e.Reason.Rule))
		}
	case runlog.CoordinatorCrash:
		t.say("the lighthouse dies")
	case runlog.RunEnd:
		switch {
		case e.Complete != nil && *e.Complete:
			t.say("complete")
		case e.Reason != nil:
			t.say("ends: " + string(e.Reason.Rule))
		default:
			t.say("not complete")
		}
	}
}

// ended notes what the running attempt came to, together with the one before if
// that came to the same.
func (t *teller) ended(round int, failed policy.Rule) {
	a := t.running
	a.tries, a.failed, a.steps = 1, failed, []int{round}
	again := t.last.tries > 0 && slices.Equal(a.participants, t.last.participants) && slices.Equal(a.without, t.last.without) && failed == t.last.failed
	if again && (failed == "" && a.id == t.last.lastID || failed != "" && round == t.last.steps[0]) {
		t.last.tries++
		t.last.lastID = a.id
		t.last.steps = append(t.last.steps, round)
		return
	}
	t.flush()
	t.last = a
}

func (t *teller) say(text string) {
	t.flush()
	if n := len(t.said); n > 0 && t.said[n-1] == text {
		return
	}
	t.said = append(t.said, text)
}

func (t *teller) flush() {
	a := t.last
	t.last = attempt{}
	if a.tries == 0 {
		return
	}
	quorum, fails := fmt.Sprint("quorum ", a.id), "fails"
	if a.lastID != a.id {
		quorum, fails = fmt.Sprintf("quorums %d-%d", a.id, a.lastID), "fail"
	}
	what := fmt.Sprintf("%s of %s", quorum, list(a.participants))
	first, last := a.steps[0], a.steps[len(a.steps)-1]
	switch {
	case a.failed != "":
		what += fmt.Sprintf(" %s %d", fails, first)
		if a.tries > 1 {
			what += fmt.Sprintf(" %d times", a.tries)
		}
		what += fmt.Sprintf(" (%s)", a.failed)
	case first == last:
		what += fmt.Sprintf(" takes %d", first)
	default:
		what += fmt.Sprintf(" takes %d-%d", first, last)
	}
	if len(a.without) > 0 {
		what += " without " + list(a.without)
	}
	t.said = append(t.said, what)
}

func list(ids []policy.ID) string { return strings.Trim(fmt.Sprint(ids), "[]") }
