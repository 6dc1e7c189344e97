package links

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"testbed/internal/testenv"
	"testbed/shaping"
	"testbed/shaping/kernel"
	"testbed/shaping/userlink"
)

// randomFault draws a fault; which properties it changes does not matter to
// what must be left when it is gone.
func randomFault(r *rand.Rand) shaping.Fault {
	order := r.Perm(len(fourNodes))
	from, to := fourNodes[order[0]], fourNodes[order[1]]
	switch r.IntN(6) {
	case 0:
		return shaping.Partition{Nodes: []string{from}}
	case 1:
		return shaping.Cut{Paths: []shaping.Direction{{From: from, To: to}}}
	case 2:
		return shaping.Refusal{Pairs: [][2]string{{from, to}}}
	case 3:
		peak := shaping.Rate(1e6 + r.Int64N(50e6))
		return shaping.Paced{Node: from, Down: r.IntN(2) == 0, Peak: peak, Now: 1 + shaping.Rate(r.Int64N(int64(peak)))}
	case 4:
		mbit := func() *shaping.Rate { return new(shaping.Rate(r.Int64N(50) * 1e6)) } // unlimited among them
		return shaping.AccessChange{Node: from, Access: shaping.Access{RateUp: mbit(), RateDown: mbit(), Queue: &shaping.Queue{Time: *ms(r.Float64() * 100)}}}
	}
	path := shaping.Path{
		OneWayDelay: ms(10 + r.Float64()*20), Jitter: ms(r.Float64() * 2), JitterDistribution: new(shaping.JitterDistribution(r.IntN(3))),
		Reorder: new(shaping.Probability(r.Float64())), Corrupt: new(shaping.Probability(r.Float64())),
	}
	if r.IntN(2) == 0 {
		path.LossBurst = &shaping.LossBurst{Enter: 0.1, Leave: 0.2, LossInside: 0.9}
	} else {
		path.Loss = new(shaping.Probability(r.Float64()))
	}
	return shaping.PathChange{From: from, To: to, Path: path}
}

func TestAThousandFaultsLeaveTheBasePlan(t *testing.T) {
	t.Parallel()
	onBothBackends(t, func(t *testing.T, backend kernel.Backend) {
		newLab(t, backend, ladder(), fourNodes, func(l *lab) {
			r := rand.New(rand.NewPCG(7, 7))
			var active []shaping.Fault
			start := time.Now()
			for range 1000 {
				if r.IntN(2) == 0 || len(active) == 0 {
					active = append(active, randomFault(r))
				} else {
					k := r.IntN(len(active))
					active = slices.Delete(active, k, k+1)
				}
				l.change(l.compose(active...))
				if t.Failed() {
					return
				}
			}
			t.Logf("1000 changes in %v, %d faults left to clear", time.Since(start), len(active))
			l.change(l.plan)
			if differences, err := l.net.ReadBack(); err != nil || len(differences) != 0 {
				t.Errorf("after 1000 changes: %v %v", differences, err)
			}
		})
	})
}

// TestARefusedPairIsToldAtOnce: both ends get an error where a cut would be
// silent, others go on, and afterwards all is as before.
func TestARefusedPairIsToldAtOnce(t *testing.T) {
	t.Parallel()
	onBothBackends(t, func(t *testing.T, backend kernel.Backend) {
		newLab(t, backend, ladder(), fourNodes, func(l *lab) {
			conns := map[string]*net.UDPConn{}
			for _, name := range fourNodes[:3] {
				if conns[name] = l.udp(name); conns[name] == nil {
					return
				}
				defer conns[name].Close()
			}
			a, b, c := fourNodes[0], fourNodes[1], fourNodes[2]
			try := func(from, to string, want error) {
				t.Helper()
				if _, err := conns[from].WriteTo([]byte("x"), conns[to].LocalAddr()); !errors.Is(err, want) {
					t.Errorf("%s to %s: %v, want %v", from, to, err, want)
				}
			}
			try(a, b, nil)
			l.change(l.compose(shaping.Refusal{Pairs: [][2]string{{a, b}}}))
			try(a, b, unix.EHOSTUNREACH)
			try(b, a, unix.EHOSTUNREACH)
			try(a, c, nil)
			try(c, b, nil)
			if differences, err := l.net.ReadBack(); err != nil || len(differences) != 0 {
				t.Errorf("while refused: %v %v", differences, err)
			}
			l.change(l.plan)
			try(a, b, nil)
			try(b, a, nil)
			if len(l.rtts(a, b, 3, time.Millisecond)) != 3 {
				t.Error("the path does not carry packets again")
			}
		})
	})
}

