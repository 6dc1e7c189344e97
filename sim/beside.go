package sim

import (
	"slices"

	"testbed/policy"
)

// SharedTransfer is one that has a link to itself until End, if nothing disturbs it.
type SharedTransfer struct{ End policy.Time }

// Share has a reduction begin on the link, which the two then share evenly: queues
// are fair between destinations. full is when it would end for each rank with the
// link to itself, and half with half of it. It returns when it does end: as long as
// the transfer lasts the reduction proceeds as with half the link, and afterwards
// as with all of it. The transfer ends later by what it has not got meanwhile.
func (t *SharedTransfer) Share(now policy.Time, full, half []policy.Time) []policy.Time {
	ends := slices.Clone(full)
	slow := slices.Max(half) - now
	if t.End <= now || slow <= 0 {
		return ends
	}
	lasts := 2 * (t.End - now) // on half the link
	share := min(1, float64(lasts)/float64(slow))
	for k := range ends {
		ends[k] += policy.Time(share * float64(half[k]-full[k]))
	}
	t.End += min(lasts, slices.Max(ends)-now) / 2
	return ends
}

// Yield has the transfer wait until a reduction is over.
func (t *SharedTransfer) Yield(now policy.Time, ends []policy.Time) {
	if t.End > now {
		t.End += max(0, slices.Max(ends)-now)
	}
}
