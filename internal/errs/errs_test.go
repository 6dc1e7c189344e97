package errs_test

import (
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
