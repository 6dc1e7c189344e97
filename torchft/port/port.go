// Package port is a TCP port on which torchft's programs speak gRPC and
// HTTP/1.1, and the way to call one. It limits everything that a caller could
// make it keep: connections, simultaneous calls, bytes of a message, and the
// time until the first bytes.
package port

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"testbed/torchft"
	"testbed/torchft/internal/wire"
)

const (
	// maxCalls is the limit of calls under way: one for each replica that a
	// lighthouse remembers, and as many heartbeats and abandoned calls.
	maxCalls = 2 * torchft.MaxReplicas
	// maxConnections: a manager has one for its calls and one for its heartbeats.
	maxConnections = 3 * torchft.MaxReplicas
	// maxMessage is more than the largest member that a lighthouse accepts, so
	// that a slightly larger one is refused with a clear error.
	maxMessage = 4 * torchft.MaxMemberBytes
	maxHeader  = 16 << 10
	// workers is the number of goroutines for calls. Further calls have one of
	// their own.
	workers = 8

	// A connection that does not show its protocol within helloTimeout is closed.
	helloTimeout = 10 * time.Second
	// Connections are probed as torchft does, idle or not.
	pingPeriod  = 60 * time.Second
	pingTimeout = 20 * time.Second
	// Calls under way have the time farewell to be answered when the port is
	// closed.
	farewell = time.Second
)

// Serve answers on a listener, which it closes, until the context is done: gRPC
// with the services, and HTTP/1.1 with the handler. Handlers that wait must end
// with the context of Serve, too. Serve leaves no goroutine behind.
func Serve(ctx context.Context, l net.Listener, web http.Handler, services ...*grpc.ServiceDesc) error {
	p := &port{open: map[net.Conn]bool{}}
	p.grpc, p.http = newQueue(l.Addr()), newQueue(l.Addr())
	calls := p.newServer()
	for _, s := range services {
		calls.RegisterService(p.limited(s), nil)
	}
	pages := &http.Server{
		Handler: web, MaxHeaderBytes: maxHeader, ErrorLog: log.New(io.Discard, "", 0),
		ReadHeaderTimeout: helloTimeout, ReadTimeout: helloTimeout, WriteTimeout: 3 * helloTimeout, IdleTimeout: pingPeriod,
	}
	var running sync.WaitGroup
	running.Go(func() { _ = calls.Serve(p.grpc) })
	running.Go(func() { _ = pages.Serve(p.http) })
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	err := p.accept(ctx, l)
	stop()
	_ = l.Close()

	force := time.AfterFunc(farewell, func() {
		_ = pages.Close()
		calls.Stop()
	})
	p.closeSilent()
	p.sorting.Wait()
	calls.GracefulStop()
	_ = pages.Shutdown(context.Background())
	force.Stop()
	running.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

type port struct {
	grpc, http *queue
	calls      atomic.Int64 // under way

	mu      sync.Mutex
	open    map[net.Conn]bool // whether it has shown its protocol
	sorting sync.WaitGroup
}

func (p *port) newServer() *grpc.Server {
	return grpc.NewServer(
		grpc.ForceServerCodecV2(wire.Codec{}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingPeriod, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.ConnectionTimeout(helloTimeout),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeader), grpc.MaxConcurrentStreams(maxCalls),
		// A thousand mostly idle connections need no large buffers of their own. The
		// answer to a thousand replicas goes out at once.
		grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(160<<10),
		grpc.StaticStreamWindowSize(64<<10), grpc.StaticConnWindowSize(256<<10),
		// Quick calls use goroutines whose stacks have grown already.
		grpc.NumStreamWorkers(workers),
		grpc.WaitForHandlers(true),
	)
}

// limited refuses calls beyond maxCalls, before it reads anything of them. gRPC
// answers calls of unknown methods at once.
func (p *port) limited(s *grpc.ServiceDesc) *grpc.ServiceDesc {
	limited := *s
	limited.Methods = slices.Clone(s.Methods)
	for i := range limited.Methods {
		handle := limited.Methods[i].Handler
		limited.Methods[i].Handler = func(srv any, ctx context.Context, decode func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
			defer p.calls.Add(-1)
			if p.calls.Add(1) > maxCalls {
				return nil, status.Errorf(codes.ResourceExhausted, "%d calls are under way, and no more are accepted: try again later", maxCalls)
			}
			return handle(srv, ctx, decode, i)
		}
	}
	return &limited
}

// accept takes connections until the listener is closed. It waits for temporary
// errors, such as a lack of descriptors, to pass.
func (p *port) accept(ctx context.Context, l net.Listener) error {
	for wait := time.Duration(0); ; {
		c, err := l.Accept()
		switch {
		case err == nil:
			wait = 0
			p.take(c)
		case errors.Is(err, net.ErrClosed) || ctx.Err() != nil:
			return err
		default:
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
	}
}

func (p *port) take(c net.Conn) {
	p.mu.Lock()
	full := len(p.open) >= maxConnections
	if !full {
		p.open[c] = false
	}
	p.mu.Unlock()
	if full {
		_ = c.Close()
		return
	}
	p.sorting.Go(func() { p.sort(c) })
}

// sort determines the protocol of a connection: HTTP/2 begins with PRI, which
// is not a method of HTTP/1.1 (RFC 9113, section 3.4).
func (p *port) sort(c net.Conn) {
	known := &conn{Conn: c, port: p, head: make([]byte, len("PRI "))}
	_ = c.SetReadDeadline(time.Now().Add(helloTimeout))
	if _, err := io.ReadFull(c, known.head); err != nil {
		_ = known.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	p.mu.Lock()
	p.open[c] = true
	p.mu.Unlock()
	if string(known.head) == "PRI " {
		p.grpc.put(known)
	} else {
		p.http.put(known)
	}
}

// closeSilent closes the connections that have not shown their protocol.
func (p *port) closeSilent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, sorted := range p.open {
		if !sorted {
			_ = c.Close()
		}
	}
}

// conn is a connection whose first bytes have been read.
type conn struct {
	net.Conn
	port *port
	head []byte
}

func (c *conn) Read(b []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

func (c *conn) Close() error {
	c.port.mu.Lock()
	delete(c.port.open, c.Conn)
	c.port.mu.Unlock()
	return c.Conn.Close()
}

// queue is a listener of connections that were accepted elsewhere.
type queue struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (q *queue) put(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.closed:
		_ = c.Close()
	}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error   { q.once.Do(func() { close(q.closed) }); return nil }
func (q *queue) Addr() net.Addr { return q.addr }
