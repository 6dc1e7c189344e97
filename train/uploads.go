package train

import (
	"slices"

	"testbed/policy"
)

// StoreNode is the name of the store's node.
const StoreNode = "store"

// UploadSpec is the section real.upload of a scenario.
type UploadSpec struct {
	// Outer steps between uploads; 0 is none.
	Every int `yaml:"every" json:"every"`
	// Uploads pause while their worker reduces. Without it they compete for the worker's
	// link.
	Yields bool `yaml:"yields" json:"yields,omitempty"`
}

// Upload is an outer state on its way to the store.
type Upload struct {
	By         policy.ID // the worker that sends it
	OuterSteps int       // that it has, or more by the time it is sent
}

// UploadQueue has one upload at a time. Of those that come meanwhile the newest waits,
// and no other. The zero value is empty.
type UploadQueue struct {
	running bool
	next    *Upload
}

// OuterStep takes the end of a round, of as many as last: of its participants the
// one with the lowest ID sends the state, if it is to be sent. That of the last round
// is the run's result, and goes nowhere. It returns the upload that begins, or nil.
func (q *UploadQueue) OuterStep(s UploadSpec, round, last int, participants []policy.ID) *Upload {
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
func (q *UploadQueue) Ended() *Upload {
	begins := q.next
	q.running, q.next = begins != nil, nil
	return begins
}
