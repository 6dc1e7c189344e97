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
	// burstTime is how long a burst takes: longer than what queues and token buckets
	// usually let pass at once.
	burstTime = 200 * time.Millisecond
	// settleTime is how long after a burst its last frames are waited for: hosts do
	// not begin at the same moment, and some queues are long.
	settleTime = 300 * time.Millisecond
	// patience is how long other hosts may take until they have answered.
	patience = 30 * time.Second
	// frameSize is that of a burst's frames, which no network cuts in two.
	frameSize = 1200
	// look is the time between two looks at what is to be sent.
	look = 250 * time.Microsecond
	// together is how many frames are sent between two looks at what has come.
	together = 64
)

// SurveyOrder is what a host is to do: one of these.
type SurveyOrder struct {
	Meet  *tunnel.Config `json:"meet,omitempty"`  // measure the ways to all other hosts
	Again bool           `json:"again,omitempty"` // measure them once more
	Burst *Burst         `json:"burst,omitempty"`
	End   bool           `json:"end,omitempty"` // be done
}

// Burst is what all hosts send to each other at the same time.
type Burst struct {
	Turn int `json:"turn"` // its number, from 1
	// Rates are in bit/s, from row to column by host.
	Rates [][]float64 `json:"rates"`
}

// SurveyAnswer is what comes of an order.
type SurveyAnswer struct {
	// OneWay is how long the network takes to each host: half of the round trip's
	// 99.9th percentile.
	OneWay []time.Duration `json:"one_way_ns,omitempty"`
	// Carried is what came of a burst from each host, in bit/s.
	Carried []float64 `json:"carried,omitempty"`
	Err     string    `json:"error,omitempty"`
}

// Surveyor carries orders out, one at a time, at a socket of tunnel.Listen.
type Surveyor struct {
	Socket *os.File

	line *line // nil before Meet
}

// Do carries an order out.
func (s *Surveyor) Do(ctx context.Context, o SurveyOrder) SurveyAnswer {
	a, err := s.do(ctx, o)
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

func (s *Surveyor) do(ctx context.Context, o SurveyOrder) (a SurveyAnswer, err error) {
	switch {
	case o.End:
		return a, s.Close()
	case o.Meet != nil && s.line == nil:
		if s.line, err = open(s.Socket, *o.Meet); err != nil {
			return a, err
		}
	case s.line == nil:
		return a, fmt.Errorf("measuring the hosts' network: the hosts have not met")
	case o.Again:
		s.line.again()
	case o.Burst != nil:
		a.Carried, err = s.line.play(ctx, o.Burst)
		return a, err
	}
	a.OneWay, err = s.line.oneWay(ctx)
	return a, err
}

// Close ends it. It may be called twice.
func (s *Surveyor) Close() error {
	if s.line == nil {
		return nil
	}
	err := s.line.close()
	s.line = nil
	return err
}

// line is a tunnel at work.
type line struct {
	config  tunnel.Config
	epoch   time.Time
	stop    chan struct{}
	stopped chan struct{}

	mu     sync.Mutex
	tunnel *tunnel.Tunnel
	burst  burst
	err    error // that has ended it
}

// burst is the one under way, as one host sees it.
type burst struct {
	turn  int
	began time.Duration
	rates []float64 // to each host
	sent  []float64 // bytes
	came  []arrival // from each
}

// arrival is what has come of a burst.
type arrival struct {
	first, last time.Duration
	bytes       int // after the first frame
}

func open(socket *os.File, c tunnel.Config) (*line, error) {
	fd, err := unix.FcntlInt(socket.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("measuring the hosts' network: %w", os.NewSyscallError("fcntl", err))
	}
	l := &line{config: c, epoch: time.Now(), stop: make(chan struct{}), stopped: make(chan struct{})}
	if l.tunnel, err = tunnel.Open(fd, c); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("measuring the hosts' network: %w", err)
	}
	go l.run()
	return l, nil
}

