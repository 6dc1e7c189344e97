package quicring

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/allreduce"
)

// sameBits fails unless got is want to the bit.
func sameBits(tb testing.TB, what string, got, want []float32) {
	tb.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			tb.Fatalf("%s: value %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

func relativeError(got []float32, exact []float64) float64 {
	var e, s float64
	for i, x := range exact {
		d := float64(got[i]) - x
		e, s = e+d*d, s+x*x
	}
	return math.Sqrt(e / s)
}

func TestReduceEqualsTheModel(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 8} {
		for _, a := range allreduce.Algorithms {
			t.Run(fmt.Sprintf("%v/n=%d", a, n), func(t *testing.T) { reduceEqualsTheModel(t, a, n) })
		}
	}
}

func reduceEqualsTheModel(t *testing.T, a allreduce.Algorithm, n int) {
	r := newRing(t, n, nil)
	for i, length := range []int{0, 1, n - 1, n, 1000, 1<<18 + 7} {
		inputs := gaussian(uint64(length), n, length)
		before := make([][]float32, n)
		for k := range inputs {
			before[k] = slices.Clone(inputs[k])
		}
		want := reference(a)(inputs, allreduce.DefaultFormat)
		outcomes := r.mustBy(a, uint64(i+1), upTo(n), inputs)
		for k, o := range outcomes {
			sameBits(t, fmt.Sprintf("length %d rank %d", length, k), o.out, want)
			sameBits(t, "input", inputs[k], before[k])
			if n == 1 {
				continue
			}
			decoded := make([]float32, length)
			if err := o.result.Outcome.Decode(decoded); err != nil {
				t.Fatal(err)
			}
			sameBits(t, "decoded outcome", decoded, want)
		}
		if length < 1000 {
			continue
		}
		limit := 0.0079 * math.Sqrt(float64(n+1)/2) * 1.15
		if n == 1 {
			limit = 0 // alone: an exact copy
		}
		if length < 1<<18 {
			limit *= 1.3 // few values: more spread
		}
		if e := relativeError(want, allreduce.Mean(inputs)); e > limit {
			t.Errorf("length %d: relative L2 error %.4f, limit %.4f", length, e, limit)
		}
	}
}

func TestManyPiecesThroughSmallOnes(t *testing.T) {
	// Pieces of one small block: a long queue of tiny frames in every step.
	r := newRing(t, 3, func(c *Config) { c.Format.Block, c.Format.Bits, c.PieceValues = 16, 8, 16 })
	inputs := gaussian(5, 3, 50_001)
	want := allreduce.RingMean(inputs, allreduce.Format{Bits: 8, Block: 16})
	for _, o := range r.must(1, upTo(3), inputs) {
		sameBits(t, "result", o.out, want)
	}
}

func TestBytesOnTheWire(t *testing.T) {
	const n, length = 4, 1 << 18
	r := newRing(t, n, nil)
	for k, o := range r.must(1, upTo(n), gaussian(1, n, length)) {
		piece := allreduce.DefaultPieceValues(length, n, allreduce.DefaultBlock, false)
		frames := 2 * (n - 1) * length / n / piece
		want := int64(frames * (allreduce.HeaderLen + allreduce.DefaultFormat.EncodedLen(piece)))
		if o.result.BytesSent != want || o.result.BytesReceived != want {
			t.Errorf("rank %d sent %d and received %d bytes, want %d", k, o.result.BytesSent, o.result.BytesReceived, want)
		}
		if o.result.ReduceScatter <= 0 || o.result.AllGather <= 0 || o.result.Total != o.result.ReduceScatter+o.result.AllGather {
			t.Errorf("rank %d: times %+v", k, o.result)
		}
	}
}

func TestNotFinite(t *testing.T) {
	const n, length = 3, 6 * 1024
	r := newRing(t, n, nil)
	inputs := gaussian(2, n, length)
	inputs[0][5] = float32(math.NaN())
	inputs[1][3000] = float32(math.Inf(-1))
	inputs[2][4500] = math.MaxFloat32 // alone in its block, no overflow
	inputs[0][6000], inputs[1][6000] = math.MaxFloat32, math.MaxFloat32
	want := allreduce.RingMean(inputs, allreduce.DefaultFormat)
	outcomes := r.must(1, upTo(n), inputs)
	for k, o := range outcomes {
		sameBits(t, fmt.Sprintf("rank %d", k), o.out, want)
		for i, x := range o.out {
			block := i / 1024
			bad := block == 0 || block == 2 || block == 5
			if bad != math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
				t.Fatalf("value %d is %v", i, x)
			}
		}
	}
}

