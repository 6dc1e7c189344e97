package allreduce

import "math"

// Mean returns the exact reference: the mean of the vectors, summed and
// divided in float64. All vectors have the length of the first; there is at
// least one.
func Mean(vectors [][]float32) []float64 {
	mean := make([]float64, len(vectors[0]))
	for _, v := range vectors {
		for i, x := range v {
			mean[i] += float64(x)
		}
	}
	for i := range mean {
		mean[i] /= float64(len(vectors))
	}
	return mean
}

// RingMean models the quantised ring in memory, one chunk after the other and
// with the plainest arithmetic that is still exact to the bit: every
// implementation must return exactly these values on every rank. vectors are
// the ranks' inputs in ring order; bits is the size of a code, 8 or 4, and block
// the number of values per scale.
// A single vector is returned as a copy, unquantised.
func RingMean(vectors [][]float32, bits, block int) []float32 {
	ranks, length := len(vectors), len(vectors[0])
	out := make([]float32, length)
	if ranks == 1 {
		copy(out, vectors[0])
		return out
	}
	for c := range ranks {
		lo, hi := Chunk(length, ranks, c)
		// Chunk c starts at rank c and is finished by rank c-1, its owner.
		sum := passThroughWire(vectors[c][lo:hi], bits, block)
		for hop := 1; hop < ranks; hop++ {
			own := vectors[(c+hop)%ranks][lo:hi]
			for i := range sum {
				sum[i] += own[i]
			}
			if hop == ranks-1 {
				for i := range sum {
					sum[i] *= 1 / float32(ranks)
				}
			}
			sum = passThroughWire(sum, bits, block)
		}
		copy(out[lo:hi], sum)
	}
	return out
}

// DirectMean models the direct algorithm as RingMean does the ring. Chunk c is
// summed by rank c in the order of the ranks, the first one's values first;
// its own values enter the sum exactly, those of the others as they came
// through the wire.
func DirectMean(vectors [][]float32, bits, block int) []float32 {
	ranks, length := len(vectors), len(vectors[0])
	out := make([]float32, length)
	if ranks == 1 {
		copy(out, vectors[0])
		return out
	}
	for c := range ranks {
		lo, hi := Chunk(length, ranks, c)
		sum := make([]float32, hi-lo)
		for r, v := range vectors {
			part := v[lo:hi]
			if r != c {
				part = passThroughWire(part, bits, block)
			}
			for i, x := range part {
				if r == 0 {
					sum[i] = x
				} else {
					sum[i] += x
				}
			}
		}
		for i := range sum {
			sum[i] *= 1 / float32(ranks)
		}
		copy(out[lo:hi], passThroughWire(sum, bits, block))
	}
	return out
}

// HierarchicalMean models the hierarchical algorithm as RingMean does the ring.
// groups has a number for every rank. Every group's values of a chunk are
// summed by its leader in the order of the ranks, and the groups' sums by the
// chunk's owner in the order of the groups. Who sums adds its own values, and
// its own group's sum, exactly, and the others' as they came through the wire.
func HierarchicalMean(vectors [][]float32, groups []int, bits, block int) []float32 {
	ranks, length := len(vectors), len(vectors[0])
	out := make([]float32, length)
	if ranks == 1 {
		copy(out, vectors[0])
		return out
	}
	g := NewGroups(groups)
	add := func(sum, part []float32) []float32 {
		if sum == nil {
			return append([]float32{}, part...)
		}
		for i, x := range part {
			sum[i] += x
		}
		return sum
	}
	for c := range ranks {
		lo, hi := Chunk(length, ranks, c)
		var total []float32
		for group := range g.Len() {
			var sum []float32
			for _, r := range g.Members(group) {
				part := vectors[r][lo:hi]
				if r != g.Leader(group, c) {
					part = passThroughWire(part, bits, block)
				}
				sum = add(sum, part)
			}
			if group != g.Of(c) {
				sum = passThroughWire(sum, bits, block)
			}
			total = add(total, sum)
		}
		for i := range total {
			total[i] *= 1 / float32(ranks)
		}
		copy(out[lo:hi], passThroughWire(total, bits, block))
	}
	return out
}

// minScaled is the smallest absmax that gets a scale: below it, arithmetic
// would come near the denormals, which not every machine treats alike.
const minScaled = 0x1p-115

// passThroughWire returns what a receiver sees of values: quantised to codes of
// so many bits with one absmax scale per block, and back.
func passThroughWire(values []float32, bits, block int) []float32 {
	seen := make([]float32, len(values))
	for lo := 0; lo < len(values); lo += block {
		hi := min(lo+block, len(values))
		var absmax float64
		finite := true
		for _, x := range values[lo:hi] {
			absmax = math.Max(absmax, math.Abs(float64(x)))
			finite = finite && !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0)
		}
		top := float32(int(1)<<(bits-1) - 1)
		scale, inverse := float32(absmax)/top, top/float32(absmax)
		for finite && math.IsInf(float64(scale*top), 0) {
			scale = math.Nextafter32(scale, 0) // the largest must come back finite
		}
		for i := lo; i < hi; i++ {
			switch {
			case !finite:
				seen[i] = math.Float32frombits(0x7fc00000)
			case absmax < minScaled:
				seen[i] = 0
			default:
				code := int8(math.RoundToEven(float64(values[i] * inverse))) // an integer has no -0
				seen[i] = float32(code) * scale
			}
		}
	}
	return seen
}
