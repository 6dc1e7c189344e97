// Package rapidtest makes random tests try the same cases every time, unless
// the flag -rapid.seed says otherwise: internal/explore tries fresh ones.
package rapidtest

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

const (
	seedFlag   = "rapid.seed" // 0 stands for a random one
	checksFlag = "rapid.checks"
)

// init runs before the command line is parsed, which may set another seed.
func init() {
	if flag.Lookup(seedFlag).Value.String() == "0" {
		set(seedFlag, "1")
	}
}

func set(name, value string) {
	if err := flag.Set(name, value); err != nil {
		panic(err) // rapid no longer has such a flag
	}
}

// Check tests a property in random cases.
func Check(t rapid.TB, property func(*rapid.T)) {
	t.Helper()
	rapid.Check(t, property)
}

// Seed is the seed for a test's own random numbers.
func Seed() uint64 { return flag.Lookup(seedFlag).Value.(flag.Getter).Get().(uint64) }

// Main runs a package's tests, with so many random cases, for packages that
// play thousands in a second. The flag -rapid.checks still sets the number, and
// -short leaves it at the usual one.
func Main(m *testing.M, checks int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == checksFlag })
	if !given && !testing.Short() {
		set(checksFlag, strconv.Itoa(checks))
	}
	os.Exit(m.Run())
}
