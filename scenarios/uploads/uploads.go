// Package uploads decides which outer states go to a store on the network, beside
// the training, as prime's checkpoints do (Prime Intellect, INTELLECT-1, 2024): in
// the real run and in the simulator.
//
// The package is pure.
package uploads

import (
	"slices"

	"testbed/policy"
)

// Store is the name of the store's node.
const Store = "store"

// Spec is the section real.upload of a scenario.
type Spec struct {
	// Every is the number of outer steps from one upload to the next; 0 is none.
	Every int `yaml:"every" json:"every"`
	// Yields has an upload wait while its worker reduces. Without it they compete
	// for the worker's link.
	Yields bool `yaml:"yields" json:"yields,omitempty"`
}

// Upload is an outer state on its way to the store.
type Upload struct {
	By         policy.ID // the worker that sends it
	OuterSteps int       // that it has, or more by the time it is sent
}

// Queue has one upload at a time. Of those that come meanwhile the newest waits,
// and no other. The zero value is empty.
type Queue struct {
	running bool
	next    *Upload
}

// OuterStep takes the end of a round, of as many as last: of its participants the
// one with the lowest ID sends the state, if it is to be sent. That of the last round
// is the run's result, and goes nowhere. It returns the upload that begins, or nil.
func (q *Queue) OuterStep(s Spec, round, last int, participants []policy.ID) *Upload {
	if s.Every == 0 || round%s.Every != 0 || round >= last || len(participants) == 0 {
		return nil
	}
	q.next = &Upload{slices.Min(participants), round}
	if q.running {
		return nil
	}
	return q.Ended()
}

// Ended takes the end of the upload that was running, and returns the one that
// begins, or nil.
func (q *Queue) Ended() *Upload {
	begins := q.next
	q.running, q.next = begins != nil, nil
	return begins
}
