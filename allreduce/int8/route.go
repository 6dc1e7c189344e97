package int8

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

//go:generate go run -C gen . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg int8

// route is a set of instructions to compute with. All routes yield the same
// bytes.
type route uint8

const (
	portable route = iota
	neon
	avx2
	avx512
)

// form is a way to process a vector.
type form struct {
	route
	// stream writes output past the caches, and prefetches the next input to the
	// first-level cache. A line that is written whole past the caches need not be
	// read first.
	stream bool
}

func (f form) String() string {
	name := [...]string{"go", "neon", "avx2", "avx512"}[f.route]
	if f.stream {
		name += "-stream"
	}
	return name
}

// streams reports whether the form writes the operation's output past the
// caches. With AVX2 only decoding gained by it (docs/notes/bench.md).
func (f form) streams(o operation) bool { return f.stream && (f.route == avx512 || o == decode) }

// Auto names the route that uses, for every call, the form measured to be the
// fastest on this machine.
const Auto = "auto"

// forced is the form that Use sets for all calls, or nil: the measured ones.
var forced *form

// Routes names the ways to compute on this machine, plain Go first and Auto
// last. The kernels use Auto by default.
func Routes() []string {
	var names []string
	for _, f := range forms() {
		names = append(names, f.String())
	}
	return append(names, Auto)
}

// Use makes the kernels use the route of that name from now on, for benchmarks:
// the results are the same bytes. No kernel may run meanwhile.
func Use(name string) error {
	if name == Auto {
		forced = nil
		return nil
	}
	all := forms()
	i := slices.IndexFunc(all, func(f form) bool { return f.String() == name })
	if i < 0 {
		return fmt.Errorf("this machine has no route %q; choose one of %s", name, strings.Join(Routes(), ", "))
	}
	forced = &all[i]
	return nil
}

// coder is a format with the form for one of its vectors.
type coder struct {
	Format
	form
}

// coder returns the way to do the operation with n values.
func (f Format) coder(o operation, n int) coder {
	if forced != nil {
		return f.coderIn(*forced, o)
	}
	return f.coderIn(f.chosen(o, n).form, o)
}

func (f Format) coderIn(as form, o operation) coder {
	as.stream = as.streams(o)
	return coder{f, as}
}

// step is the number of values that vector code handles at a time. It leaves
// the rest of a block to Go.
const step = 16

// vectors returns the part of n that vector code handles.
func (c coder) vectors(n int) int {
	if c.route == portable {
		return 0
	}
	return n &^ (step - 1)
}

// lineBytes is the length of a cache line.
const lineBytes = 64

// streamsCodes reports whether the codes of a vector are written past the
// caches. If so, the caller ends with endStream.
func (c coder) streamsCodes(codes []byte) bool {
	return c.stream && len(codes) > 0 &&
		c.codesLen(c.Block)%lineBytes == 0 && uintptr(unsafe.Pointer(&codes[0]))%lineBytes == 0
}

// streamsValues is streamsCodes for values: those of each block fill lines.
func (c coder) streamsValues(values []float32) bool {
	return c.stream && len(values) > 0 && uintptr(unsafe.Pointer(&values[0]))%lineBytes == 0
}

// onLine cuts off everything before the first cache line, and a line's length in
// total: vectors that straddle two lines take twice as long.
func onLine(room []float32) []float32 {
	skip := -uintptr(unsafe.Pointer(&room[0])) % lineBytes / floatBytes
	return room[skip:][:len(room)-lineValues]
}

const (
	floatBytes = 4
	lineValues = lineBytes / floatBytes
)
