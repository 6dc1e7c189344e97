package matrix

import (
	"fmt"
	"slices"
	"strings"
)

//go:generate go run -C gen . -out ../kernels_amd64.s -stubs ../kernels_amd64.go -pkg matrix

// route is a way to compute. All routes yield the same bits.
type route string

const (
	portable route = "go"
	avx2     route = "avx2"
	avx512   route = "avx512"
)

// Routes names the ways to compute that this machine has, the fastest last.
// Products take the fastest.
func Routes() []string {
	var names []string
	for _, r := range routes() {
		names = append(names, string(r))
	}
	return names
}

// Use makes products take the route of that name from now on, for tests and
// benchmarks: the results are the same bits. No product may be under way.
func Use(name string) error {
	if !slices.Contains(routes(), route(name)) {
		return fmt.Errorf("this machine has no route %q; choose one of %s", name, strings.Join(Routes(), ", "))
	}
	active = route(name)
	return nil
}
