//go:build linux

package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"testbed/record"
)

// underWay is a run that a test watches from outside, and does harm to.
type underWay struct {
	*exec.Cmd
	dir    string // of its record
	stderr string // the file of what it says
	ended  chan struct{}
}

// start starts a run.
func start(t *testing.T, args ...string) *underWay {
	t.Helper()
	r := &underWay{dir: filepath.Join(t.TempDir(), "run"), stderr: filepath.Join(t.TempDir(), "stderr"), ended: make(chan struct{})}
	r.Cmd = command(t, t.Context(), t.Name(), append([]string{"run", "--out", r.dir}, args...)...)
	stderr, err := os.Create(r.stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	r.Stderr = stderr
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.Wait() // the exit code is looked at
		close(r.ended)
	}()
	t.Cleanup(func() {
		_ = r.Process.Kill() // the only error is that it has ended
		<-r.ended
	})
	return r
}

func (r *underWay) said() string {
	text, _ := os.ReadFile(r.stderr)
	return string(text)
}

// follow calls see with every event of the run, as soon as it is recorded, until the
// run has ended, and returns what came of it.
func (r *underWay) follow(t *testing.T, see func(record.Event)) (sum record.Summary) {
	t.Helper()
	var file *os.File // nil before the run has begun
	var text []byte   // that is not yet a line
	look := func() {
		if file == nil {
			file, _ = os.Open(filepath.Join(r.dir, record.EventsFile))
		}
		if file == nil {
			return
		}
		more, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, more...)
		whole := bytes.LastIndexByte(text, '\n') + 1
		events, err := record.Read(bytes.NewReader(text[:whole]))
		if err != nil {
			t.Fatal(err)
		}
		text = text[whole:]
		for _, e := range events {
			see(e)
		}
	}
	for over := false; !over; {
		select {
		case <-r.ended:
			over = true
		case <-time.After(2 * time.Millisecond):
		}
		look()
	}
	file.Close()
	data, err := os.ReadFile(filepath.Join(r.dir, record.SummaryFile))
	if err == nil {
		err = json.Unmarshal(data, &sum)
	}
	if err != nil {
		t.Fatalf("exit code %d, no summary: %v\n%s", r.ProcessState.ExitCode(), err, r.said())
	}
	return sum
}

// filesOf are the files of that name of all processes, as /proc has them. A pattern
// would have every folder read, which takes a busy machine a second.
func filesOf(name string) (all []string) {
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err == nil {
			all = append(all, filepath.Join("/proc", d.Name(), name))
		}
	}
	return all
}

// process is the number of a node's process: the one that writes its log.
func (r *underWay) process(node string) (pid int, err error) {
	log, err := os.Stat(filepath.Join(r.dir, record.LogsDir, node+".log"))
	if err != nil {
		return 0, err
	}
	for _, name := range filesOf("fd/2") {
		if file, err := os.Stat(name); err == nil && os.SameFile(file, log) {
			return strconv.Atoi(strings.Split(name, "/")[2])
		}
	}
	return 0, fmt.Errorf("no process writes the log of %s", node)
}
