package quicring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
	"testbed/allreduce/tuner"
)

const (
	// Bounds of the time between two samples of a link, which is a round trip.
	minInterval = 20 * time.Millisecond
	maxInterval = 500 * time.Millisecond
	// rttSamples is how often the latest round trips are read meanwhile.
	rttSamples = 8
)

// link is the connections to a peer. It begins and ends with the first of them.
type link struct {
	peer Peer
	name linkName
	e    *Endpoint
	// unconfirmed counts the finished streams whose end the peer has not yet
	// confirmed.
	unconfirmed sync.WaitGroup
	// ctx ends with the link. Then no more connections are dialled.
	ctx    context.Context
	cancel context.CancelFunc
	added  atomic.Int32 // connections being dialled in addition to the existing ones

	dialling sync.Mutex // one reduction dials the first, the others wait

	// Guarded by the endpoint's mutex:
	users int    // reductions
	used  uint64 // number of reductions that had ended when one last began

	mu    sync.Mutex
	conns []*quic.Conn
	tuner tuner.Tuner
	tuned bool // a reduction is tuning
	// suspected is set when a reduction has failed, with the number of packets
	// received until then.
	suspected       bool
	packetsReceived uint64
}

// suspect marks the link after a failed reduction. A live peer acknowledges the
// reset of the stream. One that has restarted does not know this connection
// any more and would leave the next reduction waiting too.
func (l *link) suspect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) > 0 {
		l.suspected, l.packetsReceived = true, l.conns[0].ConnectionStats().PacketsReceived
	}
}

// alive reports whether the first connection is alive, and forgets further ones
// that have ended.
func (l *link) alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) == 0 {
		return false
	}
	first := l.conns[0]
	l.suspected = l.suspected && first.ConnectionStats().PacketsReceived == l.packetsReceived
	l.conns = slices.DeleteFunc(l.conns, func(c *quic.Conn) bool { return c != first && c.Context().Err() != nil })
	return !l.suspected && first.Context().Err() == nil
}

// connections returns the link's connections.
func (l *link) connections() []*quic.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.conns)
}

// connect returns a link to peer with at least one connection: the present one
// if it is alive, else a new one. The caller releases it.
func (e *Endpoint) connect(ctx context.Context, peer Peer) (*link, error) {
	l := e.take(peer, nil)
	l.dialling.Lock()
	defer func() { l.dialling.Unlock() }()
	if len(l.connections()) > 0 && !l.alive() {
		l.dialling.Unlock()
		l = e.take(peer, l)
		l.dialling.Lock()
	}
	if len(l.connections()) > 0 {
		return l, nil
	}
	if _, err := l.dial(ctx); err != nil {
		e.release(l)
		return nil, err
	}
	return l, nil
}

// linkName distinguishes links at their other end.
type linkName struct {
	life   string // of the endpoint, random
	number uint64 // of the links that it has made
}

func (n linkName) String() string { return fmt.Sprintf("%s/%d", n.life, n.number) }

// linkNamed reads a name from a negotiated protocol. Anything else that a peer
// invents is a name too, but no later link follows it.
func linkNamed(negotiated string) linkName {
	life, number, _ := strings.Cut(strings.TrimPrefix(negotiated, protocol), "/")
	n, _ := strconv.ParseUint(number, 10, 64)
	return linkName{life, n}
}

// take returns the present link to peer for another reduction. A link that
// leads elsewhere, or that has failed, is replaced by a new one without
// connections.
func (e *Endpoint) take(peer Peer, failed *link) *link {
	e.mu.Lock()
	defer e.mu.Unlock()
	if failed != nil {
		failed.users--
	}
	l := e.links[peer.Name]
	if l != nil && (l.peer != peer || l == failed) {
		// It closes in the background, once its data has arrived.
		e.tasks.Go(l.close)
		l = nil
	}
	if l == nil {
		e.made++
		l = &link{peer: peer, name: linkName{e.life, e.made}, e: e}
		l.ctx, l.cancel = context.WithCancel(e.ctx)
		e.links[peer.Name] = l
	}
	l.users++
	l.used = e.ended
	return l
}

func (e *Endpoint) release(l *link) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l.users--
}

// retire closes unused links in the background, after a reduction among these
// peers: links to other peers, and links that maxIdle reductions have not used.
func (e *Endpoint) retire(peers []Peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended++
	for name, l := range e.links {
		if l.users == 0 && (!slices.Contains(peers, l.peer) || e.ended-l.used > maxIdle) {
			delete(e.links, name)
			e.tasks.Go(l.close)
		}
	}
}

