package node

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
	"testbed/policy"
	"testbed/policy/timescale"
)

// The control protocol: one bidirectional QUIC stream per worker, opened by the
// worker, carrying newline-delimited JSON messages both ways. Heartbeats are
// messages too, but in datagrams (RFC 9221): on the stream a heartbeat would
// wait for every message lost before it, and after a partition say nothing
// about the present.
const (
	controlALPN    = "testbed-control/1"
	protocol       = 1
	maxMessage     = 64 << 10 // bytes in one line
	maxRing        = 100_000
	outboxMessages = 256
)

type verb string

// Messages to the coordinator.
const (
	msgHello        verb = "hello"
	msgHeartbeat    verb = "heartbeat"
	msgArrive       verb = "arrive"
	msgReduced      verb = "reduced"
	msgReduceFailed verb = "reduce_failed"
	msgStepped      verb = "stepped"
	msgFetched      verb = "fetched"
	msgFetchFailed  verb = "fetch_failed"
	msgLeave        verb = "leave"
)

// Messages from the coordinator to itself when a connection has ended.
const (
	msgLost   verb = "lost"
	msgGaveUp verb = "gave_up" // the worker has announced that it gives up
	// msgRattle is the name of gave_up in journals of earlier versions.
	msgRattle verb = "rattle"
)

// Codes with which control connections are closed.
const (
	codeProtocol quic.ApplicationErrorCode = 1
	// codeGaveUp closes the connection of a worker that gives up: a single packet,
	// so that nobody has to wait for it.
	codeGaveUp quic.ApplicationErrorCode = 2
)

// Messages to a worker.
const (
	msgStart  verb = "start"
	msgReduce verb = "reduce"
	msgAbort  verb = "abort"
	msgFetch  verb = "fetch"
	msgEvict  verb = "evict"
	msgFinish verb = "finish"
)

// message is one line of the control protocol.
type message struct {
	Type     verb      `json:"type"`
	Protocol int       `json:"protocol,omitempty"`
	ID       policy.ID `json:"id,omitempty"`
	// Incarnation numbers the processes of a worker, and Rejoins counts the
	// requests of this one to join again. A hello with a higher number begins a
	// session of its own.
	Incarnation int `json:"incarnation,omitempty"`
	Rejoins     int `json:"rejoins,omitempty"`
	// Seq numbers the messages of one end, except hello and heartbeats. Ack is the
	// last message that it has accepted from the other end.
	Seq   int            `json:"seq,omitempty"`
	Ack   int            `json:"ack,omitempty"`
	Ring  netip.AddrPort `json:"ring,omitzero"`  // where this worker's ring listens
	Fetch netip.AddrPort `json:"fetch,omitzero"` // where this worker serves its state
	Round int            `json:"round,omitempty"`
	Epoch policy.Epoch   `json:"epoch,omitempty"`
	// OuterSteps is the version of the outer state: in start, the version to begin
	// from; in fetch, the least version wanted; in stepped and fetched, the
	// version held; in hello, the version restored from a checkpoint.
	OuterSteps int    `json:"outer_steps,omitempty"`
	Peers      []peer `json:"peers,omitempty"` // in ring order; in fetch: donors
	Zero       bool   `json:"zero,omitempty"`  // contribute zeros
	// Repeats is how many more times than once the contribution counts.
	Repeats int `json:"repeats,omitempty"`
	// Agreed means that a state to fetch, or a fetched one, is the last that all
	// regions agreed on.
	Agreed bool `json:"agreed,omitempty"`
	// Whole makes the receiver of fetch drop its state. Alone means, for a failed
	// reduction, that the others can end theirs.
	Whole bool `json:"whole,omitempty"`
	Alone bool `json:"alone,omitempty"`
	// Confirm asks the receiver of abort for an answer.
	Confirm bool `json:"confirm,omitempty"`
	// Rejoin means that an evicted worker may ask to join again.
	Rejoin bool `json:"rejoin,omitempty"`
	// Checkpoint makes the receiver of start save the state that it begins from.
	Checkpoint bool `json:"checkpoint,omitempty"`
	// With Residual the worker saves its own part, with or without the state.
	Residual bool    `json:"residual,omitempty"`
	Hash     string  `json:"hash,omitempty"`
	Loss     float64 `json:"loss,omitempty"`
	// Bytes is the number of bytes that a reduction sent; in a heartbeat, the
	// number received so far.
	Bytes int64 `json:"bytes,omitempty"`
	// Peer is the peer at which a reduction failed; in a heartbeat, the peer that
	// the worker receives from.
	Peer *policy.ID    `json:"peer,omitempty"`
	Took time.Duration `json:"took_ns,omitempty"`
	// Due is the number of frames of the reduction that a heartbeat's worker has
	// still to receive. Peer owes most of them.
	Due int64 `json:"due,omitempty"`
	// Now is the coordinator's scenario time when it sent the message.
	Now      policy.Time `json:"now_us,omitempty"`
	Told     int         `json:"told,omitempty"` // number of events recorded by then
	Complete bool        `json:"complete,omitempty"`
	Error    string      `json:"error,omitempty"`

	received time.Time // when it was read
}

