package errs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"testbed/internal/errs"
)

// TestAbout: a field is the subject of its problem if that begins with a verb.
func TestAbout(t *testing.T) {
	for _, c := range []struct{ field, problem, want string }{
		{"workers[3].factor", "is 0: it must be above 0", "workers[3].factor is 0: it must be above 0"},
		{"seed", "is missing: add it", "seed is missing: add it"},
		{"train.outer", "has fragments", "train.outer has fragments"},
		{"factor", "unknown field", "factor: unknown field"},
		{"train.task", `"gpt" is not a task`, `train.task: "gpt" is not a task`},
		{"", "is empty", "is empty"},
	} {
		if got := errs.About(c.field, c.problem); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if err := errs.Fieldf(c.field, "%s", c.problem); err.Error() != c.want {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// TestCause: the path is left out, and whether the file exists can still be asked.
func TestCause(t *testing.T) {
	gone := &fs.PathError{Op: "open", Path: "a.yaml", Err: fs.ErrNotExist}
	for _, err := range []error{gone, fmt.Errorf("reading: %w", gone)} {
		if got := errs.Cause(err); got.Error() != "file does not exist" || !errors.Is(got, fs.ErrNotExist) {
			t.Errorf("%v: %v", err, got)
		}
	}
	if other := errors.New("broken"); errs.Cause(other) != other {
		t.Error(errs.Cause(other))
	}
}
