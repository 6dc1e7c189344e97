package resolved

import (
	"cmp"
	"math"
	"slices"

	"testbed/policy"
	"testbed/scenarios/faults"
	"testbed/train/work"
)

// slowShare is the ratio to the median worker's expected inner step above which
// a worker counts as slow.
const slowShare = 1.5

// groundTruth says which workers a scenario has made slow, and when: those
// whose inner step, begun at that moment, is expected to take more than
// slowShare times as long as the median worker's (or the lower of the two
// middle ones), and those that are paused. The expectation is inner_step_mean
// times all factors at that time: classes, noise, heat, the time of day, Slow.
// Workers that have left, or have yet to join, count. The answers depend on the
// scenario alone, and not on the order of the questions.
type groundTruth struct {
	workers []Worker
	speeds  []*work.Speed
	changes []change // in time

	// The answers hold from from until until. plain is each worker's expectation
	// without injects, which holds until a time of its own.
	from, until policy.Time
	slow        []bool
	plain       []float64
	untils      []policy.Time
	expected    []float64
	median      float64
}

// change is a change of a worker's speed by an inject.
type change struct {
	at     policy.Time
	place  int
	op     faults.Op
	factor float64
}

func newGroundTruth(s *Scenario) *groundTruth {
	n := len(s.Workers)
	t := &groundTruth{workers: s.Workers, slow: make([]bool, n),
		plain: make([]float64, n), untils: make([]policy.Time, n), expected: make([]float64, n)}
	places := make(map[policy.ID]int, n)
	for i, w := range s.Workers {
		places[w.ID] = i
		if s.Work != nil {
			t.speeds = append(t.speeds, work.NewSpeed(s.Work, s.Seed, w.ID))
		}
	}
	for _, in := range s.Injects {
		if in.Op != faults.Slow && in.Op != faults.Restore && in.Op != faults.Pause && in.Op != faults.Resume {
			continue
		}
		c := change{at: in.At, place: places[*in.ID], op: in.Op, factor: 1}
		if join := s.Workers[c.place].JoinAt; in.At <= join {
			c.at = join + 1 // after the first step has begun
		}
		if in.Op == faults.Slow {
			c.factor = *in.Factor
		}
		t.changes = append(t.changes, c)
	}
	slices.SortStableFunc(t.changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	return t
}

// at reports whether the worker at a place in the scenario is slow at a time.
func (t *groundTruth) at(place int, at policy.Time) bool {
	if at < t.from || at >= t.until {
		t.look(at)
	}
	return t.slow[place]
}

// look finds the workers that are slow at a time, and the time until which that
// holds.
func (t *groundTruth) look(at policy.Time) {
	back := at < t.from
	t.from, t.until = at, math.MaxInt64
	for i, w := range t.workers {
		if back || at >= t.untils[i] {
			factor, until := 1.0, policy.Time(math.MaxInt64)
			if t.speeds != nil {
				factor, until = t.speeds[i].Until(at)
			}
			t.plain[i], t.untils[i] = float64(w.Mean)*factor, until
		}
		t.until = min(t.until, t.untils[i])
	}
	copy(t.expected, t.plain)
	clear(t.slow)
	for _, c := range t.changes {
		if c.at > at {
			t.until = min(t.until, c.at)
			break
		}
		switch c.op {
		case faults.Pause, faults.Resume:
			t.slow[c.place] = c.op == faults.Pause
		default:
			t.expected[c.place] = t.plain[c.place] * c.factor
		}
	}
	t.median = lowerMedian(t.expected, t.median)
	for i, e := range t.expected {
		t.slow[i] = t.slow[i] || e > slowShare*t.median
	}
}

// lowerMedian returns the median, or the lower of the two middle values. With
// many workers it is mostly the same as before, which is quicker to check than
// to sort.
func lowerMedian(all []float64, before float64) float64 {
	below, upTo, k := 0, 0, (len(all)-1)/2
	for _, x := range all {
		if x < before {
			below++
		}
		if x <= before {
			upTo++
		}
	}
	if below <= k && k < upTo {
		return before
	}
	sorted := slices.Clone(all)
	slices.Sort(sorted)
	return sorted[k]
}
