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

// form is how a vector is worked on.
type form struct {
	route
	// near has what comes next fetched to the first-level cache, and whatever is
	// written streamed where stream is set; otherwise codes alone are.
	near bool
	// stream has what is written go past the caches: a line that is written
	// whole past them need not be read first.
	stream bool
}

func (f form) String() string {
	name := [...]string{"go", "neon", "avx2", "avx512"}[f.route]
	if f.near {
		name += "-t0"
	}
	if f.stream {
		name += "-stream"
	}
	return name
}

// rule says which form is taken: for vectors that caches may hold, and for large
// ones.
type rule struct {
	cached, large form
	// largeFrom is from how many bytes of codes on a vector is large: the caches
	// hold less than these and the values that they stand for, so that who reads
	// next what is written would not find it there anyway.
	largeFrom int
}

// always is the rule that takes one form for all vectors.
func always(f form) rule { return rule{cached: f, large: f} }

// active is the rule in use.
var active = preferred()

// Auto names the route that takes the best of the others for this processor and
// the length of the vector.
const Auto = "auto"

// Routes names the ways to compute that this machine has, plain Go first and Auto
// last. The kernels take that one.
func Routes() []string {
	var names []string
	for _, f := range forms() {
		names = append(names, f.String())
	}
	return append(names, Auto)
}

// Use has the kernels take the route of that name from now on, for benchmarks:
// the results are the same bytes. No kernel may run meanwhile.
func Use(name string) error {
	if name == Auto {
		active = preferred()
		return nil
	}
	all := forms()
	i := slices.IndexFunc(all, func(f form) bool { return f.String() == name })
	if i < 0 {
		return fmt.Errorf("no route %q on this machine; there are %s", name, strings.Join(Routes(), ", "))
	}
	active = always(all[i])
	return nil
}

// Rule says which routes the kernels take.
func Rule() string {
	if active.cached == active.large {
		return active.cached.String()
	}
	return fmt.Sprintf("%v, from %d KiB of codes on %v", active.cached, active.largeFrom>>10, active.large)
}

// Taken names the route that n values take at present, which is never Auto.
func (f Format) Taken(n int) string { return f.coder(n).form.String() }

// coder is a format and the form that a vector of it is worked on in.
type coder struct {
	Format
	form
}

func (f Format) coder(n int) coder {
	if f.codesLen(n) >= active.largeFrom {
		return coder{f, active.large}
	}
	return coder{f, active.cached}
}

// step is the number of values that vector code handles at a time; it leaves
// the rest of a ragged block to Go.
const step = 16

// vectors splits off what vector code handles.
func (c coder) vectors(n int) int {
	if c.route == portable {
		return 0
	}
	return n &^ (step - 1)
}

// lineBytes is the length of a cache line.
const lineBytes = 64

// streams reports whether the codes of a vector go past the caches. If so, the
// caller ends with endStream.
func (c coder) streams(codes []byte) bool {
	return c.stream && len(codes) > 0 &&
		c.codesLen(c.Block)%lineBytes == 0 && uintptr(unsafe.Pointer(&codes[0]))%lineBytes == 0
}

// streamsValues is what streams is, of values: those of each block fill lines.
func (c coder) streamsValues(values []float32) bool {
	return c.stream && c.near && len(values) > 0 && uintptr(unsafe.Pointer(&values[0]))%lineBytes == 0
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
