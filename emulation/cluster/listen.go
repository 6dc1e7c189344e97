package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/quic-go/quic-go"
)

// Listener is the leader's end, at which the hosts of a run arrive.
type Listener struct {
	listener *quic.Listener
	conn     *net.UDPConn
	strange  chan error // a host with another token has come
	hosts    []*HostConn
}

// Listen opens the leader's end at an address, as "10.0.0.1:7400".
func Listen(address, token string) (*Listener, error) {
	config, err := credentials(token)
	if err != nil {
		return nil, err
	}
	strange := make(chan error, 1)
	verify := config.VerifyConnection
	config.VerifyConnection = func(s tls.ConnectionState) error {
		err := verify(s)
		if err != nil {
			select {
			case strange <- err:
			default:
			}
		}
		return err
	}
	to, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		return nil, fmt.Errorf("waiting for hosts: %w; name a free address of this host", err)
	}
	conn, err := net.ListenUDP("udp4", to)
	if err != nil {
		return nil, fmt.Errorf("waiting for hosts: %w; name a free address of this host", err)
	}
	listener, err := (&quic.Transport{Conn: conn}).Listen(config, settings)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("waiting for hosts at %s: %w; name a free address of this host", address, err)
	}
	return &Listener{listener: listener, conn: conn, strange: strange}, nil
}

// Addr is the address at which the leader listens.
func (l *Listener) Addr() netip.AddrPort { return l.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// Admit waits until all hosts of a run have come; leader has their number. It
// returns them in order, from 1, with names that differ from each other and
// from the leader's. It calls progress with the hosts that have come.
func (l *Listener) Admit(ctx context.Context, leader Hello, progress func(string)) ([]*HostConn, error) {
	count := leader.Count
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-l.strange:
			cancel(fmt.Errorf("a host could not join the run: %w; give all hosts the same token", err))
		case <-ctx.Done():
		}
	}()
	l.hosts = make([]*HostConn, count-1)
	for missing := count - 1; missing > 0; {
		conn, err := l.listener.Accept(ctx)
		if err != nil {
			return nil, fmt.Errorf("waiting for the other hosts (missing: %d of %d): %w", missing, count-1, context.Cause(ctx))
		}
		h, err := greet(ctx, conn)
		if err == nil {
			err = l.fits(h, leader)
		}
		if err != nil {
			progress(fmt.Sprintf("the leader refused %v: %v", conn.RemoteAddr(), err))
			_ = conn.CloseWithError(codeRefused, err.Error())
			continue
		}
		l.hosts[h.Index-1] = h
		missing--
		progress(fmt.Sprintf("host %d (%s) has connected; hosts still missing: %d", h.Index, h.Name, missing))
	}
	names := []string{leader.Name}
	for _, h := range l.hosts {
		if slices.Contains(names, h.Name) {
			h.Name = fmt.Sprintf("%s-%d", h.Name, h.Index)
		}
		names = append(names, h.Name)
	}
	for _, h := range l.hosts { // one may have gone during the wait for others
		if err := context.Cause(h.conn.Context()); err != nil {
			return nil, endedError(err, "host "+h.Name)
		}
	}
	return l.hosts, nil
}

// fits reports what is wrong with a host that has come.
func (l *Listener) fits(h *HostConn, leader Hello) error {
	switch count := leader.Count; {
	case h.Environment.Revision != leader.Environment.Revision:
		return fmt.Errorf("the host's testbed has the revision %q, but the leader's has the revision %q; install the same revision on all hosts", h.Environment.Revision, leader.Environment.Revision)
	case h.Executable != leader.Executable:
		return fmt.Errorf("the host's testbed binary has SHA-256 %.12s…, but the leader's has %.12s…; use the same file on all hosts", h.Executable, leader.Executable)
	case h.Count != count:
		return fmt.Errorf("the host was started with --count %d, but the run has %d hosts; start every host with the same --count", h.Count, count)
	case h.Index < 1 || h.Index >= count:
		return fmt.Errorf("the host's index is %d: it must be above 0, the leader's index, and below %d, the number of hosts", h.Index, count)
	case l.hosts[h.Index-1] != nil:
		return fmt.Errorf("host %[2]s already has the index %[1]d; start each host with a different index", h.Index, l.hosts[h.Index-1].Name)
	}
	return nil
}

// greet receives the first message of a host.
func greet(ctx context.Context, conn *quic.Conn) (*HostConn, error) {
	ctx, cancel := context.WithTimeout(ctx, maxGreeting)
	defer cancel()
	stream, err := conn.AcceptStream(ctx)
	if err != nil {
		return nil, fmt.Errorf("the host did not identify itself: %w", err)
	}
	h := &HostConn{conn: conn, stream: stream, in: json.NewDecoder(bufio.NewReader(stream))}
	if err := h.in.Decode(&h.Hello); err != nil {
		return nil, fmt.Errorf("the host did not identify itself: %w", err)
	}
	h.Addr = conn.RemoteAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	return h, nil
}

// Close ends the run for all hosts, with the reason if it has failed.
func (l *Listener) Close(failed error) {
	for _, h := range l.hosts {
		if h == nil {
			continue
		}
		code, why := codeDone, ""
		if failed != nil {
			code, why = codeFailed, failed.Error()
		}
		_ = h.conn.CloseWithError(code, why)
	}
	l.listener.Close()
	l.conn.Close()
}

// HostConn is the leader's connection to a host.
type HostConn struct {
	Hello
	Addr netip.Addr // as seen by the leader

	conn   *quic.Conn
	stream *quic.Stream
	in     *json.Decoder
}

// Send sends the host a value, before Relay is called.
func (h *HostConn) Send(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := writeValue(h.stream, raw); err != nil {
		return endedError(err, "the host "+h.Name)
	}
	return nil
}

// Next waits for a value from the host, before Relay is called.
func (h *HostConn) Next(ctx context.Context, v any) error {
	stop := context.AfterFunc(ctx, func() { h.stream.CancelRead(0) })
	defer stop()
	err := h.in.Decode(v)
	switch cause := context.Cause(h.conn.Context()); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case cause != nil:
		err = cause
	}
	return endedError(err, "the host "+h.Name)
}

// Relay passes JSON values between the host and the process at the other end of
// with, until one of them ends. lost makes the value that reports the loss of
// the host. Values from the host go to Next until the process has sent its
// first value.
func (h *HostConn) Relay(with io.ReadWriter, lost func(why error) any) {
	var both sync.WaitGroup
	spoken := make(chan struct{})
	both.Go(func() {
		speak := sync.OnceFunc(func() { close(spoken) })
		defer speak()
		in := json.NewDecoder(bufio.NewReader(with))
		for {
			var v json.RawMessage
			if in.Decode(&v) != nil || writeValue(h.stream, v) != nil {
				return
			}
			speak()
		}
	})
	both.Go(func() {
		<-spoken
		for {
			var v json.RawMessage
			err := h.in.Decode(&v)
			if err != nil {
				if cause := context.Cause(h.conn.Context()); cause != nil {
					err = cause
				}
				_ = json.NewEncoder(with).Encode(lost(endedError(err, "the host "+h.Name))) // the process may have ended
				return
			}
			if writeValue(with, v) != nil {
				return
			}
		}
	})
	both.Wait()
}

// writeValue writes a JSON value in one piece, so that nothing is written into
// it.
func writeValue(to io.Writer, v json.RawMessage) error {
	_, err := to.Write(append(v, '\n'))
	return err
}
