//go:build linux

package test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/internal/testenv"
	"testbed/record"
)

// asymmetric is a network on which no two directions are alike.
const asymmetric = `
  links:
    default: {rate_up: 50mbit, rate_down: 50mbit, one_way_delay: 2ms}
    nodes: {w0: {rate_up: 10mbit}, w1: {rate_up: 30mbit}}
    pairs:
      - {from: w0, to: w1, one_way_delay: 30ms}
      - {from: w1, to: w0, one_way_delay: 10ms}
      - {from: w0, to: w2, one_way_delay: 2ms, loss: 20%}
`

// links writes a scenario of three workers with these links.
func links(t *testing.T, links string) string {
	t.Helper()
	text := "seed: 7\ninner_steps: 2\ntarget_outer_steps: 3\nhorizon: 5000000\nheartbeat_period: 1000\nheartbeat_miss_threshold: 50\n" +
		"base_latency: 100\nbandwidth_bpus: 10\nstate_bytes: 100\nworkers:\n" +
		"  - {id: 0, inner_step_mean: 1000}\n  - {id: 1, inner_step_mean: 1000}\n  - {id: 2, inner_step_mean: 1000}\n" +
		"real:\n  time_scale: 100" + links
	file := filepath.Join(t.TempDir(), "links.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// needTool skips where a program that a test compares with is not installed.
func needTool(t *testing.T, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	testenv.Need(t, err)
}

func TestNetExitCodes(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	for _, c := range []struct {
		script string
		code   int
	}{
		{"exit 0", 0}, {"exit 5", 5}, {"kill -9 $$", 137}, {"kill -TERM $$", 143},
		{"testbed in w1 sh -c 'exit 6'", 6}, {"testbed in w1 -- sh -c 'exit 7'", 7}, {"testbed in w1 sh -c 'kill -9 $$'", 137},
		{"testbed in w1 no-such-program", 127}, {"testbed in w1 /", 126},
		{"testbed in w7 true", exitUsage}, {"testbed in w1", exitUsage},
	} {
		t.Run(c.script, func(t *testing.T) {
			if r := testbed(t, "net", "homogeneous", "--", "sh", "-c", c.script); r.code != c.code {
				t.Errorf("exit code %d, want %d\n%s%s", r.code, c.code, r.stdout, r.stderr)
			}
		})
	}
	if r := testbed(t, "net", "homogeneous", "--", "no-such-program"); r.code != 127 || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
	expectNothing(t, t.Name(), before)
}

func TestNetPassesFilesAndEnvironment(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	cmd := command(t, t.Context(), t.Name(), "net", "homogeneous", "--", "sh", "-c",
		`cat; echo $TESTBED_NODES $TESTBED_ADDR_COORDINATOR $TESTBED_ADDR_W3; testbed in w3 sh -c 'echo $TESTBED_NODE; ls /sys/class/net; cat' </dev/null; ls /run/netns; echo bad >&2`)
	cmd.Stdin = strings.NewReader("from outside\n")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err, stderr.String())
	}
	want := "from outside\ncoordinator w0 w1 w2 w3 10.0.0.1 10.0.0.5\nw3\neth0\nlo\ncoordinator\nw0\nw1\nw2\nw3\n"
	if string(out) != want || !strings.HasPrefix(stderr.String(), "bad\ntestbed: the network was ") {
		t.Errorf("stdout %q, want %q; stderr %q", out, want, stderr.String())
	}
}

