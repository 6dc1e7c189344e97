package quorum_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain raises the number of random runs, of which the lighthouse plays
// thousands in a second; -rapid.checks still sets it.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given && !testing.Short() {
		flag.Set("rapid.checks", "1000")
	}
	os.Exit(m.Run())
}
