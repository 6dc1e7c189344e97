package rivals

import "math"

// RingError is the relative error (L2) of the mean of the vectors by a ring as
// PCCL's. Each vector is cut into equal slices, and each slice into a chunk per
// rank. A chunk's partial sums are quantised in each hop, and so is the whole
// sum. The codec must not have rows.
func (c *Codec) RingError(vectors [][]float32, slices int) float64 {
	n := len(vectors)
	var lost, whole float64
	elements := len(vectors[0])
	for s := range slices {
		low, high := s*elements/slices, (s+1)*elements/slices
		for k := range n {
			from, to := low+k*(high-low)/n, low+(k+1)*(high-low)/n
			if from == to {
				continue
			}
			sum := make([]float32, to-from)
			code := make([]byte, c.EncodedLen(to-from, 0))
			copy(sum, vectors[k][from:to])
			for hop := 1; hop <= n; hop++ {
				var own []float32 // the last hop is that of the whole sum
				if hop < n {
					own = vectors[(k+hop)%n][from:to]
				}
				c.Quantise(code, sum, 0)
				c.DequantiseAdd(sum, code, own, 0)
			}
			for i, got := range sum {
				exact := 0.0
				for _, v := range vectors {
					exact += float64(v[from+i])
				}
				d := float64(got) - exact
				lost += d * d
				whole += exact * exact
			}
		}
	}
	if whole == 0 {
		return 0
	}
	return math.Sqrt(lost / whole)
}

// Find returns the rival's codec of a name; ok is false if there is none.
func Find(name string) (c *Codec, ok bool) {
	for i := range All {
		if All[i].Name == name {
			return &All[i], true
		}
	}
	return nil, false
}
