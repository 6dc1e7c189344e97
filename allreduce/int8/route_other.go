//go:build !amd64 || purego

package int8

func routes() []route { return []route{portable} }

var active = portable

// With the portable route alone there is never a vector part.

func endStream() {}

func absmaxVector([]float32) uint32 { return 0 }

func (Format) quantiseVector([]byte, []float32, []float32, float32, bool) bool { return true }

func (Format) dequantiseVector([]float32, []byte, float32) {}

func (Format) addVector([]float32, []byte, []float32, float32, float32) uint32 { return 0 }

func (Format) addQuantiseVector([]float32, []float32, []byte, []byte, []float32, []byte, []byte, float32, float32) (int, uint32, bool) {
	return 1, 0, true
}