// TestAChangeTearsNothingDown: the queues keep their handles, and all
// packets of a running stream arrive, in order.
func TestAChangeTearsNothingDown(t *testing.T) {
	t.Parallel()
	onEveryBackend(t, func(t *testing.T, backend kernel.Backend) {
		newLab(t, backend, ladder(), fourNodes, func(l *lab) {
			handles := func() (all []uint32) {
				links, err := netlink.LinkList()
				if err != nil {
					t.Error(err)
				}
				for _, link := range links {
					queues, err := netlink.QdiscList(link)
					if err != nil {
						t.Error(err)
					}
					for _, q := range queues {
						all = append(all, q.Attrs().Handle)
					}
				}
				return all
			}
			before := handles()
			var stop atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				r := rand.New(rand.NewPCG(1, 1))
				for !stop.Load() {
					l.change(l.compose(
						shaping.PathChange{From: "w0", To: "w1", Path: shaping.Path{OneWayDelay: ms(1 + 10*r.Float64())}},
						shaping.AccessChange{Node: "w1", Access: shaping.Access{RateDown: new(shaping.Rate(50e6 + r.Int64N(50e6)))}},
						shaping.Paced{Node: "w0", Peak: 60e6, Now: shaping.Rate(10e6 + r.Int64N(50e6))},
					))
					time.Sleep(5 * time.Millisecond)
				}
			}()
			got := l.arrivals("w0", "w1", 1000, 5*time.Millisecond)
			stop.Store(true)
			<-done
			if len(got) != 1000 || !slices.IsSorted(got) {
				t.Errorf("%d of 1000 packets arrived while links changed, in order: %v", len(got), slices.IsSorted(got))
			}
			if after := handles(); !slices.Equal(before, after) {
				t.Errorf("queues were %x and are now %x", before, after)
			}
		})
	})
}

func TestACutIsOneWayAndLosesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	onBothBackends(t, func(t *testing.T, backend kernel.Backend) {
		spec := shaping.Spec{Default: shaping.Properties{Access: rates(20), Path: shaping.Path{OneWayDelay: ms(2000)}}}
		newLab(t, backend, spec, fourNodes, func(l *lab) {
			here, there := l.udp("w0"), l.udp("w1")
			if here == nil || there == nil {
				return
			}
			defer here.Close()
			defer there.Close()
			cut := l.compose(shaping.Cut{Paths: []shaping.Direction{{From: "w0", To: "w1"}}})
			// Packets 0 to 9 are under way when the path is cut, 10 to 19
			// are sent while it is, 20 to 29 afterwards.
			send := func(from int) {
				for i := from; i < from+10; i++ {
					_, _ = here.WriteTo([]byte{byte(i)}, there.LocalAddr())
					_, _ = there.WriteTo([]byte{byte(i)}, here.LocalAddr())
				}
			}
			send(0)
			time.Sleep(50 * time.Millisecond)
			l.change(cut)
			send(10)
			time.Sleep(2500 * time.Millisecond)
			l.change(l.plan)
			send(20)
			for _, c := range []struct {
				name string
				conn interface {
					Read([]byte) (int, error)
					SetReadDeadline(time.Time) error
				}
				want int
			}{{"w0 to w1, cut", there, 10}, {"w1 to w0", here, 30}} {
				_ = c.conn.SetReadDeadline(time.Now().Add(time.Minute))
				var got []byte
				for buf := make([]byte, 16); len(got) < c.want; {
					if _, err := c.conn.Read(buf); err != nil {
						break
					}
					got = append(got, buf[0])
				}
				if len(got) != c.want || c.want == 10 && got[0] != 20 { // what should be lost would come first
					t.Errorf("%s: %d packets arrived, want %d: %v", c.name, len(got), c.want, got)
				}
			}
			if l.router != nil {
				if s := l.router.Stats(); s.Lost != 20 || s.LatenessMax <= 0 || s.Recent != s.Lateness {
					t.Errorf("the router counts %+v, want 20 lost", s)
				}
				if s := l.router.Stats(); s.Recent != (userlink.Lateness{}) || s.LatenessMax <= 0 {
					t.Errorf("without a packet since, the router's lateness is %+v", s)
				}
				return
			}
			counts, err := l.net.Counters()
			if err != nil {
				t.Error(err)
			}
			for _, c := range counts {
				if c.Node == "w0" && c.Kind == "netem" && c.Peer == "w1" && (c.Lost != 20 || c.Drops != 0 || c.Packets != 10) {
					t.Errorf("the kernel counts %+v, want 20 lost of 30", c)
				}
			}
		})
	})
}

