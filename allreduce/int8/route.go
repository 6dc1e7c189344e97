package int8

import (
	"fmt"
	"slices"
	"strings"
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
