package train

import (
	"testing"

	"testbed/policy"
)

// TestQueue: one upload at a time; of those that come meanwhile the newest waits.
func TestQueue(t *testing.T) {
	var q UploadQueue
	s := UploadSpec{Every: 2}
	want := func(got *Upload, by policy.ID, steps int) {
		t.Helper()
		if steps == 0 && got != nil || steps > 0 && (got == nil || *got != Upload{by, steps}) {
			t.Errorf("%v begins, want the state %d of worker %d", got, steps, by)
		}
	}
	want(q.OuterStep(s, 1, 9, []policy.ID{0, 1}), 0, 0)
	want(q.OuterStep(s, 2, 9, []policy.ID{2, 1}), 1, 2)
	want(q.OuterStep(s, 4, 9, []policy.ID{0}), 0, 0)
	want(q.OuterStep(s, 6, 9, []policy.ID{3}), 0, 0)
	want(q.Ended(), 3, 6)
	want(q.Ended(), 0, 0)
	want(q.OuterStep(s, 8, 9, []policy.ID{0}), 0, 8)
	want(q.Ended(), 0, 0)
	want(q.OuterStep(s, 10, 10, []policy.ID{0}), 0, 0)
	want(q.OuterStep(UploadSpec{}, 4, 9, []policy.ID{0}), 0, 0)
}