type peer struct {
	ID          policy.ID      `json:"id"`
	Incarnation int            `json:"incarnation,omitempty"`
	Addr        netip.AddrPort `json:"addr"`
}

// readMessage reads one line. It never buffers more than maxMessage bytes.
func readMessage(r *bufio.Reader) (message, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return message{}, fmt.Errorf("control message: the line is longer than %d bytes", maxMessage)
	case err != nil:
		return message{}, err
	}
	return parseMessage(line)
}

func parseMessage(line []byte) (message, error) {
	var m message
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return message{}, fmt.Errorf("control message: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return message{}, errors.New("control message: the line contains more than one value")
	}
	if m.ID < 0 || m.Incarnation < 0 || m.Rejoins < 0 || m.Seq < 0 || m.Ack < 0 || m.Round < 0 || m.Epoch < 0 || m.OuterSteps < 0 {
		return message{}, fmt.Errorf("control message: the message %q contains a negative number", m.Type)
	}
	if len(m.Peers) > maxRing {
		return message{}, fmt.Errorf("control message: the message %q names %d peers, but at most %d are allowed", m.Type, len(m.Peers), maxRing)
	}
	return m, nil
}

// line is the control stream of one worker. Messages are queued, so that a
// worker that has stopped reading delays nobody.
type line struct {
	conn   *quic.Conn
	stream *quic.Stream
	in     *bufio.Reader
	out    chan message
	bye    chan struct{} // closed by hangUp
	once   sync.Once
	closed chan struct{} // the writer has ended
}

func newLine(conn *quic.Conn, stream *quic.Stream) *line {
	l := &line{
		conn: conn, stream: stream,
		in:  bufio.NewReaderSize(stream, maxMessage),
		out: make(chan message, outboxMessages), bye: make(chan struct{}), closed: make(chan struct{}),
	}
	go l.write()
	return l
}

func (l *line) write() {
	defer close(l.closed)
	enc := json.NewEncoder(l.stream)
	for {
		select {
		case m := <-l.out:
			if enc.Encode(m) != nil {
				return
			}
			continue
		default:
		}
		select {
		case m := <-l.out:
			if enc.Encode(m) != nil {
				return
			}
		case <-l.bye:
			if len(l.out) == 0 {
				l.stream.Close()
				return
			}
		}
	}
}

// send queues a message. If the queue is full, the worker does not listen. It
// notices the gap if it ever receives a later message.
func (l *line) send(m message) {
	select {
	case l.out <- m:
	default:
	}
}

// hangUp sends the queued messages and closes the stream. It may be called
// again.
func (l *line) hangUp(patience time.Duration) {
	l.once.Do(func() { close(l.bye) })
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-l.closed:
	case <-timeout.C:
		l.stream.CancelWrite(0)
		<-l.closed
	}
}

// helloPatience limits the duration of a handshake, with the hello after it.
const helloPatience = 15 * time.Second

// controlQUIC: the idle timeout is far beyond every heartbeat threshold,
// because the policy, not the transport, decides which workers are dead.
func controlQUIC(tracing Tracing, scale timescale.Scale, links time.Duration) *quic.Config {
	return &quic.Config{
		MaxIdleTimeout:       coordinatorPatience,
		HandshakeIdleTimeout: patient(helloPatience, links, scale),
		InitialPacketSize:    initialPacket,
		EnableDatagrams:      true,
		Tracer:               tracing.of("control"),
	}
}

// initialPacket is the all-reduce's: path MTU discovery would add probes to
// links whose traffic is being measured. Tests in virtual time lower it.
var initialPacket uint16 = allreduce.PacketSize

// coordinatorPatience limits how long a worker goes on without the coordinator,
// whether that is silent or unreachable.
const coordinatorPatience = time.Hour

// resetKey lets a coordinator that replaces another tell the workers that their
// connections are gone: processes with the same credentials make the same
// stateless resets (RFC 9000, section 10.3).
func resetKey(c *tls.Config) (*quic.StatelessResetKey, error) {
	der, err := x509.MarshalPKCS8PrivateKey(c.Certificates[0].PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of stateless resets: %w", err)
	}
	key := quic.StatelessResetKey(sha256.Sum256(append([]byte("stateless reset"), der...)))
	return &key, nil
}

// isAbsence reports whether a connection failed because no process answered, or
// one that does not know of it.
func isAbsence(err error) bool {
	_, reset := errors.AsType[*quic.StatelessResetError](err)
	_, handshake := errors.AsType[*quic.HandshakeTimeoutError](err)
	_, idle := errors.AsType[*quic.IdleTimeoutError](err)
	return reset || handshake || idle
}
