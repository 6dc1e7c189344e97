// Package rapidtest sets how often property tests run.
package rapidtest

import (
	"flag"
	"os"
	"strconv"
	"testing"
)

// Main runs a package's tests, and those with random cases so many times, for
// packages that play thousands in a second. The flag -rapid.checks still sets it,
// and -short leaves it at the usual number.
func Main(m *testing.M, checks int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given && !testing.Short() {
		if err := flag.Set("rapid.checks", strconv.Itoa(checks)); err != nil {
			panic(err) // the package has no test that uses rapid
		}
	}
	os.Exit(m.Run())
}
