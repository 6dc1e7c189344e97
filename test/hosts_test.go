//go:build linux

package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"testbed/internal/rapidtest"
	"testbed/internal/testenv"
	"testbed/internal/thread"
	"testbed/record"
	"testbed/shaping/kernel"
	"testbed/shaping/probe"
)

// lab is a cluster: hosts that are network namespaces on one bridge.
//
//	h0, the leader      h1                  h2
//	192.168.77.1        192.168.77.2        192.168.77.3
//	    eth0                eth0                eth0
//	     └───── host0 ─── bridge ─── host1 ──────┘ …
type lab struct {
	bridge netns.NsHandle
	hosts  []netns.NsHandle
	// wrap begins the command line of what runs on a host.
	wrap map[int][]string
}

// tooSlow and tooNarrow are what a run over hosts ends with whose machine is so busy
// that even the network of a lab has no room in the plan, or does not carry it.
const (
	tooSlow   = "but the network between their hosts takes"
	tooNarrow = "by plan, reductions send up to"
)

// labToken is one that a person might choose.
const labToken = "0123456789abcdef0123"

// newLab makes a cluster of that many hosts, whose network carries IP packets of
// that size.
func newLab(t *testing.T, hosts, mtu int) *lab {
	t.Helper()
	testenv.Need(t, kernel.Probe().Supports(kernel.BackendHTB))
	l := &lab{}
	err := inNamespace(netns.None(), func() error { // the switch
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge", MTU: mtu}}
		if err := errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetUp(bridge)); err != nil {
			return err
		}
		var err error
		if l.bridge, err = netns.Get(); err != nil {
			return err
		}
		for k := range hosts {
			host, err := newHost(k, mtu, bridge)
			if err != nil {
				return err
			}
			l.hosts = append(l.hosts, host)
		}
		return nil
	})
	t.Cleanup(func() {
		for _, h := range append(l.hosts, l.bridge) {
			h.Close()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// newHost makes a host's namespace, from within that of the switch.
func newHost(k, mtu int, bridge netlink.Link) (host netns.NsHandle, err error) {
	err = inNamespace(netns.None(), func() (err error) {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err == nil {
			host, err = netns.Get()
		}
		return err
	})
	if err != nil {
		return host, err
	}
	port := fmt.Sprintf("host%d", k)
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: port, MTU: mtu, MasterIndex: bridge.Attrs().Index})
	veth.PeerName, veth.PeerNamespace, veth.PeerMTU = "eth0", netlink.NsFd(host), uint32(mtu)
	if err := errors.Join(netlink.LinkAdd(veth), netlink.LinkSetUp(veth)); err != nil {
		return host, err
	}
	return host, inNamespace(host, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 168, 77, byte(k+1)), Mask: net.CIDRMask(24, 32)}}
		return errors.Join(netlink.AddrAdd(eth0, addr), netlink.LinkSetUp(eth0))
	})
}

// inNamespace calls a function in a network namespace, in a new one if it is none.
func inNamespace(ns netns.NsHandle, do func() error) (err error) {
	thread.Do(func() {
		if ns.IsOpen() {
			err = netns.Set(ns)
		} else {
			_, err = netns.New()
		}
		if err == nil {
			err = do()
		}
	})
	return err
}

// process is a command on a host of a lab.
type process struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
}

// start starts the command on a host, with the token on its standard input.
func (l *lab) start(t *testing.T, host int, id string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: command(t, t.Context(), id, args...)}
	if wrap := l.wrap[host]; wrap != nil {
		dir, env := p.Dir, p.Env
		p.Cmd = exec.CommandContext(t.Context(), wrap[0], append(wrap[1:len(wrap):len(wrap)], args...)...)
		p.Dir, p.Env = dir, env
	}
	p.Stdin, p.Stdout, p.Stderr = strings.NewReader(labToken+"\n"), &p.stdout, &p.stderr
	if err := inNamespace(l.hosts[host], p.Start); err != nil {
		t.Fatal(err)
	}
	return p
}

// startRun starts a run on all hosts: the leader's process and those of the others.
func (l *lab) startRun(t *testing.T, id string, args ...string) (all []*process) {
	t.Helper()
	n := len(l.hosts)
	all = append(all, l.start(t, 0, id, append([]string{"run", "--json", "--out", filepath.Join(t.TempDir(), "run"), "--hosts", fmt.Sprintf("%d@192.168.77.1", n)}, args...)...))
	for k := 1; k < n; k++ {
		all = append(all, l.start(t, k, id, "host", "--index", strconv.Itoa(k), "--count", strconv.Itoa(n), "--leader", "192.168.77.1", "--name", fmt.Sprintf("h%d", k)))
	}
	return all
}

