package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/internal/errs"
	"testbed/internal/testenv"
	"testbed/internal/thread"
)

// The test binary plays every part. "helper" and a role as its first
// arguments make it one of these instead of a test run.
var roles = map[string]func(args []string){
	"outer":          roleOuter,
	"outer-wait":     roleOuterWait,
	"outer-terminal": roleOuterTerminal,
	"stage":          roleStage,
	"masked":         roleMasked,
	"limited":        roleLimited,

	"exit":          roleExit,
	"early":         func([]string) { os.Exit(7) },
	"load":          roleLoad,
	"deaf":          roleDeaf,
	"lifeline-only": roleLifelineOnly,
	"inside":        roleInside,

	"sleep":   func([]string) { time.Sleep(time.Hour) },
	"code":    func(args []string) { os.Exit(number(args[0])) },
	"netns":   func([]string) { fmt.Println(must(os.Readlink(selfNetNS))) },
	"show":    roleShow,
	"orphans": roleOrphans,
}

func helperArgs(role string, args ...string) []string {
	return append([]string{"helper", role}, args...)
}

func init() {
	// Roles that change attributes of their main thread need to stay on it.
	if len(os.Args) > 2 && os.Args[1] == "helper" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "helper" {
		roles[os.Args[2]](os.Args[3:])
		os.Exit(0)
	}
	// Otherwise, under the race detector, each helper sleeps before it exits.
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	os.Exit(m.Run())
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	if unsupported, ok := errors.AsType[*errs.UnsupportedError](err); ok {
		fmt.Fprintln(os.Stderr, unsupported.Err)
		os.Exit(4)
	}
	os.Exit(1)
}

func must[T any](v T, err error) T {
	if err != nil {
		fail(err)
	}
	return v
}

func number(s string) int { return must(strconv.Atoi(s)) }

// Outside.

// roleOuter starts a sandbox and lives until it is killed.
func roleOuter(args []string) {
	s := must(Start(Config{Args: helperArgs(args[0], args[1:]...), Stdout: os.Stdout, Stderr: os.Stderr}))
	fmt.Println("sandbox", s.process.Pid)
	select {}
}

// roleOuterWait starts a sandbox and passes its exit status on.
func roleOuterWait(args []string) {
	if args[0] == "deleted" {
		if err := os.Remove(os.Getenv("TEST_BINARY")); err != nil {
			fail(err)
		}
		args = args[1:]
	}
	s := must(Start(Config{Args: helperArgs(args[0], args[1:]...), Stdout: os.Stdout, Stderr: os.Stderr}))
	os.Exit(must(s.Wait()).ExitCode())
}

// roleOuterTerminal handles Ctrl-C as a well-behaved outer process would: the
// sandbox is still there to be ended in good order.
func roleOuterTerminal([]string) {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	s := must(Start(Config{Args: helperArgs("load"), Stdout: os.Stdout, Stderr: os.Stderr}))
	fmt.Println("sandbox", s.process.Pid)
	<-interrupts
	select {
	case <-s.done:
		fail(errors.New("the interrupt ended the sandbox"))
	case <-time.After(200 * time.Millisecond):
	}
	s.Kill()
	must(s.Wait())
	fmt.Println("interrupted")
}

// roleStage is PID 1 of a PID and mount namespace of the test's own, where
// nothing but the test runs: what is left behind there was left by the test.
func roleStage(args []string) {
	for _, err := range []error{
		mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE),
		mount("proc", "/proc", "proc", 0),
	} {
		if err != nil {
			fail(err)
		}
	}
	p := must(os.StartProcess(selfExe, args, &os.ProcAttr{
		Env:   append(os.Environ(), stageEnv+"=1"),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
	}))
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		if err == nil && pid == p.Pid {
			os.Exit(ws.ExitStatus())
		}
	}
}

