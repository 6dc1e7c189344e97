package scenarios

import (
	"fmt"
	"strings"
)

// Error says what is wrong with a scenario: where, which field, and the mend.
type Error struct {
	File    string
	Line    int    // 0: the file as a whole
	Field   string // path such as workers[2].id; empty: the file as a whole
	Problem string // what is wrong and how to mend it
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	b.WriteString(": " + e.Problem)
	return b.String()
}

func quoted[S ~string](names []S) string {
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = string(n)
	}
	return strings.Join(parts, ", ")
}
