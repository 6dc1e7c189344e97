package policy

// Coordinator is the state machine of a coordinator, as every world drives it.
type Coordinator interface {
	// Step takes one event and returns what is to be done about it, in order. The
	// slice is valid until the next call. Times must not decrease, and events that
	// make no sense any more have no effect.
	Step(now Time, e Event) []Action
	// OuterSteps returns the number of outer steps that are final.
	OuterSteps() int
	// Members returns the number of members.
	Members() int
	// Finished reports whether a Finish action has been given.
	Finished() bool
	// Close is called when the run is over. It ends what the policy keeps outside
	// of this process. After a Finish with RulePolicyFailed it returns a *FailedError.
	Close() error
}

// Protocol is a Policy that decides on more than rounds: it has a machine of its
// own, in the place of Machine.
type Protocol interface {
	Policy
	Coordinator(Config) (Coordinator, error)
}

// NewCoordinator returns the machine of the policy of cfg, in which nobody has
// joined yet.
func NewCoordinator(cfg Config) (Coordinator, error) {
	if p, ok := cfg.Policy.(Protocol); ok {
		if err := cfg.validate(); err != nil {
			return nil, err
		}
		return p.Coordinator(cfg)
	}
	return New(cfg)
}
