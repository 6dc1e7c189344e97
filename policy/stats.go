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
