package program_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"testbed/experiment"
	"testbed/policy/program"
	"testbed/record"
	"testbed/scenarios"
)

// listenAs listens on a socket, and has a program of testdata answer each connection.
func listenAs(t *testing.T, script string) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "policy")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		os.RemoveAll(dir)
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			file, err := conn.(*net.UnixConn).File()
			conn.Close()
			if err != nil {
				t.Error(err)
				return
			}
			c := exec.Command("python3", script)
			c.Stdin, c.Stdout, c.Stderr = file, file, os.Stderr
			if err := c.Start(); err != nil {
				t.Error(err)
			}
			file.Close()
			go func() { _ = c.Wait() }() // it ends with its connection
		}
	}()
	return path
}

// TestSocket: a program that is running already decides as one that is started.
func TestSocket(t *testing.T) {
	needPython(t)
	path := listenAs(t, "testdata/backup.py")
	s, err := scenarios.Load("lognormal_16")
	if err != nil {
		t.Fatal(err)
	}
	var texts [2]string
	for i, spec := range []string{"backup:b=2", "program:" + path + ":b=2"} {
		var events []record.Event
		if _, err := experiment.OnChurn(s, spec, func(e record.Event) { events = append(events, e) }); err != nil {
			t.Fatal(err)
		}
		texts[i] = decided(t, events)
	}
	if texts[0] != texts[1] || len(texts[0]) < 1000 {
		t.Errorf("traces of %d and %d bytes differ", len(texts[0]), len(texts[1]))
	}
	program.End() // no connection is left to one that goes
}

// TestSocketsThatDoNotAnswer: nobody listens, or hangs up.
func TestSocketsThatDoNotAnswer(t *testing.T) {
	needPython(t)
	s, err := scenarios.Load("persistent_straggler")
	if err != nil {
		t.Fatal(err)
	}
	gone := listenAs(t, "testdata/backup.py")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: gone + "2", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	silent := listenAs(t, "/dev/null")
	for path, want := range map[string]string{
		gone + "2": "cannot be reached: connect: connection refused; it has to listen on that socket until the command ends",
		silent:     `closed its connection when it was asked the question "hello"`,
	} {
		if _, err := s.Machine("program:" + path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
