//go:build linux

package guest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"testbed/internal/testenv"
	"testbed/record"
)

// provisionTimeout is for a machine that is short of everything.
const provisionTimeout = 10 * time.Minute

// inRoot has a Debian root, the first argument, be the whole file system of the
// command, the last arguments, but for the folders between them and --, which
// it shares. Nothing is left mounted when the command has ended: the mounts are
// those of a namespace of its own.
const inRoot = `set -eu
root=$1; shift
mount --bind "$root" "$root"
for folder in /proc /sys /dev; do mount --rbind "$folder" "$root$folder"; done
while [ "$1" != -- ]; do mkdir -p "$root$1"; mount --bind "$1" "$root$1"; shift; done
shift
cp -L /etc/resolv.conf "$root/etc/"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/host.crt" 2>/dev/null || :
exec chroot "$root" "$@"`

// TestMeasuredProvision has the provisioning script prepare a Debian root, the smallest
// that has apt, and plays a run in it. What a chroot cannot show is modules
// being loaded, and an ordinary user's sandbox.
func TestMeasuredProvision(t *testing.T) {
	testenv.Measured(t)
	t.Parallel() // with the guest, to whose clock it is all the same
	_, err := exec.LookPath("mmdebstrap")
	if os.Geteuid() != 0 {
		err = errors.Join(err, errors.New("only root can enter a Debian root and install packages in it"))
	}
	testenv.Need(t, err)
	project, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	testenv.WatchSources(t, project)
	ctx, cancel := context.WithTimeout(t.Context(), provisionTimeout)
	defer cancel()
	output := func(name string, args ...string) string {
		t.Helper()
		start := time.Now()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = "/"
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		t.Logf("%s: %.1f s", name, time.Since(start).Seconds())
		return strings.TrimSpace(string(out))
	}
	root := filepath.Join(t.TempDir(), "root")
	output("mmdebstrap", "--quiet", "--variant=apt", "--dpkgopt=force-unsafe-io", "bookworm", root)

	// Sources, modules and results of the compiler are this machine's, and so is
	// the version of Go that it runs, or everything would be compiled anew.
	modules, results := output("go", "env", "GOMODCACHE"), output("go", "env", "GOCACHE")
	const revision = "0123456789abcdef+"
	inside := func(command ...string) string {
		t.Helper()
		return output("unshare", append([]string{"--mount", "--propagation=private", "bash", "-c", inRoot, "bash", root, project, modules, results, "--",
			"env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "SSL_CERT_FILE=/host.crt",
			"GOMODCACHE=" + modules, "GOCACHE=" + results, "GOTOOLCHAIN=" + runtime.Version(),
			"TESTBED_DIR=" + project, "TESTBED_REVISION=" + revision}, command...)...)
	}
	script := filepath.Join(project, "vagrant", "provision.sh")
	inside(script, "setup")
	if out := inside(script, "build"); !strings.Contains(out, "--links auto chooses") {
		t.Errorf("doctor says\n%s", out)
	}
	// A run on a disturbed machine says so with exit code 3, and is no worse here.
	inside("sh", "-c", "testbed run homogeneous --policy baseline --out /run-directory || [ $? = 3 ]")
	if text, err := os.ReadFile(root + "/etc/modules-load.d/testbed.conf"); err != nil || !strings.Contains(string(text), "sch_netem\n") {
		t.Errorf("modules that are loaded at boot: %v\n%s", err, text)
	}
	var e record.Environment
	text, err := os.ReadFile(root + "/run-directory/" + record.EnvironmentFile)
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	if err != nil || e.Revision != revision {
		t.Errorf("the record says that the revision is %q: %v", e.Revision, err)
	}
}