// dial adds a connection.
func (l *link) dial(ctx context.Context) (*quic.Conn, error) {
	conn, err := l.e.transport.Dial(ctx, net.UDPAddrFromAddrPort(l.peer.Addr), l.e.cfg.clientTLS(l.peer.Name, l.name.String()), l.e.cfg.quic())
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		conn.CloseWithError(connClosing, "link closed")
		return nil, fmt.Errorf("dial: %w", errClosed)
	}
	l.conns = append(l.conns, conn)
	return conn, nil
}

// grow adds connections while f runs, up to the configured number or, if there
// is none, as the tuner decides. The returned function ends it.
func (l *link) grow(f *flow) (stop func()) {
	if n := l.e.cfg.Connections; n > 0 {
		for range n - int(l.added.Load()) - len(l.connections()) { // read in this order, never too many
			l.extend(f)
		}
		return func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tuned {
		return func() {} // one reduction tunes
	}
	l.tuned = true
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		l.tune(f, end)
	}()
	return func() {
		close(end)
		<-ended
		l.mu.Lock()
		defer l.mu.Unlock()
		l.tuned = false
	}
}

// tune asks the tuner repeatedly, until end is closed.
func (l *link) tune(f *flow, end <-chan struct{}) {
	trips := roundTrips{received: make(map[*quic.Conn]uint64)}
	wanted, last, s := 0, time.Now(), l.sample()
	l.mu.Lock()
	l.tuner.Resume(s)
	l.mu.Unlock()
	for {
		if !l.watch(&trips, s, end) {
			return
		}
		s = l.sample()
		s.AppLimited = len(f.jobs) == 0
		s.LowestRTT, s.HighestRTT = trips.take()
		now := time.Now()
		s.Elapsed, last = now.Sub(last), now
		l.mu.Lock()
		n := l.tuner.Next(s)
		l.mu.Unlock()
		if s.Connections < wanted {
			continue // they are being dialled
		}
		wanted = n
		for range wanted - s.Connections {
			l.extend(f)
		}
	}
}

// watch records round trips for about the duration of one, by the last sample.
// It reports whether that was before end was closed.
func (l *link) watch(trips *roundTrips, last tuner.Sample, end <-chan struct{}) bool {
	interval, times := min(max(last.SmoothedRTT, minInterval), maxInterval), rttSamples
	if last.MinRTT < allreduce.ShortRTT {
		times = 1 // the tuner needs no more
	}
	ticker := time.NewTicker(interval / time.Duration(times))
	defer ticker.Stop()
	for range times {
		select {
		case <-ticker.C:
			trips.read(l.connections())
		case <-end:
			return false
		}
	}
	return true
}

// extend dials another connection in the background, for f to use at once and
// for later reductions.
func (l *link) extend(f *flow) {
	l.added.Add(1)
	l.e.tasks.Go(func() {
		conn, err := l.dial(l.ctx)
		l.added.Add(-1)
		if err != nil {
			l.e.cfg.Logger.Info("could not open another connection to a peer", "peer", l.peer.Name, "err", err)
			return
		}
		f.join(conn, false)
	})
}

func (l *link) sample() tuner.Sample {
	conns := l.connections()
	s := tuner.Sample{Connections: len(conns)}
	for _, c := range conns {
		stats := c.ConnectionStats()
		s.BytesSent += stats.BytesSent
		s.PacketsLost += stats.PacketsLost
		s.CongestionWindow += stats.CongestionWindow
		s.SmoothedRTT += stats.SmoothedRTT / time.Duration(len(conns))
		if s.MinRTT == 0 || stats.MinRTT > 0 && stats.MinRTT < s.MinRTT {
			s.MinRTT = stats.MinRTT
		}
	}
	return s
}

// finish ends a stream after its last frame and watches for the peer's
// confirmation.
func (l *link) finish(stream *quic.Stream) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() == nil { // otherwise it is no longer waited for
		l.unconfirmed.Go(func() { drain(stream, l.e.cfg.patient(holdTime)) })
	}
	return stream.Close()
}

// close waits up to closeTime for the peer to confirm all data, then closes the
// connections.
func (l *link) close() {
	l.mu.Lock()
	l.cancel()
	conns := l.conns
	l.mu.Unlock()
	if len(conns) > 0 {
		waitToClose(&l.unconfirmed, l.e.cfg.patient(closeTime), conns[0].Context().Done())
	}
	for _, c := range conns {
		c.CloseWithError(connClosing, "no longer needed")
	}
	l.unconfirmed.Wait()
}

// drain reads the rest of a stream after its last frame, which is its end. It
// never resets the other direction, which may still be delivering.
func drain(stream *quic.Stream, hold time.Duration) {
	stream.SetReadDeadline(time.Now().Add(hold))
	if _, err := stream.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		stream.CancelRead(codeMalformed)
	}
}

// waitToClose waits for group, at most for longest, and only until stop is
// closed. The tasks of group must end soon after connections close.
func waitToClose(group *sync.WaitGroup, longest time.Duration, stop <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(longest):
	case <-stop:
	}
}
