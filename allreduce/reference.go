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
// the ranks' inputs in ring order. A single vector is returned as a copy,
// unquantised.
func RingMean(vectors [][]float32, f Format) []float32 {
	return Reference{Algorithm: Ring, Format: f}.Mean(vectors, nil)
}

// DirectMean models the direct algorithm as RingMean does the ring. Chunk c is
// summed by rank c in the order of the ranks, the first one's values first; its
// own values enter the sum exactly, the others' values as the wire delivers
// them.
func DirectMean(vectors [][]float32, f Format) []float32 {
	return Reference{Algorithm: Direct, Format: f}.Mean(vectors, nil)
}

// HierarchicalMean models the hierarchical algorithm as RingMean does the ring.
// groups has a number for every rank. Every group's values of a chunk are
// summed by its leader in the order of the ranks, and the groups' sums by the
// chunk's owner in the order of the groups. A rank that sums adds its own
// values, or its own group's sum, exactly, and all others as the wire delivers
// them.
func HierarchicalMean(vectors [][]float32, groups []int, f Format) []float32 {
	return Reference{Algorithm: Hierarchical, Groups: groups, Format: f}.Mean(vectors, nil)
}

// Reference is a model of the quantised all-reduce in memory.
type Reference struct {
	Algorithm Algorithm
	Groups    []int // with Hierarchical: a number for every rank
	Format    Format
}

// Mean returns the outcome of every rank. vectors are the ranks' inputs, at
// least one, in the order of the ranks. If lost is not nil, lost[r] receives
// the error that rank r's quantisation made, in units of the sum, as error
// feedback needs it. All slices have the vectors' length.
func (r Reference) Mean(vectors, lost [][]float32) []float32 {
	ranks, length := len(vectors), len(vectors[0])
	out := make([]float32, length)
	if ranks == 1 {
		copy(out, vectors[0])
		if lost != nil {
			clear(lost[0])
		}
		return out
	}
	for c := range ranks {
		lo, hi := Chunk(length, ranks, c)
		parts := make([]part, ranks)
		for k, v := range vectors {
			parts[k].values = v[lo:hi]
			if lost != nil {
				parts[k].lost = lost[k][lo:hi]
			}
		}
		switch r.Algorithm {
		case Direct:
			copy(out[lo:hi], r.grouped(parts, c, NewGroups(make([]int, ranks))))
		case Hierarchical:
			copy(out[lo:hi], r.grouped(parts, c, NewGroups(r.Groups)))
		default:
			copy(out[lo:hi], r.ring(parts, c))
		}
	}
	return out
}

// part is a rank's part of a chunk. lost receives the part's quantisation
// error.
type part struct{ values, lost []float32 }

// ring passes chunk c around: it starts at rank c and is finished by rank c-1,
// its owner.
func (r Reference) ring(parts []part, c int) []float32 {
	ranks := len(parts)
	sum := r.wire(parts[c].values, parts[c].lost)
	for hop := 1; hop < ranks; hop++ {
		at := parts[(c+hop)%ranks]
		for i := range sum {
			sum[i] += at.values[i]
		}
		mul := float32(1)
		if hop == ranks-1 {
			mul = 1 / float32(ranks)
			for i := range sum {
				sum[i] *= mul
			}
		}
		sum = r.wire(sum, at.lost)
		for i := range at.lost {
			at.lost[i] /= mul
		}
	}
	return sum
}

// grouped sums chunk c by leaders and owner.
func (r Reference) grouped(parts []part, c int, g Groups) []float32 {
	var total []float32
	add := func(sum, values []float32) []float32 {
		if sum == nil {
			return append([]float32{}, values...)
		}
		for i, x := range values {
			sum[i] += x
		}
		return sum
	}
	for group := range g.Len() {
		var sum []float32
		leader := g.Leader(group, c)
		for _, k := range g.Members(group) {
			values := parts[k].values
			if k != leader {
				values = r.wire(values, parts[k].lost)
			}
			sum = add(sum, values)
		}
		if group != g.Of(c) {
			sum = r.wire(sum, parts[leader].lost)
		}
		total = add(total, sum)
	}
	ranks := float32(len(parts))
	mul := 1 / ranks
	for i := range total {
		total[i] *= mul
	}
	total = r.wire(total, parts[c].lost)
	for i := range parts[c].lost {
		parts[c].lost[i] *= ranks
	}
	return total
}

// wire returns values as a receiver gets them. lost, unless it is nil, receives
// the difference, and 0 where the result is not a number.
func (r Reference) wire(values, lost []float32) []float32 {
	seen := passThroughWire(values, r.Format)
	for i := range lost {
		if lost[i] = values[i] - seen[i]; math.IsNaN(float64(lost[i])) || math.IsInf(float64(seen[i]), 0) {
			lost[i] = 0
		}
	}
	return seen
}

// minScaled is the smallest absmax that gets a scale: below it, arithmetic
// would come near the denormals, which not every machine treats alike.
const minScaled = 0x1p-115

// passThroughWire returns values as a receiver gets them: quantised to codes
// with one absmax scale per block, and back; or as floating-point numbers.
func passThroughWire(values []float32, f Format) []float32 {
	seen := make([]float32, len(values))
	if !f.HasCodes() {
		for i, x := range values {
			seen[i] = float(x, f.Bits)
		}
		return seen
	}
	for lo := 0; lo < len(values); lo += f.Block {
		hi := min(lo+f.Block, len(values))
		var absmax float64
		finite := true
		for _, x := range values[lo:hi] {
			absmax = math.Max(absmax, math.Abs(float64(x)))
			finite = finite && !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0)
		}
		top := float32(int(1)<<(f.Bits-1) - 1)
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
// nearest bfloat16. A tie goes to the bfloat16 whose last bit is 0. Any NaN is
// the canonical one.
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
