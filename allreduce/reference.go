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
// the ranks' inputs in ring order; bits is the size of a value, one of Bits, and
// block the number of values per scale.
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
// so many bits with one absmax scale per block, and back; or as floating-point
// numbers of so many bits.
func passThroughWire(values []float32, bits, block int) []float32 {
	seen := make([]float32, len(values))
	if !HasCodes(bits) {
		for i, x := range values {
			seen[i] = float(x, bits)
		}
		return seen
	}
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

// float returns x as a floating-point number of so many bits: itself, or the
// nearest bfloat16, of two at the same distance the one whose last bit is 0.
// Any NaN is the canonical one.
func float(x float32, bits int) float32 {
	switch {
	case math.IsNaN(float64(x)):
		return math.Float32frombits(0x7fc00000)
	case bits == 32 || math.IsInf(float64(x), 0):
		return x
	}
	const places = 1 << 16 // that a bfloat16 lacks
	below := math.Float32bits(x) / places * places
	above := below + places // further from 0
	distance := func(bits uint32) float64 {
		y := float64(math.Float32frombits(bits))
		if math.IsInf(y, 0) { // where the next one would be
			y = math.Copysign(0x1p128, y)
		}
		return math.Abs(y - float64(x))
	}
	if d, e := distance(below), distance(above); e < d || e == d && below/places%2 == 1 {
		return math.Float32frombits(above)
	}
	return math.Float32frombits(below)
}
