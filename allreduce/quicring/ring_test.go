package quicring

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"math/bits"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"testbed/allreduce"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs throw-away certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return &authority{cert, key}
}

// tls returns the configuration of the worker with this name.
func (a *authority) tls(tb testing.TB, name string) *tls.Config {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      pool, ClientCAs: pool,
	}
}

// ring is n endpoints on loopback, w0, w1, …
type ring struct {
	tb        testing.TB
	authority *authority
	endpoints []*Endpoint
	peers     []Peer
	residuals [][]float32 // by rank, if the test wants them
	groups    []int       // if the test wants others than uneven ones
}

func listenUDP(tb testing.TB) *net.UDPConn {
	tb.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		tb.Fatal(err)
	}
	return conn
}

func addrOf(conn net.PacketConn) netip.AddrPort {
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func newRing(tb testing.TB, n int, edit func(*Config)) *ring {
	tb.Helper()
	r := &ring{tb: tb, authority: newAuthority(tb)}
	for i := range n {
		conn := listenUDP(tb)
		name := fmt.Sprintf("w%d", i)
		cfg := Config{Conn: conn, TLS: r.authority.tls(tb, name)}
		if edit != nil {
			edit(&cfg)
		}
		e, err := Listen(cfg)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { e.Close() })
		r.endpoints = append(r.endpoints, e)
		r.peers = append(r.peers, Peer{Name: name, Addr: addrOf(conn)})
	}
	return r
}

// outcome is what one rank got.
type outcome struct {
	out    []float32
	result Result
	err    error
}

// reference is the model of an algorithm.
func reference(a allreduce.Algorithm) func(vectors [][]float32, f allreduce.Format) []float32 {
	return func(vectors [][]float32, f allreduce.Format) []float32 {
		return model(a, len(vectors), f).Mean(vectors, nil)
	}
}

func model(a allreduce.Algorithm, ranks int, f allreduce.Format) allreduce.Reference {
	return allreduce.Reference{Algorithm: a, Groups: unevenGroups(ranks), Format: f}
}

// unevenGroups are a half, a quarter and so on of the ranks, in any order.
func unevenGroups(ranks int) []int {
	groups := make([]int, ranks)
	for r := range groups {
		groups[r] = bits.TrailingZeros(uint(r + 1))
	}
	return groups
}

// reduce runs one reduction over the given members of the ring, each with its
// own context.
func (r *ring) reduce(ctxs []context.Context, epoch uint64, members []int, inputs [][]float32) []outcome {
	return r.reduceBy(allreduce.Ring, ctxs, epoch, members, inputs)
}

func (r *ring) reduceBy(a allreduce.Algorithm, ctxs []context.Context, epoch uint64, members []int, inputs [][]float32) []outcome {
	peers := make([]Peer, len(members))
	for k, m := range members {
		peers[k] = r.peers[m]
	}
	outcomes := make([]outcome, len(members))
	var wg sync.WaitGroup
	for k, m := range members {
		wg.Go(func() {
			o := &outcomes[k]
			o.out = make([]float32, len(inputs[k]))
			op := Op{Epoch: epoch, Round: int(epoch), Rank: k, Peers: peers, Algorithm: a, Groups: r.groups}
			if a == allreduce.Hierarchical && op.Groups == nil {
				op.Groups = unevenGroups(len(peers))
			}
			if r.residuals != nil {
				op.Residual = r.residuals[k]
			}
			o.result, o.err = r.endpoints[m].Reduce(ctxs[k], op, inputs[k], o.out)
		})
	}
	wg.Wait()
	return outcomes
}

// patience is how long a test waits for what has to come.
const patience = time.Minute

// must reduces over the members and fails the test on any error.
func (r *ring) must(epoch uint64, members []int, inputs [][]float32) []outcome {
	r.tb.Helper()
	return r.mustBy(allreduce.Ring, epoch, members, inputs)
}

func (r *ring) mustBy(a allreduce.Algorithm, epoch uint64, members []int, inputs [][]float32) []outcome {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	outcomes := r.reduceBy(a, same(ctx, len(members)), epoch, members, inputs)
	for k, o := range outcomes {
		if o.err != nil {
			r.tb.Errorf("rank %d: %v", k, o.err)
		}
	}
	if r.tb.Failed() {
		r.tb.FailNow()
	}
	return outcomes
}

func same(ctx context.Context, n int) []context.Context {
	ctxs := make([]context.Context, n)
	for i := range ctxs {
		ctxs[i] = ctx
	}
	return ctxs
}

func upTo(n int) []int {
	members := make([]int, n)
	for i := range members {
		members[i] = i
	}
	return members
}

func gaussian(seed uint64, n, length int) [][]float32 {
	r := mathrand.New(mathrand.NewPCG(seed, 7))
	vectors := make([][]float32, n)
	for k := range vectors {
		vectors[k] = make([]float32, length)
		for i := range vectors[k] {
			vectors[k][i] = float32(r.NormFloat64())
		}
	}
	return vectors
}
