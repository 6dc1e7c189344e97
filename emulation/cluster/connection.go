package cluster

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/internal/errs"
	"testbed/record"
)

const (
	// lease is how often each end sends a sign of life, and dead how long the
	// other may be silent: two such messages may be lost, or late.
	lease, dead = time.Second, 3 * time.Second
	// leastToken is the least length of a token, in bytes.
	leastToken = 16

	protocol = "testbed-host/1"
	// maxGreeting limits the wait for an end to introduce itself.
	maxGreeting = 10 * time.Second
)

// Codes with which an end closes the connection.
const (
	codeDone    quic.ApplicationErrorCode = iota // the run is over
	codeFailed                                   // it has failed, for the reason given
	codeRefused                                  // the leader refuses this host
)

var settings = &quic.Config{MaxIdleTimeout: dead, KeepAlivePeriod: lease, HandshakeIdleTimeout: dead}

// credentials are the credentials of everyone who has the token: both ends have
// the same key, which is derived from it, and accept no other.
func credentials(token string) (*tls.Config, error) {
	if len(token) < leastToken {
		return nil, fmt.Errorf("the token has %s, but it must have at least %d; make one with openssl rand -hex 16", errs.Count(len(token), "character"), leastToken)
	}
	seed, err := hkdf.Key(sha256.New, []byte(token), nil, protocol, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("deriving a key from the token: %w", err)
	}
	key := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate from the token: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		// The key alone proves the identity. The clocks of hosts may show anything.
		InsecureSkipVerify: true,
		ClientAuth:         tls.RequireAnyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("the other host sent no certificate")
			}
			if theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); !ok || !theirs.Equal(key.Public()) {
				return errors.New("its token differs from this host's")
			}
			return nil
		},
		NextProtos: []string{protocol},
		MinVersion: tls.VersionTLS13,
	}, nil
}

// Hello introduces a host to its leader.
type Hello struct {
	Index int    `json:"index"` // from 1; the leader is 0
	Count int    `json:"count"` // of hosts, including the leader
	Name  string `json:"name"`
	Port  uint16 `json:"port"` // of its tunnel
	// MeterPort is the port of the tunnel for measuring the hosts' network.
	MeterPort uint16 `json:"survey_port"`
	// Environment is its program's environment, which must equal the leader's.
	Environment record.Environment `json:"environment"`
	// Executable is the SHA-256 of the program, in hexadecimal.
	Executable string `json:"executable"`
}

// executable is the SHA-256 of this program.
var executable = sync.OnceValues(func() (string, error) {
	file, err := os.Open("/proc/self/exe") // even if the file has been replaced
	if err != nil {
		return "", fmt.Errorf("computing the SHA-256 of the testbed binary: %w", err)
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", fmt.Errorf("computing the SHA-256 of the testbed binary: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
})

// EndedError reports that the other end of a connection has gone, or has ended
// the run because of a failure.
type EndedError struct {
	Who string
	Why error
}

func (e *EndedError) Error() string { return e.Who + " " + e.Why.Error() }

// Unwrap returns the reason.
func (e *EndedError) Unwrap() error { return e.Why }

// endedError is the error of a connection that has ended, in words. who is the
// other end.
func endedError(err error, who string) error {
	var idle *quic.IdleTimeoutError
	var closed *quic.ApplicationError
	switch {
	case errors.As(err, &closed) && closed.ErrorCode == codeRefused:
		err = fmt.Errorf("has refused this host: %s", closed.ErrorMessage)
	case errors.As(err, &closed) && closed.ErrorMessage != "":
		err = fmt.Errorf("has ended the run: %s", closed.ErrorMessage)
	case errors.As(err, &idle):
		err = fmt.Errorf("has not responded for %v", dead)
	case errors.Is(err, context.Canceled):
		return err
	default:
		err = fmt.Errorf("has disconnected: %w", err)
	}
	return &EndedError{who, err}
}
