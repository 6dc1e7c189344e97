package sandbox

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"testbed/internal/errs"
	"testbed/internal/rapidtest"
	"testbed/internal/testenv"
)

func TestExitStatusPassesThrough(t *testing.T) {
	needSandbox(t)
	for _, code := range []int{0, 3, 255} {
		s, err := Start(Config{Args: helperArgs("exit", fmt.Sprint(code)), Stderr: os.Stderr})
		if err != nil {
			t.Fatal(err)
		}
		var waits sync.WaitGroup
		for range 2 {
			waits.Go(func() {
				state, err := s.Wait()
				if err != nil || state.ExitCode() != code {
					t.Errorf("exit code %v, %v; want %d", state, err, code)
				}
			})
		}
		waits.Wait()
	}
}

// TestLateReport: init may have been reaped before its report is read.
func TestLateReport(t *testing.T) {
	needSandbox(t)
	ours, theirs, err := newLifeline()
	if err != nil {
		t.Fatal(err)
	}
	s := &Sandbox{lifeline: ours, reported: make(chan struct{}), done: make(chan struct{})}
	attr := &os.ProcAttr{
		Files: []*os.File{nil, nil, nil, theirs},
		Sys:   sysProcAttr(!privileged()),
	}
	started := make(chan error)
	go s.keep(append([]string{argv0}, helperArgs("exit", "0")...), attr, started)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	for unix.Kill(s.process.Pid, 0) == nil {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond)
	if r, err := readReport(ours); err != nil || r.Error != "" {
		t.Errorf("report %+v, %v", r, err)
	}
	close(s.reported)
	<-s.done
}

func TestKillIsIdempotent(t *testing.T) {
	needSandbox(t)
	s, err := Start(Config{Args: helperArgs("load"), Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	var kills sync.WaitGroup
	for range 4 {
		kills.Go(s.Kill)
	}
	state, err := s.Wait()
	kills.Wait()
	s.Kill()
	if err != nil || state.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("ended by %v, %v; want SIGKILL", state, err)
	}
}

func TestInitEndsEarly(t *testing.T) {
	needSandbox(t)
	_, err := Start(Config{Args: helperArgs("early")})
	if err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("error %v, want one with the exit status", err)
	}
}

func TestInitNeedsSandbox(t *testing.T) {
	if _, err := Init(); err == nil {
		t.Error("Init succeeded outside a sandbox")
	}
}

