//go:build linux

package process

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"

	"testbed/node"
	"testbed/node/identity"
)

func newQlogs(t *testing.T) (q *qlogs, dir string) {
	t.Helper()
	dir = t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return &qlogs{root: root, log: slog.New(slog.DiscardHandler), open: map[*qlogFile]bool{}}, dir
}

// records returns those of a file. Each has to be whole.
func records(t *testing.T, name string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.Split(text, []byte{qlogwriter.RecordSeparator}) // RFC 7464
	for k, r := range all[1:] {
		if !json.Valid(r) || !bytes.HasSuffix(r, []byte("\n")) {
			t.Errorf("%s: record %d of %d is cut off: %q", filepath.Base(name), k, len(all)-1, r)
		}
	}
	return all[1:]
}

// TestQlogHasTheEndOfOpenConnections: a node that closes its sockets and none of
// its connections still leaves whole files, with the end of each connection.
func TestQlogHasTheEndOfOpenConnections(t *testing.T) {
	q, dir := newQlogs(t)
	authority, err := identity.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := authority.Issue("w0")
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig, err := credentials.TLS()
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig = &tls.Config{
		Certificates: tlsConfig.Certificates, RootCAs: tlsConfig.RootCAs, ClientCAs: tlsConfig.ClientCAs,
		NextProtos: []string{"test"}, ServerName: "w0",
	}
	config := &quic.Config{Tracer: node.Tracing(q.tracer)("ring")}
	var transports [2]*quic.Transport
	for k := range transports {
		udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer udp.Close()
		transports[k] = &quic.Transport{Conn: udp}
	}
	listener, err := transports[0].Listen(tlsConfig, config)
	if err != nil {
		t.Fatal(err)
	}
	const connections = 5
	for range connections {
		if _, err := transports[1].Dial(t.Context(), transports[0].Conn.LocalAddr(), tlsConfig, config); err != nil {
			t.Fatal(err)
		}
		if _, err := listener.Accept(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, tr := range transports {
		tr.Close()
	}
	q.close()
	names, err := filepath.Glob(filepath.Join(dir, "*.sqlog"))
	if err != nil || len(names) != 2*connections {
		t.Fatalf("%d files, %v", len(names), err)
	}
	for _, name := range names {
		all := records(t, name)
		if !bytes.Contains(all[len(all)-1], []byte(`"new":"closed"`)) {
			t.Errorf("%s has no end, but %s", filepath.Base(name), all[len(all)-1])
		}
	}
}

// TestQlogOfAConnectionWithoutEnd: one that is never closed keeps its node for
// a while, and then leaves a file with all whole records until then.
func TestQlogOfAConnectionWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, dir := newQlogs(t)
		event := qlog.DebugEvent{EventName: "test", Message: strings.Repeat("x", 1000)}
		open := func(id byte) qlogwriter.Recorder {
			return q.tracer("ring")(t.Context(), true, quic.ConnectionIDFromBytes([]byte{id})).AddProducer()
		}
		never, late := open(1), open(2)
		const events = 100
		for range events {
			never.RecordEvent(event)
			late.RecordEvent(event)
		}
		synctest.Wait()
		go func() {
			time.Sleep(QlogPatience / 2)
			late.RecordEvent(event)
			late.Close()
		}()
		half := []byte{qlogwriter.RecordSeparator, '{'} // a record that is being written
		for f := range q.open {
			if strings.Contains(f.file.Name(), "client-01") {
				if _, err := f.Write(half); err != nil {
					t.Error(err)
				}
			}
		}
		began := time.Now()
		q.close()
		if d := time.Since(began); d != QlogPatience {
			t.Errorf("it waited %v", d)
		}
		never.RecordEvent(event) // is lost, and does no harm
		never.Close()
		for id, want := range map[int]int{1: 1 + events, 2: 1 + events + 1} {
			if got := len(records(t, filepath.Join(dir, fmt.Sprintf("ring-client-%02x.sqlog", id)))); got != want {
				t.Errorf("connection %d has %d records, want %d", id, got, want)
			}
		}
		if tracer := q.tracer("ring")(t.Context(), true, quic.ConnectionIDFromBytes([]byte{3})); tracer != nil {
			t.Error("a connection is recorded after the end")
		}
	})
}

func TestTrimQlog(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("y", 3*qlogBuffer)
	for k, test := range []struct{ text, want string }{
		{"", ""},
		{"\x1e{}\n", "\x1e{}\n"},
		{"\x1e{}\n\x1e{\"cut", "\x1e{}\n"},
		{"\x1e{}\n\x1e", "\x1e{}\n"},
		{"\x1e{}\n\x1e" + long, "\x1e{}\n"},
		{"\x1e" + long + "\n\x1e{", "\x1e" + long + "\n"},
		{"\x1e{\"nothing whole", ""},
	} {
		name := filepath.Join(dir, fmt.Sprintf("%d.sqlog", k))
		if err := os.WriteFile(name, []byte(test.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := TrimQlog(dir); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); string(got) != test.want || err != nil {
			t.Errorf("case %d: %.40q, want %.40q, %v", k, got, test.want, err)
		}
	}
}
