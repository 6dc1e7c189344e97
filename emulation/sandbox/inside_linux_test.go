package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// insideChecks run as PID 1 of a sandbox, after Init.
var insideChecks = map[string]func(*Inside) error{
	"children": checkChildren,
	"statuses": checkStatuses,
	"orphans":  checkOrphans,
	"signals":  checkSignals,
	"mounts":   checkMounts,
	"run":      checkRun,
	"iproute2": checkIPRoute2,
	"files":    checkFiles,
	"errors":   checkErrors,
}

// checkChildren: eight children, each in a network namespace of its own.
func checkChildren(in *Inside) error {
	seen := make(map[string]bool)
	for i := range 9 {
		fd := -1
		want, err := os.Readlink(selfNetNS)
		if i > 0 {
			ns, err := newNetNS()
			if err != nil {
				return err
			}
			defer ns.Close()
			fd = int(ns.Fd())
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil {
				return err
			}
			want = fmt.Sprintf("net:[%d]", st.Ino)
		}
		if err != nil {
			return err
		}
		got, err := output(in, Command{Name: "child", NetNS: fd, Args: helperArgs("netns")})
		if err != nil {
			return err
		}
		if got != want+"\n" || seen[got] {
			return fmt.Errorf("child %d is in %q, want %q", i, got, want)
		}
		seen[got] = true
	}
	return nil
}

func output(in *Inside, c Command) (string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	c.Stdout, c.Stderr = w, os.Stderr
	p, err := in.Start(c)
	w.Close()
	if err != nil {
		return "", err
	}
	text, _ := bufio.NewReader(r).ReadString('\n')
	if s := p.Wait(); !s.Success() {
		return text, fmt.Errorf("%s: %v", c.Name, s)
	}
	return text, nil
}

// checkStatuses: many children that end at once, several starters, and the
// orphans among them; nobody gets another's status.
func checkStatuses(in *Inside) error {
	const starters, each = 4, 25
	failures := make(chan error, starters*each)
	var all sync.WaitGroup
	for i := range starters {
		all.Go(func() {
			for j := range each {
				code := i*each + j
				p, err := in.Start(Command{Name: "child", NetNS: -1, Path: "/bin/sh", Args: []string{"-c", fmt.Sprintf("/bin/true & exit %d", code)}})
				if err != nil {
					failures <- err
					continue
				}
				all.Go(func() {
					if s := p.Wait(); s.Code != code || s.Signal != 0 || s.Success() != (code == 0) {
						failures <- fmt.Errorf("%v, want exit status %d", s, code)
					}
				})
			}
		})
	}
	all.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return onlyInitLeft()
	}
}

func checkOrphans(in *Inside) error {
	for range 8 {
		p, err := in.Start(Command{Name: "orphans", NetNS: -1, Args: helperArgs("orphans", "50ms"), Stderr: os.Stderr})
		if err != nil {
			return err
		}
		if s := p.Wait(); !s.Success() {
			return fmt.Errorf("orphans: %v", s)
		}
	}
	return onlyInitLeft()
}

