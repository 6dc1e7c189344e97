// Package identity makes the certificates by which the nodes of a run identify
// each other, and the TLS configurations that verify a peer's name.
package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/quic-go/quic-go"
)

// notBefore and notAfter are the validity of a run's certificates. It covers
// every time of the wall clock, which may be wrong or be set during the run.
// Certificates are made for one run and never stored, so they end with it.
var notBefore, notAfter = time.Unix(0, 0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// Authority is the ephemeral certificate authority of one run.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Credentials let one node prove its name and check the names of others: PEM
// texts of its certificate, its key and the run's authority.
type Credentials struct {
	Cert, Key, CA []byte
}

// NewAuthority makes the authority of a run.
func NewAuthority() (*Authority, error) {
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "testbed run"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	key, der, err := sign(template, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making the run's certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making the run's certificate authority: %w", err)
	}
	return &Authority{cert: cert, key: key}, nil
}

// Issue makes the credentials of the node with this name.
func (a *Authority) Issue(name string) (Credentials, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Credentials{}, fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	key, der, err := sign(&x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, a.key)
	if err != nil {
		return Credentials{}, fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Credentials{}, fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	block := func(kind string, der []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	return Credentials{
		Cert: block("CERTIFICATE", der),
		Key:  block("PRIVATE KEY", keyDER),
		CA:   block("CERTIFICATE", a.cert.Raw),
	}, nil
}

// sign makes a key and a certificate for it, signed by the parent or by itself.
func sign(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	template.NotBefore, template.NotAfter = notBefore, notAfter
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	return key, der, err
}

// TLS returns a configuration for both ends of a connection: each end has to
// present a certificate of the run. For adds a protocol and a server.
func (c Credentials) TLS() (*tls.Config, error) {
	cert, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("reading credentials: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.CA) {
		return nil, errors.New("reading credentials: the credentials contain no certificate authority")
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert},
		RootCAs:      pool,
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS13,
	}, nil
}

// For returns a copy of a configuration for one application protocol (ALPN, RFC
// 7301). Clients give the name of the server, servers "".
func For(c *tls.Config, protocol, server string) *tls.Config {
	c = c.Clone()
	c.NextProtos, c.ServerName = []string{protocol}, server
	return c
}

// Peer returns the name that the other end of a connection has proved, or "".
func Peer(conn *quic.Conn) string {
	certs := conn.ConnectionState().TLS.PeerCertificates
	if len(certs) == 0 || len(certs[0].DNSNames) == 0 {
		return ""
	}
	return certs[0].DNSNames[0]
}
