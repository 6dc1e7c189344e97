package links

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"testbed/internal/testenv"
	"testbed/shaping"
	"testbed/shaping/fidelity"
	"testbed/shaping/kernel"
)

// flood has each of the nodes send full frames to the next of them, faster
// than its rate, while f runs.
func (l *lab) flood(nodes []string, rate shaping.Rate, f func()) {
	var senders sync.WaitGroup
	var conns []*net.UDPConn
	for _, name := range nodes {
		if conn := l.udp(name); conn != nil {
			defer conn.Close()
			conns = append(conns, conn)
		}
	}
	stop := make(chan struct{})
	for k, conn := range conns {
		to := conns[(k+1)%len(conns)].LocalAddr()
		senders.Go(func() {
			packet := make([]byte, shaping.MTU-28)
			start, sent := time.Now(), 0
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				due := int(1.2 * float64(rate) / 8 / shaping.FrameSize * time.Since(start).Seconds())
				for ; sent < due; sent++ {
					// ENOBUFS says that the queue is full, as it is meant to be.
					if _, err := conn.WriteTo(packet, to); errors.Is(err, os.ErrDeadlineExceeded) {
						return
					}
				}
			}
		})
	}
	f()
	close(stop)
	senders.Wait()
}

// busy reads the link of a node for a time, as the monitor of a run does.
func (l *lab) busy(node int, length time.Duration) (time.Duration, float64) {
	var b fidelity.BusyLink
	start := time.Now()
	for time.Since(start) < length {
		time.Sleep(5 * time.Millisecond)
		before := time.Now()
		load, err := l.net.UpLoad(node)
		if err != nil {
			l.Error(err)
		}
		if load.Rate == 0 {
			up, _ := l.board.Load(node)
			load = kernel.Load{Rate: l.plan.Nodes[node].RateUp, Bytes: up.Bytes, Waiting: up.Waiting}
		}
		if time.Since(before) > time.Millisecond {
			b.Skip() // no moment
			continue
		}
		b.Read(fidelity.Reading{At: before.Sub(start), Rate: load.Rate, Bytes: load.Bytes, Waiting: load.Waiting})
	}
	return b.Take()
}

// TestMeasuredABusyLinkPassesOnItsRate, and one whose rate somebody has changed behind
// our back is found out.
func TestMeasuredABusyLinkPassesOnItsRate(t *testing.T) {
	testenv.Measured(t)
	onEveryBackend(t, func(t *testing.T, backend kernel.Backend) {
		spec := shaping.Spec{Default: shaping.Properties{Access: rates(20)}}
		newLab(t, backend, spec, fourNodes, func(l *lab) {
			passesOn := func(want, tolerance float64) {
				testenv.Measure(l, func() func(testenv.Machine) error {
					busy, share := l.busy(0, time.Second)
					return func(m testenv.Machine) error {
						enough := time.Duration(float64(300*time.Millisecond) * (1 - m.Taken))
						if busy < enough || share < want-tolerance-m.Taken*want || share > want+tolerance {
							return fmt.Errorf("while busy, for %v, the link passed on %.3f of its rate, want %.2f ± %.2f", busy, share, want, tolerance)
						}
						return nil
					}
				})
			}
			l.flood(fourNodes[:2], 20e6, func() {
				time.Sleep(200 * time.Millisecond) // for the queue to fill
				passesOn(1, 0.04)
				if backend == kernel.BackendUser {
					l.router.Pace(0, 15e6, 0)
					passesOn(0.75, 0.05)
					return
				}
				if _, err := exec.LookPath("tc"); err != nil {
					t.Log("without tc(8) the other half of the test is left out")
					return
				}
				for _, class := range []string{"1:1", "1:2", "1:3", "1:4"} {
					args := []string{"class", "change", "dev", "eth0", "classid", class, "htb", "rate", "15mbit", "ceil", "15mbit"}
					if err := l.in(fourNodes[0], func() error { return run("tc", args...) }); err != nil {
						t.Error(err)
					}
				}
				passesOn(0.75, 0.05)
			})
		})
	})
}
