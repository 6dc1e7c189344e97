package int8

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

//go:generate go run -C gen . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg int8

// route is a way to compute. All routes yield the same bytes.
type route string

const (
	portable route = "go"
	avx2     route = "avx2"
	avx512   route = "avx512"
)

// Routes names the ways to compute that this machine has, the fastest last.
// The kernels take the fastest.
func Routes() []string {
	var names []string
	for _, r := range routes() {
		names = append(names, string(r))
	}
	return names
}

// Use has the kernels take the route of that name from now on, for benchmarks:
// the results are the same bytes. No kernel may run meanwhile.
func Use(name string) error {
	if !slices.Contains(routes(), route(name)) {
		return fmt.Errorf("no route %q on this machine; there are %s", name, strings.Join(Routes(), ", "))
	}
	active = route(name)
	return nil
}

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

// perTurn is the number of values that a turn of a kernel's main loop handles.
const perTurn = 64

// together reports whether the codes of a block may be written while the next
// one is added up.
func together(block int) bool { return active != portable && block%perTurn == 0 }

// lineBytes is the length of a cache line.
const lineBytes = 64

// streamFrom is from how many bytes of codes on they go past the caches. Most
// processors' caches hold less than these and the values that they stand for:
// who reads the codes next would find them in memory anyway, and a line that is
// written whole past the caches need not be read first. A variable, for tests.
var streamFrom = 16 << 20

// streams reports whether the codes of a vector go past the caches. If so, the
// caller ends with endStream.
func (f Format) streams(codes []byte) bool {
	return active != portable && len(codes) > 0 && len(codes) >= streamFrom &&
		f.codesLen(f.Block)%lineBytes == 0 && uintptr(unsafe.Pointer(&codes[0]))%lineBytes == 0
}

// onLine cuts off what precedes the first cache line, and as much in all as a
// line holds: vectors that straddle two lines take twice as long.
func onLine(room []float32) []float32 {
	skip := -uintptr(unsafe.Pointer(&room[0])) % lineBytes / floatBytes
	return room[skip:][:len(room)-lineValues]
}

const (
	floatBytes = 4
	lineValues = lineBytes / floatBytes
)
