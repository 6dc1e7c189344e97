package port

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Dial returns a connection to an address such as http://host:29510. It is
// established at its first use. It is re-established by itself, after pauses
// like torchft's: 100 ms, each 1.5 times the one before, 10 s at most.
func Dial(address string) (*grpc.ClientConn, error) {
	target, err := HostPort(address)
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("passthrough:///"+target,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingPeriod, Timeout: pingTimeout, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 10 * time.Second},
			MinConnectTimeout: time.Second,
		}),
		// As in torchft's clients: a quorum of a thousand groups arrives in one go.
		grpc.WithInitialWindowSize(2<<20), grpc.WithInitialConnWindowSize(5<<20), grpc.WithReadBufferSize(128<<10),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	)
}

// maxAnswer is above the size of a quorum of torchft.MaxReplicas members of
// maxMember bytes.
const maxAnswer = 128 << 20

// HostPort returns host and port of an address such as http://host:29510 or
// host:29510.
func HostPort(address string) (string, error) {
	target := address
	if strings.Contains(address, "://") {
		u, err := url.Parse(address)
		if err != nil {
			if wrong, ok := errors.AsType[*url.Error](err); ok {
				err = wrong.Err // without the address
			}
			return "", fmt.Errorf("address %q: %w; write http://HOST:PORT", address, err)
		}
		if u.Scheme != "http" {
			return "", fmt.Errorf("address %q: the scheme is %q; write http://HOST:PORT", address, u.Scheme)
		}
		target = u.Host
	}
	host, port, err := net.SplitHostPort(target)
	if err != nil || host == "" || port == "" {
		return "", fmt.Errorf("address %q is not of the form http://HOST:PORT", address)
	}
	return target, nil
}

// Loopback reports whether only programs of this machine can reach a listener.
func Loopback(l net.Listener) bool {
	tcp, ok := l.Addr().(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Ready waits until a connection is established. Its error says what is wrong
// with the address.
func Ready(ctx context.Context, c *grpc.ClientConn) error {
	for {
		c.Connect()
		state := c.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if !c.WaitForStateChange(ctx, state) {
			return fmt.Errorf("%s does not answer: %w", strings.TrimPrefix(c.Target(), "passthrough:///"), ctx.Err())
		}
	}
}
