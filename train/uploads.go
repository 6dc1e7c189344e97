package train

import (
	"slices"

	"testbed/policy"
)

// StoreNode is the name of the store's node.
const StoreNode = "store"

// UploadSpec is the section real.upload of a scenario.
type UploadSpec struct {
	// The number of outer steps between uploads. 0 means no uploads.
	Every int `yaml:"every" json:"every"`
	// Uploads pause while their worker reduces. Otherwise uploads and reductions share
	// the worker's link.
	Yields bool `yaml:"yields" json:"yields,omitempty"`
}

// Upload is an outer state on its way to the store.
type Upload struct {
	By         policy.ID // the worker that sends it
	OuterSteps int       // after which to send it; there may be more by then
}

// UploadQueue has one upload at a time. Of the uploads that become due
// meanwhile, only the newest waits. The zero value is empty.
type UploadQueue struct {
	running bool
	next    *Upload
}

// OuterStep handles the end of a round; last is the last round's number. If the
// state is to be uploaded, the participant with the lowest ID sends it. The
// state of the last round is the run's result, and is not uploaded. OuterStep
// returns the upload that begins, or nil.
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

// Ended handles the end of the running upload, and returns the one that begins,
// or nil.
func (q *UploadQueue) Ended() *Upload {
	begins := q.next
	q.running, q.next = begins != nil, nil
	return begins
}
