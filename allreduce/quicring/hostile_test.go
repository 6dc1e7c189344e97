package quicring

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
)

// intruder is a QUIC client with a valid certificate and bad manners.
type intruder struct {
	tb   testing.TB
	conn *quic.Conn
}

func newIntruder(tb testing.TB, r *ring, name string, victim int) *intruder {
	tb.Helper()
	conn, err := dialAs(tb, r.authority, name, r.peers[victim])
	if err != nil {
		tb.Fatal(err)
	}
	return &intruder{tb, conn}
}

func dialAs(tb testing.TB, a *authority, name string, victim Peer) (*quic.Conn, error) {
	tb.Helper()
	socket := listenUDP(tb)
	transport := &quic.Transport{Conn: socket}
	tb.Cleanup(func() { transport.Close(); socket.Close() })
	cfg := Config{TLS: a.tls(tb, name)}
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	return transport.Dial(ctx, net.UDPAddrFromAddrPort(victim.Addr), cfg.clientTLS(victim.Name, rand.Text()), quicConfig(1452))
}

func (i *intruder) send(b []byte) *quic.Stream {
	i.tb.Helper()
	s, err := i.conn.OpenStreamSync(i.tb.Context())
	if err != nil {
		i.tb.Fatal(err)
	}
	s.Write(b) // a victim may refuse at once
	return s
}

// wantReset fails unless the victim resets the stream with this code.
func (i *intruder) wantReset(s *quic.Stream, code quic.StreamErrorCode) {
	i.tb.Helper()
	s.SetReadDeadline(time.Now().Add(patience))
	_, err := s.Read(make([]byte, 1))
	if e, ok := errors.AsType[*quic.StreamError](err); !ok || !e.Remote || e.ErrorCode != code {
		i.tb.Errorf("want a reset with code %d, got %v", code, err)
	}
}

// first is the first header that rank 0 sends in a ring of two.
func first(epoch uint64, length int) allreduce.Header {
	_, hi := allreduce.Chunk(length, 2, 0)
	piece := allreduce.DefaultPieceValues(length, 2, allreduce.DefaultBlock, false)
	h := allreduce.Header{
		Phase: allreduce.ReduceScatter, Epoch: epoch, Length: int64(length), Round: 1, Ranks: 2,
		Count: uint32(min(hi, piece)), Format: allreduce.DefaultFormat,
	}
	h.Payload = uint32(h.Format.EncodedLen(int(h.Count)))
	return h
}

// victim starts rank 1's reduction in a ring of two whose rank 0 is played by
// the test, and returns where its error will come.
func victim(t *testing.T, r *ring, epoch uint64, length int) <-chan error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	failed := make(chan error, 1)
	go func() {
		defer cancel()
		_, err := r.endpoints[1].Reduce(ctx, Op{Epoch: epoch, Round: 1, Rank: 1, Peers: r.peers}, make([]float32, length), make([]float32, length))
		failed <- err
	}()
	return failed
}