// roleMasked hides part of /proc, as container engines do, and starts an
// ordinary user's sandbox there.
func roleMasked([]string) {
	for _, err := range []error{
		mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE),
		mount(os.DevNull, "/proc/version", "", unix.MS_BIND),
	} {
		if err != nil {
			fail(err)
		}
	}
	cmd := exec.Command(selfExe, helperArgs("outer-wait", "exit", "0")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	_ = cmd.Run()
	os.Exit(cmd.ProcessState.ExitCode())
}

// roleLimited forbids network namespaces, in its own user namespace only, and starts
// a sandbox there, or in another user namespace in this one.
func roleLimited(args []string) {
	if !inspect(false).nested {
		fail(errors.New("this would limit the machine"))
	}
	if err := os.WriteFile("/proc/sys/user/max_net_namespaces", []byte("0"), 0); err != nil {
		fail(err)
	}
	if len(args) == 0 {
		roleOuterWait([]string{"exit", "0"})
	}
	cmd := exec.Command(selfExe, helperArgs("outer-wait", "exit", "0")...)
	root := []syscall.SysProcIDMap{{Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: root, GidMappings: root}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	_ = cmd.Run()
	os.Exit(cmd.ProcessState.ExitCode())
}

// PID 1.

func roleExit(args []string) {
	must(Init())
	os.Exit(number(args[0]))
}

// roleLoad fills the sandbox with all that a run has, and then some.
func roleLoad([]string) {
	in := must(Init())
	for i := range 8 {
		ns := must(newNetNS())
		name := fmt.Sprintf("w%d", i)
		if err := in.BindNetNS(name, int(ns.Fd())); err != nil {
			fail(err)
		}
		must(in.Start(Command{Name: name, NetNS: int(ns.Fd()), Args: helperArgs("sleep")}))
		must(in.Start(Command{Name: name, NetNS: int(ns.Fd()), Args: helperArgs("orphans", "1h"), Stderr: os.Stderr}))
		ns.Close()
	}
	fmt.Println("ready")
	select {}
}

// roleDeaf does not watch the lifeline: only the parent-death signal ends it.
func roleDeaf([]string) {
	if err := newReport(nil).send(os.NewFile(lifelineFD, "lifeline")); err != nil {
		fail(err)
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
}

// roleLifelineOnly gets no parent-death signal.
func roleLifelineOnly([]string) {
	must(Init())
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0); err != nil {
		fail(err)
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
}

func roleInside(args []string) {
	if err := insideChecks[args[0]](must(Init())); err != nil {
		fail(err)
	}
}

// Children of PID 1.

// roleShow prints an environment variable and what is in descriptor 3.
func roleShow(args []string) {
	line, _ := bufio.NewReader(os.NewFile(3, "given")).ReadString('\n')
	fmt.Print(os.Getenv(args[0]), " ", line)
}

// roleOrphans leaves three orphans, which live for the duration given.
func roleOrphans(args []string) {
	lifetime := must(time.ParseDuration(args[0]))
	for range 3 {
		must(os.StartProcess("/bin/sleep", []string{"sleep", fmt.Sprint(lifetime.Seconds())}, &os.ProcAttr{}))
	}
}

func newNetNS() (f *os.File, err error) {
	thread.Do(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			f, err = os.Open(selfNetNS)
		}
	})
	return f, err
}

// Tools of the tests.

const stageEnv = "SANDBOX_TEST_STAGE"

var nobody = &syscall.Credential{Uid: 65534, Gid: 65534}

// needSandbox skips the test where the kernel forbids sandboxes, but not in
// CI, where that would hide that nothing is tested.
func needSandbox(t *testing.T) {
	t.Helper()
	testenv.Need(t, Check())
}

// needRoot skips what only root can show. It does so in CI too: there is a
// test run as each.
func needRoot(t *testing.T) {
	t.Helper()
	needSandbox(t)
	if os.Geteuid() != 0 || !mapsNobody() {
		t.Skip("needs root, to become an ordinary user")
	}
}

func mapsNobody() bool {
	var first, outside, count int
	_, err := fmt.Sscan(string(must(os.ReadFile("/proc/self/uid_map"))), &first, &outside, &count)
	return err == nil && first+count > int(nobody.Uid)
}

