package errs

import "strings"

// List writes names for an error that lists the possible choices.
func List[S ~string](names []S) string {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = string(n)
	}
	return strings.Join(parts, ", ")
}