func TestBadFramesFailTheReductionOnce(t *testing.T) {
	const length = 1000
	frame := func(h allreduce.Header) []byte {
		if h.Coding == allreduce.Plain {
			h.Payload = uint32(h.Format.EncodedLen(int(h.Count)))
		}
		return append(allreduce.AppendHeader(nil, h), make([]byte, h.Payload)...)
	}
	edited := func(edit func(*allreduce.Header)) []byte {
		h := first(1, length)
		edit(&h)
		return frame(h)
	}
	end := func(epoch uint64, streams uint32) []byte {
		h := first(epoch, length)
		h.Phase, h.Count, h.Payload = allreduce.End, streams, 0
		return allreduce.AppendHeader(nil, h)
	}
	for _, test := range []struct {
		says string
		send []byte
	}{
		{"malformed frame header: wrong magic number", make([]byte, allreduce.HeaderLen)},
		{"malformed frame header: version", append([]byte("TBAR\x63"), make([]byte, allreduce.HeaderLen)...)},
		{"reduces round 2, but this worker reduces round 1", edited(func(h *allreduce.Header) { h.Round = 2 })},
		{"the peer's ring has 3 ranks", edited(func(h *allreduce.Header) { h.Ranks = 3; h.Count = 300 })},
		{"the peer reduces 2000 values", edited(func(h *allreduce.Header) { h.Length = 2000 })},
		{"the peer's values have 4 bits", edited(func(h *allreduce.Header) { h.Format.Bits = 4 })},
		{"shortened codes: huffman table", edited(func(h *allreduce.Header) { h.Coding, h.Payload = allreduce.Huffman, 40 })},
		{"the peer's blocks have 256 values", edited(func(h *allreduce.Header) { h.Format.Block = 256 })},
		{"frame out of order", edited(func(h *allreduce.Header) { h.Chunk = 1 })},
		{"frame out of order", append(frame(first(1, length)), frame(first(1, length))...)},
		{"the peer's frame has the epoch 9, but", append(frame(first(1, length)), frame(first(9, length))...)},
		{"the peer's pieces have 499 values", edited(func(h *allreduce.Header) { h.Count = 499 })},
		{"unexpected EOF", frame(first(1, length))[:allreduce.HeaderLen+7]},
		{"unexpected EOF", frame(first(1, length))}, // and no end
		{"the end of a stream has a coding, step, chunk, piece or payload", append(frame(first(1, length)), edited(func(h *allreduce.Header) { h.Phase, h.Step = allreduce.End, 0 })...)},
		{"a stream ended before its first frame", end(1, 1)},
		{"all streams of the peer ended before its last frame (missing frames: 1)", append(frame(first(1, length)), end(1, 1)...)},
		{"data follows the end", append(frame(first(1, length)), append(end(1, 0), 1)...)},
		{"the peer's frame has the epoch 3, but", append(frame(first(1, length)), end(3, 1)...)},
	} {
		t.Run(test.says, func(t *testing.T) {
			r := newRing(t, 2, nil)
			failed := victim(t, r, 1, length)
			waitUntilBegun(t, r.endpoints[1])
			i := newIntruder(t, r, "w0", 1)
			i.send(test.send).Close()
			err := <-failed
			if err == nil || !strings.Contains(err.Error(), "receive from w0") || !strings.Contains(err.Error(), test.says) {
				t.Errorf("want an error from w0 about %q, got %v", test.says, err)
			}
			r.must(2, upTo(2), gaussian(1, 2, length))
		})
	}
}

// TestBadClassesFailTheReduction: long pieces say first how many classes of codes
// they have.
func TestBadClassesFailTheReduction(t *testing.T) {
	const length, piece = 1 << 17, 1 << 16
	r := newRing(t, 2, func(c *Config) { c.PieceValues = piece })
	failed := victim(t, r, 1, length)
	waitUntilBegun(t, r.endpoints[1])
	h := first(1, length)
	h.Count, h.Coding, h.Payload = piece, allreduce.Huffman, 4*piece/allreduce.DefaultBlock+40
	payload := make([]byte, h.Payload)
	payload[4*piece/allreduce.DefaultBlock] = 5
	newIntruder(t, r, "w0", 1).send(append(allreduce.AppendHeader(nil, h), payload...)).Close()
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "receive from w0: shortened codes: short form has 5 classes") {
		t.Errorf("want an error about 5 classes, got %v", err)
	}
	r.must(2, upTo(2), gaussian(1, 2, length))
}

