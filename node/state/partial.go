package state

import (
	"context"
	"fmt"
	"sync"

	"github.com/quic-go/quic-go"

	"testbed/train"
)

// partial is a state with missing chunks. It outlives a fetch that fails.
type partial struct {
	hashed
	agreed bool // it is the last state that all regions agreed on

	mu    sync.Mutex
	have  []bool // by chunk
	asked []int  // by chunk: number of donors that have been asked for it and may still answer
	left  int    // chunks still missing
	bytes int64  // received, as compressed
}

func newPartial(h header, agreed bool) *partial {
	n := h.Parameters
	s := Snapshot{Steps: h.OuterSteps, State: train.State{Parameters: make([]float32, n), Momentum: make([]float32, n)}}
	if h.Regional {
		s.Agreed = make([]float32, n)
	}
	chunks := s.chunks()
	return &partial{hashed: hashed{s, h.Hash}, agreed: agreed, have: make([]bool, chunks), asked: make([]int, chunks), left: chunks}
}

// take returns the beginning and end of a stretch to ask for: chunks that no
// donor has been asked for, or else chunks that another donor has been asked
// for.
func (p *partial) take() (from, to int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for others := range 2 {
		for from = range p.have {
			for to = from; to < len(p.have) && to < from+stretch && !p.have[to] && p.asked[to] <= others; to++ {
				p.asked[to]++
			}
			if to > from {
				return from, to, true
			}
		}
	}
	return 0, 0, false
}

// put stores chunk i, once, and reports whether the state is complete.
func (p *partial) put(i int, values []float32) (complete bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.have[i] {
		copy(p.chunk(i), values)
		p.have[i] = true
		p.left--
	}
	return p.left == 0
}

// settle ends the request for a stretch.
func (p *partial) settle(from, to int, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bytes += bytes
	for i := from; i < to; i++ {
		p.asked[i]--
	}
}

// collect asks one donor for one stretch after the other until none is missing.
func (p *partial) collect(ctx context.Context, complete func(), conn *quic.Conn, c *Config) error {
	for {
		from, to, ok := p.take()
		if !ok {
			return nil
		}
		bytes, err := p.receive(ctx, complete, conn, request{Hash: p.digest, From: from, To: to, WhileBusy: c.WhileBusy, Agreed: p.agreed}, c)
		p.settle(from, to, bytes)
		if err != nil {
			return err
		}
	}
}

func (p *partial) receive(ctx context.Context, complete func(), conn *quic.Conn, req request, c *Config) (bytes int64, err error) {
	in, h, err := c.ask(ctx, conn, req, 0)
	if err != nil {
		return 0, err
	}
	defer in.stream.CancelRead(0)
	defer context.AfterFunc(ctx, func() { in.stream.CancelRead(0) })()
	if h.Hash != p.digest {
		return 0, fmt.Errorf("the donor was asked for the state with the hash %s, but sent a state with the hash %s", p.digest, h.Hash)
	}
	r, err := newChunkReader(in)
	if err != nil {
		return 0, err
	}
	defer r.close()
	values := make([]float32, ChunkValues)
	for i := req.From; i < req.To; i++ {
		v := values[:len(p.chunk(i))]
		if err := r.read(v); err != nil {
			return r.bytes, err
		}
		if p.put(i, v) {
			complete()
		}
	}
	return r.bytes, nil
}
