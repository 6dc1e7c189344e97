//go:build linux

package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"testbed/internal/testenv"
	"testbed/shaping/fidelity"
)

// needRoot skips the test where it cannot become an ordinary user.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		testenv.Need(t, errors.New("needs root, to become an ordinary user"))
	}
}

// ordinaryUser is who plays some runs of this test.
func ordinaryUser(t *testing.T) *syscall.Credential {
	t.Helper()
	needRoot(t)
	return &syscall.Credential{Uid: 65534, Gid: 65534}
}

// TestPriorityOfARouter: an ordinary user's router goes before other programs where the
// program's file or whoever starts it has CAP_SYS_NICE, or where limits allow it. Else doctor
// says that it does not, with the fix, and so does a verdict that is not valid.
func TestPriorityOfARouter(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	user := ordinaryUser(t)
	if runtime.NumCPU() < 2 {
		t.Skip("on one processor there is no real-time priority")
	}
	check := func(name string, attr *syscall.SysProcAttr, args ...string) (ok bool, detail, fix string) {
		t.Helper()
		cmd := command(t, t.Context(), t.Name(), "doctor", "--json")
		cmd.Path, cmd.Args = args[0], append(args, cmd.Args[1:]...)
		cmd.SysProcAttr, cmd.Dir = attr, "/"
		out, _ := cmd.Output() // its exit code is of other checks
		var checks []struct {
			Name, Detail string
			OK           bool
			Mend         string
		}
		if err := json.Unmarshal(out, &checks); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		for _, c := range checks {
			if c.Name == "router priority" {
				return c.OK, c.Detail, c.Mend
			}
		}
		t.Fatalf("%s: no check of the router's priority in\n%s", name, out)
		return false, "", ""
	}
	if ok, detail, fix := check("an ordinary user", &syscall.SysProcAttr{Credential: user}, program); ok || fix != fidelity.PriorityFix || !strings.Contains(fix, "setcap cap_sys_nice+ep") {
		t.Errorf("an ordinary user: %v, %s; %s", ok, detail, fix)
	}
	if ok, detail, _ := check("root", nil, program); !ok {
		t.Errorf("root: %s", detail)
	}
	if ok, detail, _ := check("ambient capability", &syscall.SysProcAttr{Credential: user, AmbientCaps: []uintptr{unix.CAP_SYS_NICE}}, program); !ok {
		t.Errorf("an ordinary user with CAP_SYS_NICE: %s", detail)
	}
	t.Run("file", func(t *testing.T) {
		setcap, err := exec.LookPath("setcap")
		testenv.Need(t, err)
		text, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(filepath.Dir(program), "capable")
		defer os.Remove(file)
		if err := testenv.WriteExecutable(file, text); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(setcap, "cap_sys_nice+ep", file).CombinedOutput(); err != nil {
			t.Skipf("the file system keeps no capabilities: %v, %s", err, out)
		}
		if ok, detail, _ := check("capable file", &syscall.SysProcAttr{Credential: user}, file); !ok {
			t.Errorf("an ordinary user with a capable file: %s", detail)
		}
	})
	t.Run("limit", func(t *testing.T) {
		prlimit, err := exec.LookPath("prlimit")
		testenv.Need(t, err)
		setpriv, err := exec.LookPath("setpriv")
		testenv.Need(t, err)
		for _, limit := range []string{"--rtprio=1:1", "--rtprio=0:1"} { // the hard limit is enough
			if out, err := exec.Command(prlimit, limit, "true").CombinedOutput(); err != nil {
				t.Skipf("no CAP_SYS_RESOURCE to raise a limit with: %v, %s", err, out)
			}
			if ok, detail, _ := check("limits", nil, prlimit, limit, setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", program); !ok {
				t.Errorf("an ordinary user with the limit %s: %s", limit, detail)
			}
		}
	})
}

// TestMeasuredPriorityOfARouter: beside busy loops a capable file's router is as punctual as
// root's, and an ordinary one's is named by the verdict.
func TestMeasuredPriorityOfARouter(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	user := ordinaryUser(t)
	file := scenario(t, 4, "50mbit", "")
	for dir := filepath.Dir(file); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	play := func(caps ...uintptr) (m fidelity.Measurements, reasons string) {
		dir, err := os.MkdirTemp("", "priority")
		if err == nil {
			defer os.RemoveAll(dir)
			err = os.Chown(dir, int(user.Uid), int(user.Gid))
		}
		if err != nil {
			t.Fatal(err)
		}
		defer keepBusy(t, 2)()
		cmd := command(t, t.Context(), t.Name(), "run", file, "--policy", "baseline", "--links", "user", "--out", filepath.Join(dir, "run"))
		cmd.SysProcAttr, cmd.Dir = &syscall.SysProcAttr{Credential: user, AmbientCaps: caps}, dir
		if out, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() != exitInvalid {
			t.Fatalf("%v\n%s", err, out)
		}
		f := fidelityOf(t, filepath.Join(dir, "run"))
		return f.Measured, strings.Join(f.Reasons, "; ")
	}
	testenv.Measure(t, func() func(testenv.Machine) error {
		without, reasons := play()
		with, _ := play(unix.CAP_SYS_NICE)
		t.Logf("without priority late by %v (p50), %v (p99); with it %v, %v", without.RouterLatenessP50, without.RouterLatenessP99, with.RouterLatenessP50, with.RouterLatenessP99)
		return func(testenv.Machine) error {
			if !without.RouterNoPriority || with.RouterNoPriority {
				return fmt.Errorf("no priority: %v without the capability, %v with it", without.RouterNoPriority, with.RouterNoPriority)
			}
			if reasons != "" && !strings.Contains(reasons, fidelity.PriorityFix) {
				return fmt.Errorf("the verdict lacks the fix: %s", reasons)
			}
			// Tails are also those of the machine's host.
			if with.RouterLatenessP50 > without.RouterLatenessP50 {
				return fmt.Errorf("with priority late by %v (median), without by %v", with.RouterLatenessP50, without.RouterLatenessP50)
			}
			return nil
		}
	})
}