// TestEndOfAPeersSending: the streams of a peer begin and end in any order, over
// connections that come while others have ended already. Only when no more can
// come is a missing frame an error, and then at once.
func TestEndOfAPeersSending(t *testing.T) {
	const length = 1000
	sum := first(1, length)
	mean := sum
	mean.Phase, mean.Chunk = allreduce.AllGather, 1
	stream := func(h allreduce.Header, streams uint32) []byte {
		b := append(allreduce.AppendHeader(nil, h), make([]byte, h.Payload)...)
		h.Phase, h.Chunk, h.Count, h.Payload = allreduce.End, 0, streams, 0
		return allreduce.AppendHeader(b, h)
	}
	for _, test := range []struct {
		name string
		says string // "" for a success
		then func(r *ring, i *intruder)
	}{
		{"the other stream comes late", "", func(r *ring, _ *intruder) {
			conn, err := r.endpoints[0].transport.Dial(t.Context(), net.UDPAddrFromAddrPort(r.peers[1].Addr), r.endpoints[0].cfg.clientTLS("w1", "one/1"), quicConfig(1452))
			if err != nil {
				t.Fatal(err)
			}
			other := &intruder{t, conn}
			// It is passed on only once this rank's own sum is on its way.
			waitFor(t, "the victim to send", func() bool {
				e := r.endpoints[0]
				e.inbox.mu.Lock()
				defer e.inbox.mu.Unlock()
				return e.inbox.early["w1"][1] != nil
			})
			other.send(stream(mean, 0)).Close()
		}},
		{"its connections end", "all connections of the peer ended before its last frame (missing frames: 1)", func(_ *ring, i *intruder) {
			i.conn.CloseWithError(connClosing, "")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // the end of a ring takes its time where a peer says no goodbye
			r := newRing(t, 2, nil)
			failed := victim(t, r, 1, length)
			waitUntilBegun(t, r.endpoints[1])
			conn, err := r.endpoints[0].transport.Dial(t.Context(), net.UDPAddrFromAddrPort(r.peers[1].Addr), r.endpoints[0].cfg.clientTLS("w1", "one/1"), quicConfig(1452))
			if err != nil {
				t.Fatal(err)
			}
			i := &intruder{t, conn}
			s := i.send(stream(sum, 2))
			s.Close()
			s.SetReadDeadline(time.Now().Add(patience))
			if _, err := s.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Fatalf("the first stream is not confirmed: %v", err)
			}
			select {
			case err := <-failed:
				t.Fatalf("failed with half of the streams: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			test.then(r, i)
			err = <-failed
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), "receive from w0: "+test.says)) {
				t.Errorf("want %q, got %v", test.says, err)
			}
		})
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if done() {
			return
		}
	}
	t.Errorf("waited %v for %s", patience, what) // not Fatal: callers may be goroutines
}

func waitUntilBegun(t *testing.T, e *Endpoint) {
	t.Helper()
	waitFor(t, "the reduction to begin", func() bool {
		e.inbox.mu.Lock()
		defer e.inbox.mu.Unlock()
		return len(e.inbox.current) > 0
	})
}

func TestGarbageHarmsNobody(t *testing.T) {
	r := newRing(t, 2, nil)
	i := newIntruder(t, r, "w7", 1)
	random := mathrand.New(mathrand.NewPCG(1, 1))
	for range 200 {
		b := make([]byte, random.IntN(200))
		for k := range b {
			b[k] = byte(random.Uint32())
		}
		i.send(b).Close()
	}
	r.must(1, upTo(2), gaussian(1, 2, 5000))
}

func TestStrangerIsRefused(t *testing.T) {
	r := newRing(t, 2, nil)
	failed := victim(t, r, 1, 1000)
	waitUntilBegun(t, r.endpoints[1])
	// The header says all the right things; the certificate says w7.
	i := newIntruder(t, r, "w7", 1)
	i.wantReset(i.send(allreduce.AppendHeader(nil, first(1, 1000))), codeStranger)
	_, err := r.endpoints[0].Reduce(t.Context(), Op{Epoch: 1, Round: 1, Peers: r.peers}, make([]float32, 1000), make([]float32, 1000))
	if err != nil {
		t.Error(err)
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

func TestSuccessorUnderAnotherName(t *testing.T) {
	r := newRing(t, 2, nil)
	inputs := gaussian(1, 1, 100)
	peers := []Peer{r.peers[0], {Name: "w9", Addr: r.peers[1].Addr}}
	_, err := r.endpoints[0].Reduce(t.Context(), Op{Epoch: 1, Peers: peers}, inputs[0], make([]float32, 100))
	if err == nil || !strings.Contains(err.Error(), "send to w9") || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v", err)
	}
	r.must(2, upTo(2), gaussian(1, 2, 1000))
}

func TestUntrustedClientIsRefused(t *testing.T) {
	// The client trusts the ring's authority but is signed by its own, so that
	// only the server's check can refuse it.
	r := newRing(t, 2, nil)
	config := newAuthority(t).tls(t, "w0")
	config.RootCAs = r.authority.tls(t, "x").RootCAs
	socket := listenUDP(t)
	e, err := Listen(Config{Conn: socket, TLS: config})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	peers := []Peer{{Name: "w0", Addr: addrOf(socket)}, r.peers[1]}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = e.Reduce(ctx, Op{Epoch: 1, Peers: peers}, make([]float32, 9), make([]float32, 9))
	if err == nil || !strings.Contains(err.Error(), "send to w1") || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v", err)
	}
}

