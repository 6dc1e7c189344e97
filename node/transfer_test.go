package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce/int8"
	"testbed/allreduce/quicring"
	"testbed/node/identity"
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
	authority, err := identity.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	var configs [2]identity.Credentials
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
	log := slog.New(slog.DiscardHandler)
	d, err := newDonor(server, serverTLS, from, nil, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	go d.serve(ctx)
	client := &quic.Transport{Conn: loopback(t)}
	defer client.Close()
	f := fetcher{transport: client, tls: clientTLS, model: to, log: log}
	s, _, err := f.fetch(ctx, []source{{"w0", netip.MustParseAddrPort(server.LocalAddr().String())}}, outerSteps, current)
	if err == nil {
		to.replace(s)
	}
	return err
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
		if err := d.deliver(t.Context(), &b, req); err != nil {
			t.Fatal(err)
		}
		return b.Len()
	}
	have := 2
	if got := size(stateRequest{OuterSteps: 3, Have: &have}); got > n+n/100 {
		t.Errorf("one outer step took %d bytes for %d parameters", got, n)
	}
	if got := size(stateRequest{OuterSteps: 3, To: chunks(n)}); got > 8*n*95/100 || got < 2*n {
		t.Errorf("the whole state took %d bytes for %d parameters", got, n)
	}
}

// FuzzRequest has a donor answer whatever is asked: at most with one state.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"outer_steps":1,"have":0}`))
	f.Add([]byte(`{"hash":"feed","from":0,"to":8}`))
	f.Add([]byte(`{"outer_steps":0,"from":-1,"to":1000000}`))
	m := newModel(1, 0, 1000)
	f.Fuzz(func(t *testing.T, text []byte) {
		var req stateRequest
		if json.Unmarshal(text, &req) != nil {
			return
		}
		d, out := &donor{model: m}, bytes.Buffer{}
		if err := d.deliver(t.Context(), &out, req); err == nil && (out.Len() == 0 || out.Len() > 9*1000+1000) {
			t.Errorf("%s was answered with %d bytes", text, out.Len())
		}
		if len(d.served) > 1 {
			t.Errorf("one request made %d copies of the state", len(d.served))
		}
	})
}

func FuzzReceiveOutcomes(f *testing.F) {
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
		_, _ = receiveOutcomes(t.Context(), bytes.NewReader(data), h, m)
		if m.stateHash() != before {
			t.Fatal("what came in changed the model")
		}
	})
}

func FuzzChunk(f *testing.F) {
	values := gaussian(1, 1, 1000)
	var b bytes.Buffer
	w, err := newChunkWriter(&b)
	if err != nil {
		f.Fatal(err)
	}
	if err := errors.Join(w.keepAlive(), w.write(values)); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{0x80, 0, 0, 1, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := newChunkReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		got := make([]float32, len(values))
		if err := r.read(got); err == nil && r.bytes > int64(len(data)) {
			t.Errorf("%d bytes read of %d", r.bytes, len(data))
		}
		if cap(r.plain) > 8*4*len(values)+1<<20 {
			t.Errorf("%d bytes of memory for %d values", cap(r.plain), len(values))
		}
		if bytes.Equal(data, b.Bytes()) && !slices.Equal(got, values) {
			t.Error("a chunk came back differently")
		}
	})
}
