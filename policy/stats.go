package policy

import "slices"

// Median returns the median of the values, and the floor of the mean of the
// middle two for an even number of them. It sorts its argument. It panics on
// an empty slice.
func Median(values []Time) Time {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	a, b := values[n/2-1], values[n/2]
	return a + (b-a)/2
}

// MAD returns the raw median absolute deviation from the centre, without the
// factor 1.4826 that would make it estimate a standard deviation. It
// overwrites its argument.
func MAD(values []Time, centre Time) Time {
	for i, v := range values {
		values[i] = max(v-centre, centre-v)
	}
	return Median(values)
}

// history is the arrival offsets of the last rounds.
type history struct {
	rounds  [][]Time
	total   int
	scratch []Time
}

// add appends a round's offsets and forgets the oldest rounds that the window
// does not need.
func (h *history) add(offsets []Time, window int) {
	h.rounds = append(h.rounds, offsets)
	h.total += len(offsets)
	for len(h.rounds) > 1 && h.total-len(h.rounds[0]) >= window {
		h.total -= len(h.rounds[0])
		h.rounds = h.rounds[1:]
	}
}

// deadline computes the offset of a deadline after the first arrival.
func (h *history) deadline(s *Straggler) Deadline {
	h.scratch = h.scratch[:0]
	for _, r := range h.rounds {
		h.scratch = append(h.scratch, r...)
	}
	d := Deadline{K: s.K, MinSlack: s.MinSlack, Samples: len(h.scratch)}
	d.Median = Median(h.scratch)
	d.MAD = MAD(h.scratch, d.Median)
	d.Offset = max(s.MinSlack, d.Median+Time(s.K*float64(d.MAD)))
	return d
}
