package quicring

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"testbed/allreduce"
)

func TestSeveralConnections(t *testing.T) {
	for _, algorithm := range []allreduce.Algorithm{allreduce.Ring, allreduce.Direct} {
		t.Run(algorithm.String(), func(t *testing.T) {
			const n, connections = 3, 5
			r := newRing(t, n, func(c *Config) { c.Connections, c.PieceValues = connections, 4096 })
			inputs := gaussian(11, n, 1<<20+5)
			want := reference(algorithm)(inputs, allreduce.DefaultFormat)
			for epoch := uint64(1); epoch <= 3; epoch++ {
				for k, o := range r.mustBy(algorithm, epoch, upTo(n), inputs) {
					sameBits(t, fmt.Sprintf("epoch %d rank %d", epoch, k), o.out, want)
					if peers := o.result.Connections; epoch == 3 && peers < connections {
						t.Errorf("rank %d sent over %d connections", k, peers)
					}
				}
				waitFor(t, "all connections", func() bool { return r.fewest() >= connections })
			}
			for _, e := range r.endpoints {
				for name, l := range e.links {
					if len(l.conns) != connections {
						t.Errorf("%d connections to %s", len(l.conns), name)
					}
				}
			}
		})
	}
}

// TestConnectionsBeingDialled: a reduction that begins while its predecessors'
// connections are being dialled adds none.
func TestConnectionsBeingDialled(t *testing.T) {
	const n, connections = 2, 5
	r := newRing(t, n, func(c *Config) { c.Connections = connections })
	for epoch := uint64(1); epoch <= 10; epoch++ {
		r.mustBy(allreduce.Ring, epoch, upTo(n), gaussian(11, n, 10))
	}
	waitFor(t, "all connections", func() bool { return r.fewest() >= connections })
	for _, e := range r.endpoints {
		if err := e.Close(); err != nil { // no dial is under way any more
			t.Error(err)
		}
		for name, l := range e.links {
			if len(l.conns) != connections {
				t.Errorf("%d connections to %s", len(l.conns), name)
			}
		}
	}
}

// fewest is how many connections the link has that has the fewest.
func (r *ring) fewest() (connections int) {
	connections = math.MaxInt
	for _, e := range r.endpoints {
		for _, l := range e.links {
			connections = min(connections, len(l.connections()))
		}
	}
	return connections
}

// TestAbortOverSeveralConnections: whatever lies on them, the next epoch is
// not disturbed.
func TestAbortOverSeveralConnections(t *testing.T) {
	for _, algorithm := range []allreduce.Algorithm{allreduce.Ring, allreduce.Direct, allreduce.Hierarchical} {
		t.Run(algorithm.String(), func(t *testing.T) {
			const n = 4
			r := newRing(t, n, func(c *Config) { c.Connections = 4 })
			inputs := gaussian(12, n, 1<<20)
			want := reference(algorithm)(inputs, allreduce.DefaultFormat)
			for epoch := uint64(1); epoch <= 10; epoch += 2 {
				cause := errors.New("the coordinator says stop")
				ctxs := same(t.Context(), n)
				ctx, cancel := context.WithCancelCause(t.Context())
				ctxs[1] = ctx
				time.AfterFunc(time.Duration(epoch)*2*time.Millisecond, func() { cancel(cause) })
				for _, o := range r.reduceBy(algorithm, ctxs, epoch, upTo(n), inputs) {
					if errors.Is(o.err, context.DeadlineExceeded) {
						t.Error(o.err)
					}
				}
				for k, o := range r.mustBy(algorithm, epoch+1, upTo(n), inputs) {
					sameBits(t, fmt.Sprintf("rank %d", k), o.out, want)
				}
			}
		})
	}
}

// TestIdleLinksEnd: the order of the ring changes again and again, and nobody
// ends up with a link to everybody else.
func TestIdleLinksEnd(t *testing.T) {
	const n, rounds = 5, 2 * maxIdle
	r := newRing(t, n, func(c *Config) { c.Connections = 1 })
	inputs := gaussian(13, n, 1000)
	epoch := uint64(0)
	for _, order := range [][]int{{0, 1, 2, 3, 4}, {0, 2, 4, 1, 3}, {0, 3, 1, 4, 2}} {
		for range rounds {
			epoch++
			r.must(epoch, order, inputs)
		}
	}
	links := func() (out, in int) {
		for _, e := range r.endpoints {
			e.mu.Lock()
			out += len(e.links)
			in += len(e.inbound)
			e.mu.Unlock()
		}
		return out, in
	}
	out, in := links()
	for deadline := time.Now().Add(time.Minute); in > n && time.Now().Before(deadline); _, in = links() {
		time.Sleep(time.Millisecond) // they close in the background
	}
	if out != n || in != n {
		t.Errorf("%d workers have %d links and know of %d", n, out, in)
	}
}

func TestSeveralReductionsAtATime(t *testing.T) {
	const n, buckets = 3, 6
	r := newRing(t, n, nil)
	var inputs [buckets][][]float32
	for b := range inputs {
		inputs[b] = gaussian(uint64(b), n, 100_000*(b+1))
	}
	type started struct {
		*Reduction
		bucket int
		out    []float32
	}
	var all []started
	for k := range n {
		for b := range inputs {
			out := make([]float32, len(inputs[b][k]))
			op := Op{Epoch: uint64(b + 1), Rank: k, Peers: r.peers, Algorithm: allreduce.Algorithm(b % 2)}
			all = append(all, started{r.endpoints[k].Start(t.Context(), op, inputs[b][k], out), b, out})
		}
	}
	for _, s := range all {
		if _, err := s.Wait(); err != nil {
			t.Fatal(err)
		}
		sameBits(t, fmt.Sprint("bucket ", s.bucket), s.out, reference(allreduce.Algorithm(s.bucket%2))(inputs[s.bucket], allreduce.DefaultFormat))
	}
}

func TestTooManyReductions(t *testing.T) {
	r := newRing(t, 2, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var all []*Reduction
	for epoch := uint64(1); epoch <= maxReductions+1; epoch++ {
		all = append(all, r.endpoints[0].Start(ctx, Op{Epoch: epoch, Peers: r.peers}, make([]float32, 9), make([]float32, 9)))
	}
	if _, err := all[maxReductions].Wait(); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("one too many: %v", err)
	}
	cancel()
	for _, d := range all[:maxReductions] {
		if _, err := d.Wait(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func TestBufferBytes(t *testing.T) {
	const n, length = 4, 1 << 20
	for _, algorithm := range []allreduce.Algorithm{allreduce.Ring, allreduce.Direct, allreduce.Hierarchical} {
		r := newRing(t, n, nil)
		for _, o := range r.mustBy(algorithm, 1, upTo(n), gaussian(1, n, length)) {
			if got := o.result.BufferBytes; got < length || got > 4*length*3/2 {
				t.Errorf("%v held %d bytes for a vector of %d", algorithm, got, 4*length)
			}
		}
	}
}
