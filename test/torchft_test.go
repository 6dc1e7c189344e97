//go:build linux

package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/internal/testenv"
	"testbed/torchft/load"
)

// server is a verb that runs.
type server struct {
	*exec.Cmd
	address string // its first line
	stderr  *strings.Builder
}

// run starts a verb and waits until it listens. It is killed with the test.
func runVerb(t *testing.T, env []string, args ...string) *server {
	t.Helper()
	p := &server{Cmd: exec.CommandContext(t.Context(), program, args...), stderr: &strings.Builder{}}
	p.Env = append(os.Environ(), append(env, mark+"="+t.Name())...)
	p.Stderr = p.stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = p.Wait()
		t.Fatalf("%v says nothing: %s", args, p.stderr)
	}
	p.address = strings.TrimSpace(line)
	return p
}

// ends waits for the program's end, and returns its exit code.
func (p *server) ends(t *testing.T) int {
	t.Helper()
	late := time.AfterFunc(time.Minute, func() { _ = p.Process.Kill() })
	defer late.Stop()
	_ = p.Wait()
	return p.ProcessState.ExitCode()
}

// refuses runs a verb that has to end by itself, and returns what it says.
func refuses(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), mark+"="+t.Name(), "TORCHFT_LIGHTHOUSE=", "TORCHFT_MANAGER_PORT=", "TORCHFT_QUORUM_RETRIES=")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("%v is accepted", args)
	}
	return string(out)
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"lighthouse", "min_replicas is 0: it must be at least 1"},
		{"lighthouse --min_replicas 1 --quorum_tick_ms 0", "quorum_tick_ms is 0: it must be above 0"},
		{"lighthouse --min_replicas 1 --bind 127.0.0.1:99999", "--bind 127.0.0.1:99999: "},
		{"lighthouse --min-replicas 1", "unknown flag"},
		{"manager", "--replica_id"},
		{"manager --replica_id a", "TORCHFT_LIGHTHOUSE"},
		{"manager --replica_id a --store_addr s:1 --lighthouse_addr x", "http://HOST:PORT"},
		{"manager --replica_id a --lighthouse_addr http://127.0.0.1:1 --store_addr s:1", "world_size is 0: it must be at least 1"},
		{"manager --replica_id a --lighthouse_addr http://127.0.0.1:1 --store_addr s:1 --world_size 1 --connect_timeout_ms 100", "connecting to the lighthouse: 127.0.0.1:1 does not answer"},
	} {
		if said := refuses(t, strings.Fields(c.args)...); !strings.Contains(said, c.want) {
			t.Errorf("%s: %q, want %q", c.args, said, c.want)
		}
	}
}

// TestIDsAreNotUsedAgain: a lighthouse that was restarted, and has no journal, gives its
// first quorum an id beyond all those of the one before. torchft's counts from 1 again:
// members whose id stays the same keep a process group of other members.
func TestIDsAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	id := func(quorums int, flags ...string) (n int64) {
		p := runVerb(t, nil, append([]string{"lighthouse", "--bind", "127.0.0.1:0", "--min_replicas", "2"}, flags...)...)
		clients, err := load.Connect(t.Context(), strings.TrimPrefix(p.address, "http://"), 2)
		if err != nil {
			t.Fatal(err)
		}
		defer clients.Close()
		if _, err := clients.Quorums(t.Context(), quorums); err != nil {
			t.Fatal(err)
		}
		answer, err := http.Get(p.address + "/status")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		page, err := io.ReadAll(answer.Body)
		if _, after, ok := strings.Cut(string(page), "Quorum "); err != nil || !ok {
			t.Fatalf("%v\n%s", err, page)
		} else if _, err := fmt.Sscanf(after, "%d:", &n); err != nil {
			t.Fatalf("%v\n%s", err, page)
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	began := time.Now().UnixMilli()
	first := id(3)
	second := id(1)
	if first <= began || second <= first {
		t.Errorf("at %d, the ids are %d and after a restart %d", began, first, second)
	}
	if n := id(1, "--compat"); n != 1 {
		t.Errorf("as torchft does, the first id is %d", n)
	}
}

// TestWarnsOfARotation: a simulation under torchft says that the join timeout is below a
// round, and none under other parameters or policies does.
func TestWarnsOfARotation(t *testing.T) {
	t.Parallel()
	for name, warns := range map[string]bool{"torchft": true, "torchft:join_timeout=4000": false, "quorum:join_timeout=1500": false} {
		r := testbed(t, "simulate", "torchft_t18", "--policy", name)
		if said := strings.Contains(r.stderr, "testbed: policy torchft: join_timeout (1,500 µs) is shorter than a round ("); r.code != 0 || said != warns {
			t.Errorf("%s: exit code %d, %q", name, r.code, r.stderr)
		}
	}
}

var python = []string{"/usr/bin/python3", "-c", "import grpc, google.protobuf"}

// TestPythonClient has a client in another language, which knows torchft.proto
// and nothing else, do everything with a lighthouse and three managers.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	_, protoc := exec.LookPath("protoc")
	if err := errors.Join(exec.Command(python[0], python[1:]...).Run(), protoc); err != nil {
		err = fmt.Errorf("apt-get install python3-grpcio python3-protobuf protobuf-compiler libprotobuf-dev: %w", err)
		testenv.Need(t, err)
	}
	generated := t.TempDir()
	wire := filepath.Join("..", "torchft", "internal", "wire")
	if out, err := exec.Command("protoc", "-I", wire, "--python_out="+generated, "torchft.proto").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	bare := runVerb(t, nil, "lighthouse", "--bind", "127.0.0.1:0", "--min_replicas", "2", "--join_timeout_ms", "100")
	l := runVerb(t, nil, "lighthouse", "--bind", "127.0.0.1:0", "--min_replicas", "3", "--join_timeout_ms", "60000", "--heartbeat_timeout_ms", "60000")
	env := []string{"TORCHFT_LIGHTHOUSE=" + l.address, "TORCHFT_QUORUM_RETRIES=3"}
	args := []string{filepath.Join("testdata", "client.py"), generated, bare.address}
	var managers []*server
	for g := range 3 {
		m := runVerb(t, env, "manager", "--replica_id", fmt.Sprintf("group_%d:1", g), "--store_addr", fmt.Sprintf("store%d:1", g), "--world_size", "2")
		managers = append(managers, m)
		args = append(args, m.address)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, python[0], args...).CombinedOutput(); err != nil || string(out) != "ok\n" {
		t.Fatalf("%v: %s", err, out)
	}
	// The client has killed the last one.
	if code := managers[2].ends(t); code != 1 || !strings.Contains(managers[2].stderr.String(), "by the client") {
		t.Errorf("the killed manager ended with %d: %s", code, managers[2].stderr)
	}
	// So does the page, with one of the others.
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := web.Post(l.address+"/replica/group_1:1/kill", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if code := managers[1].ends(t); r.StatusCode != http.StatusOK || code != 1 {
		t.Errorf("killed on the page: %s %s, exit code %d", r.Status, body, code)
	}
	for _, p := range slices.Concat(managers[:1], []*server{l, bare}) {
		_ = p.Process.Signal(syscall.SIGTERM)
		if code := p.ends(t); code != 0 {
			t.Errorf("on SIGTERM %v ended with %d: %s", p.Args[1:], code, p.stderr)
		}
	}
}
