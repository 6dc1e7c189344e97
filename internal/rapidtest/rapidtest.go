// Package rapidtest has random tests try the same cases every time, unless the flag
// -rapid.seed says otherwise: internal/explore tries fresh ones.
package rapidtest

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

const (
	seedFlag   = "rapid.seed" // 0 stands for one that is drawn
	checksFlag = "rapid.checks"
)

// init comes before the command line is read, which may set another seed.
func init() {
	if flag.Lookup(seedFlag).Value.String() == "0" {
		set(seedFlag, "1")
	}
}

func set(name, value string) {
	if err := flag.Set(name, value); err != nil {
		panic(err) // rapid has no such flag any more
	}
}

// Check tries a property in random cases.
func Check(t rapid.TB, property func(*rapid.T)) {
	t.Helper()
	rapid.Check(t, property)
}

// Seed is that of a test's own random numbers.
func Seed() uint64 { return flag.Lookup(seedFlag).Value.(flag.Getter).Get().(uint64) }

// Main runs a package's tests, and those with random cases so many times, for
// packages that play thousands in a second. The flag -rapid.checks still sets it,
// and -short leaves it at the usual number.
func Main(m *testing.M, checks int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == checksFlag })
	if !given && !testing.Short() {
		set(checksFlag, strconv.Itoa(checks))
	}
	os.Exit(m.Run())
}
