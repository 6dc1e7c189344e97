// Package stories has the failures that torchft's assumptions page warns of,
// one scenario of the library each. It describes the fate of a run's quorums in
// words, in whichever world it was played. Tests use it to compare the worlds.
package stories

import (
	"fmt"
	"slices"
	"strings"

	"testbed/policy"
	"testbed/record"
)

// attempt is the outcome of one or more quorums of the same members.
type attempt struct {
	id, lastID   int64
	participants []policy.ID
	without      []policy.ID // members that did not commit
	steps        []int       // of each, in order
	failed       policy.Rule // or the steps count
}

// Tell lists the quorums, their outcomes, and the workers that healed and died,
// in order:
//
//	quorum 1 of 0 1 2 3 takes steps 1-4
//	w3 dies (quorum_timeout)
//	quorums 2-3 of 0 1 2 fail step 5, 2 times (timeout)
//	complete
//
// Repetitions are listed once.
func Tell(events []record.Event) []string {
	t := teller{running: map[policy.Epoch]attempt{}}
	for _, e := range events {
		t.add(e)
	}
	t.flush()
	return t.said
}

type teller struct {
	said    []string
	running map[policy.Epoch]attempt // by epoch: begun, and without a known end
	pending []attempt                // to be listed when something else happens
}

func (t *teller) add(e record.Event) {
	switch e.Type {
	case record.ReduceStart:
		t.running[e.Epoch] = attempt{id: e.Reason.QuorumID, lastID: e.Reason.QuorumID, participants: e.Participants, steps: []int{e.Round}}
	case record.OuterStep:
		a := t.running[e.Epoch]
		a.without = slices.DeleteFunc(slices.Clone(a.participants), func(id policy.ID) bool { return slices.Contains(e.Participants, id) })
		t.ended(e.Epoch, a)
	case record.ReduceAbort: // some may have committed before
		if a, undecided := t.running[e.Epoch]; undecided {
			a.failed = e.Reason.Rule
			t.ended(e.Epoch, a)
		}
	case record.Diverged:
		t.say(fmt.Sprintf("step %d is taken a second time, by %s", e.Round, list(e.Participants)))
	case record.Undone:
		if e.Step == 1 {
			t.say("1 step is lost")
		} else {
			t.say(fmt.Sprintf("%d steps are lost", e.Step))
		}
	case record.FetchStart:
		t.say(e.Node + " heals")
	case record.Evict:
		if e.Reason.Rule != policy.RuleReplaced && e.Reason.Rule != policy.RuleLeave {
			t.say(fmt.Sprintf("%s dies (%s)", e.Node, e.Reason.Rule))
		}
	case record.CoordinatorCrash:
		t.say("the lighthouse dies")
	case record.RunEnd:
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

// ended records an attempt, together with the last one of the same members if
// that had the same outcome.
func (t *teller) ended(epoch policy.Epoch, a attempt) {
	delete(t.running, epoch)
	for i := len(t.pending) - 1; i >= 0; i-- {
		last := &t.pending[i]
		if last.repeats(a) {
			last.lastID, last.steps = a.id, append(last.steps, a.steps...)
			return
		}
		if slices.ContainsFunc(last.participants, func(id policy.ID) bool { return slices.Contains(a.participants, id) }) {
			break
		}
	}
	t.pending = append(t.pending, a)
}

// repeats reports whether another attempt of the same members had the same
// outcome.
func (a attempt) repeats(b attempt) bool {
	if !slices.Equal(a.participants, b.participants) || !slices.Equal(a.without, b.without) || a.failed != b.failed {
		return false
	}
	return a.failed != "" && a.steps[0] == b.steps[0] || a.failed == "" && a.lastID == b.id
}

func (t *teller) say(text string) {
	t.flush()
	if n := len(t.said); n > 0 && t.said[n-1] == text {
		return
	}
	t.said = append(t.said, text)
}

func (t *teller) flush() {
	for _, a := range t.pending {
		t.said = append(t.said, a.String())
	}
	t.pending = nil
}

func (a attempt) String() string {
	quorum, fails := fmt.Sprint("quorum ", a.id), "fails"
	if a.lastID != a.id {
		quorum, fails = fmt.Sprintf("quorums %d-%d", a.id, a.lastID), "fail"
	}
	what := fmt.Sprintf("%s of %s", quorum, list(a.participants))
	first, last := a.steps[0], a.steps[len(a.steps)-1]
	switch {
	case a.failed != "":
		what += fmt.Sprintf(" %s step %d", fails, first)
		if len(a.steps) > 1 {
			what += fmt.Sprintf(", %d times", len(a.steps))
		}
		what += fmt.Sprintf(" (%s)", a.failed)
	case first == last:
		what += fmt.Sprintf(" takes step %d", first)
	default:
		what += fmt.Sprintf(" takes steps %d-%d", first, last)
	}
	if len(a.without) > 0 {
		what += " without " + list(a.without)
	}
	return what
}

func list(ids []policy.ID) string { return strings.Trim(fmt.Sprint(ids), "[]") }
