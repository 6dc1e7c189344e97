package stacks_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/stacks"
)

// TestProbe: whatever a probe does, there is a version or a reason in one line, soon, and
// nothing is left behind.
func TestProbe(t *testing.T) {
	alive := func(number string) bool { // whether a process sleeps for that many seconds
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
		return slices.ContainsFunc(all, func(name string) bool {
			text, err := os.ReadFile(name)
			return err == nil && strings.Contains(string(text), "sleep\x00"+number)
		})
	}
	for name, c := range map[string]struct{ probe, version, missing string }{
		"silent":  {"exit 0", "", "probe.py ended well, but printed no version; install it"},
		"fails":   {"exit 3", "", "probe.py failed: exit status 3; install it"},
		"hangs":   {"sleep 4323", "", "probe.py did not end within 1.5 s; install it"},
		"floods":  {"while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done", "", "probe.py printed more than 1 MiB; install it"},
		"garbage": {`printf '\001\033[31m 2.0\377 \200'`, "[31m 2.0 ", ""},
		"long":    {`head -c 5000 /dev/zero | tr '\0' x`, strings.Repeat("x", 300) + " …", ""},
		"daemon":  {"setsid sleep 4324 & (setsid sleep 4324 &) ; echo version 1", "version 1", ""},
	} {
		s, err := stacks.Read(folder(strings.NewReplacer("description: a test", "startup_s: 1.5", "no-such-python, sh", "sh").Replace(sound), c.probe), "test")
		if err != nil {
			t.Fatal(err)
		}
		ready, err := s.Check(t.Context())
		if ready.Version != c.version || (err == nil) != (c.missing == "") || err != nil && !strings.HasSuffix(err.Error(), "/sh: "+c.missing) {
			t.Errorf("%s: %q, %v", name, ready.Version, err)
		}
	}
	if os.Geteuid() == 0 { // an ordinary user may have no PID namespaces
		for _, number := range []string{"4323", "4324"} {
			for deadline := time.Now().Add(10 * time.Second); alive(number); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("a process of the probe still sleeps for %s s", number)
				}
			}
		}
	}
}

// TestFolder: what is no file is not copied from a user's folder, however it would hang or
// fail. What cannot be copied is named.
func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mine")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(filepath.Join(dir, "data"), 0o755), os.Symlink("nowhere", filepath.Join(dir, "broken")), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644)); err != nil {
		t.Fatal(err)
	}
	write("stack.yaml", strings.Replace(sound, "no-such-python, sh", "sh", 1))
	write("worker.py", "")
	write("probe.py", "cat $0 | head -n 1") // it runs in its place
	s, err := stacks.Find(dir + "/")
	if err != nil {
		t.Fatal(err)
	}
	if ready, err := s.Check(t.Context()); err != nil || ready.Version != "cat $0 | head -n 1" {
		t.Errorf("%q, %v", ready.Version, err)
	}
	to := t.TempDir()
	if err := s.Extract(to); err != nil {
		t.Fatal(err)
	}
	var names []string
	entries, _ := os.ReadDir(filepath.Join(to, "adapter"))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"probe.py", "stack.yaml", "testbed_stack.py", "worker.py"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if strings.HasSuffix(s.Venv(), "/mine") || !strings.Contains(s.Venv(), "/testbed/stacks/mine-") {
		t.Errorf("the environment is in %s, which another folder of this name has, too", s.Venv())
	}
	write("checkpoint", "")
	if err := os.Truncate(filepath.Join(dir, "checkpoint"), 65<<20); err != nil {
		t.Fatal(err)
	}
	if err := s.Extract(t.TempDir()); err == nil || !strings.Contains(err.Error(), "more than 64 MiB; leave only the stack's programs there") {
		t.Errorf("%v", err)
	}
	pipe := t.TempDir() + "/"
	if err := syscall.Mkfifo(filepath.Join(pipe, "stack.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := stacks.Find(pipe); err == nil || !strings.HasSuffix(err.Error(), "/stack.yaml is not a file of at most 1 MiB") {
		t.Errorf("%v", err)
	}
	if os.Geteuid() != 0 {
		if err := errors.Join(os.Remove(filepath.Join(dir, "checkpoint")), os.Chmod(filepath.Join(dir, "worker.py"), 0)); err != nil {
			t.Fatal(err)
		}
		if err := s.Extract(t.TempDir()); err == nil || !strings.Contains(err.Error(), "worker.py: permission denied; make the file readable") {
			t.Errorf("%v", err)
		}
	}
}