// TestNetNodesAreMachines: what programs take for a machine is the node's own, for root
// and for an ordinary user, on every way into a node. Names lead over links, never to
// the loopback, and memory is shared within a node alone.
func TestNetNodesAreMachines(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	const script = `
echo hub $(ls /sys/class/net) / $(getent hosts w1)
ipcmk -M 4096 >/dev/null
testbed in w0 sh -c 'echo mine >/dev/shm/segment; ipcmk -M 4096 >/dev/null; ipcmk -M 4096 >/dev/null'
testbed in w1 sh -c 'echo $(hostname) $HOSTNAME: $(getent hosts $(hostname)) / $(getent hosts w0) / $(getent hosts coordinator) / $(getent hosts elsewhere) $(ls /sys/class/net)'
echo w1 memory: $(testbed in w1 sh -c 'ls /dev/shm; ipcs -m | grep -c 4096')
echo w0 memory: $(testbed in w0 sh -c 'ls /dev/shm; ipcs -m | grep -c 4096')
echo from w0: $(testbed in w0 testbed in w2 sh -c 'hostname; pwd')
for n in w0 w1 w0; do testbed in $n cat /proc/sys/kernel/random/boot_id; done | uniq | wc -l
list="cd /sys/fs/cgroup && find . -name 'testbed-test-*' -prune -o -print | sort | head -50"
diff <(sh -c "$list") <(testbed in w0 sh -c "$list") && ls /sys/fs/cgroup | grep -vc testbed-test-
`
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	cgroups, err := os.ReadDir("/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	// Groups named testbed-test-… belong to another test, which runs at the same time.
	cgroups = slices.DeleteFunc(cgroups, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "testbed-test-") })
	want := fmt.Sprintf(`hub coordinator lo w0 w1 w2 w3 / 10.0.0.3 w1
w1 w1: 10.0.0.3 w1 / 10.0.0.2 w0 / 10.0.0.1 coordinator / eth0 lo
w1 memory: 0
w0 memory: segment 2
from w0: w2 %s
3
%d
`, dir, len(cgroups))
	for name, credential := range map[string]*syscall.Credential{"as we are": nil, "ordinary user": {Uid: 65534, Gid: 65534}} {
		t.Run(name, func(t *testing.T) {
			if credential != nil {
				needRoot(t)
			}
			cmd := command(t, t.Context(), t.Name(), "net", "homogeneous", "--", "bash", "-c", script)
			cmd.Dir, cmd.Env = dir, append(cmd.Environ(), "HOSTNAME=outside")
			if credential != nil {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
			}
			out, err := cmd.CombinedOutput()
			var got string
			for line := range strings.Lines(string(out)) {
				if !strings.HasPrefix(line, "testbed: ") {
					got += strings.Join(strings.Fields(line), " ") + "\n"
				}
			}
			if err != nil || got != want {
				t.Errorf("%v\n%s\nwant\n%s", err, out, want)
			}
		})
	}
}

// TestNetAt: the program itself runs in a node, and others reach it there by its name.
func TestNetAt(t *testing.T) {
	needSandbox(t)
	needTool(t, "python3")
	t.Parallel()
	r := testbed(t, "net", "homogeneous", "--at", "coordinator", "--", "python3", "-c", `
import socket, subprocess
s = socket.create_server(("", 5000))
c = "import socket; s = socket.create_connection(('coordinator', 5000)); s.sendall(socket.gethostname().encode())"
subprocess.Popen(["testbed", "in", "w2", "python3", "-c", c])
peer, address = s.accept()
print(peer.recv(99).decode(), address[0], socket.gethostbyname(socket.gethostname()))
`)
	if r.code != 0 || r.stdout != "w2 10.0.0.4 10.0.0.1\n" {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	if r := testbed(t, "net", "homogeneous", "--at", "w7", "--", "true"); r.code != exitUsage {
		t.Errorf("exit code %d for a node that is none", r.code)
	}
}

// TestNetTellsWhatNoLinkCarries: links carry IPv4 from one node to one other. What a
// program sends otherwise is counted, on every backend.
func TestNetTellsWhatNoLinkCarries(t *testing.T) {
	needSandbox(t)
	needTool(t, "python3")
	t.Parallel()
	for _, backend := range []string{"user", "htb"} {
		r := testbed(t, "net", "homogeneous", "--links", backend, "--", "testbed", "in", "w0", "python3", "-c", `
import socket
def tries(s, to):
    try: s.sendto(b"x", to)
    except OSError: pass
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("10.0.0.2"))
for to in ["10.0.255.255", "10.0.255.255", "239.1.1.1", "192.0.2.1", "127.0.0.1"]: tries(s, (to, 9))
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for to in ["2001:db8::1", "::1"]: tries(s, (to, 9))
import os
if os.geteuid() == 0: # others may send no frames of their own
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.bind(("eth0", 0))
    mac = s.getsockname()[4]
    for other in [2, 3, 4]:
        s.send(b"\xff" * 6 + mac + b"\x08\x06" + b"\0\1\x08\0\6\4\0\1" + mac + bytes([10, 0, 0, 2]) + bytes(6) + bytes([10, 0, 0, other]))
`)
		arp := ""
		if os.Geteuid() == 0 {
			arp = "3 ARP packets, "
		}
		if want := "testbed: undelivered packets of w0: 2 broadcast packets, 1 multicast packet, " + arp + "1 attempt to send by IPv6, 1 attempt to send beyond the network; "; r.code != 0 || strings.Count(r.stderr, "links deliver only IPv4") != 1 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: exit code %d\n%s", backend, r.code, r.stderr)
		}
	}
	if r := testbed(t, "net", "homogeneous", "--", "sh", "-c", "testbed in w0 getent hosts w1"); strings.Contains(r.stderr, "links deliver only IPv4") {
		t.Errorf("nothing was sent: %s", r.stderr)
	}
}

