//go:build linux

package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"testbed/internal/testenv"
)

// examples are the scripts of docs/hosts.md.
const examples = "../docs/examples/hosts"

// TestMeasuredExamplesOverHosts plays a run on the hosts of a lab as the scripts do it.
// Stand-ins for ssh and mpirun start programs in namespaces.
func TestMeasuredExamplesOverHosts(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	for name, script := range map[string]string{
		"ssh": `[ "$1" = h1 ] && shift && exec nsenter --net="$H1" sh -c "$*"
`,
		"mpirun": `OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 nsenter --net="$H1" "$@" &
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$@"
code=$?
wait
exit $code
`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 2, 1500)
			bin := t.TempDir()
			if err := testenv.WriteExecutable(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script)); err != nil {
				t.Fatal(err)
			}
			file, err := filepath.Abs(filepath.Join(examples, name+".sh"))
			if err != nil {
				t.Fatal(err)
			}
			run := []string{roomy(t, scenario(t, 2, "20mbit", "")), "--policy", "baseline", "--out", filepath.Join(bin, "run")}
			args := append([]string{file, "192.168.77.1", "h1", "--"}, run...)
			if name == "mpirun" {
				token := filepath.Join(bin, "token")
				if err := os.WriteFile(token, []byte(labToken+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append([]string{filepath.Join(bin, name), file, "192.168.77.1", token}, run...)
			}
			cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
			var output bytes.Buffer
			cmd.Stdout, cmd.Stderr = &output, &output
			cmd.Env = append(os.Environ(), mark+"="+t.Name(), "TESTBED="+program, fmt.Sprintf("H1=/proc/%d/fd/%d", os.Getpid(), int(l.hosts[1])), "PATH="+bin+":"+os.Getenv("PATH"))
			if err := inNamespace(l.hosts[0], cmd.Start); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the exit code says it
			if code := cmd.ProcessState.ExitCode(); code != 0 && code != exitInvalid || !strings.Contains(output.String(), " of 3 outer steps") {
				t.Errorf("exit code %d\n%s", code, &output)
			}
		})
	}
}
