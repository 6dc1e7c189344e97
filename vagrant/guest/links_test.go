//go:build linux

package guest

// The network of these tests:
//
//	w0 ─ eth0 ══╗
//	w1 ─ eth0 ══╬══ bridge
//	w2 ─ eth0 ══╝
//
//	══  veth pair with HFSC at both ends; in the hub a netem for each pair
//
// All asserts are on one-way figures: sender and receiver share a clock.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"testbed/internal/testenv"
	"testbed/internal/thread"
	"testbed/shaping"
	"testbed/shaping/kernel"
)

// onlyInGuest keeps tests whose bounds hold by the guest's clock out of
// machines where time passes while a process waits.
func onlyInGuest(t *testing.T) {
	t.Helper()
	if os.Getenv(inGuest) == "" {
		t.Skip("TestMeasuredGuest runs this in the guest")
	}
}

type lab struct {
	testing.TB
	plan *shaping.Plan
	net  *kernel.Network
}

// withLinks builds the links between w0, w1 and w2, checks them by reading
// back, and runs f.
func withLinks(t *testing.T, spec shaping.Spec, f func(*lab)) {
	onlyInGuest(t)
	plan, err := shaping.NewPlan(spec, []string{"w0", "w1", "w2"}, 0, 42)
	if err != nil {
		t.Fatal(err)
	}
	testenv.InNewNamespace(t, func() {
		network, err := kernel.Build(plan, kernel.BackendNetem, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer network.Close()
		if differences, err := network.ReadBack(); err != nil || len(differences) > 0 {
			t.Errorf("the kernel holds something else than planned: %v %v", differences, err)
		}
		f(&lab{t, plan, network})
	})
}

func (l *lab) addr(node string) *net.UDPAddr {
	return &net.UDPAddr{IP: l.plan.Nodes[l.plan.Index(node)].Addr.Addr().AsSlice()}
}

// listen opens a socket in the node whose packets the kernel stamps with
// their time of arrival.
func (l *lab) listen(node string) (*net.UDPConn, error) {
	var conn *net.UDPConn
	var err error
	thread.Do(func() {
		if err = netns.Set(l.net.NS(node)); err == nil {
			conn, err = net.ListenUDP("udp4", l.addr(node))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("in node %s: %w", node, err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	_ = conn.SetReadBuffer(1 << 20)
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	return conn, errors.Join(err, failed)
}

// flow is a stream of packets from one node to another.
type flow struct {
	from, to string
	packets  int
	size     int           // of the Ethernet frame
	gap      time.Duration // between packets
	mbit     float64       // planned; zero if nobody asks
}

func probes(from, to string, packets int, gap time.Duration) flow {
	return flow{from: from, to: to, packets: packets, size: headers + 16, gap: gap}
}

// arrival is a packet that came through.
type arrival struct {
	packet      int // counted from 0 as they were sent
	at          time.Time
	oneWayDelay time.Duration
}

const (
	headers = 14 + 20 + 8 // of Ethernet, IP and UDP
	// drain is how long after the last packet was sent one may still come.
	drain = 300 * time.Millisecond
)

// send sends flows at the same time and returns the arrivals of each.
func (l *lab) send(flows ...flow) [][]arrival {
	all := make([][]arrival, len(flows))
	var group sync.WaitGroup
	for k, f := range flows {
		group.Go(func() {
			var err error
			if all[k], err = l.sendOne(f); err != nil {
				l.Errorf("from %s to %s: %v", f.from, f.to, err)
			}
		})
	}
	group.Wait()
	return all
}

func (l *lab) sendOne(f flow) ([]arrival, error) {
	from, err := l.listen(f.from)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	to, err := l.listen(f.to)
	if err != nil {
		return nil, err
	}
	var sent error
	go func() {
		sent = transmit(from, to.LocalAddr().(*net.UDPAddr), f)
		time.Sleep(drain)
		to.Close()
	}()
	arrivals, err := receive(to)
	return arrivals, errors.Join(sent, err)
}

func transmit(conn *net.UDPConn, to *net.UDPAddr, f flow) error {
	payload := make([]byte, f.size-headers)
	start := time.Now()
	for k := range f.packets {
		// Sleeps are up to a millisecond too long, which must not add up.
		time.Sleep(time.Until(start.Add(time.Duration(k) * f.gap)))
		binary.BigEndian.PutUint64(payload, uint64(k))
		binary.BigEndian.PutUint64(payload[8:], uint64(time.Now().UnixNano()))
		if _, err := conn.WriteToUDP(payload, to); err != nil {
			return fmt.Errorf("sending packet %d: %w", k, err)
		}
	}
	return nil
}

// receive reads until the socket is closed.
func receive(conn *net.UDPConn) (all []arrival, err error) {
	payload, control := make([]byte, shaping.FrameSize), make([]byte, 128)
	for {
		n, c, _, _, err := conn.ReadMsgUDPAddrPort(payload, control)
		if errors.Is(err, net.ErrClosed) {
			return all, nil
		}
		if err != nil || n < 16 {
			return all, fmt.Errorf("receiving %d bytes: %w", n, err)
		}
		at, err := stamp(control[:c])
		if err != nil {
			return all, err
		}
		sent := time.Unix(0, int64(binary.BigEndian.Uint64(payload[8:])))
		all = append(all, arrival{int(binary.BigEndian.Uint64(payload)), at, at.Sub(sent)})
	}
}

// stamp finds the kernel's time of arrival.
func stamp(control []byte) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading a time of arrival: %w", err)
	}
	for _, m := range messages {
		if m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			seconds, ns := binary.NativeEndian.Uint64(m.Data), binary.NativeEndian.Uint64(m.Data[8:])
			return time.Unix(int64(seconds), int64(ns)), nil
		}
	}
	return time.Time{}, errors.New("a packet has no time of arrival")
}

// delays are sorted.
func delays(all []arrival) []time.Duration {
	d := make([]time.Duration, len(all))
	for k, a := range all {
		d[k] = a.oneWayDelay
	}
	slices.Sort(d)
	return d
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1))]
}