// TestRunTellsPlannedDrops: what the links of a run drop as planned is in its text, its
// JSON and its report, by node, on every backend, and no reason to doubt it.
func TestRunTellsPlannedDrops(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	file := links(t, `
  links:
    pairs: [{from: w0, to: w1, loss: 30%}]
`)
	for _, backend := range []string{"user", "htb"} {
		dir := filepath.Join(t.TempDir(), "run")
		r := testbed(t, "run", file, "--policy", "baseline", "--links", backend, "--out", dir)
		if r.code != 0 && r.code != exitInvalid || !regexp.MustCompile(`(?m)^the links of w0 dropped, as planned, (?:.*[^0-9])?[1-9][0-9]* packets? on paths to other nodes`).MatchString(r.stdout) {
			t.Fatalf("%s: exit code %d\n%s%s", backend, r.code, r.stdout, r.stderr)
		}
		sum, _, err := record.Dir(dir).ReadSummary()
		if err != nil {
			t.Fatal(err)
		}
		k := slices.IndexFunc(sum.PlannedDrops, func(d record.LinkDrops) bool { return d.Node == "w0" })
		if k < 0 || sum.PlannedDrops[k].Path == 0 {
			t.Errorf("%s: %+v", backend, sum.PlannedDrops)
		}
		if r := testbed(t, "report", dir); r.code != 0 {
			t.Fatalf("%s: exit code %d\n%s", backend, r.code, r.stderr)
		}
		page, err := os.ReadFile(filepath.Join(dir, "report.html"))
		if err != nil || !strings.Contains(string(page), "the links of w0 dropped, as planned, ") {
			t.Errorf("%s: the report does not say so (%v)", backend, err)
		}
	}
}

