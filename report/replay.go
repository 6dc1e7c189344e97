package report

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"testbed/policy"
	"testbed/record"
	"testbed/report/words"
	"testbed/scenarios"
)

// Decision is one decision of a policy, from the record.
type Decision struct {
	Round int    `json:"round"`
	T     int64  `json:"t_us"`
	What  string `json:"what"` // the type of its event
	// Node is the worker of the decision; empty for the close of a round.
	Node         string         `json:"node,omitempty"`
	Worker       *policy.ID     `json:"worker,omitempty"` // the number of Node
	Participants []policy.ID    `json:"participants,omitempty"`
	Late         []policy.ID    `json:"late,omitempty"`
	Reason       *policy.Reason `json:"reason,omitempty"`
}

// Difference is a decision that only one of two runs has made, or that they
// have made differently.
type Difference struct {
	Round    int       `json:"round"`
	Recorded *Decision `json:"recorded"`
	Replayed *Decision `json:"replayed"`
}

// Replay is the result of simulate --replay.
type Replay struct {
	Record   string         `json:"record"`
	Recorded record.Summary `json:"recorded"`
	Replayed record.Summary `json:"replayed"`
	// Same reports whether all decisions are the same: the participants of each
	// round, the workers that are sidelined, taken back and evicted, and the
	// rules.
	Same        bool         `json:"same"`
	Differences []Difference `json:"differences"`
}

// Decisions returns the decisions in the events of a run, in order.
func Decisions(events []record.Event) []Decision {
	var all []Decision
	for _, e := range events {
		switch e.Type {
		case record.RoundClose, record.Sideline, record.Rejoin, record.Evict:
			d := Decision{Round: e.Round, T: int64(e.T), What: string(e.Type), Node: e.Node,
				Participants: e.Participants, Late: e.Missing, Reason: e.Reason}
			if id, ok := e.Worker(); ok {
				d.Worker = &id
			}
			all = append(all, d)
		}
	}
	return all
}

// matter is the subject of a decision. Decisions with the same matter are
// compared.
type matter struct {
	round      int
	what, node string
}

func (d Decision) matter() matter { return matter{d.Round, d.What, d.Node} }

// same reports whether two decisions on a matter are the same, regardless of
// their times.
func (d Decision) same(o Decision) bool {
	rule := func(d Decision) policy.Rule {
		if d.Reason == nil {
			return ""
		}
		return d.Reason.Rule
	}
	return rule(d) == rule(o) && slices.Equal(d.Participants, o.Participants) && slices.Equal(d.Late, o.Late)
}

// Differences compares the decisions of two runs round by round. A reopened
// round has several decisions on one matter, which are compared in their order.
func Differences(recorded, replayed []Decision) []Difference {
	left := map[matter][]Decision{}
	for _, d := range replayed {
		left[d.matter()] = append(left[d.matter()], d)
	}
	all := []Difference{}
	for _, d := range recorded {
		m := d.matter()
		if len(left[m]) == 0 {
			all = append(all, Difference{d.Round, &d, nil})
			continue
		}
		other := left[m][0]
		left[m] = left[m][1:]
		if !d.same(other) {
			all = append(all, Difference{d.Round, &d, &other})
		}
	}
	for _, d := range replayed {
		m := d.matter()
		if n := len(left[m]); n > 0 && left[m][0].T == d.T && left[m][0].same(d) {
			left[m] = left[m][1:]
			all = append(all, Difference{d.Round, nil, &d})
		}
	}
	slices.SortStableFunc(all, func(a, b Difference) int { return a.Round - b.Round })
	return all
}

// NewReplay compares a recorded run of a scenario with its replay.
func NewReplay(played *scenarios.Scenario, note string, recorded, replayed []record.Event) Replay {
	sum := func(events []record.Event) record.Summary {
		s := record.NewSummarizer(played.Setup())
		for _, e := range events {
			s.Add(&e)
		}
		return s.Summary()
	}
	r := Replay{Record: note, Recorded: sum(recorded), Replayed: sum(replayed),
		Differences: Differences(Decisions(recorded), Decisions(replayed))}
	r.Same = len(r.Differences) == 0
	return r
}

// WriteReplay writes a replay as text.
func WriteReplay(out io.Writer, r Replay) error {
	fmt.Fprintf(out, "%s, recorded under %s, replayed under %s\n\n", r.Recorded.Scenario, r.Recorded.Policy, r.Replayed.Policy)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "round\trecorded close\treplayed close\trecorded participants\treplayed participants\t")
	for i := range max(len(r.Recorded.Rounds), len(r.Replayed.Rounds)) {
		fmt.Fprintf(w, "%d\t", i+1)
		cell := func(s record.Summary, text func(record.Round) string) {
			if i < len(s.Rounds) {
				fmt.Fprint(w, text(s.Rounds[i]))
			} else {
				fmt.Fprint(w, "–")
			}
			fmt.Fprint(w, "\t")
		}
		closed := func(r record.Round) string { return words.Micros(r.Close) }
		who := func(r record.Round) string { return words.Workers(r.Participants) }
		cell(r.Recorded, closed)
		cell(r.Replayed, closed)
		cell(r.Recorded, who)
		cell(r.Replayed, who)
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nwall-clock: %s recorded, %s replayed\n", wall(r.Recorded), wall(r.Replayed))
	if r.Same {
		fmt.Fprintln(out, "the replay made the same decisions as the run")
		return nil
	}
	fmt.Fprintln(out)
	for _, d := range r.Differences {
		fmt.Fprintf(out, "round %d\n  recorded: %s\n  replayed: %s\n", d.Round, d.Recorded.text(), d.Replayed.text())
	}
	return nil
}

func wall(s record.Summary) string {
	if !s.Complete {
		return fmt.Sprintf("%s (incomplete, %s)", words.Micros(s.WallClock), words.Count(s.OuterSteps, "outer step"))
	}
	return words.Micros(s.WallClock)
}

// text puts a decision and its reason in words.
func (d *Decision) text() string {
	if d == nil {
		return "no such decision"
	}
	at := " at " + words.Micros(policy.Time(d.T))
	switch record.Type(d.What) {
	case record.RoundClose:
		text := "the round closed" + at + " with " + words.Named(d.Participants)
		if len(d.Late) > 0 {
			text += " and without " + words.Named(d.Late)
		}
		switch r := d.Reason; {
		case r == nil:
			return text
		case r.Rule == policy.RuleAllArrived:
			return text + ": all workers had arrived"
		case r.Deadline == nil:
			return text + fmt.Sprintf(" (%s): %d of %d workers had arrived, %d needed", r.Rule, r.Arrived, r.Members, r.Needed)
		default:
			return text + fmt.Sprintf(" (%s): %d of %d workers had arrived, %d needed, and the deadline was %s after the first arrival", r.Rule, r.Arrived, r.Members, r.Needed,
				words.Micros(r.Deadline.Offset+r.Deadline.Credit))
		}
	case record.Rejoin:
		return d.Node + " arrived in time again" + at
	case record.Evict:
		return fmt.Sprintf("%s was evicted%s (%s): %s", d.Node, at, d.Reason.Rule, words.Because(d.Reason))
	}
	return d.Node + " was sidelined" + at + ": " + words.Because(d.Reason)
}
