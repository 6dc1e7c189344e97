package stories

import (
	"fmt"

	"testbed/policy"
	"testbed/record"
)

// Figures are the published figures of torchft's trials: the number of tries of
// an outer step, the number committed, the mean number of participating groups,
// and the mean duration.
type Figures struct {
	Tries, Committed int
	Participants     float64
	Step             policy.Time
}

// FiguresOf counts a run. A try that failed during a healing has no reduction.
// It is counted by its quorum id, and does not count among Participants.
func FiguresOf(events []record.Event) (f Figures) {
	healed, reduced := map[int64]bool{}, map[int64]bool{}
	participants, last := 0, policy.Time(0)
	for _, e := range events {
		switch e.Type {
		case record.FetchStart:
			healed[e.Reason.QuorumID] = true
		case record.ReduceStart:
			f.Tries++
			participants += len(e.Participants)
			reduced[e.Reason.QuorumID] = true
		case record.OuterStep:
			f.Committed++
			last = e.T
		}
	}
	if f.Tries > 0 {
		f.Participants = float64(participants) / float64(f.Tries)
	}
	for id := range healed {
		if !reduced[id] {
			f.Tries++
		}
	}
	f.Step = last / policy.Time(max(1, f.Tries))
	return f
}

func (f Figures) String() string {
	return fmt.Sprintf("%d of %d committed (%.1f %%), %.1f participants, %.2f s a step", f.Committed, f.Tries, 100*float64(f.Committed)/float64(max(1, f.Tries)), f.Participants, float64(f.Step)/1000)
}
