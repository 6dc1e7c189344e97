//go:build linux

package bench

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// TestRivalSaysWhatIsWrong: only a Python without PyTorch is one on which that is not
// installed; whatever else goes wrong is said.
func TestRivalSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		out  string
		err  error
		want string
	}{
		{"2.1.0\n", nil, ""},
		{"", fmt.Errorf("exec: %w", exec.ErrNotFound), glooMissing},
		{"! ModuleNotFoundError: No module named 'torch'\n", nil, glooMissing},
		{"! ImportError: libcudart.so.12: cannot open shared object file\n", nil, "ImportError: libcudart.so.12: cannot open shared object file"},
		{"", errors.New("python3: signal: killed"), "python3: signal: killed"},
		{"", nil, "the import of PyTorch printed no version"},
	} {
		if got := probed(c.out, c.err); got != c.want {
			t.Errorf("%q, %v: %q, want %q", c.out, c.err, got, c.want)
		}
	}
	if !strings.Contains(glooMissing, "not installed") {
		t.Error(glooMissing)
	}
}
