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

// The control protocol: one bidirectional QUIC stream per worker, opened by
// the worker, carrying newline-delimited JSON messages both ways. Heartbeats are
// such messages too, but datagrams (RFC 9221): on the stream one would wait for
// every message lost before it, and after a partition say nothing of the present.
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

// What the coordinator tells itself when a connection has ended.
const (
	msgLost   verb = "lost"
	msgGaveUp verb = "gave_up" // the worker has said that it gives up
	// msgRattle is what gave_up is called in journals of earlier versions.
	msgRattle verb = "rattle"
)

// Codes with which control connections are closed.
const (
	codeProtocol quic.ApplicationErrorCode = 1
	// codeGaveUp closes the connection of a worker that gives up: one packet,
	// so that nobody waits for it.
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
	// Incarnation numbers the processes of a worker, and Rejoins how often this
	// one has asked to join again: a hello that is newer by them begins a session
	// of its own.
	Incarnation int `json:"incarnation,omitempty"`
	Rejoins     int `json:"rejoins,omitempty"`
	// Seq numbers the messages of one end, but hello and heartbeats; Ack is the
	// last one that it has accepted of the other.
	Seq   int            `json:"seq,omitempty"`
	Ack   int            `json:"ack,omitempty"`
	Ring  netip.AddrPort `json:"ring,omitzero"`  // where this worker's ring listens
	Fetch netip.AddrPort `json:"fetch,omitzero"` // where this worker serves its state
	Round int            `json:"round,omitempty"`
	Epoch policy.Epoch   `json:"epoch,omitempty"`
	// OuterSteps is the version of the outer state: in start, the one to begin
	// from; in fetch, the least one wanted; in stepped and fetched, the one held;
	// in hello, the one restored from a checkpoint.
	OuterSteps int    `json:"outer_steps,omitempty"`
	Peers      []peer `json:"peers,omitempty"` // in ring order; in fetch: donors
	Zero       bool   `json:"zero,omitempty"`  // contribute zeros
	// Agreed says of a state to be fetched, or that was, that it is what all regions
	// last agreed on.
	Agreed bool `json:"agreed,omitempty"`
	// Whole has the receiver of fetch drop what it holds, and Alone says of a reduction
	// that failed that the others can end theirs.
	Whole bool `json:"whole,omitempty"`
	Alone bool `json:"alone,omitempty"`
	// Confirm has the receiver of abort answer.
	Confirm bool `json:"confirm,omitempty"`
	// Rejoin tells a worker that is evicted that it may ask to join again.
	Rejoin bool `json:"rejoin,omitempty"`
	// Checkpoint has the receiver of start save the state that it begins from.
	Checkpoint bool `json:"checkpoint,omitempty"`
	// With Residual the worker saves its own part, with the state or without.
	Residual bool    `json:"residual,omitempty"`
	Hash     string  `json:"hash,omitempty"`
	Loss     float64 `json:"loss,omitempty"`
	// Bytes is what a reduction sent; in a heartbeat, what came in so far.
	Bytes int64 `json:"bytes,omitempty"`
	// Peer is whom a reduction failed at or, in a heartbeat, receives from.
	Peer *policy.ID    `json:"peer,omitempty"`
	Took time.Duration `json:"took_ns,omitempty"`
	// Due is how many frames of the reduction a heartbeat's worker has still to receive;
	// Peer owes most of them.
	Due int64 `json:"due,omitempty"`
	// Now is the coordinator's scenario time when it sent the message.
	Now      policy.Time `json:"now_us,omitempty"`
	Told     int         `json:"told,omitempty"` // events for the record by then
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
		return message{}, fmt.Errorf("control message is longer than %d bytes", maxMessage)
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
		return message{}, errors.New("control message: more than one value in a line")
	}
	if m.ID < 0 || m.Incarnation < 0 || m.Rejoins < 0 || m.Seq < 0 || m.Ack < 0 || m.Round < 0 || m.Epoch < 0 || m.OuterSteps < 0 || len(m.Peers) > maxRing {
		return message{}, fmt.Errorf("control message: %s has a number out of range", m.Type)
	}
	return m, nil
}

// line is the control stream of one worker. Messages are queued, so that a
// worker that has stopped reading holds nobody up.
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

// send queues a message. A line whose queue is full is that of a worker that
// does not listen; it notices if it ever hears a later one.
func (l *line) send(m message) {
	select {
	case l.out <- m:
	default:
	}
}

// hangUp sends what is queued and closes the stream. It may be called again.
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

// helloPatience bounds how long a handshake, and the hello after it, may take.
const helloPatience = 15 * time.Second

// controlQUIC: the idle timeout is far beyond every heartbeat threshold,
// because the policy, and not the transport, decides who is dead.
func controlQUIC(tracing Tracing, scale timescale.Scale, links time.Duration) *quic.Config {
	return &quic.Config{
		MaxIdleTimeout:       coordinatorPatience,
		HandshakeIdleTimeout: patient(helloPatience, links, scale),
		InitialPacketSize:    initialPacket,
		EnableDatagrams:      true,
		Tracer:               tracing.of("control"),
	}
}

// initialPacket is that of the all-reduce: path MTU discovery would add probes to
// links whose traffic is being measured. Tests in virtual time lower it.
var initialPacket uint16 = allreduce.PacketSize

// coordinatorPatience bounds how long a worker does without the coordinator,
// whether it is silent or cannot be connected to again.
const coordinatorPatience = time.Hour

// resetKey lets a coordinator that takes the place of another tell the workers
// that their connections are gone: whoever has the same credentials makes the
// same stateless resets (RFC 9000, section 10.3).
func resetKey(c *tls.Config) (*quic.StatelessResetKey, error) {
	der, err := x509.MarshalPKCS8PrivateKey(c.Certificates[0].PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of stateless resets: %w", err)
	}
	key := quic.StatelessResetKey(sha256.Sum256(append([]byte("stateless reset"), der...)))
	return &key, nil
}

// isAbsence says whether a connection failed because nobody was there to answer,
// or somebody who does not know of it.
func isAbsence(err error) bool {
	_, reset := errors.AsType[*quic.StatelessResetError](err)
	_, handshake := errors.AsType[*quic.HandshakeTimeoutError](err)
	_, idle := errors.AsType[*quic.IdleTimeoutError](err)
	return reset || handshake || idle
}