// onlyInitLeft waits until init is alone, without a zombie.
func onlyInitLeft() error {
	start := time.Now()
	for {
		left, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return err
		}
		if len(left) == 1 {
			return nil
		}
		if time.Since(start) > gonePatience {
			return fmt.Errorf("still there: %v", left)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func checkSignals(in *Inside) error {
	p, err := in.Start(Command{Name: "sleeper", NetNS: -1, Args: helperArgs("sleep")})
	if err != nil {
		return err
	}
	for _, sig := range []os.Signal{unix.SIGSTOP, unix.SIGCONT} {
		if err := p.Signal(sig); err != nil {
			return err
		}
	}
	select {
	case <-p.Done():
		return errors.New("a stopped process counted as ended")
	case <-time.After(50 * time.Millisecond):
	}
	if session, err := unix.Getsid(p.Pid()); err != nil || session != p.Pid() {
		return fmt.Errorf("child is in session %d, %v, want its own", session, err)
	}
	p.Kill()
	if s := p.Wait(); s.Signal != unix.SIGKILL || s.Code != -1 || s.Success() || s.String() != "signal: killed" {
		return fmt.Errorf("killed child: %v", s)
	}
	p.Kill()
	if err := p.Signal(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal to an ended child: %v, want %v", err, os.ErrProcessDone)
	}
	return nil
}

func checkMounts(*Inside) error {
	if names, err := os.ReadDir(NetNSDir); err != nil || len(names) != 0 {
		return fmt.Errorf("%s has %v, %v, want nothing", NetNSDir, names, err)
	}
	if err := onlyInitLeft(); err != nil { // also: /proc is the sandbox's
		return err
	}
	if err := os.WriteFile("/run/private", nil, 0o600); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sandbox") // /tmp is shared
	if err != nil {
		return err
	}
	return os.Remove(dir)
}

// checkRun finds what TestRunStaysVisible has put there.
func checkRun(in *Inside) error {
	for _, path := range []string{"/run/file", "/run/link", "/run/mounted/file"} {
		if text, err := os.ReadFile(path); err != nil || string(text) != "text" {
			return fmt.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if err := os.WriteFile("/run/user/written", nil, 0o600); err != nil {
		return err
	}
	return checkMounts(in)
}

func checkIPRoute2(in *Inside) error {
	ip, err := exec.LookPath("ip")
	if err != nil {
		return errors.New("skip: no iproute2")
	}
	ns, err := newNetNS()
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := in.BindNetNS("w0", int(ns.Fd())); err != nil {
		return err
	}
	inside, err := output(in, Command{Name: "ip netns exec", NetNS: -1, Path: ip, Args: []string{"netns", "exec", "w0", "readlink", "/proc/self/ns/net"}})
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(ns.Fd()), &st); err != nil {
		return err
	}
	if want := fmt.Sprintf("net:[%d]\n", st.Ino); inside != want {
		return fmt.Errorf("ip netns exec ran in %q, want %q", inside, want)
	}
	if text, err := output(in, Command{Name: "ip -n", NetNS: -1, Path: ip, Args: []string{"-n", "w0", "link"}}); err != nil || !strings.Contains(text, "lo:") {
		return fmt.Errorf("ip -n w0 link: %q, %v", text, err)
	}
	return nil
}

func checkFiles(in *Inside) error {
	given, w, err := os.Pipe()
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "given")
	w.Close()
	text, err := output(in, Command{
		Name: "show", NetNS: -1, Args: helperArgs("show", "SANDBOX_TEST"),
		Env: []string{"SANDBOX_TEST=child"}, Files: []*os.File{given},
	})
	if err != nil {
		return err
	}
	fmt.Fprint(os.NewFile(FirstFile, "given"), text, os.Getenv("SANDBOX_TEST"), "\n")
	return nil
}

func checkErrors(in *Inside) error {
	if _, err := in.Start(Command{Name: "ghost", NetNS: -1, Path: "/nowhere"}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "ghost") {
		return fmt.Errorf("start of a missing program: %v", err)
	}
	if _, err := in.Start(Command{Name: "lost", NetNS: 999, Path: "/bin/true"}); !errors.Is(err, unix.EBADF) {
		return fmt.Errorf("start in a namespace that is none: %v", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	if err := in.BindNetNS("null", int(null.Fd())); err == nil {
		return errors.New("bound a descriptor that is no namespace")
	}
	for _, name := range []string{"", ".", "..", "a/b", "../x"} {
		if err := in.BindNetNS(name, int(in.home.own[0].file.Fd())); err == nil {
			return fmt.Errorf("bound the name %q", name)
		}
	}
	if err := in.BindNetNS("w0", int(in.home.own[0].file.Fd())); err != nil {
		return err
	}
	if err := in.BindNetNS("w0", int(in.home.own[0].file.Fd())); !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("bound a name twice: %v", err)
	}
	return onlyInitLeft() // the failed starts left no zombie
}
