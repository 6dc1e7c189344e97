package train

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
)

// Outer is the outer optimiser, SGD with Nesterov momentum (Douillard et al.
// 2023, "DiLoCo", §2). With Rate 1 and Momentum 0, the outer step averages
// parameters, as local SGD does (Stich 2019).
type Outer struct {
	Rate     float32
	Momentum float32
}

// DiLoCo is the outer optimiser that DiLoCo's authors found to be robust (fig.
// 6), and prime's default.
var DiLoCo = Outer{Rate: 0.7, Momentum: 0.9}

// Step takes one outer step with a mean pseudo-gradient. All three have the
// same length. The conversions keep the compiler from fusing operations, which
// would give other bits on other machines.
func (o Outer) Step(parameters, momentum, gradient []float32) {
	for i, g := range gradient {
		momentum[i] = float32(o.Momentum*momentum[i]) + g
		parameters[i] -= float32(o.Rate * (g + float32(o.Momentum*momentum[i])))
	}
}

// Hash returns the first half of the SHA-256 of the vectors' bytes,
// little-endian, in hexadecimal.
func Hash(vectors ...[]float32) string {
	h := sha256.New()
	buf := make([]byte, 0, 64<<10)
	for _, v := range vectors {
		for len(v) > 0 {
			n := min(len(v), cap(buf)/4)
			buf = buf[:0]
			for _, f := range v[:n] {
				buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(f))
			}
			h.Write(buf) // a hash never fails
			v = v[n:]
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
