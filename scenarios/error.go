package scenarios

import (
	"fmt"

	"testbed/internal/errs"
)

// Error reports a problem of a scenario: where it is, in which field, and how
// to fix it.
type Error struct {
	File    string // empty: the problem is in no file
	Line    int    // 0: the file as a whole
	Field   string // path such as workers[2].id; empty: the file as a whole
	Problem string // what is wrong and how to fix it
	// More are further problems of the file, in the order of its lines.
	More []*Error

	spoils string // the field that cannot be checked because of it
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
	text := errs.About(e.Field, e.Problem)
	if where == "" {
		return text
	}
	return where + ": " + text
}
