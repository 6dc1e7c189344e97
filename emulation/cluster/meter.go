//go:build linux

package cluster

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"testbed/shaping/tunnel"
)

const (
	// burstTime is the duration of a burst: longer than queues and token buckets
	// usually let everything pass.
	burstTime = 200 * time.Millisecond
	// settleTime is how long after a burst its last frames are awaited: hosts do
	// not begin at the same moment, and some queues are long.
	settleTime = 300 * time.Millisecond
	// patience is how long another host may send no answer.
	patience = 30 * time.Second
	// frameSize is the size of a burst's frames. No network fragments them.
	frameSize = 1200
	// sendPeriod is the time between two moments at which frames are sent.
	sendPeriod = 250 * time.Microsecond
	// batch is the number of frames sent to a host before frames are received.
	batch = 64
)

// MeterOrder is an order to a host's meter: one of these fields.
type MeterOrder struct {
	Open   *tunnel.Config `json:"meet,omitempty"`  // measure the delays to all other hosts
	Repeat bool           `json:"again,omitempty"` // measure them once more
	Burst  *Burst         `json:"burst,omitempty"`
	End    bool           `json:"end,omitempty"`
}

// Burst is the traffic of all hosts to each other at the same time.
type Burst struct {
	Number int `json:"turn"` // from 1
	// Rates are in bit/s, from row to column by host.
	Rates [][]float64 `json:"rates"`
}

// MeterAnswer is the result of an order.
type MeterAnswer struct {
	// OneWay is the network's delay to each host: half of the round trip's 99.9th
	// percentile.
	OneWay []time.Duration `json:"one_way_ns,omitempty"`
	// Carried is the arriving rate of a burst from each host, in bit/s.
	Carried []float64 `json:"carried,omitempty"`
	Err     string    `json:"error,omitempty"`
}

// Meter measures the underlay together with the meters of other hosts, through a
// tunnel like that of a run. It carries out one order at a time.
type Meter struct {
	Socket *os.File // of tunnel.Listen

	tunnel *meterTunnel // nil before Open
}

// Do carries out an order.
func (m *Meter) Do(ctx context.Context, o MeterOrder) MeterAnswer {
	a, err := m.do(ctx, o)
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

func (m *Meter) do(ctx context.Context, o MeterOrder) (a MeterAnswer, err error) {
	switch {
	case o.End:
		return a, m.Close()
	case o.Open != nil && m.tunnel == nil:
		if m.tunnel, err = openMeterTunnel(m.Socket, *o.Open); err != nil {
			return a, err
		}
	case m.tunnel == nil:
		return a, fmt.Errorf("internal error: the leader asked for a measurement before the tunnel between the hosts was open")
	case o.Repeat:
		m.tunnel.reopen()
	case o.Burst != nil:
		a.Carried, err = m.tunnel.play(ctx, o.Burst)
		return a, err
	}
	a.OneWay, err = m.tunnel.oneWay(ctx)
	return a, err
}

// Close ends the measurements. It may be called twice.
func (m *Meter) Close() error {
	if m.tunnel == nil {
		return nil
	}
	err := m.tunnel.close()
	m.tunnel = nil
	return err
}

// meterTunnel is a meter's open tunnel.
type meterTunnel struct {
	config  tunnel.Config
	epoch   time.Time
	stop    chan struct{}
	stopped chan struct{}

	mu     sync.Mutex
	tunnel *tunnel.Tunnel
	burst  burst
	err    error // error that has ended it
}

// burst is the burst under way, for one host.
type burst struct {
	number  int
	began   time.Duration
	rates   []float64 // to each host
	sent    []float64 // bytes, to each
	arrived []arrival // from each
}

// arrival is the received part of a burst.
type arrival struct {
	first, last time.Duration
	bytes       int // after the first frame
}

func openMeterTunnel(socket *os.File, c tunnel.Config) (*meterTunnel, error) {
	fd, err := unix.FcntlInt(socket.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicating the socket of the tunnel between hosts: %w", os.NewSyscallError("fcntl", err))
	}
	t := &meterTunnel{config: c, epoch: time.Now(), stop: make(chan struct{}), stopped: make(chan struct{})}
	if t.tunnel, err = tunnel.Open(fd, c); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("measuring the hosts' network: %w", err)
	}
	go t.run()
	return t, nil
}

