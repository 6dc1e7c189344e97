package quicring_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"math/big"
	"net"
	"sync"
	"time"

	"testbed/allreduce"
	"testbed/allreduce/quicring"
)

// Three workers average a vector over loopback. Workers on several machines do the
// same, each in a process of its own: all they have to know of each other are
// names, addresses and the authority that has signed the certificates.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	vectors := [][]float32{{1, 2, 3, 4}, {2, 4, 6, 8}, {6, 9, 12, 15}}
	certificates := newAuthority()
	var endpoints []*quicring.Endpoint
	var peers []quicring.Peer
	for rank := range vectors {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			log.Fatal(err)
		}
		name := fmt.Sprintf("worker%d", rank)
		e, err := quicring.Listen(quicring.Config{
			Conn: conn, TLS: certificates.of(name),
			Format: allreduce.DefaultFormat, // int8 codes, and a scale for 1024 of them
		})
		if err != nil {
			log.Fatal(err)
		}
		defer e.Close()
		endpoints = append(endpoints, e)
		peers = append(peers, quicring.Peer{Name: name, Addr: conn.LocalAddr().(*net.UDPAddr).AddrPort()})
	}
	means := make([][]float32, len(vectors))
	var workers sync.WaitGroup
	for rank, e := range endpoints {
		means[rank] = make([]float32, len(vectors[rank]))
		workers.Go(func() {
			op := quicring.Op{Epoch: 1, Round: 1, Rank: rank, Peers: peers}
			if _, err := e.Reduce(ctx, op, vectors[rank], means[rank]); err != nil {
				log.Printf("worker %d: %v", rank, err)
			}
		})
	}
	workers.Wait()
	for _, mean := range means { // the same bytes on all
		fmt.Printf("%.1f\n", mean)
	}
	// Output:
	// [3.0 5.0 7.0 9.0]
	// [3.0 5.0 7.0 9.0]
	// [3.0 5.0 7.0 9.0]
}

// authority signs the workers' certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority() authority {
	key := newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	return authority{sign(template, template, key, key), key}
}

// of is the configuration of the worker with this name.
func (a authority) of(name string) *tls.Config {
	key := newKey()
	certificate := sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.certificate, key, a.key)
	trusted := x509.NewCertPool()
	trusted.AddCert(a.certificate)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate.Raw}, PrivateKey: key}},
		RootCAs:      trusted, ClientCAs: trusted,
	}
}

func newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	return key
}

func sign(template, by *x509.Certificate, of, with *ecdsa.PrivateKey) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, template, by, of.Public(), with)
	if err != nil {
		log.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		log.Fatal(err)
	}
	return certificate
}
