package policy

// Coordinator is the state machine of a coordinator, as every world drives it.
type Coordinator interface {
	// Step takes one event and returns the actions that follow from it, in order.
	// The slice is valid until the next call. Times must not decrease. Obsolete
	// events have no effect.
	Step(now Time, e Event) []Action
	// OuterSteps returns the number of outer steps that are final.
	OuterSteps() int
	// Members returns the number of members.
	Members() int
	// Finished reports whether a Finish action has been given.
	Finished() bool
	// Close must be called when the run is over. It ends the policy's processes,
	// if it has any. After a Finish with RulePolicyFailed it returns a
	// *FailedError.
	Close() error
}

// Protocol is a Policy that decides more than the end of rounds: it replaces
// Machine by a machine of its own.
type Protocol interface {
	Policy
	Coordinator(Config) (Coordinator, error)
}

// NewCoordinator returns the machine of the policy of cfg, without members.
func NewCoordinator(cfg Config) (Coordinator, error) {
	if p, ok := cfg.Policy.(Protocol); ok {
		if err := cfg.validate(); err != nil {
			return nil, err
		}
		return p.Coordinator(cfg)
	}
	return New(cfg)
}