// The bounds that the links promise, and keep by the guest's clock.
const (
	errorP50 = 200 * time.Microsecond
	errorP99 = time.Millisecond
)

// checkDelay compares delays with the planned one, to which a wait may come.
func (l *lab) checkDelay(f flow, all []arrival, planned, wait time.Duration) {
	if len(all) != f.packets {
		l.Errorf("%s→%s: %d of %d packets arrived", f.from, f.to, len(all), f.packets)
	}
	if len(all) == 0 {
		return
	}
	d := delays(all)
	least, p50, p99 := d[0], quantile(d, 0.5), quantile(d, 0.99)
	l.Logf("%s→%s: planned %v, least %v, p50 %v, p99 %v", f.from, f.to, planned, least, p50, p99)
	if least < planned || p50 > planned+wait+errorP50 || p99 > planned+wait+errorP99 {
		l.Errorf("%s→%s: one-way delay of at least %v, p50 %v, p99 %v; planned %v", f.from, f.to, least, p50, p99, planned)
	}
}

func ms(n float64) *shaping.Duration {
	return new(shaping.Duration(n * float64(time.Millisecond)))
}

func mbit(n float64) *shaping.Rate { return new(shaping.Rate(n * 1e6)) }

func pair(from, to string, path shaping.Path) shaping.Pair {
	return shaping.Pair{From: from, To: to, Path: path}
}

// TestNetemDelayOfEveryDirectedPair has six delays at work at the same time.
func TestNetemDelayOfEveryDirectedPair(t *testing.T) {
	planned := map[[2]string]float64{
		{"w0", "w1"}: 1, {"w1", "w0"}: 10, {"w0", "w2"}: 50, {"w2", "w0"}: 2.5, {"w1", "w2"}: 0.5, {"w2", "w1"}: 25,
	}
	spec := shaping.Spec{Default: shaping.Properties{Access: shaping.Access{RateUp: mbit(20), RateDown: mbit(20)}}}
	var flows []flow
	for p, delay := range planned {
		spec.Pairs = append(spec.Pairs, pair(p[0], p[1], shaping.Path{OneWayDelay: ms(delay)}))
		flows = append(flows, probes(p[0], p[1], 200, 5*time.Millisecond))
	}
	withLinks(t, spec, func(l *lab) {
		for k, all := range l.send(flows...) {
			f := flows[k]
			l.checkDelay(f, all, time.Duration(*ms(planned[[2]string{f.from, f.to}])), 0)
		}
	})
}

// TestNetemBusyPairLeavesOthersAlone measures the delay of pairs that share a
// sender or a receiver with one that takes all its rate: they wait for the frame
// that is being sent, and for no other.
func TestNetemBusyPairLeavesOthersAlone(t *testing.T) {
	spec := shaping.Spec{Default: shaping.Properties{
		Access: shaping.Access{RateUp: mbit(20), RateDown: mbit(20)},
		Path:   shaping.Path{OneWayDelay: ms(5)},
	}}
	withLinks(t, spec, func(l *lab) {
		flows := []flow{
			overload("w0", "w1", 20),
			probes("w0", "w2", 90, 10*time.Millisecond),
			probes("w2", "w1", 90, 10*time.Millisecond),
			probes("w1", "w0", 90, 10*time.Millisecond),
		}
		all := l.send(flows...)
		l.checkRate(flows[0], all[0])
		for k := range all[1:] {
			wait := time.Duration(shaping.FrameSize * 8 * 50) // ns, at 20 Mbit/s
			if flows[k+1].from == "w1" {
				wait = 0 // nobody else uses these rates
			}
			l.checkDelay(flows[k+1], all[k+1], 5*time.Millisecond, wait)
		}
	})
}