func TestEarlyStreamIsHeld(t *testing.T) {
	r := newRing(t, 3, nil)
	inputs := gaussian(1, 3, 100_000)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	errs := make(chan error, 3)
	for k := range 3 {
		go func() {
			time.Sleep(time.Duration(k) * 100 * time.Millisecond)
			_, err := r.endpoints[k].Reduce(ctx, Op{Epoch: 4, Rank: k, Peers: r.peers}, inputs[k], make([]float32, 100_000))
			errs <- err
		}()
	}
	for range 3 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestOnlyTheLatestEarlyStreamsAreHeld(t *testing.T) {
	r := newRing(t, 2, nil)
	i := newIntruder(t, r, "w0", 1)
	var last *quic.Stream
	var streams []*quic.Stream
	for epoch := uint64(1); epoch <= 50; epoch++ {
		s := i.send(allreduce.AppendHeader(nil, first(epoch, 1000)))
		// One after the other: streams may overtake each other.
		waitFor(t, "a held stream", func() bool {
			r.endpoints[1].inbox.mu.Lock()
			defer r.endpoints[1].inbox.mu.Unlock()
			return r.endpoints[1].inbox.early["w0"][epoch] != nil
		})
		if streams = append(streams, s); len(streams) > maxReductions {
			i.wantReset(streams[0], codeStale)
			streams = streams[1:]
		}
		last = s
	}
	i.wantReset(i.send(allreduce.AppendHeader(nil, first(3, 1000))), codeStale)
	if n := len(r.endpoints[1].inbox.early["w0"]); n != maxReductions {
		t.Errorf("streams of %d epochs are held", n)
	}
	// Epoch 60 makes it stale.
	failed := victim(t, r, 60, 1000)
	i.wantReset(last, codeStale)
	r.endpoints[1].Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestLateStreamIsRefused(t *testing.T) {
	r := newRing(t, 2, nil)
	if _, err := r.endpoints[1].Reduce(t.Context(), Op{Epoch: 5, Peers: r.peers[1:]}, nil, nil); err != nil {
		t.Fatal(err)
	}
	_, err := r.endpoints[0].Reduce(t.Context(), Op{Epoch: 4, Peers: r.peers}, make([]float32, 9), make([]float32, 9))
	if err == nil || !strings.Contains(err.Error(), "send to w1: peer refused the stream: the reduction of the stream is over") {
		t.Errorf("got %v", err)
	}
	r.must(6, upTo(2), gaussian(1, 2, 1000))
}

func TestDisagreementAboutLength(t *testing.T) {
	r := newRing(t, 2, nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	outcomes := r.reduce(same(ctx, 2), 1, upTo(2), [][]float32{make([]float32, 10), make([]float32, 11)})
	said := ""
	for _, o := range outcomes {
		said += fmt.Sprintln(o.err)
	}
	if !strings.Contains(said, "values, but this worker reduces 1") {
		t.Errorf("nobody names the lengths:\n%s", said)
	}
}

func TestTooManyConnections(t *testing.T) {
	r := newRing(t, 1, nil)
	for k := range maxInbound {
		newIntruder(t, r, fmt.Sprintf("x%d", k), 0)
	}
	// The handshake ends before the endpoint has counted the connection.
	waitFor(t, "all connections", func() bool {
		r.endpoints[0].mu.Lock()
		defer r.endpoints[0].mu.Unlock()
		return len(r.endpoints[0].inbound) == maxInbound
	})
	conn, err := dialAs(t, r.authority, "y", r.peers[0])
	if err == nil { // the handshake may end before the refusal comes
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err = conn.AcceptStream(ctx)
	}
	if e, ok := errors.AsType[*quic.ApplicationError](err); !ok || e.ErrorCode != connRefused {
		t.Errorf("got %v", err)
	}
}

func TestConnectionFromSamePeerReplacesTheFormer(t *testing.T) {
	r := newRing(t, 1, nil)
	former := newIntruder(t, r, "w7", 0)
	held := former.send(allreduce.AppendHeader(nil, first(1, 10)))
	held.SetReadDeadline(time.Now().Add(patience))
	waitFor(t, "the first connection", func() bool {
		r.endpoints[0].mu.Lock()
		defer r.endpoints[0].mu.Unlock()
		return r.endpoints[0].inbound["w7"] != nil
	})
	newIntruder(t, r, "w7", 0)
	_, err := io.ReadAll(held)
	if e, ok := errors.AsType[*quic.ApplicationError](err); !ok || e.ErrorCode != connReplaced {
		t.Errorf("got %v", err)
	}
}
