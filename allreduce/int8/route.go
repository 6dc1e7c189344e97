package int8

//go:generate go run -C gen . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg int8

// route is a way to compute. All routes yield the same bytes.
type route string

const (
	portable route = "go"
	avx2     route = "avx2"
	avx512   route = "avx512"
)

// step is the number of values that vector code handles at a time; it leaves
// the rest of a ragged block to Go.
const step = 16

// vectors splits off what vector code handles.
func vectors(n int) int {
	if active == portable {
		return 0
	}
	return n &^ (step - 1)
}
