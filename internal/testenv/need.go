// Package testenv checks what tests need of the machine, and observes the
// machine during measurements. If something is missing, a test is skipped with
// the reason, but fails if CI=true: there a skip would be a test that nobody
// runs.
package testenv

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Need skips a test for the reason err, if there is one: something that it
// needs is missing. In CI it fails the test.
func Need(t testing.TB, err error) {
	t.Helper()
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatalf("CI must not skip this test: %v", err)
	case err != nil:
		t.Skip(err)
	}
}

// measuredName begins the names of the tests of the measured suite.
const measuredName = "TestMeasured"

// Measured must be called first by tests that judge a rate, a delay or a time,
// or that take minutes. A busy machine could falsify them, so they belong to
// the measured suite: they are skipped unless -run asks for them by name.
func Measured(t testing.TB) {
	t.Helper()
	needName(t)
	if !AskedToMeasure() {
		t.Skip("this test belongs to the measured suite: run go test -p 1 -run Measured ./test/... ./vagrant/...")
	}
}

// AskedToMeasure reports whether -run asks for the measured suite.
func AskedToMeasure() bool {
	return strings.Contains(flag.Lookup("test.run").Value.String(), "Measured")
}

// MeasuredParallel is Measured for a test that waits for seconds more than it
// computes. Such tests run simultaneously, after the package's other tests.
func MeasuredParallel(t *testing.T) {
	t.Helper()
	Measured(t)
	t.Parallel()
}

// needName fails a test that measures without the name for it.
func needName(t testing.TB) {
	t.Helper()
	if !strings.HasPrefix(t.Name(), measuredName) {
		t.Fatalf("%s is a measured test: its name must begin with %s", t.Name(), measuredName)
	}
}

// WatchSources reads every source file below a folder. The go command reuses a
// test's result until a file that the test has read changes, and a test that
// builds programs does not import them.
func WatchSources(t testing.TB, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == ".git" || d.Name() == "runs" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".s", ".mod", ".yaml", ".sh", ".py":
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
