package bench

import (
	"math"
	"math/bits"
	"math/rand/v2"

	"testbed/allreduce"
)

// Data is the distribution of the values that are reduced.
type Data string

// The distributions.
const (
	Gaussian Data = "gaussian" // normal, variance 1
	Student3 Data = "student3" // Student's t with 3 degrees of freedom: heavy tails
	Sparse   Data = "sparse"   // normal, 99 of 100 values zero
	Layers   Data = "layers"   // normal, in layers of very different scale
)

// DataNames lists the distributions.
var DataNames = []Data{Gaussian, Student3, Sparse, Layers}

// draw returns the next value.
func (d Data) draw(r *rand.Rand) float32 {
	z := r.NormFloat64()
	switch d {
	case Student3:
		a, b, c := r.NormFloat64(), r.NormFloat64(), r.NormFloat64()
		z /= math.Sqrt((a*a + b*b + c*c) / 3)
	case Sparse:
		if r.Float64() >= nonzeroShare {
			z = 0
		}
	}
	return float32(z)
}

const (
	nonzeroShare = 0.01 // of sparse values
	// layerValues is the length of a layer, and scales repeat after layerScales
	// layers. They go from 1 down to 10^-layerDecades, in steps of equal ratio,
	// with distant ones side by side.
	layerValues  = 1 << 14
	layerScales  = 64
	layerDecades = 3
)

// layerScale is the standard deviation in a layer.
func layerScale(layer int) float32 {
	k := bits.Reverse8(uint8(layer%layerScales)) >> 2
	return float32(math.Pow(10, -layerDecades*float64(k)/(layerScales-1)))
}

// stretch is the number of values that are drawn from one stream, so that any
// part of a vector can be made without the parts before it.
const stretch = 4096

// Fill writes values [from, from+len(dst)) of the rank's vector to dst.
func (d Data) Fill(dst []float32, seed uint64, rank, from int) {
	for len(dst) > 0 {
		r := rand.New(rand.NewPCG(seed, uint64(rank)<<40|uint64(from/stretch)))
		for range from % stretch {
			d.draw(r)
		}
		n := min(stretch-from%stretch, len(dst))
		for i := range dst[:n] {
			dst[i] = d.draw(r)
		}
		if d == Layers { // a stretch is a part of a layer
			scale := layerScale(from / layerValues)
			for i := range dst[:n] {
				dst[i] *= scale
			}
		}
		dst, from = dst[n:], from+n
	}
}

// exactShard returns the exact mean of all ranks' vectors over the rank's
// shard, summed in float64. The shard is the part for which the rank computes
// the error of a result: together the ranks cover the vector.
func (s *Settings) exactShard(rank int) (exact []float64, lo int) {
	lo, hi := allreduce.Chunk(s.Elements, s.Workers, rank)
	exact = make([]float64, hi-lo)
	var part [stretch]float32
	for from := lo; from < hi; from += stretch {
		n := min(stretch, hi-from)
		sum := exact[from-lo:][:n]
		for k := range s.Workers {
			s.Data.Fill(part[:n], s.Seed, k, from)
			for i, x := range part[:n] {
				sum[i] += float64(x)
			}
		}
		for i := range sum {
			sum[i] /= float64(s.Workers)
		}
	}
	return exact, lo
}

// compare sums up the difference of got from exact.
func compare(got []float32, exact []float64) (s Squares) {
	for i, x := range exact {
		d := float64(got[i]) - x
		s.Error += d * d
		s.Exact += x * x
	}
	return s
}
