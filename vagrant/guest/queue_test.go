//go:build linux

package guest

import (
	"testing"
	"time"

	"testbed/shaping"
	"testbed/shaping/kernel"
)

// counts are those of the path from one node to another, and of the queue of the
// receiver's rate, if it is limited.
func (l *lab) counts(from, to string) (path, down kernel.QueueCount) {
	all, err := l.net.Counters()
	if err != nil {
		l.Error(err)
	}
	for _, c := range all {
		switch {
		case c.Kind == "netem" && c.Node == from && c.Peer == to:
			path = c
		case c.Down && c.Node == to && c.Peer == from:
			down = c
		}
	}
	if path == (kernel.QueueCount{}) {
		l.Errorf("no counts of the path from %s to %s", from, to)
	}
	return path, down
}

// TestNetemQueue: when the receiver's rate binds, the queue is as long as
// planned (20 ms, but at least 68 kB: 28 ms) besides what is under way. What
// does not fit counts as dropped, and nothing as lost. Jitter and a change of
// delay while packets wait keep their order.
func TestNetemQueue(t *testing.T) {
	for _, c := range []struct {
		name string
		path shaping.Path
		most time.Duration // planned: one-way delay and queue
	}{
		{"delay", shaping.Path{OneWayDelay: ms(40)}, 68 * time.Millisecond},
		{"jitter", shaping.Path{OneWayDelay: ms(40), Jitter: ms(5)}, 73 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := shaping.Spec{Default: shaping.Properties{
				Access: shaping.Access{RateUp: mbit(100), RateDown: mbit(20)}, Path: c.path,
			}}
			withLinks(t, spec, func(l *lab) {
				f := overload("w0", "w1", 40)
				f.mbit = 20
				all := l.send(f)[0]
				l.checkRate(f, all)
				l.checkOrder(all)
				d := delays(all)
				p50, longest := quantile(d, 0.5), d[len(d)-1]
				l.Logf("p50 %v, longest %v, planned at most %v", p50, longest, c.most)
				// A frame that is being sent waits besides those in the queue.
				const bound = 2500 * time.Microsecond
				if p50 < c.most-10*time.Millisecond || longest > c.most+bound {
					l.Errorf("one-way delays of p50 %v, longest %v; planned at most %v", p50, longest, c.most)
				}
				if path, down := l.counts("w0", "w1"); int(path.Packets) != f.packets || path.Lost != 0 || int(down.Packets) != len(all) || int(down.Drops) != f.packets-len(all) {
					l.Errorf("%d of %d packets arrived, but the kernel counts %+v, then %+v", len(all), f.packets, path, down)
				}
			})
		})
	}
}

func (l *lab) checkOrder(all []arrival) {
	for k := range all[1:] {
		if all[k+1].packet <= all[k].packet {
			l.Errorf("packet %d arrived after packet %d", all[k+1].packet, all[k].packet)
			return
		}
	}
}

// TestNetemSmallPackets: within the rate no packet is dropped, however small,
// and however many are under way.
func TestNetemSmallPackets(t *testing.T) {
	for _, c := range []struct {
		name     string
		up, down *shaping.Rate
		delay    float64
		gap      time.Duration
	}{
		{"20 Mbit/s", mbit(20), mbit(20), 20, 100 * time.Microsecond}, // 4.6 Mbit/s
		{"100 up, 20 down", mbit(100), mbit(20), 40, 50 * time.Microsecond},
		{"unlimited", mbit(0), mbit(0), 100, 50 * time.Microsecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := shaping.Spec{Default: shaping.Properties{
				Access: shaping.Access{RateUp: c.up, RateDown: c.down}, Path: shaping.Path{OneWayDelay: ms(c.delay)},
			}}
			withLinks(t, spec, func(l *lab) {
				f := probes("w0", "w2", 4000, c.gap)
				all := l.send(f)[0]
				l.Logf("%d of %d arrived", len(all), f.packets)
				if len(all) != f.packets {
					path, down := l.counts("w0", "w2")
					l.Errorf("%d of %d small packets arrived: %+v, then %+v", len(all), f.packets, path, down)
				}
			})
		})
	}
}

// TestNetemQueueComesAndGoes changes the receiver's rate under load: from
// unlimited, where there is no queue for it, to limits with different queues,
// and back. Nothing is lost on the path, and what arrives arrives in order.
func TestNetemQueueComesAndGoes(t *testing.T) {
	spec := shaping.Spec{Default: shaping.Properties{
		Access: shaping.Access{RateUp: mbit(20)}, Path: shaping.Path{OneWayDelay: ms(20)},
	}}
	withLinks(t, spec, func(l *lab) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, rate := range []float64{10, 5, 0, 10, 0} {
				time.Sleep(200 * time.Millisecond)
				plan, err := shaping.Compose(l.plan, []shaping.Fault{
					shaping.AccessChange{Node: "w1", Access: shaping.Access{RateDown: mbit(rate)}},
				})
				if err == nil {
					err = l.net.Change(plan)
				}
				if err != nil {
					l.Error(err)
				}
			}
		}()
		f := overload("w0", "w1", 15) // 18 Mbit/s
		f.packets = f.packets * 3 / 2
		all := l.send(f)[0]
		<-done
		l.checkOrder(all)
		path, _ := l.counts("w0", "w1")
		l.Logf("%d of %d arrived: %+v", len(all), f.packets, path)
		if path.Lost != 0 || int(path.Packets) != f.packets || len(all) == f.packets {
			l.Errorf("%d of %d packets arrived, but the kernel counts %+v", len(all), f.packets, path)
		}
		if differences, err := l.net.ReadBack(); err != nil || len(differences) > 0 {
			l.Errorf("after the changes: %v %v", differences, err)
		}
	})
}
