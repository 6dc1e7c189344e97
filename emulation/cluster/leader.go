package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/quic-go/quic-go"
)

// Leader waits for the hosts of a run.
type Leader struct {
	listener *quic.Listener
	conn     *net.UDPConn
	members  []*RemoteHost
}

// Listen opens the leader's end at an address, as "10.0.0.1:7400".
func Listen(address, token string) (*Leader, error) {
	config, err := credentials(token)
	if err != nil {
		return nil, err
	}
	to, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		return nil, fmt.Errorf("listening for hosts at %s: %w", address, err)
	}
	conn, err := net.ListenUDP("udp4", to)
	if err != nil {
		return nil, fmt.Errorf("listening for hosts at %s: %w", address, err)
	}
	listener, err := (&quic.Transport{Conn: conn}).Listen(config, settings)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("listening for hosts at %s: %w", address, err)
	}
	return &Leader{listener: listener, conn: conn}, nil
}

// Addr is where the leader listens.
func (l *Leader) Addr() netip.AddrPort { return l.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

// Admit waits until all hosts of a run have come, of which there are as many as the
// leader says, and returns them in order, from 1, with names that differ from each
// other and from the leader's. told hears who has come.
func (l *Leader) Admit(ctx context.Context, leader Hello, told func(string)) ([]*RemoteHost, error) {
	count := leader.Count
	l.members = make([]*RemoteHost, count-1)
	for missing := count - 1; missing > 0; {
		conn, err := l.listener.Accept(ctx)
		if err != nil {
			return nil, fmt.Errorf("waiting for %d of %d hosts: %w", missing, count-1, err)
		}
		m, err := greet(ctx, conn)
		if err == nil {
			err = l.fits(m, leader)
		}
		if err != nil {
			told(fmt.Sprintf("%v was sent away: %v", conn.RemoteAddr(), err))
			_ = conn.CloseWithError(codeRefused, err.Error())
			continue
		}
		l.members[m.Index-1] = m
		missing--
		told(fmt.Sprintf("host %d, %s, has come; %d to go", m.Index, m.Name, missing))
	}
	names := []string{leader.Name}
	for _, m := range l.members {
		if slices.Contains(names, m.Name) {
			m.Name = fmt.Sprintf("%s-%d", m.Name, m.Index)
		}
		names = append(names, m.Name)
	}
	for _, m := range l.members { // one may have gone while others were waited for
		if err := context.Cause(m.conn.Context()); err != nil {
			return nil, reason(err, "host "+m.Name)
		}
	}
	return l.members, nil
}

// fits says what is wrong with a host that has come.
func (l *Leader) fits(m *RemoteHost, leader Hello) error {
	switch count := leader.Count; {
	case m.Environment.Revision != leader.Environment.Revision:
		return fmt.Errorf("it has another version of the program, %s, and the leader %s; give all hosts the same one", m.Environment.Revision, leader.Environment.Revision)
	case m.Count != count:
		return fmt.Errorf("it was started as one of %d hosts, and the run has %d", m.Count, count)
	case m.Index < 1 || m.Index >= count:
		return fmt.Errorf("its index is %d; hosts have 1 to %d, the leader is 0", m.Index, count-1)
	case l.members[m.Index-1] != nil:
		return fmt.Errorf("there is a host with index %d already, %s", m.Index, l.members[m.Index-1].Name)
	}
	return nil
}

// greet takes the first words of a host.
func greet(ctx context.Context, conn *quic.Conn) (*RemoteHost, error) {
	ctx, cancel := context.WithTimeout(ctx, maxGreeting)
	defer cancel()
	stream, err := conn.AcceptStream(ctx)
	if err != nil {
		return nil, fmt.Errorf("it has not said who it is: %w", err)
	}
	m := &RemoteHost{conn: conn, stream: stream, in: json.NewDecoder(bufio.NewReader(stream))}
	if err := m.in.Decode(&m.Hello); err != nil {
		return nil, fmt.Errorf("it has not said who it is: %w", err)
	}
	m.Addr = conn.RemoteAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	return m, nil
}

// Close ends the run for all hosts, with the reason if it has failed.
func (l *Leader) Close(failed error) {
	for _, m := range l.members {
		if m == nil {
			continue
		}
		code, why := codeDone, ""
		if failed != nil {
			code, why = codeFailed, failed.Error()
		}
		_ = m.conn.CloseWithError(code, why)
	}
	l.listener.Close()
	l.conn.Close()
}

// RemoteHost is a host of the run.
type RemoteHost struct {
	Hello
	Addr netip.Addr // as the leader sees it

	conn   *quic.Conn
	stream *quic.Stream
	in     *json.Decoder
}

// Send sends the host a value, before Relay does.
func (m *RemoteHost) Send(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := writeValue(m.stream, raw); err != nil {
		return reason(err, "the host "+m.Name)
	}
	return nil
}

// Next waits for a value of the host's, before Relay does.
func (m *RemoteHost) Next(ctx context.Context, v any) error {
	stop := context.AfterFunc(ctx, func() { m.stream.CancelRead(0) })
	defer stop()
	err := m.in.Decode(v)
	switch cause := context.Cause(m.conn.Context()); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case cause != nil:
		err = cause
	}
	return reason(err, "the host "+m.Name)
}

// Relay passes JSON values between the host and whoever is at the other end, until
// one of them ends. lost makes the value that says that the host has gone. What the
// host says is for Next until whoever is at the other end has spoken.
func (m *RemoteHost) Relay(with io.ReadWriter, lost func(why error) any) {
	var both sync.WaitGroup
	spoken := make(chan struct{})
	both.Go(func() {
		speak := sync.OnceFunc(func() { close(spoken) })
		defer speak()
		in := json.NewDecoder(bufio.NewReader(with))
		for {
			var v json.RawMessage
			if in.Decode(&v) != nil || writeValue(m.stream, v) != nil {
				return
			}
			speak()
		}
	})
	both.Go(func() {
		<-spoken
		for {
			var v json.RawMessage
			err := m.in.Decode(&v)
			if err != nil {
				if cause := context.Cause(m.conn.Context()); cause != nil {
					err = cause
				}
				_ = json.NewEncoder(with).Encode(lost(reason(err, "the host "+m.Name))) // whoever is there may have ended
				return
			}
			if writeValue(with, v) != nil {
				return
			}
		}
	})
	both.Wait()
}

// writeValue writes a JSON value in one piece, so that nothing comes into it.
func writeValue(to io.Writer, v json.RawMessage) error {
	_, err := to.Write(append(v, '\n'))
	return err
}
