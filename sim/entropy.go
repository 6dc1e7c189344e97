package sim

import "math"

// Sizes of codes after entropy coding, measured against allreduce/entropy by
// TestCodedBytes.
const (
	// codeTable is the Huffman table of a piece, in bytes. Normal values have
	// one in pieces of any length.
	codeTable = 66
	// codeLoss is the factor by which whole numbers of bits lengthen codes.
	codeLoss = 1.01
)

// saved is the number of bytes that entropy coding saves in a piece of this
// many normal values. The values of the model that workers train are normal.
func (n *links) saved(values int) byteCount {
	plain := byteCount(values) * byteCount(n.format.Bits) / 8
	short := byteCount(float64(plain)*n.codeBits()/float64(n.format.Bits)) + codeTable
	return max(0, plain-short)
}

// codeBits is the entropy of the code of a normal value, in bits: that of the
// normal distribution, √(2πe)σ, in steps such that the highest code is a
// block's largest value. The largest value assumed is the median over blocks.
func (n *links) codeBits() float64 {
	highest := float64(int(1)<<(n.format.Bits-1) - 1)
	largest := math.Sqrt2 * math.Erfinv(math.Exp2(-1/float64(n.format.Block)))
	return min(float64(n.format.Bits), codeLoss*math.Log2(math.Sqrt(2*math.Pi*math.E)*highest/largest))
}
