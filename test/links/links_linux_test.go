package links

// The network of these tests, the same on every backend:
//
//	w0 ─ eth0 ══╗          ╔══ eth0 ─ w2
//	            ╠══ hub ═══╣
//	w1 ─ eth0 ══╝          ╚══ eth0 ─ w3
//
//	══  veth pair; with htb HTB at both ends, with netem HFSC: rate_up in the node,
//	    rate_down in the hub
//	hub router on packet sockets (user, with the rates, and htb) or bridge with
//	    netem leaves: one-way delay, jitter and loss of each ordered pair

import (
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"testbed/internal/testenv"
	"testbed/shaping"
	"testbed/shaping/kernel"
)

var fourNodes = []string{"w0", "w1", "w2", "w3"}

// onEveryBackend is for what rates have to do with, onBothBackends for the rest.
func onEveryBackend(t *testing.T, f func(t *testing.T, backend kernel.Backend)) {
	onBothBackends(t, f)
	t.Run("htb", func(t *testing.T) { needNamespaces(t); f(t, kernel.BackendHTB) })
}

func onBothBackends(t *testing.T, f func(t *testing.T, backend kernel.Backend)) {
	t.Run("user", func(t *testing.T) { needNamespaces(t); f(t, kernel.BackendUser) })
	t.Run("netem", func(t *testing.T) { needNetem(t); f(t, kernel.BackendNetem) })
}

func ms(n float64) *shaping.Duration {
	return new(shaping.Duration(n * float64(time.Millisecond)))
}

func rates(mbit int64) shaping.Access {
	return shaping.Access{RateUp: new(shaping.Rate(mbit * 1e6)), RateDown: new(shaping.Rate(mbit * 1e6))}
}

// ladder has another one-way delay for every direction of a pair.
func ladder() shaping.Spec {
	return shaping.Spec{
		Default: shaping.Properties{Access: rates(100), Path: shaping.Path{OneWayDelay: ms(2)}},
		Nodes:   map[string]shaping.Access{"w3": {RateUp: new(shaping.Rate(24e6))}},
		Pairs: []shaping.Pair{
			{From: "w0", To: "w1", Path: shaping.Path{OneWayDelay: ms(1)}},
			{From: "w1", To: "w0", Path: shaping.Path{OneWayDelay: ms(10)}},
			{From: "w0", To: "w2", Path: shaping.Path{OneWayDelay: ms(10)}},
			{From: "w2", To: "w0", Path: shaping.Path{OneWayDelay: ms(50)}},
			{From: "w3", To: "w0", Path: shaping.Path{OneWayDelay: ms(30), Jitter: ms(1), Loss: new(shaping.Probability(0.01))}},
		},
	}
}

func TestReadBackFindsThePlanAndNothingElse(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, backend kernel.Backend) {
		newLab(t, backend, ladder(), fourNodes, func(l *lab) {
			differences, err := l.net.ReadBack()
			if err != nil || len(differences) != 0 {
				t.Errorf("a fresh network differs from its plan: %v %v", differences, err)
			}
			if backend == kernel.BackendUser {
				return
			}
			tamper := func(args ...string) {
				if err := l.in("w1", func() error { return run("tc", args...) }); err != nil {
					t.Error(err)
				}
			}
			if _, err := exec.LookPath("tc"); err != nil {
				t.Log("without tc(8) the other half of the test is left out")
				return
			}
			was, is := "missing \"class 1:1 rate 12500000 B/s", "not planned: \"class 1:1 rate 6250000 B/s"
			if backend == kernel.BackendNetem {
				was, is = "missing \"class 1:1 share 12500000 B/s limit 12500000 B/s", "not planned: \"class 1:1 share 6250000 B/s limit 6250000 B/s"
				tamper("class", "change", "dev", "eth0", "parent", "1:0", "classid", "1:1", "hfsc", "ls", "rate", "50mbit", "ul", "rate", "50mbit")
			} else {
				tamper("class", "change", "dev", "eth0", "classid", "1:1", "htb", "rate", "50mbit", "quantum", "1514")
			}
			differences, err = l.net.ReadBack()
			text := fmt.Sprint(differences)
			if err != nil || len(differences) != 2 || !strings.Contains(text, was) || !strings.Contains(text, is) {
				t.Errorf("halving the rate of w1 shows as %v %v", differences, err)
			}
			if backend != kernel.BackendNetem {
				return
			}
			if err := run("tc", "filter", "del", "dev", "w1", "parent", "ffff:"); err != nil {
				t.Error(err)
			}
			differences, err = l.net.ReadBack()
			text = fmt.Sprint(differences)
			if err != nil || len(differences) != 3 || !strings.Contains(text, "missing \"incoming packets are redirected to the interface with index ") {
				t.Errorf("a way around the paths shows as %v %v", differences, err)
			}
		})
	})
}

