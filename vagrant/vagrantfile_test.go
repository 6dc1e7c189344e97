//go:build linux

package vagrant

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"testbed/internal/testenv"
)

// TestVagrantfile has Vagrant, where it is installed, judge the Vagrantfile.
// That needs neither a network nor a box.
func TestVagrantfile(t *testing.T) {
	_, err := exec.LookPath("vagrant")
	testenv.Need(t, err)
	text, err := os.ReadFile("Vagrantfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"x86_64", "aarch64"} {
		t.Run(arch, func(t *testing.T) {
			// The Vagrant that is here may be too old for arm64, and judges the rest
			// all the same.
			dir := t.TempDir()
			file := regexp.MustCompile(`(?m)^Vagrant.require_version.*$`).ReplaceAll(text, nil)
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "Vagrantfile"), file, 0o644), os.WriteFile(filepath.Join(dir, "provision.sh"), nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "vagrant", "validate")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "TESTBED_ARCH="+arch, "VAGRANT_HOME="+dir, "VAGRANT_CHECKPOINT_DISABLE=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("vagrant validate: %v\n%s", err, out)
			}
		})
	}
}
