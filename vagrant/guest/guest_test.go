//go:build linux

package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/internal/testenv"
)

const (
	emulator  = "qemu-system-x86_64"
	guestArch = "amd64"
)

// Bounds by this machine's clock.
const (
	fetchTimeout = 2 * time.Minute
	// Steps are bounded by the guest's own clock, which minds no delay: this is for
	// a guest that stalls, on a machine of which others take the most.
	bootTimeout = 15 * time.Minute
)

// TestMeasuredGuest boots a kernel that has netem and runs the tests of links on it.
func TestMeasuredGuest(t *testing.T) {
	testenv.Measured(t)
	t.Parallel() // what it measures does not depend on the load of this machine
	testenv.WatchSources(t, filepath.Join("..", ".."))
	ctx, cancel := context.WithTimeout(t.Context(), bootTimeout)
	defer cancel()
	start := time.Now()
	g, err := prepare(ctx, t)
	testenv.Need(t, err)
	t.Logf("finding a kernel, building and packing: %.1f s", time.Since(start).Seconds())
	start = time.Now()
	reported := 0
	rest, err := g.boot(ctx, "1", func(r report) {
		reported++
		t.Run(r.name, func(t *testing.T) {
			t.Logf("%s s by the guest's clock\n%s", r.seconds, r.output)
			if !r.passed {
				t.Fail()
			}
		})
	})
	if err != nil || reported != len(steps) {
		t.Errorf("the guest ended after %d of %d steps: %v", reported, len(steps), err)
	}
	t.Logf("the guest: %.1f s, and besides:\n%s", time.Since(start).Seconds(), rest)
}

// guest is what a guest is made of.
type guest struct{ qemu, vmlinuz, initramfs string }

// prepare finds the emulator and a kernel, and packs the rest. The error is
// about what is missing; what does not build fails the test.
func prepare(ctx context.Context, t testing.TB) (g guest, err error) {
	t.Helper()
	if g.qemu, err = exec.LookPath(emulator); err != nil {
		return g, fmt.Errorf("%w (Debian: apt-get install qemu-system-x86)", err)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	im, err := debianKernel(ctx)
	if err != nil {
		return g, err
	}
	g.vmlinuz, g.initramfs = im.vmlinuz, filepath.Join(t.TempDir(), "initramfs")
	if err := writeInitramfs(t, g.initramfs, im); err != nil {
		t.Fatal(err)
	}
	return g, nil
}

// writeInitramfs builds the guest's programs and packs them, with the
// modules, into the file system that the kernel starts with.
func writeInitramfs(t testing.TB, file string, im image) error {
	var a archive
	for _, d := range []string{"proc", "sys", "tmp", "run"} {
		a.dir(d)
	}
	a.device("dev/console", 5, 1)
	for _, m := range modules {
		if err := im.load(t.Context(), &a, m); err != nil {
			return err
		}
	}
	for _, p := range []struct {
		name string
		args []string
	}{
		{"init", []string{"test", "-c", "testbed/vagrant/guest"}},
		{"links.test", []string{"test", "-c", "testbed/test/links"}},
		{"testbed", []string{"build", "testbed/cmd/testbed"}},
	} {
		file, err := build(t, p.name, p.args)
		if err == nil {
			err = packProgram(t.Context(), &a, file, p.name)
		}
		if err != nil {
			return err
		}
	}
	// Not needed, but with it some tests of the kernel's side test more.
	if tc, err := exec.LookPath("tc"); err == nil && runtime.GOARCH == guestArch {
		if err := packProgram(t.Context(), &a, tc, "bin/tc"); err != nil {
			return err
		}
	}
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("writing the initramfs: %w", err)
	}
	return errors.Join(a.write(out), out.Close())
}

// packProgram packs a program, with the libraries that it is linked with.
func packProgram(ctx context.Context, a *archive, program, as string) error {
	// A program without libraries is an error to ldd.
	libraries, _ := output(ctx, "", "ldd", program)
	for file := range strings.FieldsSeq(libraries) {
		if filepath.IsAbs(file) {
			if err := packFile(a, file, file); err != nil {
				return err
			}
		}
	}
	return packFile(a, program, as)
}

func packFile(a *archive, file, as string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("packing %s: %w", file, err)
	}
	a.file(strings.TrimPrefix(as, "/"), data)
	return nil
}

// build compiles a program for the guest. Where this machine is like it, that is
// what the compiler has done for this test already.
func build(t testing.TB, name string, args []string) (file string, err error) {
	file = filepath.Join(t.TempDir(), name)
	last := len(args) - 1
	args = append(args[:last:last], "-trimpath", "-ldflags=-s -w", "-o", file, args[last])
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+guestArch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return file, nil
}

// boot runs the emulator to its end, for what the guest shall do (inGuest), and
// returns what it says besides its reports.
func (g guest) boot(ctx context.Context, what string, done func(report)) (rest string, err error) {
	console, theirs, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("making a console: %w", err)
	}
	defer console.Close()
	cmd := exec.CommandContext(ctx, g.qemu,
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none",
		"-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "1024",
		"-icount", "shift=0,sleep=off",
		// What is random in the guest, and its date, are the same each time: a
		// failure comes again.
		"-seed", "1", "-rtc", "base=2026-01-01T00:00:00,clock=vm",
		"-kernel", g.vmlinuz, "-initrd", g.initramfs,
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check tsc=reliable random.trust_cpu=on "+inGuest+"="+what,
		"-serial", "stdio")
	cmd.Stdout, cmd.Stderr = theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan error)
	go func() {
		// The kernel takes the end of the thread for the parent's death.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		theirs.Close()
		if err == nil {
			err = cmd.Wait()
		}
		ended <- err
	}()
	rest, readErr := readConsole(console, done)
	_, _ = io.Copy(io.Discard, console) // after an error: it must not block
	err = <-ended
	if ctx.Err() != nil {
		err = fmt.Errorf("stopped: %w", ctx.Err())
	}
	return rest, errors.Join(err, readErr)
}