// TestBridgeIsForPlainPlans builds one that a bridge can be, and refuses others.
func TestBridgeIsForPlainPlans(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	plain := shaping.Spec{Default: shaping.Properties{Access: rates(50)}}
	newLab(t, kernel.BackendBridge, plain, fourNodes, func(l *lab) {
		differences, err := l.net.ReadBack()
		if err != nil || len(differences) != 0 {
			t.Errorf("a fresh network differs from its plan: %v %v", differences, err)
		}
		if rtts := l.rtts("w0", "w1", 3, 0); len(rtts) != 3 {
			t.Errorf("%d of 3 echoes came back", len(rtts))
		}
		if err := l.net.Change(l.plan); err == nil {
			t.Error("a bridge takes a change")
		}
	})
	plan, err := shaping.NewPlan(ladder(), fourNodes, 0, 42)
	if err != nil {
		t.Fatal(err)
	}
	testenv.InNewNamespace(t, func() {
		if _, err := kernel.Build(plan, kernel.BackendBridge, nil); err == nil || !strings.Contains(err.Error(), "cannot delay or lose packets") {
			t.Errorf("a bridge that delays: %v", err)
		}
	})
}

// TestMeasuredBridgeLimitsGoodput: its links have rates.
func TestMeasuredBridgeLimitsGoodput(t *testing.T) {
	testenv.Measured(t)
	needNamespaces(t)
	newLab(t, kernel.BackendBridge, shaping.Spec{Default: shaping.Properties{Access: rates(50)}}, fourNodes, func(l *lab) {
		testenv.Measure(l, func() func(testenv.Machine) error {
			got, err := l.goodput("w1", "w2", 500*time.Millisecond)
			return func(m testenv.Machine) error {
				if err == nil && (got > 1.1*50e6 || got < 0.85*50e6*(1-m.Taken)) {
					err = fmt.Errorf("%v bit/s over links of 50 Mbit/s", got)
				}
				return err
			}
		})
	})
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

func TestMeasuredRoundTripIsTheSumOfBothOneWayDelays(t *testing.T) {
	testenv.Measured(t)
	onBothBackends(t, func(t *testing.T, backend kernel.Backend) {
		newLab(t, backend, ladder(), fourNodes, func(l *lab) {
			for _, c := range []struct {
				from, to string
				planned  time.Duration
			}{{"w0", "w1", 11 * time.Millisecond}, {"w2", "w0", 60 * time.Millisecond}, {"w1", "w2", 4 * time.Millisecond}} {
				testenv.Measure(l, func() func(testenv.Machine) error {
					all := l.rtts(c.from, c.to, 15, time.Millisecond)
					slices.Sort(all)
					return func(m testenv.Machine) error {
						if len(all) == 0 {
							return fmt.Errorf("%s–%s: no round trip", c.from, c.to)
						}
						median := all[len(all)/2]
						l.Logf("%s–%s: planned %v, min %v, median %v, max %v", c.from, c.to, c.planned, all[0], median, all[len(all)-1])
						// The kernel may send by up to a tick of netem early, but
						// never early enough to matter.
						if all[0] < c.planned-100*time.Microsecond || median > c.planned+5*time.Millisecond+m.Late {
							return fmt.Errorf("%s–%s: round trips of %v to %v, median %v; planned %v", c.from, c.to, all[0], all[len(all)-1], median, c.planned)
						}
						return nil
					}
				})
			}
		})
	})
}

// TestMeasuredRateLimitsGoodput bounds TCP's goodput: the headers of a full frame
// leave 1448 of 1514 bytes, 95.6 %.
func TestMeasuredRateLimitsGoodput(t *testing.T) {
	testenv.Measured(t)
	onEveryBackend(t, func(t *testing.T, backend kernel.Backend) {
		spec := shaping.Spec{
			Default: shaping.Properties{Access: rates(20), Path: shaping.Path{OneWayDelay: ms(2)}},
			Nodes:   map[string]shaping.Access{"w1": {RateUp: new(shaping.Rate(5e6))}},
			Pairs:   []shaping.Pair{{From: "w2", To: "w3", Path: shaping.Path{Rate: new(shaping.Rate(8e6))}}},
		}
		newLab(t, backend, spec, fourNodes, func(l *lab) {
			for _, c := range []struct {
				from, to string
				rate     float64
			}{{"w0", "w1", 20e6}, {"w1", "w0", 5e6}, {"w2", "w3", 8e6}} {
				testenv.Measure(l, func() func(testenv.Machine) error {
					bits, err := l.goodput(c.from, c.to, 1200*time.Millisecond)
					share := bits / c.rate
					l.Logf("%s–%s: %.1f of %.0f Mbit/s (%.1f %%)", c.from, c.to, bits/1e6, c.rate/1e6, 100*share)
					return func(m testenv.Machine) error {
						if err == nil && (share < 0.85*(1-m.Taken) || share > 1.0) {
							err = fmt.Errorf("%s–%s: %.1f %% of the rate", c.from, c.to, 100*share)
						}
						return err
					}
				})
			}
			if backend == kernel.BackendUser {
				if up, _ := l.board.Load(l.plan.Index("w1")); up.Bytes < 500e3 {
					t.Errorf("w1 sent more than half a megabyte, but its link counts %+v", up)
				}
				return
			}
			counts, err := l.net.Counters()
			queues := 2 // for each ordered pair: the sender's, the receiver's
			if backend == kernel.BackendNetem {
				queues++ // and the path's
			}
			if err != nil || len(counts) != queues*4*3 {
				t.Errorf("counters: %v %v", counts, err)
			}
			for _, c := range counts {
				if c.Node == "w1" && !c.Down && c.Peer == "w0" && c.Bytes < 500e3 {
					t.Errorf("w1 sent w0 more than half a megabyte, but its queue counts %+v", c)
				}
			}
		})
	})
}

// goodput is what TCP delivers, in bits per second, after a start of 0.3 s.
func (l *lab) goodput(from, to string, length time.Duration) (float64, error) {
	client, server, err := l.tcp(from, to)
	if err != nil {
		return 0, err
	}
	defer server.Close()
	defer client.Close()
	end := time.Now().Add(length + 300*time.Millisecond)
	_ = client.SetDeadline(end)
	_ = server.SetDeadline(end)
	go func() {
		buf := make([]byte, 64<<10)
		for {
			if _, err := client.Write(buf); err != nil {
				return
			}
		}
	}()
	if _, err := io.CopyN(io.Discard, server, 1); err != nil {
		return 0, err
	}
	time.Sleep(300 * time.Millisecond)
	drained := make([]byte, 8<<20)
	_, _ = server.Read(drained) // what has gathered so far does not count
	start := time.Now()
	n, _ := io.Copy(io.Discard, server) // ends by the deadline
	return float64(n) * 8 / time.Since(start).Seconds(), nil
}

func TestLossIsBinomialAndOrderIsKept(t *testing.T) {
	t.Parallel()
	onBothBackends(t, func(t *testing.T, backend kernel.Backend) {
		const sent, loss = 3000, 0.1
		spec := shaping.Spec{Pairs: []shaping.Pair{{From: "w0", To: "w1", Path: shaping.Path{
			OneWayDelay: ms(5), Jitter: ms(3), Loss: new(shaping.Probability(loss)),
		}}}}
		newLab(t, backend, spec, fourNodes, func(l *lab) {
			from, to := l.udp("w0"), l.udp("w1")
			if from == nil || to == nil {
				return
			}
			defer from.Close()
			go func() {
				defer to.Close()
				peer := to.LocalAddr().(*net.UDPAddr).AddrPort()
				for i := range sent {
					_, _ = from.WriteToUDPAddrPort([]byte{byte(i >> 8), byte(i)}, peer)
					if i%10 == 9 {
						time.Sleep(time.Millisecond)
					}
				}
				time.Sleep(3 * time.Second) // the last are under way
			}()
			got, last, buf := 0, -1, make([]byte, 16)
			for {
				if n, _, err := to.ReadFromUDPAddrPort(buf); err != nil || n < 2 {
					break // closed after the last packet
				}
				i := int(buf[0])<<8 | int(buf[1])
				if i <= last {
					t.Errorf("packet %d arrived after packet %d", i, last)
				}
				got, last = got+1, i
			}
			lost, sigma := float64(sent-got), math.Sqrt(sent*loss*(1-loss))
			t.Logf("lost %.0f of %d", lost, sent)
			if math.Abs(lost-sent*loss) > 4*sigma {
				t.Errorf("lost %.0f of %d packets, want %.0f ± %.0f", lost, sent, sent*loss, 4*sigma)
			}
		})
	})
}

func TestSixtyFourNodesComeAndGo(t *testing.T) {
	needNamespaces(t)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	names := make([]string, 64)
	for i := range names {
		names[i] = fmt.Sprintf("w%d", i)
	}
	namespaces, descriptors := countNamespaces(t), countDescriptors(t)
	spec := shaping.Spec{Default: shaping.Properties{Access: rates(20), Path: shaping.Path{OneWayDelay: ms(1)}}}
	newLab(t, kernel.BackendUser, spec, names, func(l *lab) {
		links, err := netlink.LinkList()
		if err != nil {
			t.Error(err)
		}
		for _, link := range links { // one that is not up loses what is sent through it
			if a := link.Attrs(); a.Name != "lo" && a.OperState != netlink.OperUp {
				t.Errorf("the network is built, and the hub's end of %s is %v", a.Name, a.OperState)
			}
		}
		if now := countNamespaces(t); now < namespaces+64 {
			t.Errorf("%d namespaces before, %d with 64 nodes", namespaces, now)
		}
		if all := l.rtts("w0", "w63", 3, 0); len(all) != 3 {
			t.Errorf("%d of 3 echoes", len(all))
		}
		if err := l.net.Close(); err != nil {
			t.Error(err)
		}
		// The kernel takes links and namespaces down in its own time.
		waitForLinksToGo(t)
	})
	waitFor(t, "namespaces to go", func() bool { return countNamespaces(t) <= namespaces })
	waitFor(t, "descriptors to go", func() bool { return countDescriptors(t) <= descriptors })
}

func TestBuildLeavesNothingBehindAfterAnError(t *testing.T) {
	needNamespaces(t)
	descriptors := countDescriptors(t)
	plan, err := shaping.NewPlan(shaping.Spec{}, fourNodes, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	plan.Nodes[3].Name = plan.Nodes[0].Name // the hub cannot hold both
	testenv.InNewNamespace(t, func() {
		if _, err := kernel.Build(plan, kernel.BackendUser, nil); err == nil {
			t.Error("two nodes of one name were built")
		}
		waitForLinksToGo(t)
	})
	waitFor(t, "descriptors to go", func() bool { return countDescriptors(t) <= descriptors })
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("waited a minute for %s", what)
			return
		}
	}
}