func TestFilesAndEnvironment(t *testing.T) {
	needSandbox(t)
	t.Setenv("SANDBOX_TEST", "outer")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := Start(Config{
		Args:   helperArgs("inside", "files"),
		Files:  []*os.File{w},
		Stderr: os.Stderr,
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	const want = "child given\nouter\n"
	if string(got) != want {
		t.Errorf("read %q, want %q", got, want)
	}
	if state, err := s.Wait(); err != nil || !state.Success() {
		t.Errorf("sandbox: %v, %v", state, err)
	}
}

// TestInside runs each check in a sandbox of its own: as who runs the tests,
// and as an ordinary user.
func TestInside(t *testing.T) {
	needSandbox(t)
	for name := range insideChecks {
		if name == "files" || name == "run" {
			continue // they have tests of their own
		}
		t.Run(name, func(t *testing.T) {
			runOuter(t, exec.Command(selfExe, helperArgs("outer-wait", "inside", name)...))
		})
		t.Run(name+" as ordinary user", func(t *testing.T) {
			needRoot(t)
			cmd := exec.Command(selfExe, helperArgs("outer-wait", "inside", name)...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody}
			runOuter(t, cmd)
		})
	}
}

func runOuter(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err == nil {
		return
	}
	if strings.Contains(string(out), "skip: ") {
		testenv.Need(t, errors.New(string(out)))
	}
	t.Errorf("%v\n%s", err, out)
}

// TestRunStaysVisible: the user's files may lie below /run.
func TestRunStaysVisible(t *testing.T) {
	needSandbox(t)
	if !onStage(t) {
		return
	}
	if err := mount("tmpfs", "/run", "tmpfs", 0); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/run/netns/outside", "/run/user", "/run/mounted"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := mount("tmpfs", "/run/mounted", "tmpfs", 0); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Chmod("/run/user", 0o777),
		os.WriteFile("/run/mounted/file", []byte("text"), 0o644),
		os.WriteFile("/run/file", []byte("text"), 0o644),
		os.Symlink("mounted/file", "/run/link"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, credential := range []*syscall.Credential{nil, nobody} {
		if credential != nil && !mapsNobody() {
			continue
		}
		cmd := exec.Command(selfExe, helperArgs("outer-wait", "inside", "run")...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
		runOuter(t, cmd)
		if err := os.Remove("/run/user/written"); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat("/run/private"); err == nil {
			t.Error("the sandbox's own /run is visible outside")
		}
	}
}

// TestDeletedBinary: go run may have removed the file before it is needed.
func TestDeletedBinary(t *testing.T) {
	needSandbox(t)
	path := filepath.Join(t.TempDir(), "copy")
	binary, err := os.ReadFile(selfExe)
	if err != nil {
		t.Fatal(err)
	}
	if err := testenv.WriteExecutable(path, binary); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, helperArgs("outer-wait", "deleted", "inside", "children")...)
	cmd.Env = append(os.Environ(), "TEST_BINARY="+path)
	runOuter(t, cmd)
}

func TestNothingLeftInThisProcess(t *testing.T) {
	needSandbox(t)
	countFiles := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	round := func() {
		for _, args := range [][]string{helperArgs("exit", "0"), helperArgs("early"), helperArgs("load")} {
			s, err := Start(Config{Args: args})
			if err != nil {
				continue // helper "early"
			}
			if args[1] == "load" {
				s.Kill()
			}
			if _, err := s.Wait(); err != nil {
				t.Error(err)
			}
		}
		if _, err := Start(Config{Args: []string{"a\x00b"}}); err == nil {
			t.Error("started with an invalid argument")
		}
	}
	round() // the first sandbox opens the poller
	ignore := goleak.IgnoreCurrent()
	before := countFiles()
	for range 5 {
		round()
	}
	if after := countFiles(); after != before {
		t.Errorf("%d files open, %d before", after, before)
	}
	goleak.VerifyNone(t, ignore)
}

// TestLeavesNothing kills what may be killed, in the middle of everything.
func TestLeavesNothing(t *testing.T) {
	needSandbox(t)
	if !onStage(t) {
		return
	}
	killOuter := func(o *outer, _ int) error { return o.Process.Kill() }
	for _, c := range []struct {
		name string
		role string
		kill func(o *outer, init int) error
	}{
		{"outer process", "load", killOuter},
		{"init", "load", func(_ *outer, init int) error { return unix.Kill(init, unix.SIGKILL) }},
		{"outer process, parent-death signal alone", "deaf", killOuter},
		{"outer process, lifeline alone", "lifeline-only", killOuter},
	} {
		for _, credential := range []*syscall.Credential{nil, nobody} {
			name := c.name
			if credential != nil {
				name += " as ordinary user"
			}
			t.Run(name, func(t *testing.T) {
				if credential != nil {
					needRoot(t)
				}
				before := look(t)
				o := startOuter(t, credential, helperArgs("outer", c.role)...)
				init := o.awaitReady(t)
				if during := look(t); during.mountsMore(before) || len(during.namespaces) == len(before.namespaces) {
					t.Errorf("unexpected while running: %+v", during)
				}
				link := newLinkInto(t, init)
				if err := c.kill(o, init); err != nil {
					t.Fatal(err)
				}
				killed := time.Now()
				link.mustVanish(t)
				_ = o.Process.Kill()
				_ = o.Wait()
				mustReturnTo(t, before)
				t.Logf("all gone after %v", time.Since(killed).Round(time.Millisecond))
			})
		}
	}
}

// TestRandomKills kills the outer process at moments spread over its start
// and the sandbox's set-up.
func TestRandomKills(t *testing.T) {
	needSandbox(t)
	if !onStage(t) {
		return
	}
	for _, credential := range []*syscall.Credential{nil, nobody} {
		t.Run(fmt.Sprintf("credential %v", credential), func(t *testing.T) {
			if credential != nil {
				needRoot(t)
			}
			before := look(t)
			begun, random := 0, rand.New(rand.NewPCG(rapidtest.Seed(), 0))
			for _, window := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond} {
				for range 20 {
					o := startOuter(t, credential, helperArgs("outer", "load")...)
					time.Sleep(time.Duration(random.Int64N(int64(window))))
					if len(look(t).processes) > len(before.processes)+1 {
						begun++
					}
					_ = o.Process.Kill()
					_ = o.Wait()
					mustReturnTo(t, before)
				}
			}
			t.Logf("in %d of 40 kills there was a sandbox", begun)
		})
	}
}

func TestInterruptReachesOnlyOuter(t *testing.T) {
	needSandbox(t)
	o := startOuter(t, nil, helperArgs("outer-terminal")...)
	o.awaitReady(t)
	if err := unix.Kill(-o.Process.Pid, unix.SIGINT); err != nil { // as a terminal does
		t.Fatal(err)
	}
	if !o.lines.Scan() || o.lines.Text() != "interrupted" {
		t.Errorf("read %q from the outer process", o.lines.Text())
	}
	if err := o.Wait(); err != nil {
		t.Error(err)
	}
}

// A link has its other end in the sandbox: it is there exactly as long as the
// sandbox's network namespace.
type link string

func newLinkInto(t *testing.T, pid int) link {
	t.Helper()
	const name = "t0"
	ip, err := exec.LookPath("ip")
	if err != nil {
		t.Log("no iproute2: cannot watch a link")
		return ""
	}
	out, err := exec.Command(ip, "link", "add", name, "type", "veth", "peer", "name", "t1", "netns", fmt.Sprint(pid)).CombinedOutput()
	if err != nil {
		t.Fatalf("add link: %v: %s", err, out)
	}
	return name
}

func (l link) mustVanish(t *testing.T) {
	t.Helper()
	start := time.Now()
	for l.exists(t) {
		if time.Since(start) > gonePatience {
			t.Fatal("the network namespace outlives its sandbox")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (l link) exists(t *testing.T) bool {
	t.Helper()
	if l == "" {
		return false
	}
	devices, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(devices), string(l)+":")
}

func TestCheckNamesTheCause(t *testing.T) {
	needRoot(t)
	for _, c := range []struct {
		role   []string
		flags  uintptr
		expect []string
	}{
		{[]string{"masked"}, unix.CLONE_NEWNS, []string{"mounting proc on /proc: operation not permitted", "masked", "systempaths=unconfined"}},
		{[]string{"limited"}, unix.CLONE_NEWUSER, []string{"no space left on device", "user.max_net_namespaces is 0"}},
		{[]string{"limited", "outside"}, unix.CLONE_NEWUSER, []string{"user.max_net_namespaces allows no more", "outside this user namespace"}},
	} {
		t.Run(strings.Join(c.role, " "), func(t *testing.T) {
			cmd := exec.Command(selfExe, helperArgs(c.role[0], c.role[1:]...)...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: c.flags}
			if c.flags&unix.CLONE_NEWUSER != 0 {
				root := []syscall.SysProcIDMap{{Size: 1}}
				cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = root, root
			}
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != 4 {
				t.Errorf("exit code %d, want 4, for unsupported", code)
			}
			for _, text := range c.expect {
				if !strings.Contains(string(out), text) {
					t.Errorf("error is %q, lacks %q", out, text)
				}
			}
			t.Logf("%s", out)
		})
	}
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		name  string
		m     machine
		mount string // empty: making the namespaces failed
		errno syscall.Errno
		want  string
	}{
		{"debian sysctl", machine{userNS: true, sysctls: map[string]string{cloneSysctl: "0"}}, "", unix.EPERM, cloneSysctl + "=1"},
		{"ubuntu, namespaces", machine{userNS: true, sysctls: map[string]string{apparmorSysctl: "1"}}, "", unix.EPERM, apparmorSysctl + "=0"},
		{"ubuntu, mounts", machine{userNS: true, sysctls: map[string]string{apparmorSysctl: "1"}}, "/", unix.EACCES, apparmorSysctl + "=0"},
		{"ubuntu, but root", machine{sysctls: map[string]string{apparmorSysctl: "1"}}, "", unix.EPERM, "seccomp"},
		{"limit is 0", machine{userNS: true, sysctls: map[string]string{"user.max_user_namespaces": "0"}}, "", unix.ENOSPC, "user.max_user_namespaces=15000"},
		{"limit of no concern to root", machine{sysctls: map[string]string{"user.max_user_namespaces": "0"}}, "", unix.ENOSPC, "used up"},
		{"container", machine{container: true, userNS: true}, "", unix.EPERM, "--privileged"},
		{"container, mounts", machine{container: true}, "/run", unix.EACCES, "--privileged"},
		{"masked /proc", machine{container: true, userNS: true}, "/proc", unix.EPERM, "unmask=ALL"},
		{"pod without user namespaces", machine{container: true, pod: true, userNS: true}, "", unix.EPERM, "generate the pod with testbed manifests"},
		{"pod, mounts", machine{container: true, pod: true}, "/run", unix.EACCES, "AppArmor"},
		{"pod, masked /proc", machine{container: true, pod: true, userNS: true}, "/proc", unix.EPERM, "procMount: Unmasked"},
		{"pod, limit", machine{container: true, pod: true, userNS: true, sysctls: map[string]string{"user.max_net_namespaces": "0"}}, "", unix.ENOSPC, "user.max_net_namespaces=15000 on the pod's node"},
		{"pod, limit of its node", machine{container: true, pod: true, nested: true, userNS: true, exhausted: "user.max_net_namespaces"}, "", unix.ENOSPC, "raise this limit on the pod's node"},
		{"unknown", machine{userNS: true}, "", unix.EPERM, "run as root"},
	} {
		t.Run(c.name, func(t *testing.T) {
			missing, mend := c.m.explainClone(c.errno)
			if c.mount != "" {
				missing, mend = c.m.explainMount(c.mount)
			}
			if got := missing + "; " + mend; !strings.Contains(got, c.want) {
				t.Errorf("explained as %q, want it to name %q", got, c.want)
			}
		})
	}
}

func TestInvalidArgumentIsNotUnsupported(t *testing.T) {
	_, err := Start(Config{Args: []string{"a\x00b"}})
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an argument with a zero byte gives %v", err)
	}
}

func TestReportedErrors(t *testing.T) {
	refused := &mountError{"proc", "/proc", unix.EPERM}
	err := setUpError(newReport(fmt.Errorf("sandbox init: %w", refused)), true)
	var unsupported *errs.UnsupportedError
	if !errors.As(err, &unsupported) || !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, unix.EPERM) {
		t.Errorf("a refused mount became %v", err)
	}
	err = setUpError(newReport(errors.New("sandbox init: some text")), true)
	if errors.As(err, &unsupported) || !strings.Contains(err.Error(), "some text") {
		t.Errorf("a plain error became %v", err)
	}
}
