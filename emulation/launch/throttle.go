package launch

import (
	"slices"
	"time"

	"testbed/emulation/programs"
)

// throttle keeps the processor time of a node to a share of a processor, by telling when
// its processes may run. It knows no clock: times are the caller's, since any moment.
//
// It is a bucket that fills at the share, and from which takes what the node computes. The
// node runs while there is something in it. What was taken too much, because nobody
// looked in time, is missing afterwards, so that the share holds in the mean; what is
// not taken is lost beyond throttleBurst, as with a quota of the kernel's.
type throttle struct {
	share  float64 // of a processor
	tokens time.Duration
	at     time.Duration
	used   time.Duration
}

// throttleBurst is the time in which a full bucket is filled, and throttleTick the time
// between two looks. A shorter tick takes more processor time and no less from the mean.
const (
	throttleBurst = 20 * time.Millisecond
	throttleTick  = 2 * time.Millisecond
)

func newThrottle(share float64, at, used time.Duration) *throttle {
	return &throttle{share: share, at: at, used: used}
}

// look takes that the node has computed for so long, and says whether it may run until
// the next look.
func (t *throttle) look(at, used time.Duration) (run bool) {
	t.tokens += time.Duration(t.share*float64(at-t.at)) - (used - t.used)
	t.tokens = min(t.tokens, time.Duration(t.share*float64(throttleBurst)))
	t.at, t.used = at, used
	return t.tokens > 0
}

// typicalShare is the share of a processor that a node takes while it computes: of the
// shares in windows of sampleEvery, the median of those that are at least half of the
// highest. In the others the node waited for something else.
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
	// fewWindows are too few to say what a node takes: then it is a processor.
	fewWindows = 3
	// leastShare is the least that is left to a node, so that it still ends.
	leastShare = 0.001
)

// slowShare is the share that a node has which is to be factor times slower than in those
// windows.
func slowShare(windows []float64, factor float64) (before, meant float64) {
	before = 1
	if len(windows) >= fewWindows {
		before = typicalShare(windows)
	}
	return before, max(before/factor, leastShare)
}
