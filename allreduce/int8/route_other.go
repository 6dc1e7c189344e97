//go:build !amd64 || purego

package int8

func routes() []route { return []route{portable} }

var active = portable

// With the portable route alone there is never a vector part.

func absmaxVector([]float32) uint32 { return 0 }

func quantiseVector([]byte, []float32, []float32, float32) {}

func dequantiseVector([]float32, []byte, float32) {}

func addVector([]float32, []byte, []float32, float32, float32) uint32 { return 0 }
