// Package python holds the Python package that trainers of a user's own import.
package python

import "embed"

// Files has the folder testbed, which is the package.
//
//go:embed testbed/__init__.py
var Files embed.FS