func (l *line) close() error {
	close(l.stop)
	<-l.stopped
	return l.tunnel.Close()
}

// run works until it is stopped: it answers other hosts all the time.
func (l *line) run() {
	defer close(l.stopped)
	poll := []unix.PollFd{{Fd: int32(l.tunnel.FD()), Events: unix.POLLIN}}
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		wait := look
		if l.work() {
			wait = 0
		}
		timeout := unix.NsecToTimespec(int64(wait))
		_, _ = unix.Ppoll(poll, &timeout, nil) // an error is a look too early
	}
}

// work takes in and sends what there is, and says whether there is more.
func (l *line) work() (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return false
	}
	wall := time.Now()
	now := wall.Sub(l.epoch)
	_, more, l.err = l.tunnel.Receive(now, wall, l.take)
	more = l.send(now) || more
	if err := l.tunnel.Work(now); l.err == nil {
		l.err = err
	}
	return more
}

// take takes in a frame of a burst: whose it is, and of which turn, is said in the
// place of nodes.
func (l *line) take(f tunnel.Frame) {
	b := &l.burst
	if f.To != b.turn || f.From >= len(b.came) {
		return
	}
	a := &b.came[f.From]
	if a.last == 0 {
		a.first, a.last = f.At, f.At
		return
	}
	a.bytes += len(f.Data)
	a.first, a.last = min(a.first, f.At), max(a.last, f.At)
}

// send sends what is due of the burst.
func (l *line) send(now time.Duration) (more bool) {
	b := &l.burst
	if len(b.rates) == 0 || now-b.began > burstTime {
		return false
	}
	var frame [frameSize]byte
	for host, rate := range b.rates {
		due := rate / 8 * (now - b.began).Seconds()
		for range together {
			if b.sent[host]+float64(len(frame)) > due {
				break
			}
			l.tunnel.Send(host, &tunnel.Frame{From: l.config.Self, To: b.turn, Data: frame[:]})
			b.sent[host] += float64(len(frame))
		}
		more = more || b.sent[host]+float64(len(frame)) <= due
	}
	return more
}

// again forgets how long the ways are.
func (l *line) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for host := range l.config.Hosts {
		if host != l.config.Self {
			l.tunnel.Reopen(host)
		}
	}
}

// oneWay waits until the ways to all hosts are known.
func (l *line) oneWay(ctx context.Context) ([]time.Duration, error) {
	for begin := time.Now(); ; {
		l.mu.Lock()
		opened, waiting := l.tunnel.Opened()
		err := l.err
		l.mu.Unlock()
		switch {
		case err != nil:
			return nil, fmt.Errorf("measuring the hosts' network: %w", err)
		case opened:
			return l.ways(), nil
		case time.Since(begin) > patience:
			return nil, fmt.Errorf("the host %s does not answer %s; let UDP pass between the hosts, and name the leader by an address that all of them reach", waiting, l.config.Hosts[l.config.Self].Name)
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func (l *line) ways() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	ways := make([]time.Duration, len(l.config.Hosts))
	for host := range ways {
		if host != l.config.Self {
			ways[host] = l.tunnel.OneWay(host)
		}
	}
	return ways
}

// play sends this host's part of a burst, and returns what came of that of the
// others.
func (l *line) play(ctx context.Context, o *Burst) ([]float64, error) {
	n := len(l.config.Hosts)
	l.mu.Lock()
	l.burst = burst{turn: o.Turn, began: time.Since(l.epoch), rates: o.Rates[l.config.Self], sent: make([]float64, n), came: make([]arrival, n)}
	l.mu.Unlock()
	if err := pause(ctx, burstTime+settleTime); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	carried := make([]float64, n)
	for host, a := range l.burst.came {
		if took := a.last - a.first; took > 0 {
			carried[host] = 8 * float64(a.bytes) / took.Seconds()
		}
	}
	l.burst = burst{}
	return carried, l.err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