func TestConnectionIsReused(t *testing.T) {
	r := newRing(t, 3, nil)
	inputs := gaussian(3, 3, 5000)
	r.must(1, upTo(3), inputs)
	first := r.endpoints[0].links["w1"].conns[0]
	r.must(2, upTo(3), inputs)
	if l := r.endpoints[0].links["w1"]; len(l.conns) != 1 || l.conns[0] != first {
		t.Error("the second reduction dialled again")
	}
	r.must(3, []int{0, 2}, inputs[:2])
	if _, kept := r.endpoints[0].links["w1"]; kept {
		t.Error("a new ring, and the link to one who left is kept")
	}
	r.must(4, upTo(3), inputs)
}

func TestAbortThenReduceAgain(t *testing.T) {
	const n = 4
	r := newRing(t, n, nil)
	inputs := gaussian(4, n, 1<<21)
	for epoch := uint64(1); epoch <= 5; epoch++ {
		cause := errors.New("the coordinator says stop")
		ctxs := same(t.Context(), n)
		ctx, cancel := context.WithCancelCause(t.Context())
		ctxs[2] = ctx
		time.AfterFunc(time.Duration(epoch-1)*4*time.Millisecond, func() { cancel(cause) })
		start := time.Now()
		outcomes := r.reduce(ctxs, epoch, upTo(n), inputs)
		if d := time.Since(start); d > patience {
			t.Errorf("abort took %v", d)
		}
		if err := outcomes[2].err; err != nil && !errors.Is(err, cause) {
			t.Errorf("the aborted rank says %v", err)
		}
		for k, o := range outcomes {
			if o.err == nil {
				t.Logf("epoch %d: rank %d finished before the abort", epoch, k)
			}
		}
	}
	want := allreduce.RingMean(inputs, allreduce.DefaultFormat)
	for k, o := range r.must(6, upTo(n), inputs) {
		sameBits(t, fmt.Sprintf("rank %d", k), o.out, want)
		if n := r.endpoints[k].due.Load(); n != 0 {
			t.Errorf("rank %d still counts %d frames as due", k, n)
		}
	}
}

