package scenarios

import (
	"fmt"
	"strings"
)

// Error says what is wrong with a scenario: where, which field, and the mend.
type Error struct {
	File    string // empty: what was asked for is in no file
	Line    int    // 0: the file as a whole
	Field   string // path such as workers[2].id; empty: the file as a whole
	Problem string // what is wrong and how to mend it
	// More are further problems of the file, in the order of its lines.
	More []*Error

	spoils string // the field of which nothing can be said because of it
}

// Error has a line for each problem.
func (e *Error) Error() string {
	text := e.first()
	for _, more := range e.More {
		text += "\n" + more.first()
	}
	return text
}

func (e *Error) first() string {
	where := e.File
	if e.Line > 0 {
		where += fmt.Sprintf(":%d", e.Line)
	}
	var parts []string
	for _, part := range []string{where, e.Field, e.Problem} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}
