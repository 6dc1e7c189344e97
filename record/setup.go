package record

import "testbed/policy"

// Setup is the information about a run that summaries need besides its events.
type Setup struct {
	Workers     []policy.ID
	InnerSteps  int // of a round
	InitialStep int // the most outer steps that any worker claims to have taken when it joins
	// Overlap is how many inner steps of the next round a worker takes before it has
	// the outcome of a round; 0: rounds do not overlap.
	Overlap int
	// Grouping determines which workers reduce together; nil: all workers.
	Grouping *policy.Grouping
	// StalenessWeight is above 0 if a late contribution is added to the next one.
	StalenessWeight float64
	TokensPerStep   int // 0 if training has no tokens
	Classes         []Class
	// Planned are the scenario's planned happenings, in order of time.
	Planned []Planned
	// Slow reports whether the scenario had made the worker at a place in Workers
	// slow at a time; nil: none was. It caches its last answer, so it is not safe
	// for concurrent use.
	Slow func(place int, at policy.Time) bool
}

// Planned is something that a scenario plans for a time.
type Planned struct {
	At    policy.Time
	What  string     // such as "Crash w1"
	Joins *policy.ID // the worker that joins, if this is a join
	// Type and Node are those of the event that records it, if it happens to a
	// worker that has to be alive.
	Type Type
	Node string
}

// Class is a class of workers whose contributions a summary counts.
type Class struct {
	Name string
	IDs  []policy.ID
}
