//go:build !linux || nohost

package main

import (
	"io"
	"strings"
	"testing"
)

// TestRealVerbsNeedLinux: elsewhere they say so and end with the exit code for
// what the machine does not support, and the others work.
func TestRealVerbsNeedLinux(t *testing.T) {
	t.Chdir(t.TempDir())
	for args, want := range map[string]int{
		"run persistent_straggler --policy baseline":       exitUnsupported,
		"run --resume somewhere":                           exitUnsupported,
		"compare persistent_straggler":                     exitUnsupported,
		"compare persistent_straggler --world sim":         0,
		"sweep persistent_straggler --real":                exitUnsupported,
		"estimate --emulate":                               0, // simulated
		"estimate --emulate --world both":                  exitUnsupported,
		"calibrate":                                        exitUnsupported,
		"verify persistent_straggler --json":               exitUnsupported,
		"net persistent_straggler --pcap w0 -- sh -c ls":   exitUnsupported,
		"in w0 ls -l":                                      exitUnsupported,
		"bench ring --workers 3":                           exitUnsupported,
		"doctor --json":                                    exitUnsupported,
		"verify --help":                                    0,
		"run persistent_straggler":                         exitUsage,
		"list":                                             0,
		"plan persistent_straggler":                        0,
		"convert persistent_straggler --to churn":          0,
		"simulate persistent_straggler --policy baseline":  0,
		"sweep persistent_straggler --set inner_steps=1,2": 0,

		"manifests --image x run persistent_straggler --policy baseline": 0,
	} {
		cmd := root()
		cmd.SetArgs(strings.Fields(args))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		err := cmd.Execute()
		if code := exitCode(err); code != want || want == exitUnsupported && !strings.Contains(err.Error(), "needs Linux") {
			t.Errorf("%s: exit code %d, want %d: %v", args, code, want, err)
		}
	}
}
