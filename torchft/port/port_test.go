package port_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"testbed/torchft"
	"testbed/torchft/internal/wire"
	"testbed/torchft/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a port whose Heartbeat answers at once and whose Quorum waits, and
// returns its address.
func start(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	web := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "page ", r.URL.Path) })
	done := make(chan error)
	go func() {
		done <- port.Serve(ctx, l, web, port.Service(wire.LighthouseService,
			port.Method("Heartbeat", func(_ context.Context, r *wire.LighthouseHeartbeatRequest) (any, error) {
				return wire.Encoded{}, nil
			}),
			port.Method("Quorum", func(call context.Context, _ *wire.LighthouseQuorumRequest) (any, error) {
				select {
				case <-call.Done():
					return nil, call.Err()
				case <-ctx.Done():
					return nil, status.Error(codes.Unavailable, "ending")
				}
			}),
		))
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serving: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the port does not close")
		}
	})
	return l.Addr().String()
}

func beat(t *testing.T, address, id string) error {
	t.Helper()
	c, err := port.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return c.Invoke(ctx, wire.Heartbeat, &wire.LighthouseHeartbeatRequest{ReplicaId: id}, &wire.LighthouseHeartbeatResponse{})
}

func TestBothOnOnePort(t *testing.T) {
	address := start(t)
	if err := beat(t, "http://"+address, "a"); err != nil {
		t.Error(err)
	}
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := web.Get("http://" + address + "/x")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if body, _ := io.ReadAll(r.Body); string(body) != "page /x" {
		t.Errorf("HTTP/1.1 got %q", body)
	}
}

// raw makes a call as it is on the wire, with nothing of its own: whatever is in
// the body and the grpc-timeout. It returns what the server says.
func raw(t *testing.T, address, path, timeout string, body []byte) (code, message string) {
	t.Helper()
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("TE", "trailers")
	if timeout != "" {
		r.Header.Set("grpc-timeout", timeout)
	}
	answer, err := (&http.Client{Transport: h2}).Do(r)
	if err != nil {
		return "", err.Error()
	}
	defer answer.Body.Close()
	if _, err := io.ReadAll(answer.Body); err != nil {
		return "", err.Error()
	}
	for _, h := range []http.Header{answer.Trailer, answer.Header} {
		if code := h.Get("grpc-status"); code != "" {
			return code, h.Get("grpc-message")
		}
	}
	return "", answer.Status
}

// frame is a message as gRPC writes it.
func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// TestErrorsAreTorchfts: the codes that torchft's server answers with.
func TestErrorsAreTorchfts(t *testing.T) {
	address := start(t)
	for _, c := range []struct {
		name, path, timeout string
		body                []byte
		code, words         string
	}{
		{"in order", wire.Heartbeat, "", frame([]byte("\x0a\x01a")), "0", ""},
		{"time is over", wire.LighthouseQuorum, "300m", frame(nil), "1", "Timeout expired"},
		{"no such method", "/torchft.LighthouseService/Nothing", "", frame(nil), "12", ""},
		{"no such service", "/torchft.CoordinatorService/Info", "", frame(nil), "12", ""},
		{"malformed message", wire.Heartbeat, "", frame([]byte("\x0a\xff")), "13", ""},
		{"no UTF-8", wire.Heartbeat, "", frame([]byte("\x0a\x01\xff")), "13", ""},
		{"too large", wire.Heartbeat, "", frame(make([]byte, 1<<20)), "8", "larger than max"},
		{"cut off", wire.Heartbeat, "", frame([]byte("\x0a\x01a"))[:6], "13", ""},
	} {
		// On a machine that stalls for 10 ms the stream is reset first.
		code, message := raw(t, address, c.path, c.timeout, c.body)
		for range 20 {
			if code != "" {
				break
			}
			code, message = raw(t, address, c.path, c.timeout, c.body)
		}
		if code != c.code || !strings.Contains(message, c.words) {
			t.Errorf("%s: %s %q, want %s %q", c.name, code, message, c.code, c.words)
		}
	}
	if err := beat(t, address, "a"); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// TestSlowCallersHoldNobodyUp: connections that say nothing, half of a preface,
// half of a request or half of a message.
func TestSlowCallersHoldNobodyUp(t *testing.T) {
	address := start(t)
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for i := range 200 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		said := []string{"", "PR", "PRI * HTTP/2.0\r\n", preface, preface + "\x00\x01\x00\x01", "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "}[i%6]
		if _, err := io.WriteString(c, said); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		if err := beat(t, address, fmt.Sprint("r", i)); err != nil {
			t.Fatalf("heartbeat %d: %v", i, err)
		}
	}
}

