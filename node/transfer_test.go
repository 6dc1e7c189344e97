package node

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce/int8"
	"testbed/allreduce/quicring"
)

// quantised makes an outcome of a ring of two, and the values that it decodes
// to.
func quantised(t *testing.T, seed uint64, n int) (*quicring.Outcome, []float32) {
	t.Helper()
	o := &quicring.Outcome{Length: n, Ranks: 2, Piece: int8.DefaultBlock, Block: int8.DefaultBlock, Bits: 8}
	o.Data = make([]byte, o.EncodedLen())
	for i := range o.Data { // any bytes are codes; small scales keep values finite
		o.Data[i] = byte(i*7+int(seed)) & 0x3f
	}
	values := make([]float32, n)
	if err := o.Decode(values); err != nil {
		t.Fatal(err)
	}
	return o, values
}

// trained is a model some outer steps ahead.
func trained(t *testing.T, n, steps int) *model {
	t.Helper()
	m := newModel(1, 0, n)
	for i := range steps {
		o, values := quantised(t, uint64(i), n)
		m.outerStep(values, o)
	}
	return m
}

// transfer has a fresh worker fetch from the donor's model.
func transfer(t *testing.T, from *model, to *model, outerSteps int, current bool) error {
	t.Helper()
	authority, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	var configs [2]Credentials
	for i, name := range []string{"w0", "w1"} {
		if configs[i], err = authority.Issue(name); err != nil {
			t.Fatal(err)
		}
	}
	serverTLS, err := configs[0].TLS()
	if err != nil {
		t.Fatal(err)
	}
	clientTLS, err := configs[1].TLS()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	server := loopback(t)
	d, err := newDonor(server, serverTLS, from, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	go d.serve(ctx)
	client := &quic.Transport{Conn: loopback(t)}
	defer client.Close()
	return fetchState(ctx, client, clientTLS, "w0", netip.MustParseAddrPort(server.LocalAddr().String()), to, outerSteps, current)
}

func TestTransfer(t *testing.T) {
	const n = 50_001
	for _, c := range []struct {
		name    string
		behind  int // outer steps that the worker has taken itself
		current bool
	}{
		{"whole state to a joiner", 0, false},
		{"one missed outer step", 5, true},
		{"as many as are kept", 2, true},
		{"more than are kept", 1, true},
		{"none missed", 6, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := trained(t, n, 6), trained(t, n, c.behind)
			if err := transfer(t, from, to, 6, c.current); err != nil {
				t.Fatal(err)
			}
			if have, _ := to.version(); have != 6 || to.stateHash() != from.stateHash() {
				t.Errorf("at outer step %d with hash %s, the donor at 6 with %s", have, to.stateHash(), from.stateHash())
			}
		})
	}
}

// TestTransferWaits asks for an outer step that the donor has yet to take.
func TestTransferWaits(t *testing.T) {
	from, to := trained(t, 1000, 2), trained(t, 1000, 2)
	go func() {
		time.Sleep(50 * time.Millisecond)
		o, values := quantised(t, 2, 1000)
		from.outerStep(values, o)
	}()
	if err := transfer(t, from, to, 3, true); err != nil {
		t.Fatal(err)
	}
	if have, _ := to.version(); have != 3 {
		t.Errorf("at outer step %d, want 3", have)
	}
}

func TestTransferRefusesAnotherModel(t *testing.T) {
	to := newModel(1, 1, 999)
	before := to.stateHash()
	err := transfer(t, trained(t, 1000, 2), to, 2, false)
	if err == nil || !strings.Contains(err.Error(), "1000 parameters, this worker 999") {
		t.Errorf("got %v", err)
	}
	if to.stateHash() != before {
		t.Error("the failed transfer changed the model")
	}
}

// TestTransferOfMissedStepsIsSmall holds what a sidelined worker fetches to
// what the ring moves, and not to what the state weighs.
func TestTransferOfMissedStepsIsSmall(t *testing.T) {
	const n = 100_000
	d := &donor{model: trained(t, n, 3)}
	size := func(req stateRequest) int {
		var b bytes.Buffer
		if err := d.deliver(&b, req); err != nil {
			t.Fatal(err)
		}
		return b.Len()
	}
	have := 2
	if got := size(stateRequest{OuterSteps: 3, Have: &have}); got > n+n/100 {
		t.Errorf("one outer step took %d bytes for %d parameters", got, n)
	}
	if got := size(stateRequest{OuterSteps: 3}); got < 8*n {
		t.Errorf("the whole state took %d bytes for %d parameters", got, n)
	}
}

func FuzzReceiveState(f *testing.F) {
	header, err := json.Marshal(stateHeader{OuterSteps: 1, Parameters: 100, Outcomes: []*quicring.Outcome{{Length: 100, Ranks: 2, Piece: 1024, Block: 1024, Bits: 8}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(header, []byte("data"))
	f.Add([]byte(`{"outcomes":[null]}`), []byte{})
	m := newModel(1, 0, 100)
	before := m.stateHash()
	f.Fuzz(func(t *testing.T, header, data []byte) {
		var h stateHeader
		if json.Unmarshal(header, &h) != nil {
			return
		}
		if _, err := receiveState(t.Context(), bytes.NewReader(data), h, m); err == nil && h.Outcomes == nil && len(data) < 800 {
			t.Error("a truncated state was accepted")
		}
		if m.stateHash() != before {
			t.Fatal("what came in changed the model")
		}
	})
}
