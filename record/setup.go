package record

import "testbed/policy"

// Setup is what summaries need to know of a run beside its events.
type Setup struct {
	Workers     []policy.ID
	InnerSteps  int // of a round
	InitialStep int // the most outer steps that a worker claims to have taken when it joins
	// Overlap is how many inner steps of the next round a worker takes before it has
	// the outcome of a round; 0: rounds do not overlap.
	Overlap int
	// Grouping says who reduces with whom in which round; nil: all workers together.
	Grouping *policy.Grouping
	// StalenessWeight is above 0 where a late contribution is added to the next one.
	StalenessWeight float64
	TokensPerStep   int // 0 where no tokens are trained on
	Classes         []Class
	// Planned is what the scenario has happen, in order of time.
	Planned []Planned
	// Slow reports whether the worker at a place in Workers was made slow at a time;
	// nil: none was. It keeps its last answer, so it is not safe for concurrent use.
	Slow func(place int, at policy.Time) bool
}

// Planned is something that a scenario has happen at a time.
type Planned struct {
	At    policy.Time
	What  string     // such as "Crash w1"
	Joins *policy.ID // the worker that joins then, if that is what happens
	// Type and Node are those of the event that records it, if it happens to a worker
	// that has to live then.
	Type Type
	Node string
}

// Class is a kind of workers, of which a summary counts the contributions.
type Class struct {
	Name string
	IDs  []policy.ID
}
