package sim

import "math"

// What entropy coding leaves of the codes, measured against allreduce/entropy
// by TestCodedBytes.
const (
	// codeTable is the Huffman table of a piece, in bytes. Normal values have
	// one in pieces of any length.
	codeTable = 66
	// codeLoss is what whole numbers of bits cost.
	codeLoss = 1.01
)

// saved is by how many bytes entropy coding shortens a piece of so many normal
// values, as are those of the model that workers train.
func (n *links) saved(values int) byteCount {
	plain := byteCount(values) * byteCount(n.format.Bits) / 8
	short := byteCount(float64(plain)*n.codeBits()/float64(n.format.Bits)) + codeTable
	return max(0, plain-short)
}

// codeBits is the entropy of the code of a normal value, in bits: that of the
// normal distribution, √(2πe)σ, in steps of which the highest code's number
// reaches to a block's largest value. Half of all blocks have a larger one than
// is taken for it.
func (n *links) codeBits() float64 {
	highest := float64(int(1)<<(n.format.Bits-1) - 1)
	largest := math.Sqrt2 * math.Erfinv(math.Exp2(-1/float64(n.format.Block)))
	return min(float64(n.format.Bits), codeLoss*math.Log2(math.Sqrt(2*math.Pi*math.E)*highest/largest))
}
