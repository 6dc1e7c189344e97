package links

import (
	"encoding/binary"
	"errors"
	"math"
	"net"
	"testing"
	"time"

	"testbed/internal/errs"
	"testbed/internal/testenv"
	"testbed/shaping"
	"testbed/shaping/kernel"
)

// arrivals sends n numbered packets in step with the clock and returns the
// numbers in the order in which they come, until it is quiet.
func (l *lab) arrivals(from, to string, n int, pause time.Duration) (got []int) {
	here, there := l.udp(from), l.udp(to)
	if here == nil || there == nil {
		return nil
	}
	defer here.Close()
	go func() {
		defer there.Close()
		peer := there.LocalAddr().(*net.UDPAddr).AddrPort()
		for i := range n {
			_, _ = here.WriteToUDPAddrPort(binary.BigEndian.AppendUint32(make([]byte, 60), uint32(i)), peer)
			if i%10 == 9 {
				time.Sleep(pause)
			}
		}
		time.Sleep(3 * time.Second) // the last are under way
	}()
	buf := make([]byte, 128)
	for {
		k, _, err := there.ReadFromUDPAddrPort(buf)
		if err != nil {
			return got // closed after the last packet
		}
		if k == 64 {
			got = append(got, int(binary.BigEndian.Uint32(buf[60:])))
		}
	}
}

// near fails unless k of n is the share p within 4 standard deviations.
func near(t *testing.T, what string, k, n int, p float64) {
	t.Helper()
	t.Logf("%s: %d of %d", what, k, n)
	if sigma := math.Sqrt(float64(n) * p * (1 - p)); math.Abs(float64(k)-float64(n)*p) > 4*sigma {
		t.Errorf("%s: %d of %d, want %.0f ± %.0f", what, k, n, float64(n)*p, 4*sigma)
	}
}

// impaired is a network whose only special path is that from w0 to w1.
func impaired(path shaping.Path) shaping.Spec {
	return shaping.Spec{Default: shaping.Properties{Access: rates(20)}, Pairs: []shaping.Pair{{From: "w0", To: "w1", Path: path}}}
}

func TestImpairmentsComeAsPlanned(t *testing.T) {
	t.Parallel()
	const sent = 3000
	share := func(p shaping.Probability) *shaping.Probability { return &p }
	burst := shaping.LossBurst{Enter: 0.02, Leave: 0.2, LossInside: 1}
	for _, c := range []struct {
		name  string
		nodes []string
		path  shaping.Path
		check func(t *testing.T, got []int)
	}{
		{"corrupt", fourNodes, shaping.Path{OneWayDelay: ms(5), Corrupt: share(0.1)}, func(t *testing.T, got []int) {
			// The receiver's checksum finds every one.
			near(t, "did not arrive", sent-len(got), sent, 0.1)
		}},
		{"reorder", fourNodes, shaping.Path{OneWayDelay: ms(20), Reorder: share(0.05)}, func(t *testing.T, got []int) {
			// Who comes before one that was sent earlier has overtaken it.
			early, lowest := 0, sent
			for k := len(got) - 1; k >= 0; k-- {
				if got[k] > lowest {
					early++
				}
				lowest = min(lowest, got[k])
			}
			if len(got) != sent {
				t.Errorf("%d of %d arrived", len(got), sent)
			}
			near(t, "overtook", early, sent, 0.05)
		}},
		{"bursts", fourNodes, shaping.Path{OneWayDelay: ms(5), LossBurst: &burst}, func(t *testing.T, got []int) {
			lost, bursts, last := sent-len(got), 0, -1
			for _, i := range got {
				if i > last+1 {
					bursts++
				}
				last = i
			}
			t.Logf("lost %d in %d bursts", lost, bursts)
			mean := float64(burst.Mean()) * sent
			if math.Abs(float64(lost)-mean) > 0.4*mean || float64(lost)/float64(bursts) < 3.5 || float64(lost)/float64(bursts) > 7 {
				t.Errorf("lost %d in %d bursts, want %.0f in bursts of 5", lost, bursts, mean)
			}
		}},
		// With two nodes no netem has another beside it.
		{"duplicate", fourNodes[:2], shaping.Path{OneWayDelay: ms(5), Duplicate: share(0.1)}, func(t *testing.T, got []int) {
			near(t, "came twice", len(got)-sent, sent, 0.1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			onBothBackends(t, func(t *testing.T, backend kernel.Backend) {
				newLab(t, backend, impaired(c.path), c.nodes, func(l *lab) {
					if differences, err := l.net.ReadBack(); err != nil || len(differences) != 0 {
						t.Errorf("read back: %v %v", differences, err)
					}
					c.check(t, l.arrivals("w0", "w1", sent, time.Millisecond))
				})
			})
		})
	}
}

func TestDuplicatesAmongManyNodesWorkOrSayWhatToDo(t *testing.T) {
	t.Parallel()
	needNetem(t)
	plan, err := shaping.NewPlan(impaired(shaping.Path{Duplicate: new(shaping.Probability(0.1))}), fourNodes, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	testenv.InNewNamespace(t, func() {
		network, err := kernel.Build(plan, kernel.BackendNetem, nil)
		if missing, ok := errors.AsType[*errs.UnsupportedError](err); ok {
			t.Log(missing)
		} else if err != nil {
			t.Error(err)
		} else if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
}
