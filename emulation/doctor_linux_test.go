package emulation

import (
	"path/filepath"
	"strings"
	"testing"

	"testbed/internal/testenv"
)

// TestPythonCheckNamesTheInterpreter: whatever it answers, the check says who was asked,
// and what came of it.
func TestPythonCheckNamesTheInterpreter(t *testing.T) {
	for _, c := range []struct {
		name, script string
		ok           bool
		want         []string
	}{
		{"none", "", false, []string{"no python3 in the PATH: DIR"}},
		{"without numpy", "echo Traceback >&2; echo \"ModuleNotFoundError: No module named 'numpy'\" >&2; exit 1", false, []string{"DIR/python3", "ModuleNotFoundError", "exit status 1"}},
		{"broken", "exit 127", false, []string{"DIR/python3", `""`, "exit status 127"}},
		{"good", "echo DIR/python3 with numpy 2.0", true, []string{"DIR/python3 with numpy 2.0"}},
	} {
		dir := t.TempDir()
		if c.script != "" {
			script := "#!/bin/sh\n" + strings.ReplaceAll(c.script, "DIR", dir) + "\n"
			if err := testenv.WriteExecutable(filepath.Join(dir, "python3"), []byte(script)); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", dir)
		got := pythonCheck()
		for _, want := range c.want {
			if want = strings.ReplaceAll(want, "DIR", dir); !strings.Contains(got.Detail, want) {
				t.Errorf("%s: %q, without %s", c.name, got.Detail, want)
			}
		}
		if got.OK != c.ok || got.OK != (got.Fix == "") {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}