func TestDeadPeerAndNewRing(t *testing.T) {
	const n = 4
	r := newRing(t, n, nil)
	inputs := gaussian(6, n, 1<<21)
	r.must(1, upTo(n), inputs)
	// It dies while both neighbours are connected to it: later, dialling it
	// would last until somebody decides that it is dead.
	go func() {
		for _, e := range r.endpoints[1:3] {
			waitFor(t, "streams of epoch 2", func() bool {
				e.inbox.mu.Lock()
				defer e.inbox.mu.Unlock()
				return e.inbox.last == 2 && (e.inbox.current[2] == nil || e.inbox.current[2].taken[0] > 0)
			})
		}
		r.endpoints[1].Close()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	outcomes := r.reduce(same(ctx, n), 2, upTo(n), inputs)
	for k, o := range outcomes {
		if errors.Is(o.err, context.DeadlineExceeded) {
			t.Errorf("rank %d noticed nothing: %v", k, o.err)
		}
	}
	if err := outcomes[1].err; err != nil && !errors.Is(err, net.ErrClosed) {
		t.Errorf("the closed endpoint says %v", err)
	}
	for k, names := range map[int]string{0: "send to w1", 2: "receive from w1"} {
		if err := outcomes[k].err; err != nil && !strings.Contains(err.Error(), names) {
			t.Logf("neighbour %d says %v", k, err) // an abort from its other side may come first
		}
	}
	survivors := [][]float32{inputs[0], inputs[2], inputs[3]}
	want := allreduce.RingMean(survivors, allreduce.DefaultFormat)
	for k, o := range r.must(3, []int{0, 2, 3}, survivors) {
		sameBits(t, fmt.Sprintf("rank %d", k), o.out, want)
	}
}

func TestSilentPeerIsDialledAgain(t *testing.T) {
	// A worker dies without a word and another takes its name and address.
	r := newRing(t, 2, nil)
	inputs := gaussian(7, 2, 5000)
	r.must(1, upTo(2), inputs)
	r.endpoints[1].transport.Close() // no CONNECTION_CLOSE is sent
	r.endpoints[1].Close()
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(r.peers[1].Addr))
	if err != nil {
		t.Fatal(err)
	}
	e, err := Listen(Config{Conn: conn, TLS: r.authority.tls(t, "w1")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	r.endpoints[1] = e
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for _, o := range r.reduce(same(ctx, 2), 2, upTo(2), inputs) {
		t.Log(o.err)
	}
	r.must(3, upTo(2), inputs)
}

func TestLeavingAtOnceLosesNothing(t *testing.T) {
	// Every worker closes its endpoint the moment its own reduction ends.
	const n = 4
	for range 5 {
		r := newRing(t, n, nil)
		inputs := gaussian(8, n, 200_000)
		done := make(chan error, n)
		for k := range n {
			go func() {
				_, err := r.endpoints[k].Reduce(t.Context(), Op{Epoch: 1, Rank: k, Peers: r.peers}, inputs[k], make([]float32, len(inputs[k])))
				r.endpoints[k].Close()
				done <- err
			}()
		}
		for range n {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestInvalidCalls(t *testing.T) {
	r := newRing(t, 2, nil)
	e := r.endpoints[0]
	data, out := make([]float32, 10), make([]float32, 10)
	good := Op{Epoch: 5, Peers: r.peers[:1]}
	for _, test := range []struct {
		says      string
		op        Op
		data, out []float32
	}{
		{"ring has 0 peers", Op{}, data, out},
		{"rank 1", Op{Rank: 1, Peers: r.peers[:1]}, data, out},
		{"rank -1", Op{Rank: -1, Peers: r.peers}, data, out},
		{"round -1", Op{Round: -1, Peers: r.peers}, data, out},
		{"room for 9", good, data, out[:9]},
		{"algorithm 9", Op{Peers: r.peers, Algorithm: 9}, data, out},
		{"the number of ranks with a group is 1", Op{Peers: r.peers, Algorithm: allreduce.Hierarchical, Groups: []int{0}}, data, out},
		{"same slice", good, data, data},
		{"name", Op{Peers: []Peer{r.peers[0], r.peers[0]}}, data, out},
		{"name", Op{Peers: []Peer{{}}}, data, out},
	} {
		if _, err := e.Reduce(t.Context(), test.op, test.data, test.out); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("want an error about %q, got %v", test.says, err)
		}
	}
	if _, err := e.Reduce(t.Context(), good, data, out); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Reduce(t.Context(), good, data, out); err == nil || !strings.Contains(err.Error(), "must be above") {
		t.Errorf("an epoch twice: %v", err)
	}
	e.Close()
	if _, err := e.Reduce(t.Context(), Op{Epoch: 6, Peers: r.peers[:1]}, data, out); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestInvalidConfig(t *testing.T) {
	a := newAuthority(t)
	for name, edit := range map[string]func(*Config){
		"no TLS":                    func(c *Config) { c.TLS = nil },
		"system authorities":        func(c *Config) { c.TLS.ClientCAs = nil },
		"odd block":                 func(c *Config) { c.Format = allreduce.Format{Bits: 8, Block: 1000} },
		"piece not of whole blocks": func(c *Config) { c.PieceValues = 1000 },
		"piece too large":           func(c *Config) { c.PieceValues = 1 << 21 },
	} {
		cfg := Config{Conn: listenUDP(t), TLS: a.tls(t, "w0")}
		edit(&cfg)
		if e, err := Listen(cfg); err == nil {
			e.Close()
			t.Errorf("%s: accepted", name)
		}
		if err := cfg.Conn.Close(); err == nil {
			t.Errorf("%s: the socket was left open", name)
		}
	}
	if _, err := Listen(Config{}); err == nil {
		t.Error("no socket: accepted")
	}
}

func BenchmarkRing4(b *testing.B) {
	const n = 4
	for _, length := range []int{1 << 20, 1 << 22} {
		b.Run(fmt.Sprintf("%dMiB", length>>18), func(b *testing.B) {
			r := newRing(b, n, nil)
			inputs := gaussian(9, n, length)
			epoch := uint64(0)
			b.SetBytes(int64(4 * length))
			for b.Loop() {
				epoch++
				r.must(epoch, upTo(n), inputs)
			}
		})
	}
}

// TestGroupsOfAnyShape: one group, groups of one, equal and unequal ones.
func TestGroupsOfAnyShape(t *testing.T) {
	r := newRing(t, 6, nil)
	inputs := gaussian(10, 6, 100_001)
	for i, groups := range [][]int{{7, 7, 7, 7, 7, 7}, {0, 1, 2, 3, 4, 5}, {0, 1, 0, 1, 0, 1}, {2, 2, 2, 9, 9, 9}, {0, 1, 1, 1, 1, 1}} {
		r.groups = groups
		want := allreduce.HierarchicalMean(inputs, groups, allreduce.DefaultFormat)
		for k, o := range r.mustBy(allreduce.Hierarchical, uint64(i+1), upTo(6), inputs) {
			sameBits(t, fmt.Sprintf("groups %v rank %d", groups, k), o.out, want)
		}
	}
}
