package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/internal/errs"
)

const (
	// joinPatience is how long a host tries to reach its leader, which may start
	// later, and joinGap the pause between attempts.
	joinPatience = time.Minute
	joinGap      = 200 * time.Millisecond
)

// tokenError reports that the leader has another token.
type tokenError struct{ error }

// LeaderConn is a host's connection to its leader.
type LeaderConn struct {
	transport *quic.Transport
	conn      *quic.Conn
	stream    *quic.Stream
	in        *json.Decoder

	writing sync.Mutex
}

// Join connects a host to the leader at an address, and introduces it.
func Join(ctx context.Context, leader, token string, hello Hello) (*LeaderConn, error) {
	if to, err := netip.ParseAddrPort(leader); err == nil && !to.Addr().Unmap().Is4() {
		return nil, errs.Usagef("the leader's address is %q: it must be an IPv4 address that all hosts can reach, with a port, such as 10.0.0.1:7400", leader)
	}
	config, err := credentials(token)
	if err != nil {
		return nil, err
	}
	// The leader must notice a host with another token. So this end checks the
	// leader's certificate after the leader has checked this end's.
	verify := config.VerifyConnection
	config.VerifyConnection = nil
	c := &LeaderConn{}
	begin := time.Now()
	for {
		err := c.dial(ctx, leader, config.Clone(), verify, hello)
		if err == nil {
			return c, nil
		}
		var strange *tokenError
		if errors.As(err, &strange) {
			return nil, fmt.Errorf("the leader at %s has a different token; give all hosts the same token", leader)
		}
		var refused *quic.TransportError
		if errors.As(err, &refused) && refused.ErrorCode.IsCryptoError() {
			return nil, fmt.Errorf("the leader at %s refused the connection: %w; give all hosts the same token and the same version of testbed", leader, err)
		}
		if time.Since(begin) > joinPatience || ctx.Err() != nil {
			return nil, fmt.Errorf("%w at %s: %w; check the address, whether the leader's command is running, and whether the network allows UDP", errNoLeader, leader, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(joinGap):
		}
	}
}

func (c *LeaderConn) dial(ctx context.Context, leader string, config *tls.Config, verify func(tls.ConnectionState) error, hello Hello) error {
	to, err := net.ResolveUDPAddr("udp4", leader)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return err
	}
	c.transport = &quic.Transport{Conn: socket}
	c.conn, err = c.transport.Dial(ctx, to, config, settings)
	if err == nil {
		if wrong := verify(c.conn.ConnectionState().TLS); wrong != nil {
			select { // the leader hangs up when it has checked this end's certificate
			case <-c.conn.Context().Done():
			case <-time.After(joinGap):
			case <-ctx.Done():
			}
			err = &tokenError{wrong}
		}
	}
	if err == nil {
		c.stream, err = c.conn.OpenStreamSync(ctx)
	}
	if err == nil {
		c.in = json.NewDecoder(bufio.NewReader(c.stream))
		err = c.Send(hello)
	}
	if err != nil {
		c.Close(err)
	}
	return err
}

// Context is done when the connection has ended.
func (c *LeaderConn) Context() context.Context { return c.conn.Context() }

// Send sends a value.
func (c *LeaderConn) Send(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	return writeValue(c.stream, raw)
}

// Next waits for a value from the leader. It returns errDone when the run is
// over.
func (c *LeaderConn) Next() (v json.RawMessage, err error) {
	if err = c.in.Decode(&v); err == nil {
		return v, nil
	}
	if cause := context.Cause(c.conn.Context()); cause != nil {
		err = cause
	}
	var closed *quic.ApplicationError
	if errors.As(err, &closed) && closed.ErrorCode == codeDone && closed.Remote {
		return nil, errDone
	}
	return nil, endedError(err, "the leader")
}

// errDone reports that the leader has ended the run in order.
var errDone = errors.New("the run is over")

// errNoLeader reports that a host has waited for its leader in vain.
var errNoLeader = errors.New("no leader answers")

// Close ends the connection, with a reason if failed is not nil.
func (c *LeaderConn) Close(failed error) {
	if c.conn != nil {
		code, why := codeDone, ""
		if failed != nil {
			code, why = codeFailed, failed.Error()
		}
		_ = c.conn.CloseWithError(code, why)
	}
	_ = c.transport.Close()
	c.transport.Conn.Close()
}
