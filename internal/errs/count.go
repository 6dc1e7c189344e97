package errs

import "fmt"

// Count writes a number of things for a message, such as 1 worker or 3 workers.
func Count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