// TestMeasuredThroughputFollowsATrace plays a trace while a sender is always too fast,
// and compares what arrives in each stretch of it: fast, an outage, slow.
func TestMeasuredThroughputFollowsATrace(t *testing.T) {
	testenv.Measured(t)
	onEveryBackend(t, func(t *testing.T, backend kernel.Backend) {
		for _, down := range []bool{false, true} {
			t.Run(map[bool]string{false: "up", true: "down"}[down], func(t *testing.T) {
				testenv.Measure(t, func() func(testenv.Machine) error { return followTrace(t, backend, down) })
			})
		}
	})
}

// followTrace plays the trace twice and counts the second time.
func followTrace(t *testing.T, backend kernel.Backend, down bool) (judge func(testenv.Machine) error) {
	stretches := []struct {
		length time.Duration
		each   int // opportunities per 100 ms
	}{{600 * time.Millisecond, 160}, {400 * time.Millisecond, 0}, {600 * time.Millisecond, 40}}
	var text strings.Builder
	start := 0
	for _, s := range stretches {
		n := int(s.length/time.Millisecond) / 100 * s.each
		for k := range n {
			fmt.Fprintln(&text, start+(k+1)*int(s.length/time.Millisecond)/n)
		}
		start += int(s.length / time.Millisecond)
	}
	pace, err := shaping.ParseTrace([]byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	spec := shaping.Spec{Default: shaping.Properties{Access: rates(50), Path: shaping.Path{OneWayDelay: ms(1)}}}
	arrived := make([]int, len(stretches))
	newLab(t, backend, spec, fourNodes, func(l *lab) {
		at := func(now time.Duration) {
			l.change(l.compose(shaping.Paced{Node: map[bool]string{false: "w0", true: "w1"}[down], Down: down, Now: pace.At(now), Peak: pace.Peak()}))
		}
		here, there := l.udp("w0"), l.udp("w1")
		if here == nil || there == nil {
			return
		}
		defer there.Close()
		defer here.Close()
		at(0)
		go func() {
			defer here.Close()
			packet := make([]byte, shaping.MTU-28)
			start, sent := time.Now(), 0
			for {
				time.Sleep(time.Millisecond)
				for ; sent < 3*int(time.Since(start)/time.Millisecond); sent++ { // 36 Mbit/s, where 19.4 are the most
					if _, err := here.WriteTo(packet, there.LocalAddr()); errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
						return
					}
				}
			}
		}()
		began := time.Now()
		go func() {
			for now := pace.Next(0); now < 2*time.Duration(pace.Period); now = pace.Next(now) {
				time.Sleep(time.Until(began.Add(now)))
				at(now)
			}
			time.Sleep(time.Until(began.Add(2 * time.Duration(pace.Period))))
			_ = there.SetReadDeadline(time.Now())
		}()
		for buf := make([]byte, shaping.MTU); ; {
			if _, err := there.Read(buf); err != nil {
				break
			}
			// A link's delay, and what was queued before the first window.
			if now := time.Since(began) - 2*time.Millisecond; now > time.Duration(pace.Period) {
				k, into := 0, now%time.Duration(pace.Period)
				for into >= stretches[k].length {
					into -= stretches[k].length
					k++
				}
				arrived[k]++
			}
		}
	})
	return func(m testenv.Machine) error {
		for k, want := range []int{6 * 160, 4, 6*40 - 4} {
			// Four empty windows borrow a frame each, and pay back. A change that
			// comes 10 ms late moves 16 frames from one stretch to the next.
			tolerance := 0.05*float64(want) + 30 + m.Taken*float64(want) + 1600*m.Late.Seconds()
			if off := math.Abs(float64(arrived[k] - want)); off > tolerance {
				return fmt.Errorf("%d full frames arrived in the three stretches, want %d ± %.0f in number %d", arrived, want, tolerance, k+1)
			}
		}
		return nil
	}
}