// TestNetTellsPlannedDrops: what links drop as planned is counted by node, whoever
// keeps the queues: beyond the queue of a receiver, and on a lossy path.
func TestNetTellsPlannedDrops(t *testing.T) {
	needSandbox(t)
	needTool(t, "python3")
	t.Parallel()
	file := links(t, `
  links:
    nodes: {w1: {rate_down: 1mbit}}
    pairs: [{from: w0, to: w2, loss: 50%}]
`)
	for _, backend := range []string{"user", "htb"} {
		dir := t.TempDir()
		r := testbed(t, "net", file, "--links", backend, "--out", dir, "--", "testbed", "in", "w0", "python3", "-c", `
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for k in range(1000):
    s.sendto(bytes(1400), (socket.gethostbyname("w1"), 9))
    s.sendto(bytes(14), (socket.gethostbyname("w2"), 9))
    if k % 20 == 0: time.sleep(0.005)
time.sleep(0.5)
`)
		if r.code != 0 || !strings.Contains(r.stderr, " packets at the full queue of rate_down") || !strings.Contains(r.stderr, "testbed: the links of w0 dropped, as planned, ") {
			t.Errorf("%s: exit code %d\n%s", backend, r.code, r.stderr)
		}
		var record struct {
			Drops []struct {
				Node           string
				Up, Down, Path uint64
			}
		}
		text, err := os.ReadFile(filepath.Join(dir, "fidelity.json"))
		if err == nil {
			err = json.Unmarshal(text, &record)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range record.Drops {
			// The kernel tells senders ICMP that nobody listens at w2 and w1: few, and never
			// dropped.
			switch {
			case d.Node == "w0" && d.Up == 0 && d.Down == 0 && 350 < d.Path && d.Path < 650:
			case d.Node == "w1" && d.Up == 0 && 500 < d.Down && d.Down <= 1000 && d.Path == 0:
			default:
				t.Errorf("%s: drops %+v", backend, d)
			}
		}
		if len(record.Drops) != 2 {
			t.Errorf("%s: drops %+v, want those of w0 and w1", backend, record.Drops)
		}
	}
}

// TestNetInterfaceDownAndUp: a program may take its node's interface down and up, and
// reaches the others afterwards, and they it, as before.
func TestNetInterfaceDownAndUp(t *testing.T) {
	needSandbox(t)
	needTool(t, "ip")
	needTool(t, "ping")
	t.Parallel()
	const look = `testbed in w1 sh -c 'ip neigh; ip route; ip addr show dev eth0; tc qdisc show dev eth0' | sed 's/ref.*//' | sort`
	r := testbed(t, "net", "homogeneous", "--links", "htb", "--", "sh", "-c",
		`before=$(`+look+`); for k in 1 2; do testbed in w1 sh -c "ip link set eth0 down; ip link set eth0 up"; done
for k in $(seq 100); do [ "$(`+look+`)" = "$before" ] && break; sleep 0.1; done
[ "$(`+look+`)" = "$before" ] && testbed in w1 ping -q -c 1 -W 20 w2 && testbed in w2 ping -q -c 1 -W 20 w1`)
	if r.code != 0 {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// TestMeasuredNetTellsWhatTheNetworkWasWorth: a rate that somebody has changed behind our
// back is found out, and with --strict it makes the exit code.
func TestMeasuredNetTellsWhatTheNetworkWasWorth(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	needTool(t, "tc")
	needTool(t, "ping")
	dir := t.TempDir()
	r := testbed(t, "net", "homogeneous", "--links", "htb", "--strict", "--out", dir, "--", "sh", "-c",
		"for c in 1:1 1:2 1:3 1:4 1:5; do tc -n w0 class change dev eth0 classid $c htb rate 1mbit ceil 1mbit; done; testbed in w0 ping -q -l 300 -S 4000000 -c 400 -i 0.002 -s 1400 $TESTBED_ADDR_W1; true")
	if r.code != exitInvalid || !strings.Contains(r.stderr, "testbed: the network was invalid: ") || !strings.Contains(r.stderr, "w0 sent at ") {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
	text, err := os.ReadFile(filepath.Join(dir, record.FidelityFile))
	if err != nil || !strings.Contains(string(text), `"busy_link": "w0"`) {
		t.Errorf("the record: %v\n%s", err, text)
	}
}

// TestNetInterrupt: what the user's program makes of a signal decides, and the
// network goes with it.
func TestNetInterrupt(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	for _, c := range []struct {
		signal syscall.Signal
		script string
		code   int
	}{
		{syscall.SIGINT, "trap 'exit 8' INT; echo up; sleep 60 & wait", 8},
		{syscall.SIGTERM, "echo up; exec sleep 60", 143},
	} {
		cmd := command(t, t.Context(), t.Name(), "net", "homogeneous", "--", "sh", "-c", c.script)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // an exit code
		if got := cmd.ProcessState.ExitCode(); got != c.code {
			t.Errorf("%q after %v: exit code %d, want %d", c.script, c.signal, got, c.code)
		}
	}
	expectNothing(t, t.Name(), before)
}

// TestNetTerminal talks to a shell on a terminal: it has job control, Ctrl-C
// ends what runs in the foreground only, and the window's size is passed on.
func TestNetTerminal(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	testenv.Need(t, err)
	defer terminal.Close()
	fd := int(terminal.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 99}); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := command(t, ctx, t.Name(), "net", "homogeneous", "--", "sh", "-i")
	cmd.Env = append(cmd.Env, "PS1=ready> ", "ENV=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := terminal.Read(buf)
			if err != nil {
				close(read)
				return
			}
			read <- string(buf[:n])
		}
	}()
	seen := ""
	expect := func(want string) {
		t.Helper()
		timeout := time.After(time.Minute)
		for !strings.Contains(seen, want) {
			select {
			case s := <-read:
				seen += s
			case <-timeout:
				t.Fatalf("waited for %q in vain, seen %q", want, seen)
			}
		}
		seen = seen[strings.Index(seen, want)+len(want):]
	}
	send := func(s string) {
		if _, err := terminal.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	expect("ready> ")
	send("stty size\n")
	expect("33 99")
	const job = "sh -c 'echo go$((1))ing; exec sleep 100'\n" // its echo is not what it says
	send(job)
	expect("go1ing")
	send("\x03")
	expect("ready> ")
	send("echo code $?\n")
	expect("code 130")
	send(job)
	expect("go1ing")
	send("\x1a")
	expect("topped")
	expect("ready> ")
	send("fg\n")
	expect("sleep 100")
	time.Sleep(2 * time.Second) // for the shell to give it the terminal
	send("\x03")
	expect("ready> ")
	send("exit 4\n")
	go func() {
		for range read { // what is left
		}
	}()
	_ = cmd.Wait() // an exit code
	if code := cmd.ProcessState.ExitCode(); code != 4 {
		t.Errorf("exit code %d, want 4", code)
	}
	expectNothing(t, t.Name(), before)
}

func TestNetPcap(t *testing.T) {
	needSandbox(t)
	needTool(t, "ping")
	t.Parallel()
	dir := t.TempDir()
	cmd := command(t, t.Context(), t.Name(), "net", "homogeneous", "--pcap", "w0", "--pcap", "w2", "--", "sh", "-c",
		"testbed in w0 ping -q -c 4 -i 0.05 $TESTBED_ADDR_W1")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, frames := range map[string]int{"w0": 8, "w2": 0} {
		data, err := os.ReadFile(filepath.Join(dir, name+".pcap"))
		if err != nil {
			t.Fatal(err)
		}
		if len(data) != 24+frames*(16+98) || binary.LittleEndian.Uint32(data) != 0xa1b23c4d {
			t.Errorf("%s.pcap has %d bytes, want %d frames of 98", name, len(data), frames)
		}
		if frames == 0 {
			continue
		}
		least, asked := time.Hour, map[uint16]time.Duration{} // by sequence number, RFC 792
		for note := range slices.Chunk(data[24:], 16+98) {
			at := time.Duration(binary.LittleEndian.Uint32(note))*time.Second + time.Duration(binary.LittleEndian.Uint32(note[4:]))
			icmp := note[16+14+20:]
			switch seq := binary.BigEndian.Uint16(icmp[6:]); icmp[0] {
			case 8:
				asked[seq] = at
			case 0:
				least = min(least, at-asked[seq])
			}
		}
		if least < 20*time.Millisecond { // on a busy machine it is longer
			t.Errorf("the capture shows a round trip of %v, want 20 ms", least)
		}
	}
}

// TestMeasuredNetAgreesWithPing compares the plan with what ping says.
func TestMeasuredNetAgreesWithPing(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	needTool(t, "ping")
	file := links(t, asymmetric)
	testenv.Measure(t, func() func(testenv.Machine) error {
		rtts, lost := askPing(t, file)
		return func(m testenv.Machine) error {
			for k, want := range []float64{40, 4} {
				// The least, because the machine may be busy.
				if got := rtts[k]; got < want || got > want+2+1000*m.Late.Seconds() {
					return fmt.Errorf("ping saw a round trip of %v ms, want %v", got, want)
				}
			}
			// 99.9 % of all samples of 300 lie in 20 ± 7.6.
			if lost[0] != 0 || lost[1] < 12.4 || lost[1] > 27.6 {
				return fmt.Errorf("ping saw losses of %v %%, want 0 and 20", lost)
			}
			return nil
		}
	})
}

// askPing returns the least round trips that it saw, in milliseconds, and the
// losses in per cent: from w0 to w1, and to w2.
func askPing(t *testing.T, file string) (least, losses [2]float64) {
	t.Helper()
	r := testbed(t, "net", file, "--", "sh", "-c", `testbed in w0 ping -q -c 20 -i 0.05 $TESTBED_ADDR_W1; testbed in w0 ping -q -c 300 -i 0.01 $TESTBED_ADDR_W2; true`)
	rtts := regexp.MustCompile(`rtt min/avg/max/mdev = ([\d.]+)/`).FindAllStringSubmatch(r.stdout, -1)
	lost := regexp.MustCompile(`([\d.]+)% packet loss`).FindAllStringSubmatch(r.stdout, -1)
	if len(rtts) != 2 || len(lost) != 2 {
		t.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	for k := range 2 {
		least[k], losses[k] = number(t, rtts[k][1]), number(t, lost[k][1])
	}
	return least, losses
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestMeasuredNetAgreesWithIperf3 compares the plan with what iperf3 says. Rates count
// Ethernet frames: of 1514 bytes TCP with timestamps carries 1448. The queues hold
// more than a round trip's worth, or reno, which halves its window, would leave
// the wire idle.
func TestMeasuredNetAgreesWithIperf3(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	needTool(t, "iperf3")
	file := links(t, strings.Replace(asymmetric, "rate_down: 50mbit", "rate_down: 50mbit, queue: 80ms", 1))
	testenv.Measure(t, func() func(testenv.Machine) error {
		got := askIperf3(t, file)
		return func(m testenv.Machine) error {
			for k, want := range []float64{10e6 * 1448 / 1514, 30e6 * 1448 / 1514} {
				// A busy machine makes TCP slower, and never faster.
				if got[k] > 1.02*want || got[k] < 0.95*want*(1-m.Taken) {
					return fmt.Errorf("iperf3 saw %.2f Mbit/s, want %.2f", got[k]/1e6, want/1e6)
				}
			}
			return nil
		}
	})
}

// askIperf3 returns what it saw in bits per second, there and back.
func askIperf3(t *testing.T, file string) (rates [2]float64) {
	t.Helper()
	r := testbed(t, "net", file, "--", "sh", "-c", `
		testbed in w1 iperf3 -s -D; sleep 0.5
		testbed in w0 iperf3 -J -c $TESTBED_ADDR_W1 -t 3 -O 1
		testbed in w0 iperf3 -J -c $TESTBED_ADDR_W1 -t 3 -O 1 -R`)
	dec := json.NewDecoder(strings.NewReader(r.stdout))
	for k := range rates {
		var result struct {
			End struct {
				Received struct {
					BitsPerSecond float64 `json:"bits_per_second"`
				} `json:"sum_received"`
			}
		}
		if err := dec.Decode(&result); err != nil {
			t.Fatalf("%v\nexit code %d\n%s%s", err, r.code, r.stdout, r.stderr)
		}
		rates[k] = result.End.Received.BitsPerSecond
	}
	return rates
}

var echo = regexp.MustCompile(`icmp_seq=(\d+) `)

// answered returns the numbers of the echoes that came back.
func answered(t *testing.T, file, node, to string, count int) []string {
	t.Helper()
	script := fmt.Sprintf("testbed in %s ping -i 0.02 -c %d -W 1 $TESTBED_ADDR_%s", node, count, strings.ToUpper(to))
	r := testbed(t, "net", file, "--", "sh", "-c", script)
	var numbers []string
	for _, m := range echo.FindAllStringSubmatch(r.stdout, -1) {
		numbers = append(numbers, m[1])
	}
	if len(numbers) == 0 {
		t.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	return numbers
}

// TestNetSeed loses the same packets of a stream twice, and others with another
// seed.
func TestNetSeed(t *testing.T) {
	needSandbox(t)
	needTool(t, "ping")
	t.Parallel()
	file := links(t, asymmetric)
	first, second := answered(t, file, "w0", "w2", 100), answered(t, file, "w0", "w2", 100)
	if !slices.Equal(first, second) {
		t.Errorf("the same seed gave\n%v and\n%v", first, second)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "seed: 7", "seed: 8", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if other := answered(t, file, "w0", "w2", 100); slices.Equal(first, other) {
		t.Error("another seed lost the same packets")
	}
}

// TestMeasuredNetCarriesOutInjectsOfLinks cuts a path, one way, for the second of three
// seconds of pings.
func TestMeasuredNetCarriesOutInjectsOfLinks(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	needTool(t, "ping")
	file := links(t, "\n  links: {default: {one_way_delay: 1ms}}\n  injects:\n    - {op: Cut, at: 10000, until: 20000, from: w0, to: w1}\n")
	answersBetween(t, file, 75, 125)
}

// answersBetween wants so many of 150 echoes from w0 to w1. A ping that is held
// up sends fewer of them while the link is there, or more.
func answersBetween(t *testing.T, file string, least, most float64) {
	t.Helper()
	testenv.Measure(t, func() func(testenv.Machine) error {
		got := len(answered(t, file, "w0", "w1", 150))
		return func(m testenv.Machine) error {
			if float64(got) < least-150*m.Taken/2 || float64(got) > most+150*m.Taken/2 || got == 150 {
				return fmt.Errorf("%d of 150 echoes came back, want %v to %v", got, least, most)
			}
			return nil
		}
	})
}

// TestMeasuredNetFlaps cuts both ways of a pair for half of the time.
func TestMeasuredNetFlaps(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	needTool(t, "ping")
	file := links(t, "\n  links: {default: {one_way_delay: 1ms}}\n  injects:\n    - {op: Flap, at: 1000, between: [w0, w1], period: 4000, down: 2000}\n")
	answersBetween(t, file, 55, 95)
}

// TestNetRefuses: a program is told at once that a node cannot be reached,
// where a cut would let it wait.
func TestNetRefuses(t *testing.T) {
	needSandbox(t)
	needTool(t, "ping")
	t.Parallel()
	file := links(t, "\n  links: {default: {one_way_delay: 1ms}}\n  injects:\n    - {op: Refuse, at: 0, id: 1}\n")
	// The program may begin before the inject is in place, and the inject come between an
	// echo and its answer.
	for _, pair := range [][2]string{{"w0", "W1"}, {"w1", "COORDINATOR"}} {
		r := testbed(t, "net", file, "--", "sh", "-c", "for k in $(seq 100); do testbed in "+pair[0]+" ping -c 1 -W 5 $TESTBED_ADDR_"+pair[1]+" >said 2>&1; cat said; grep -q 'No route' said && exit 1; sleep 0.1; done")
		if !strings.Contains(r.stdout, "No route to host") || r.code != 1 {
			t.Errorf("%v: exit code %d\n%s%s", pair, r.code, r.stdout, r.stderr)
		}
	}
	r := testbed(t, "net", file, "--", "sh", "-c", "while testbed in w0 ping -c 1 -W 5 $TESTBED_ADDR_W1 >/dev/null 2>&1; do sleep 0.1; done; testbed in w0 ping -c 1 -W 5 $TESTBED_ADDR_W2 2>&1")
	if r.code != 0 && r.code != exitInvalid { // a busy machine is no fault of the link's
		t.Errorf("others are affected: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}

// TestMeasuredTCPFillsLongPaths: one TCP connection in a node fills a long path whose
// queue allows it, for root and for an ordinary user.
func TestMeasuredTCPFillsLongPaths(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	needTool(t, "iperf3")
	file := links(t, `
  links: {default: {rate_up: 200mbit, rate_down: 200mbit, one_way_delay: 100ms, queue: 200ms}}
`)
	if err := os.Chmod(filepath.Dir(filepath.Dir(file)), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, credential := range map[string]*syscall.Credential{"as we are": nil, "ordinary user": {Uid: 65534, Gid: 65534}} {
		if credential != nil && os.Geteuid() != 0 {
			continue
		}
		testenv.Measure(t, func() func(testenv.Machine) error {
			cmd := command(t, t.Context(), t.Name(), "net", file, "--links", "user", "--", "sh", "-c",
				"testbed in w1 iperf3 -s -1 >/dev/null & sleep 1; testbed in w0 iperf3 -c w1 -t 6 -O 4 -J")
			cmd.Dir, cmd.Env = "/", append(cmd.Environ(), "TMPDIR=/tmp") // iperf3 makes files
			if credential != nil {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
			}
			out, err := cmd.Output()
			var result struct {
				End struct {
					Received struct {
						Rate float64 `json:"bits_per_second"`
					} `json:"sum_received"`
				}
			}
			if err == nil {
				err = json.Unmarshal(out, &result)
			}
			if err != nil || result.End.Received.Rate == 0 {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
			// The kernel's default windows end at 74 Mbit/s.
			rate := result.End.Received.Rate / 1e6
			return func(m testenv.Machine) error {
				if rate < 120*(1-m.Taken) {
					return fmt.Errorf("%s: one connection got %.0f of 200 Mbit/s", name, rate)
				}
				return nil
			}
		})
	}
}