// TestNetemJitter spaces packets by more than the jitter can move them: that
// packets stay in order cuts off what would let one overtake another.
func TestNetemJitter(t *testing.T) {
	const delay, jitter = 20 * time.Millisecond, 5 * time.Millisecond
	spec := shaping.Spec{
		Default: shaping.Properties{Path: shaping.Path{OneWayDelay: ms(20)}},
		Pairs:   []shaping.Pair{pair("w0", "w1", shaping.Path{Jitter: ms(5)})},
	}
	withLinks(t, spec, func(l *lab) {
		flows := []flow{probes("w0", "w1", 600, 12*time.Millisecond), probes("w1", "w0", 600, 12*time.Millisecond)}
		all := l.send(flows...)
		l.checkDelay(flows[1], all[1], delay, 0) // no jitter on the way back
		d := delays(all[0])
		if len(d) != flows[0].packets {
			l.Fatalf("%d of %d packets arrived", len(d), flows[0].packets)
		}
		var sum, squares float64
		for _, v := range d {
			sum += v.Seconds()
			squares += (v - delay).Seconds() * (v - delay).Seconds()
		}
		n := float64(len(d))
		half := (d[len(d)-1] - d[0]) / 2
		mean := time.Duration(sum / n * 1e9)
		deviation := time.Duration(math.Sqrt(squares/n) * 1e9)
		// Of a uniform variation.
		planned := time.Duration(float64(jitter) / math.Sqrt(3))
		l.Logf("planned %v ± %v: %v to %v, half-width %v, mean %v, standard deviation %v, planned %v",
			delay, jitter, d[0], d[len(d)-1], half, mean, deviation, planned)
		if off(half, jitter) > 0.03 || off(mean, delay) > 0.03 || off(deviation, planned) > 0.1 {
			l.Errorf("not uniform in %v ± %v", delay, jitter)
		}
		if d[0] < delay-jitter || d[len(d)-1] > delay+jitter+errorP99 {
			l.Errorf("delays of %v to %v, planned %v ± %v", d[0], d[len(d)-1], delay, jitter)
		}
	})
}

// off is the relative difference from what was planned.
func off[T time.Duration | float64](got, planned T) float64 {
	return math.Abs(float64(got-planned)) / float64(planned)
}

func TestNetemLoss(t *testing.T) {
	const sent = 2000
	planned := map[[2]string]float64{{"w0", "w1"}: 0.01, {"w1", "w0"}: 0.05, {"w0", "w2"}: 0, {"w2", "w0"}: 0.2}
	spec := shaping.Spec{Default: shaping.Properties{Path: shaping.Path{OneWayDelay: ms(2)}}}
	var flows []flow
	for p, loss := range planned {
		spec.Pairs = append(spec.Pairs, pair(p[0], p[1], shaping.Path{Loss: new(shaping.Probability(loss))}))
		flows = append(flows, probes(p[0], p[1], sent, time.Millisecond))
	}
	withLinks(t, spec, func(l *lab) {
		// One sample in a hundred lies outside by chance, three in a row
		// one time in a million.
		for attempt := 1; len(flows) > 0; attempt++ {
			var again []flow
			for k, all := range l.send(flows...) {
				f := flows[k]
				p := planned[[2]string{f.from, f.to}]
				lost := f.packets - len(all)
				low, high := binomialInterval(f.packets, p, 0.99)
				l.Logf("%s→%s: planned %g %%, lost %d of %d, 99 %% interval %d to %d", f.from, f.to, 100*p, lost, f.packets, low, high)
				if lost < low || lost > high {
					again = append(again, f)
				}
			}
			if flows = again; attempt == 3 && len(flows) > 0 {
				l.Errorf("outside the interval three times: %v", flows)
				return
			}
		}
	})
}

