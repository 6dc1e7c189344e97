package state

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"testbed/allreduce"
	"testbed/allreduce/codec"
	"testbed/internal/memnet"
	"testbed/node/identity"
	"testbed/train"
)

func TestMain(m *testing.M) {
	ChunkValues = 256
	goleak.VerifyTestMain(m)
}

// quantised makes an outcome of a ring of two, and the values that it decodes
// to.
func quantised(t *testing.T, seed uint64, n int) (*codec.Outcome, []float32) {
	t.Helper()
	o := &codec.Outcome{Length: n, Ranks: 2, Piece: allreduce.DefaultBlock, Block: allreduce.DefaultBlock, Bits: 8}
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
func trained(t *testing.T, n, steps int) *Outer {
	t.Helper()
	m := newTestOuter(1, n)
	for i := range steps {
		o, values := quantised(t, uint64(i), n)
		m.Step(values, o)
	}
	return m
}

func loopback(t *testing.T) net.PacketConn {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// transfer has a worker fetch from another one over loopback.
func transfer(t *testing.T, from, to *Outer, outerSteps int, current bool) error {
	t.Helper()
	authority, err := identity.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var ends []*Endpoint
	var donor Peer
	for i, m := range []*Outer{from, to} {
		c, err := authority.Issue(fmt.Sprintf("w%d", i))
		if err != nil {
			t.Fatal(err)
		}
		config := Config{Conn: loopback(t), Outer: m, PacketSize: memnet.PacketSize, Log: slog.New(slog.DiscardHandler)}
		if config.TLS, err = c.TLS(); err != nil {
			t.Fatal(err)
		}
		e, err := Listen(config)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if ends = append(ends, e); i == 0 {
			donor = Peer{"w0", netip.MustParseAddrPort(config.Conn.LocalAddr().String())}
		}
	}
	go ends[0].Serve(ctx)
	s, _, err := ends[1].Fetch(ctx, []Peer{donor}, outerSteps, current, false)
	if err == nil {
		to.Replace(s)
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
			if have, _ := to.Version(); have != 6 || to.Hash() != from.Hash() {
				t.Errorf("at outer step %d with hash %s, the donor at 6 with %s", have, to.Hash(), from.Hash())
			}
		})
	}
}

// TestTransferOfFragments: outcomes are of the fragments of their rounds, in turn.
func TestTransferOfFragments(t *testing.T) {
	const n = 1003
	ahead := func(steps int) *Outer {
		m := newFragments(1, n, 3)
		for i := range steps {
			o, values := quantised(t, uint64(i), m.fragments.Of(i+1).Len)
			m.Step(values, o)
		}
		return m
	}
	for behind := range 6 {
		from, to := ahead(6), ahead(behind)
		if err := transfer(t, from, to, 6, true); err != nil {
			t.Fatal(err)
		}
		if have, _ := to.Version(); have != 6 || to.Hash() != from.Hash() {
			t.Errorf("from outer step %d: at %d with hash %s, the donor at 6 with %s", behind, have, to.Hash(), from.Hash())
		}
	}
}

// TestTransferWaits asks for an outer step that the donor has yet to take.
func TestTransferWaits(t *testing.T) {
	from, to := trained(t, 1000, 2), trained(t, 1000, 2)
	go func() {
		time.Sleep(50 * time.Millisecond)
		o, values := quantised(t, 2, 1000)
		from.Step(values, o)
	}()
	if err := transfer(t, from, to, 3, true); err != nil {
		t.Fatal(err)
	}
	if have, _ := to.Version(); have != 3 {
		t.Errorf("at outer step %d, want 3", have)
	}
}

func TestTransferRefusesAnotherModel(t *testing.T) {
	to := newTestOuter(1, 999)
	before := to.Hash()
	err := transfer(t, trained(t, 1000, 2), to, 2, false)
	if err == nil || !strings.Contains(err.Error(), "1000 parameters, but this worker has 999") {
		t.Errorf("got %v", err)
	}
	if to.Hash() != before {
		t.Error("the failed transfer changed the model")
	}
}

// TestTransferOfMissedStepsIsSmall holds what a sidelined worker fetches to
// what the ring moves, and not to what the state weighs.
func TestTransferOfMissedStepsIsSmall(t *testing.T) {
	const n = 100_000
	d := &donor{Config: Config{Outer: trained(t, n, 3)}}
	size := func(req request) int {
		var b bytes.Buffer
		if err := d.deliver(t.Context(), &b, req); err != nil {
			t.Fatal(err)
		}
		return b.Len()
	}
	have := 2
	if got := size(request{OuterSteps: 3, Have: &have}); got > n+n/100 {
		t.Errorf("one outer step took %d bytes for %d parameters", got, n)
	}
	if got := size(request{OuterSteps: 3, To: 2 * vectorChunks(n)}); got > 8*n*95/100 || got < 2*n {
		t.Errorf("the whole state took %d bytes for %d parameters", got, n)
	}
}

// FuzzRequest has a donor answer whatever is asked: at most with one state.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"outer_steps":1,"have":0}`))
	f.Add([]byte(`{"hash":"feed","from":0,"to":8}`))
	f.Add([]byte(`{"outer_steps":0,"from":-1,"to":1000000}`))
	m := newTestOuter(1, 1000)
	f.Fuzz(func(t *testing.T, text []byte) {
		var req request
		if json.Unmarshal(text, &req) != nil {
			return
		}
		d, out := &donor{Config: Config{Outer: m}}, bytes.Buffer{}
		if err := d.deliver(t.Context(), &out, req); err == nil && (out.Len() == 0 || out.Len() > 9*1000+1000) {
			t.Errorf("%s was answered with %d bytes", text, out.Len())
		}
		if len(d.served) > 1 {
			t.Errorf("one request made %d copies of the state", len(d.served))
		}
	})
}

func FuzzReceiveOutcomes(f *testing.F) {
	announced, err := json.Marshal(header{OuterSteps: 1, Parameters: 100, Outcomes: []*codec.Outcome{{Length: 100, Ranks: 2, Piece: 1024, Block: 1024, Bits: 8}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(announced, []byte("data"))
	f.Add([]byte(`{"outcomes":[null]}`), []byte{})
	m := newTestOuter(1, 100)
	before := m.Hash()
	f.Fuzz(func(t *testing.T, announced, data []byte) {
		var h header
		if json.Unmarshal(announced, &h) != nil {
			return
		}
		_, _ = receiveOutcomes(t.Context(), bytes.NewReader(data), h, m, false)
		if m.Hash() != before {
			t.Fatal("what came in changed the model")
		}
	})
}

func FuzzChunk(f *testing.F) {
	values := train.NewQuadratic(1, 1000).Start()
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
