// Package errs has the kinds of errors that callers distinguish: the command
// chooses its exit code by them.
package errs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// UsageError is a mistake in a request.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e *UsageError) Unwrap() error { return e.Err }

// Usage returns a *UsageError of an error.
func Usage(err error) error { return &UsageError{err} }

// Usagef returns a *UsageError with a text in fmt.Errorf's format.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// UnsupportedError reports something that this machine, or this version of the
// program, cannot do. errors.Is(err, errors.ErrUnsupported) holds for it.
type UnsupportedError struct {
	Missing string // such as "user.max_net_namespaces is 0"
	Fix     string // for the administrator of the machine
	Err     error  // the kernel's error; may be nil
}

func (e *UnsupportedError) Error() string { return e.Missing + "; " + e.Fix }

// Unwrap returns the kernel's error.
func (e *UnsupportedError) Unwrap() error { return e.Err }

// Is reports whether target is errors.ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

// FieldError reports a value that cannot be used.
type FieldError struct {
	Field   string // its name, or its path from the root of its file
	Problem string // such as "is -1: it must not be negative"
}

func (e *FieldError) Error() string { return About(e.Field, e.Problem) }

// predicates begin problems that make a sentence with their field as its subject.
var predicates = []string{"is", "are", "has", "must", "needs", "cannot", "does", "takes", "applies", "makes", "names", "works"}

// About joins a field and its problem, as in "factor is 0: it must be above 0" and
// "factor: unknown field".
func About(field, problem string) string {
	switch {
	case field == "":
		return problem
	case IsPredicate(problem):
		return field + " " + problem
	}
	return field + ": " + problem
}

// IsPredicate reports whether a problem makes a sentence with its field as the
// subject. Its first colon then separates what is wrong from what to do.
func IsPredicate(problem string) bool {
	verb, _, _ := strings.Cut(problem, " ")
	return slices.Contains(predicates, verb)
}

// Fields returns every *FieldError in an error: itself, wrapped or joined.
func Fields(err error) (all []*FieldError) {
	switch e := err.(type) {
	case *FieldError:
		return []*FieldError{e}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, Fields(inner)...)
		}
	case interface{ Unwrap() error }:
		return Fields(e.Unwrap())
	}
	return all
}

// Problems collects problems of fields.
type Problems []error

// If adds a *FieldError if wrong is true.
func (p *Problems) If(wrong bool, field, format string, args ...any) {
	if wrong {
		*p = append(*p, Fieldf(field, format, args...))
	}
}

// Err joins the problems; it is nil if there is none.
func (p *Problems) Err() error { return errors.Join(*p...) }

// Fieldf returns a *FieldError with a problem in fmt.Sprintf's format.
func Fieldf(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}