// onStage reports whether the test runs on a stage of its own. If not, it runs
// it there, and the caller returns.
func onStage(t *testing.T) bool {
	t.Helper()
	if os.Getenv(stageEnv) != "" {
		return true
	}
	cmd := exec.Command(selfExe, helperArgs("stage", os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")...)
	cmd.SysProcAttr = sysProcAttr(!privileged())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("on stage: %v\n%s", err, out)
	}
	t.Logf("on stage:\n%s", out)
	if bytes.Contains(out, []byte("\n--- SKIP")) && !bytes.Contains(out, []byte("--- PASS")) {
		t.Skipf("on stage it was skipped, for this reason:\n%s", out)
	}
	return false
}

// A scene is all that a sandbox could leave behind on a stage.
type scene struct {
	processes  []string
	namespaces []string // network namespaces that a process, thread or mount holds
	mounts     string
}

func look(t *testing.T) scene {
	t.Helper()
	namespaces := make(map[string]bool)
	var s scene
	for _, dir := range must(filepath.Glob("/proc/[0-9]*")) {
		name, err := os.ReadFile(dir + "/comm")
		if err != nil {
			continue // it has ended
		}
		s.processes = append(s.processes, filepath.Base(dir)+" "+strings.TrimSpace(string(name)))
		for _, link := range must(filepath.Glob(dir + "/task/*/ns/net")) {
			if ns, err := os.Readlink(link); err == nil {
				namespaces[ns] = true
			}
		}
		info, _ := os.ReadFile(dir + "/mountinfo")
		for line := range strings.Lines(string(info)) {
			if fields := strings.Fields(line); strings.HasPrefix(fields[3], "net:[") {
				namespaces[fields[3]] = true
			}
		}
	}
	slices.Sort(s.processes)
	s.namespaces = slices.Sorted(maps.Keys(namespaces))
	s.mounts = string(must(os.ReadFile("/proc/mounts")))
	return s
}

func (s scene) equal(before scene) bool {
	return slices.Equal(s.processes, before.processes) && slices.Equal(s.namespaces, before.namespaces) && !s.mountsMore(before)
}

// mountsMore reports whether there are mounts that were not there before. Fewer there
// may be without a cause on the stage: whoever removes a directory anywhere takes what
// is mounted on it away in every namespace (rmdir(2) since Linux 3.18).
func (s scene) mountsMore(before scene) bool {
	was := slices.Collect(strings.Lines(before.mounts))
	for line := range strings.Lines(s.mounts) {
		at := slices.Index(was, line)
		if at < 0 {
			return true
		}
		was = slices.Delete(was, at, at+1)
	}
	return false
}

// gonePatience bounds how long a busy kernel may take to remove what is over.
const gonePatience = 30 * time.Second

// mustReturnTo waits for everything to be as before.
func mustReturnTo(t *testing.T, before scene) {
	t.Helper()
	start := time.Now()
	for {
		now := look(t)
		if now.equal(before) {
			return
		}
		if time.Since(start) > gonePatience {
			t.Fatalf("left behind:\nbefore %+v\nafter  %+v", before, now)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// An outer is a process that holds a sandbox, started by the test.
type outer struct {
	*exec.Cmd
	lines *bufio.Scanner
}

func startOuter(t *testing.T, credential *syscall.Credential, args ...string) *outer {
	t.Helper()
	cmd := exec.Command(selfExe, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setpgid: true}
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &outer{cmd, bufio.NewScanner(stdout)}
}

// awaitReady returns the process id of the sandbox's init.
func (o *outer) awaitReady(t *testing.T) (pid int) {
	t.Helper()
	ready := false
	for o.lines.Scan() {
		line := o.lines.Text()
		if rest, ok := strings.CutPrefix(line, "sandbox "); ok {
			pid = number(rest)
		}
		ready = ready || line == "ready"
		if ready && pid != 0 {
			return pid
		}
	}
	t.Fatal("the outer process ended early")
	return 0
}
