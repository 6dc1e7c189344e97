package resolved

import (
	"cmp"
	"slices"
	"time"

	"testbed/record"
	"testbed/scenarios/faults"
)

// needsLife has the events of the injects that happen only to living workers.
var needsLife = map[faults.Op]record.Type{
	faults.Crash: record.Crash, faults.Leave: record.Leave, faults.Fail: record.Fail,
	faults.Pause: record.Pause, faults.Resume: record.Resume, faults.Preempt: record.Preempt, faults.FailReduce: record.FailReduce,
}

// Setup is the information that summaries need about a run of the scenario.
func (s *Scenario) Setup() record.Setup {
	setup := record.Setup{
		Workers: s.IDs(), InnerSteps: s.InnerSteps, InitialStep: s.InitialStep(), Overlap: s.Exchange.Overlap, Grouping: s.Grouping,
		StalenessWeight: s.StalenessWeight, TokensPerStep: s.Train.TokensPerStep(),
		Slow: newGroundTruth(s).at,
	}
	for _, w := range s.Workers {
		setup.Planned = append(setup.Planned, record.Planned{At: w.JoinAt, What: "join of " + w.ID.Node(), Joins: &w.ID})
	}
	for _, in := range s.Injects {
		p := record.Planned{At: in.At, What: in.String()}
		if p.Type = needsLife[in.Op]; p.Type != "" {
			p.Node = in.ID.Node()
		}
		setup.Planned = append(setup.Planned, p)
	}
	for _, in := range s.Faults.Links {
		setup.Planned = append(setup.Planned, record.Planned{At: in.At, What: in.String()})
	}
	slices.SortStableFunc(setup.Planned, func(a, b record.Planned) int { return cmp.Compare(a.At, b.At) })
	if s.Work != nil {
		for _, c := range s.Work.Classes {
			setup.Classes = append(setup.Classes, record.Class{Name: c.Name, IDs: c.IDs})
		}
	}
	return setup
}

// NetworkChanges returns the events of partitions that begin and end after one time and
// until another, and then those of LinkChanges, which has the meaning of the times.
func NetworkChanges(s *faults.Schedule, after, until time.Duration) (events []record.Event) {
	for _, in := range s.Injects {
		switch t := s.RealDuration(in.At); {
		case t <= after || t > until:
		case in.Op == faults.Partition:
			events = append(events, record.Event{Type: record.Partition, IDs: in.IDs})
		case in.Op == faults.ClearPartition:
			events = append(events, record.Event{Type: record.Heal, IDs: in.IDs})
		}
	}
	return append(events, LinkChanges(s, after, until)...)
}

// LinkChanges returns the events of the link injects that begin or end after one
// time and until another, in the order of the scenario. The times are real, since
// scenario time zero; the events have none yet.
func LinkChanges(s *faults.Schedule, after, until time.Duration) (events []record.Event) {
	for k, in := range s.Links {
		was, is := s.LinkActive(k, after), s.LinkActive(k, until)
		if was == is {
			continue
		}
		e := record.Event{Type: record.LinkFault, Op: string(in.Op), From: in.From, To: in.To}
		if was {
			e.Type = record.LinkRestored
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