// binomialInterval returns the least and greatest number of successes of n
// trials that leave at most half of 1 − confidence on either side.
func binomialInterval(n int, p, confidence float64) (low, high int) {
	if p == 0 {
		return 0, 0
	}
	gamma := func(k int) float64 { v, _ := math.Lgamma(float64(k + 1)); return v }
	low, high = -1, n
	below := 0.0
	for k := 0; k <= n; k++ {
		below += math.Exp(gamma(n) - gamma(k) - gamma(n-k) + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
		if low < 0 && below > (1-confidence)/2 {
			low = k
		}
		if below >= 1-(1-confidence)/2 {
			return low, k
		}
	}
	return low, high
}

func TestBinomialInterval(t *testing.T) {
	for _, c := range []struct {
		n         int
		p         float64
		low, high int
	}{{2000, 0.01, 10, 32}, {50, 0.2, 3, 18}, {5, 0, 0, 0}} {
		if low, high := binomialInterval(c.n, c.p, 0.99); low != c.low || high != c.high {
			t.Errorf("binomialInterval(%d, %g) = %d, %d, want %d, %d", c.n, c.p, low, high, c.low, c.high)
		}
	}
}

// TestNetemSeed builds the same links twice: the same packets are lost.
func TestNetemSeed(t *testing.T) {
	onlyInGuest(t)
	if !kernelSince(t, 6, 7) {
		t.Skip("netem takes a seed since Linux 6.7")
	}
	spec := shaping.Spec{Default: shaping.Properties{Path: shaping.Path{
		OneWayDelay: ms(5), Loss: new(shaping.Probability(0.1)),
	}}}
	var first [][]int
	for range 2 {
		withLinks(t, spec, func(l *lab) {
			var came [][]int
			for _, all := range l.send(probes("w0", "w1", 300, time.Millisecond), probes("w1", "w0", 300, time.Millisecond)) {
				var packets []int
				for _, a := range all {
					packets = append(packets, a.packet)
				}
				came = append(came, packets)
			}
			if slices.Equal(came[0], came[1]) {
				l.Error("both directions lose the same packets")
			}
			if first == nil {
				first = came
			} else if !slices.EqualFunc(first, came, slices.Equal) {
				l.Errorf("with the same seed other packets arrived:\n%v\n%v", first, came)
			}
		})
	}
}

func kernelSince(t *testing.T, major, minor int) bool {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	release := unix.ByteSliceToString(u.Release[:])
	var a, b int
	if _, err := fmt.Sscanf(release, "%d.%d", &a, &b); err != nil {
		t.Fatalf("kernel release %q: %v", release, err)
	}
	return a > major || a == major && b >= minor
}

// TestNetemRate counts whole frames, as the plan does. Rates bind at the
// sender (w0, w1) or at the receiver (w2), and do not disturb each other.
func TestNetemRate(t *testing.T) {
	spec := shaping.Spec{
		Default: shaping.Properties{
			Access: shaping.Access{RateUp: mbit(100), RateDown: mbit(100)},
			Path:   shaping.Path{OneWayDelay: ms(5)},
		},
		Nodes: map[string]shaping.Access{"w1": {RateUp: mbit(5)}, "w2": {RateDown: mbit(20)}},
	}
	withLinks(t, spec, func(l *lab) {
		for _, together := range [][]flow{
			{overload("w0", "w1", 100), overload("w1", "w0", 5)},
			{overload("w0", "w2", 20)},
		} {
			for k, all := range l.send(together...) {
				l.checkRate(together[k], all)
			}
		}
	})
}

// overload is a second of full frames at a fifth more than the rate.
func overload(from, to string, mbit float64) flow {
	perSecond := 1.2 * mbit * 1e6 / 8 / shaping.FrameSize
	return flow{from, to, int(perSecond), shaping.FrameSize, time.Duration(1e9 / perSecond), mbit}
}

func (l *lab) checkRate(f flow, all []arrival) {
	const warmUp = 300 * time.Millisecond // distorted by empty queues and saved-up bursts
	if len(all) == 0 {
		l.Errorf("%s→%s: nothing arrived", f.from, f.to)
		return
	}
	begin := all[0].at.Add(warmUp)
	all = slices.DeleteFunc(slices.Clone(all), func(a arrival) bool { return a.at.Before(begin) })
	if len(all) < 100 {
		l.Errorf("%s→%s: only %d packets arrived", f.from, f.to, len(all))
		return
	}
	took := all[len(all)-1].at.Sub(all[0].at).Seconds()
	rate := float64(len(all)-1) * float64(f.size) * 8 / took / 1e6
	l.Logf("%s→%s: %.3f of %g Mbit/s", f.from, f.to, rate, f.mbit)
	if off(rate, f.mbit) > 0.01 {
		l.Errorf("%s→%s: %.3f Mbit/s, planned %g", f.from, f.to, rate, f.mbit)
	}
}