// limit has the way to a host carry no more than that many bits per second.
func (l *lab) limit(t *testing.T, host int, rate uint64) {
	t.Helper()
	err := inNamespace(l.bridge, func() error {
		port, err := netlink.LinkByName(fmt.Sprintf("host%d", host))
		if err != nil {
			return err
		}
		attrs := netlink.QdiscAttrs{LinkIndex: port.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
		return netlink.QdiscAdd(&netlink.Tbf{QdiscAttrs: attrs, Rate: rate / 8, Buffer: 64 << 10, Limit: 64 << 10})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// run plays a run on all hosts. The error is that the machine is too busy for the
// network of a lab.
func (l *lab) run(t *testing.T, args ...string) (sum record.Summary, err error) {
	t.Helper()
	all := l.startRun(t, t.Name(), args...)
	for _, p := range all {
		_ = p.Wait() // the exit code says it
	}
	if text := all[0].stderr.String(); strings.Contains(text, tooSlow) || strings.Contains(text, tooNarrow) {
		return sum, errors.New(text)
	}
	end(t, all, exitInvalid)
	if err := json.Unmarshal(all[0].stdout.Bytes(), &sum); err != nil {
		t.Fatalf("stdout is not JSON: %v\n%s", err, &all[0].stderr)
	}
	return sum, nil
}

func contains(text string, all ...string) bool {
	return !slices.ContainsFunc(all, func(part string) bool { return !strings.Contains(text, part) })
}

// decisions are what the coordinator decided and the bytes that came of it.
func decisions(t *testing.T, dir string) (all []string) {
	t.Helper()
	for _, e := range readEvents(t, dir) {
		switch e.Type {
		case record.Sideline, record.Evict:
			all = append(all, fmt.Sprintf("round %d: %s %s", e.Round, e.Type, e.Node))
		case record.State:
			all = append(all, fmt.Sprintf("round %d: %s", e.Round, e.Hash))
		}
	}
	return all
}

// alone is what came of persistent_straggler on one host, for tests that compare it
// with several: the summary, and what was decided.
var alone struct {
	record.Summary
	decisions []string
}

// playAlone plays it, unless another test has, and it was valid.
func playAlone(t *testing.T) {
	t.Helper()
	if alone.Complete && alone.Fidelity.Verdict == "valid" {
		return
	}
	alone.Summary, _ = once(t, "persistent_straggler", "--policy", "straggler", "--links", "user")
	alone.decisions = decisions(t, alone.Dir)
}

// losesTheSlow is wrong unless persistent_straggler lost the slow worker. That is what
// is left to judge of a run that a busy machine has disturbed: when, and who else was
// late, it may have changed.
func losesTheSlow(sum record.Summary) error {
	if !slices.ContainsFunc(sum.Evicted, slow) || sum.BitIdentical == nil || !*sum.BitIdentical {
		return fmt.Errorf("evicted %q, and want w3 among them; the same bytes: %v", who(sum.Evicted), sum.BitIdentical)
	}
	return nil
}

// ahead wraps the program of a host whose clock is that much ahead of the others'.
func ahead(seconds int) []string {
	return []string{"unshare", "--time", "--monotonic", strconv.Itoa(seconds), "--fork", "--kill-child", program}
}

// TestMeasuredRunOverHosts: on three hosts, whose network carries no full frame and whose
// clocks are far apart, round trips are as planned, the coordinator decides the same
// as on one host, and the workers end with the same bytes, wherever they are.
func TestMeasuredRunOverHosts(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	l := newLab(t, 3, 1450)
	l.wrap = map[int][]string{1: ahead(1000), 2: ahead(-10)}
	testenv.Measure(t, func() func(testenv.Machine) error {
		playAlone(t)
		w := rand.New(rand.NewPCG(rapidtest.Seed(), 0)).Perm(4)
		three, err := l.run(t, "persistent_straggler", "--policy", "straggler", "--place", fmt.Sprintf("w%d/w%d,w%d/w%d", w[0], w[1], w[2], w[3]))
		return func(m testenv.Machine) error {
			if err != nil || !alone.Complete || !three.Complete {
				return fmt.Errorf("complete %v on one host, %v on three: %w", alone.Complete, three.Complete, err)
			}
			if h := three.Hosts; len(h) != 3 || fmt.Sprint(h[0].Nodes, h[1].Nodes) != fmt.Sprintf("[coordinator w%d] [w%d w%d]", w[0], min(w[1], w[2]), max(w[1], w[2])) || h[0].ClockBound != 0 || h[1].ClockBound == 0 {
				return fmt.Errorf("workers %v are on the hosts %v", w, h)
			}
			if text, err := os.ReadFile(filepath.Join(three.Dir, record.QueuesFile)); err != nil || !contains(string(text), `"w0"`, `"w1"`, `"w2"`, `"w3"`) {
				return fmt.Errorf("%s lacks workers, %v", record.QueuesFile, err)
			}
			if m != (testenv.Machine{}) && (alone.Fidelity.Verdict != "valid" || three.Fidelity.Verdict != "valid") {
				return losesTheSlow(three)
			}
			var check probe.Report
			if text, err := os.ReadFile(filepath.Join(three.Dir, "linkcheck.json")); err != nil || json.Unmarshal(text, &check) != nil || !check.OK {
				return fmt.Errorf("round trips are not as planned: %s", text)
			}
			if a, b := alone.decisions, decisions(t, three.Dir); fmt.Sprint(a) != fmt.Sprint(b) || three.Fidelity.Verdict == "invalid" {
				alone.Complete = false // if that was the odd one, the next attempt plays it anew
				return fmt.Errorf("on one host\n%s\nand on three\n%s\n%v", strings.Join(a, "\n"), strings.Join(b, "\n"), three.Fidelity)
			}
			return nil
		}
	})
}

// TestMeasuredAHostDies at any moment: within seconds the run has ended on all hosts, says
// who has gone, and nothing of it is left.
func TestMeasuredAHostDies(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	before := look(t)
	var all sync.WaitGroup
	random := rand.New(rand.NewPCG(rapidtest.Seed(), 1))
	for victim := range 3 { // the leader, too
		l, moment := newLab(t, 3, 1500), time.Duration(random.Int64N(int64(5*time.Second)))
		all.Go(func() { l.loses(t, victim, moment) })
	}
	all.Wait()
	for victim := range 3 {
		expectNothing(t, lost(t, victim), before)
	}
}

// lost marks the processes of a run that loses a host.
func lost(t *testing.T, victim int) string { return fmt.Sprintf("%s-%d", t.Name(), victim) }

// loses plays a run on all hosts, of which one dies so long after all have come.
func (l *lab) loses(t *testing.T, victim int, moment time.Duration) {
	file := roomy(t, scenario(t, 4, "20mbit", ""))
	lengthen(t, file, 100) // it is never over before
	all := l.startRun(t, lost(t, victim), file, "--policy", "baseline")
	dir := all[0].Args[slices.Index(all[0].Args, "--out")+1]
	waitFor(t, func() bool { // all have come
		text, err := os.ReadFile(filepath.Join(dir, record.EnvironmentFile))
		return err == nil && bytes.Contains(text, []byte(`"hosts"`))
	})
	time.Sleep(moment)
	if err := all[victim].Process.Kill(); err != nil {
		t.Error(err)
	}
	killed := time.Now()
	for k, p := range all {
		_ = p.Wait() // the exit code says it
		if code := p.ProcessState.ExitCode(); k != victim && code != exitInvalid {
			t.Errorf("host %d ended with exit code %d after the death of %d\n%s", k, code, victim, &p.stderr)
		}
	}
	if text := all[0].stderr.String(); victim > 0 && !strings.Contains(text, fmt.Sprintf("h%d has not responded", victim)) {
		t.Errorf("the leader does not name host %d:\n%s", victim, text)
	}
	t.Logf("host %d was killed, and %v later the run had ended everywhere", victim, time.Since(killed).Round(time.Millisecond))
}

// TestMeasuredHostsThatWillNotDo end a run before its first frame, with a reason: one that
// allows no sandbox, and a network between them that is slower than the plan, or
// carries less.
func TestMeasuredHostsThatWillNotDo(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	l := newLab(t, 2, 1500)
	end := func(code int, says string, args ...string) {
		t.Helper()
		all := l.startRun(t, t.Name(), args...)
		for _, p := range all {
			_ = p.Wait() // the exit code says it
		}
		if text := all[0].stderr.String(); all[0].ProcessState.ExitCode() != code || !strings.Contains(text, says) {
			t.Errorf("exit code %d, want %d, and %q in\n%s\nthe other host: %s", all[0].ProcessState.ExitCode(), code, says, text, &all[1].stderr)
		}
	}
	file := scenario(t, 2, "5mbit", "")
	amend(t, file, "one_way_delay: 5ms", "one_way_delay: 1us")
	end(exitError, " has a planned delay of 1µs, "+tooSlow, file, "--policy", "baseline")
	l.limit(t, 1, 20e6)
	end(exitError, tooNarrow+" 171 Mbit/s from host", "persistent_straggler", "--policy", "baseline")
	l.wrap = map[int][]string{1: {
		"unshare", "--user", "--map-root-user", "sh", "-c", `echo 0 >/proc/sys/user/max_net_namespaces && exec "$0" "$@"`, program,
	}}
	end(exitUnsupported, "host h1: user.max_net_namespaces is 0; sudo sysctl -w user.max_net_namespaces=15000", "persistent_straggler", "--policy", "baseline")
}