// TestTooManyCalls: those beyond the limit are refused at once, and there is room
// again when others have ended.
func TestTooManyCalls(t *testing.T) {
	address := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const most = 2 * torchft.MaxReplicas
	refused := make(chan error, most+2)
	var conns []*grpc.ClientConn
	for range 2 {
		c, err := port.Dial(address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	var calls sync.WaitGroup
	for i := range most + 2 {
		calls.Go(func() {
			err := conns[i%2].Invoke(ctx, wire.LighthouseQuorum, &wire.LighthouseQuorumRequest{}, &wire.LighthouseQuorumResponse{}, grpc.WaitForReady(true))
			refused <- err
		})
	}
	for range 2 {
		if err := <-refused; status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "calls are under way") {
			t.Errorf("refused: %v", err)
		}
	}
	cancel()
	calls.Wait()
	for err := status.Error(codes.ResourceExhausted, ""); status.Code(err) == codes.ResourceExhausted; {
		if err = beat(t, address, "a"); err != nil && status.Code(err) != codes.ResourceExhausted {
			t.Error(err)
		}
	}
}

// TestWaitingCallsEndWithThePort, and so does Serve.
func TestWaitingCallsEndWithThePort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- port.Serve(ctx, l, http.NotFoundHandler(), port.Service(wire.LighthouseService,
			port.Method("Quorum", func(context.Context, *wire.LighthouseQuorumRequest) (any, error) {
				close(waits)
				<-ctx.Done()
				return nil, status.Error(codes.Unavailable, "ending")
			})))
	}()
	c, err := port.Dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answered := make(chan error, 1)
	go func() {
		answered <- c.Invoke(t.Context(), wire.LighthouseQuorum, &wire.LighthouseQuorumRequest{}, &wire.LighthouseQuorumResponse{})
	}()
	<-waits
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := <-answered; status.Code(err) != codes.Unavailable {
		t.Errorf("the call that waited got %v", err)
	}
}

func TestHostPort(t *testing.T) {
	for address, want := range map[string]string{
		"http://h:1": "h:1", "h:1": "h:1", "http://[::1]:29510": "[::1]:29510", "http://h:1/": "h:1",
		"https://h:1": "", "http://h": "", "h": "", ":1": "", "": "", "http://%zz:1": "",
	} {
		got, err := port.HostPort(address)
		if got != want && want != "" || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", address, got, err, want)
		}
	}
}

func TestKillRight(t *testing.T) {
	for _, c := range []struct {
		right  port.KillRight
		header string
		want   error
	}{
		{port.KillRight{Loopback: true}, "", nil},
		{port.KillRight{}, "", port.ErrKillOff},
		{port.KillRight{}, "Bearer ", port.ErrKillOff},
		{port.KillRight{Token: "x"}, "Bearer x", nil},
		{port.KillRight{Token: "x"}, "Bearer y", port.ErrKillToken},
		{port.KillRight{Token: "x"}, "", port.ErrKillToken},
		{port.KillRight{Token: "x", Loopback: true}, "", port.ErrKillToken},
	} {
		if got := c.right.Check(c.header); !errors.Is(got, c.want) {
			t.Errorf("%+v and %q: %v, want %v", c.right, c.header, got, c.want)
		}
	}
}