// waitForLinksToGo waits until the namespace has only the loopback interface.
func waitForLinksToGo(t *testing.T) {
	t.Helper()
	var links []net.Interface
	waitFor(t, "links of the hub to go", func() (gone bool) {
		var err error
		links, err = net.Interfaces()
		return err == nil && len(links) == 1
	})
	if len(links) > 1 {
		t.Errorf("links of the hub: %v", links)
	}
}

// countNamespaces counts this process's handles of network namespaces: with
// anonymous ones, nothing else keeps a namespace without processes alive.
func countNamespaces(t *testing.T) int {
	return len(openFiles(t, "net:["))
}

func countDescriptors(t *testing.T) int {
	return len(openFiles(t, "net:[")) + len(openFiles(t, "socket:["))
}

// openFiles lists the targets of this process's descriptors by prefix.
func openFiles(t *testing.T, prefix string) (all []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(target, prefix) {
			all = append(all, target)
		}
	}
	return all
}

// TestBatchesOfASenderTravelAsSinglePackets: senders may hand the kernel a
// whole batch (UDP segmentation, as QUIC does), but delay and loss act on
// packets. The router refuses larger frames, which newLab checks.
func TestBatchesOfASenderTravelAsSinglePackets(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, backend kernel.Backend) {
		const batches, segments, size, loss = 40, 40, 1200, 0.2
		spec := shaping.Spec{
			Default: shaping.Properties{Access: rates(200)},
			Pairs:   []shaping.Pair{{From: "w0", To: "w1", Path: shaping.Path{OneWayDelay: ms(1), Loss: new(shaping.Probability(loss))}}},
		}
		newLab(t, backend, spec, fourNodes, func(l *lab) {
			from, to := l.udp("w0"), l.udp("w1")
			if from == nil || to == nil {
				return
			}
			defer from.Close()
			go func() {
				defer to.Close()
				raw, err := from.SyscallConn()
				if err != nil {
					t.Error(err)
					return
				}
				_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size) })
				if err != nil {
					t.Error(err)
					return
				}
				for range batches {
					if _, err := from.WriteToUDPAddrPort(make([]byte, segments*size), to.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
						t.Error(err)
					}
					time.Sleep(3 * time.Millisecond)
				}
				time.Sleep(3 * time.Second) // the last are under way
			}()
			got, buf := 0, make([]byte, 1<<16)
			for {
				n, _, err := to.ReadFromUDPAddrPort(buf)
				if err != nil {
					break
				}
				if got++; n != size {
					t.Errorf("a datagram of %d bytes arrived, of %d sent", n, size)
				}
			}
			const sent = batches * segments
			lost, sigma := float64(sent-got), math.Sqrt(sent*loss*(1-loss))
			t.Logf("lost %.0f of %d", lost, sent)
			if math.Abs(lost-sent*loss) > 4*sigma {
				t.Errorf("lost %.0f of %d packets, want %.0f ± %.0f: loss did not act on single packets", lost, sent, sent*loss, 4*sigma)
			}
		})
	})
}
