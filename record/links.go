package record

import (
	"testbed/scenarios/faults"
	"time"
)

// LinkChanges returns the events of the link injects that begin or end after one
// time and until another, in the order of the scenario. The times are real, since
// scenario time zero; the events have none yet.
func LinkChanges(s *faults.Schedule, after, until time.Duration) (events []Event) {
	for k, in := range s.Links {
		was, is := s.LinkActive(k, after), s.LinkActive(k, until)
		if was == is {
			continue
		}
		e := Event{Type: LinkFault, Op: string(in.Op), From: in.From, To: in.To}
		if was {
			e.Type = LinkRestored
		}
		if in.Between != nil {
			e.From, e.To = in.Between[0], in.Between[1]
		}
		if in.ID != nil {
			e.Node = (*in.ID).Node()
		}
		events = append(events, e)
	}
	return events
}
