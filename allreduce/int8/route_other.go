//go:build (!amd64 && !arm64) || purego

package int8

func forms() []form { return []form{{}} }

// With the portable route alone there is no vector code, and nothing to
// measure.

func endStream() {}

func canFlush() bool { return false }

func flush(*byte, int) {}

func (coder) together() bool { return false }

func (coder) absmaxVector([]float32) uint32 { return 0 }

func (coder) quantiseVector([]byte, []float32, []float32, float32, bool) bool { return true }

func (coder) dequantiseVector([]float32, []byte, float32, bool) {}

func (coder) addVector([]float32, []byte, []float32, float32, float32, bool) uint32 { return 0 }

func (coder) addQuantiseVector([]float32, []float32, []byte, []byte, []float32, []byte, []byte, float32, float32, bool) (int, uint32, bool) {
	return 1, 0, true
}