func (t *meterTunnel) close() error {
	close(t.stop)
	<-t.stopped
	return t.tunnel.Close()
}

// run works until it is stopped: it also answers other hosts all the time.
func (t *meterTunnel) run() {
	defer close(t.stopped)
	poll := []unix.PollFd{{Fd: int32(t.tunnel.FD()), Events: unix.POLLIN}}
	for {
		select {
		case <-t.stop:
			return
		default:
		}
		wait := sendPeriod
		if t.work() {
			wait = 0
		}
		timeout := unix.NsecToTimespec(int64(wait))
		_, _ = unix.Ppoll(poll, &timeout, nil) // after an error it only works too early
	}
}

// work receives and sends all available frames, and reports whether there are
// more.
func (t *meterTunnel) work() (more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return false
	}
	wall := time.Now()
	now := wall.Sub(t.epoch)
	_, more, t.err = t.tunnel.Receive(now, wall, t.take)
	more = t.send(now) || more
	if err := t.tunnel.Work(now); t.err == nil {
		t.err = err
	}
	return more
}

// take handles a frame of a burst. Its sender and the number of its burst are
// in the fields for nodes.
func (t *meterTunnel) take(f tunnel.Frame) {
	b := &t.burst
	if f.To != b.number || f.From >= len(b.arrived) {
		return
	}
	a := &b.arrived[f.From]
	if a.last == 0 {
		a.first, a.last = f.At, f.At
		return
	}
	a.bytes += len(f.Data)
	a.first, a.last = min(a.first, f.At), max(a.last, f.At)
}

// send sends the frames of the burst that are due.
func (t *meterTunnel) send(now time.Duration) (more bool) {
	b := &t.burst
	if len(b.rates) == 0 || now-b.began > burstTime {
		return false
	}
	var frame [frameSize]byte
	for host, rate := range b.rates {
		due := rate / 8 * (now - b.began).Seconds()
		for range batch {
			if b.sent[host]+float64(len(frame)) > due {
				break
			}
			t.tunnel.Send(host, &tunnel.Frame{From: t.config.Self, To: b.number, Data: frame[:]})
			b.sent[host] += float64(len(frame))
		}
		more = more || b.sent[host]+float64(len(frame)) <= due
	}
	return more
}

// reopen discards the delays to other hosts, and measures them once more.
func (t *meterTunnel) reopen() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for host := range t.config.Hosts {
		if host != t.config.Self {
			t.tunnel.Reopen(host)
		}
	}
}

// oneWay waits until the delays to all hosts are known.
func (t *meterTunnel) oneWay(ctx context.Context) ([]time.Duration, error) {
	for begin := time.Now(); ; {
		t.mu.Lock()
		opened, waiting, answered := t.tunnel.Opened()
		err := t.err
		t.mu.Unlock()
		switch {
		case err != nil:
			return nil, fmt.Errorf("measuring the hosts' network: %w", err)
		case opened:
			return t.delays(), nil
		case min(time.Since(begin), time.Since(t.epoch)-answered) > patience:
			return nil, fmt.Errorf("host %s does not answer; allow UDP between the hosts, and name the leader by an address that all hosts can reach", waiting)
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func (t *meterTunnel) delays() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]time.Duration, len(t.config.Hosts))
	for host := range all {
		if host != t.config.Self {
			all[host] = t.tunnel.OneWay(host)
		}
	}
	return all
}

// play sends this host's part of a burst, and returns the arriving rates of the
// others' parts.
func (t *meterTunnel) play(ctx context.Context, o *Burst) ([]float64, error) {
	n := len(t.config.Hosts)
	t.mu.Lock()
	t.burst = burst{number: o.Number, began: time.Since(t.epoch), rates: o.Rates[t.config.Self], sent: make([]float64, n), arrived: make([]arrival, n)}
	t.mu.Unlock()
	if err := pause(ctx, burstTime+settleTime); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	carried := make([]float64, n)
	for host, a := range t.burst.arrived {
		if took := a.last - a.first; took > 0 {
			carried[host] = 8 * float64(a.bytes) / took.Seconds()
		}
	}
	t.burst = burst{}
	if t.err != nil {
		return carried, fmt.Errorf("measuring the hosts' network: %w", t.err)
	}
	return carried, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
