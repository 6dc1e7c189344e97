// Package python holds the package testbed for users' own trainers: the part of
// the Python package that joins a run.
package python

import (
	_ "embed"
	"os"
	"path/filepath"
)

//go:embed src/testbed/_join.py
var join []byte

// Write makes a folder in which Python finds the package testbed.
func Write(dir string) error {
	pkg := filepath.Join(dir, "testbed")
	if err := os.MkdirAll(pkg, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(pkg, "__init__.py"), join, 0o644)
}
