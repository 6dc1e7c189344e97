package launch

import (
	"slices"
	"time"

	"testbed/emulation/programs"
)

// throttle limits the processor time of a node to a share of a processor, by
// deciding when its processes may run. It reads no clock. Its caller passes all
// times, since any fixed moment.
//
// It is a token bucket that fills at the share. The processor time that the node
// uses empties it. The node runs while the bucket is not empty. Time that was
// used beyond that, because a look was late, is deducted later, so the average
// is the share. Unused time beyond throttleBurst is lost, as with the kernel's
// quotas.
type throttle struct {
	share  float64 // of a processor
	tokens time.Duration
	at     time.Duration
	used   time.Duration
}

// throttleBurst is the time in which an empty bucket fills, and throttleTick
// the time between two looks. A shorter tick takes more processor time and does
// not make the average more accurate.
const (
	throttleBurst = 20 * time.Millisecond
	throttleTick  = 2 * time.Millisecond
)

func newThrottle(share float64, at, used time.Duration) *throttle {
	return &throttle{share: share, at: at, used: used}
}

// look deducts the processor time that the node has used, and reports whether
// the node may run until the next look.
func (t *throttle) look(at, used time.Duration) (run bool) {
	t.tokens += time.Duration(t.share*float64(at-t.at)) - (used - t.used)
	t.tokens = min(t.tokens, time.Duration(t.share*float64(throttleBurst)))
	t.at, t.used = at, used
	return t.tokens > 0
}

// typicalShare is the share of a processor that a node uses while it computes.
// It is the median of the shares of those windows of sampleEvery that have at
// least half of the highest share. In the other windows the node waited for
// something else.
func typicalShare(windows []float64) float64 {
	if len(windows) == 0 {
		return 0
	}
	most := slices.Max(windows)
	busy := slices.DeleteFunc(slices.Clone(windows), func(share float64) bool { return share < most/2 })
	slices.Sort(busy)
	return busy[len(busy)/2]
}

const (
	// sampleEvery is the length of a window.
	sampleEvery = programs.SampleEvery
	// With fewer than fewWindows windows, a node's share is taken as one processor.
	fewWindows = 3
	// leastShare is the lowest share of a slow node, so that the node can still
	// end.
	leastShare = 0.001
)

// slowShare returns the share that the node had in the windows, and the share
// that makes it slower by the factor.
func slowShare(windows []float64, factor float64) (before, intended float64) {
	before = 1
	if len(windows) >= fewWindows {
		before = typicalShare(windows)
	}
	return before, max(before/factor, leastShare)
}
