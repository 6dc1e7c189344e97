// Package vagrant has no code: it checks the Vagrantfile beside it.
package vagrant

import (
	"os"
	"os/exec"
	"testing"
)

// TestVagrantfile has Vagrant, where it is installed, judge the Vagrantfile.
// That needs neither a network nor a box.
func TestVagrantfile(t *testing.T) {
	if _, err := exec.LookPath("vagrant"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("in CI this test may not be skipped: %v", err)
		}
		t.Skip(err)
	}
	// The go command runs this again when a file changes that was looked at.
	for _, name := range []string{"Vagrantfile", "provision.sh"} {
		if _, err := os.Stat(name); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "vagrant", "validate")
	// Vagrant keeps notes, and would keep them beside the Vagrantfile.
	dir := t.TempDir()
	cmd.Env = append(os.Environ(), "VAGRANT_HOME="+dir, "VAGRANT_DOTFILE_PATH="+dir, "VAGRANT_CHECKPOINT_DISABLE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("vagrant validate: %v\n%s", err, out)
	}
}
