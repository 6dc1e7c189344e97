package charlm

import "math"

// In this package's floating-point arithmetic, every product that is added or
// subtracted later is converted to its own type. This keeps the compiler from
// fusing the two, which would give other bits on other machines.

// exp returns e^x for x ≤ 0, to within three units in the last place; NaN for
// NaN. Below −60 it is 0. This changes no sum of this package, and avoids
// products so small that processors take a hundred cycles for them.
func exp(x float32) float32 {
	if !(x >= -60) {
		if x != x {
			return x
		}
		return 0
	}
	// x = n·ln 2 + r with |r| ≤ ln 2 / 2; ln 2 is in two parts, the first of which
	// times n is exact.
	const (
		log2e  = 1.44269504
		ln2    = 0.693359375
		ln2Low = -2.12194440e-4
	)
	n := int32(float32(x*log2e) - 0.5)
	f := float32(n)
	r := x - float32(f*ln2)
	r -= float32(f * ln2Low)
	p := float32(1.0 / 720)
	p = float32(p*r) + 1.0/120
	p = float32(p*r) + 1.0/24
	p = float32(p*r) + 1.0/6
	p = float32(p*r) + 0.5
	p = float32(p*r) + 1
	p = float32(p*r) + 1
	return float32(p * math.Float32frombits(uint32(n+127)<<23))
}

// log returns the natural logarithm of a positive, finite x, to within 1e-15
// of the larger of it and 1.
func log(x float64) float64 {
	fraction, exponent := math.Frexp(x)
	if fraction < math.Sqrt2/2 {
		fraction, exponent = 2*fraction, exponent-1
	}
	// ln f = 2·artanh s with s = (f − 1)/(f + 1), |s| < 0.172.
	s := (fraction - 1) / (fraction + 1)
	square := s * s
	sum := 0.0
	for k := 23; k >= 1; k -= 2 {
		sum = float64(sum*square) + 1/float64(k)
	}
	return float64(float64(exponent)*math.Ln2) + float64(float64(2*s)*sum)
}

// softmax replaces values by their softmax, and returns the logarithm of the
// sum of their exponentials.
func softmax(values []float32) (logSum float64) {
	top := float32(math.Inf(-1))
	for _, v := range values {
		if v > top {
			top = v
		}
	}
	sum := float32(0)
	for i, v := range values {
		e := exp(v - top)
		values[i] = e
		sum += e
	}
	inverse := 1 / sum
	for i := range values {
		values[i] *= inverse
	}
	return float64(top) + log(float64(sum))
}

// normEpsilon keeps the norm of a row of zeros from dividing by zero.
const normEpsilon = 1e-5

// norm writes each row of x, divided by the root of its mean square and times
// gain, to out. It writes the rows' factors to scales (RMSNorm, Zhang and
// Sennrich 2019).
func norm(out, x, gain, scales []float32) {
	width := len(gain)
	for i := range scales {
		row, to := x[i*width:][:width], out[i*width:][:width]
		sum := float32(0)
		for _, v := range row {
			sum += float32(v * v)
		}
		scale := 1 / float32(math.Sqrt(float64(sum/float32(width)+normEpsilon)))
		scales[i] = scale
		for j, v := range row {
			to[j] = float32(v*scale) * gain[j]
		}
	}
}

// normBackward computes gradients of norm from dy, the gradient of its output.
// It adds the gradient of its input to dx, and that of gain to dGain.
func normBackward(dx, dGain, dy, x, gain, scales []float32) {
	width := len(gain)
	for i, scale := range scales {
		at := i * width
		row, in, out := x[at:][:width], dy[at:][:width], dx[at:][:width]
		sum := float32(0)
		for j, v := range row {
			d := in[j] * gain[j]
			sum += float32(d * v)
			dGain[j] += float32(in[j] * float32(v*scale))
		}
		shared := float32(float32(float32(scale*scale)*scale)*sum) / float32(width)
		for j, v := range row {
			out[j] += float32(float32(in[j]*gain[j])*scale) - float32(shared*v)
		}
	}
}
