package int8

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

// TestSameBytesEverywhere pins the bytes of a chain of ring steps, so that a
// compiler, a processor or a faster route that rounds differently shows. The
// inputs are made without library arithmetic, which may itself differ.
func TestSameBytesEverywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	vector := func() []float32 {
		v := make([]float32, 100_003)
		for i := range v {
			v[i] = float32(int32(r.Uint32())) * 0x1p-40
		}
		return v
	}
	src := vector()
	encoded := make([]byte, eight(DefaultBlock).EncodedLen(len(src)))
	eight(DefaultBlock).Quantise(encoded, src, nil)
	for _, mul := range []float32{1, 1, 1.0 / 3} {
		eight(DefaultBlock).AddRequantise(encoded, encoded, vector(), mul, nil)
	}
	sum := sha256.Sum256(encoded)
	const want = "ea7ffa1181f36b2dd75aba31b01619357ccf13e1256eca901a186206f9757956"
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("the encoding hashes to %s, want %s", got, want)
	}
}
