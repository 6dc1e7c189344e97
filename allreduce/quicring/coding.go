package quicring

import (
	"sync"
	"time"

	"testbed/allreduce/codec"
	"testbed/allreduce/entropy"
)

// coderPool keeps coders between reductions: their tables are large.
type coderPool struct{ pool sync.Pool }

func (p *coderPool) get() *codec.Coder {
	if c, ok := p.pool.Get().(*codec.Coder); ok {
		return c
	}
	return new(codec.Coder)
}

// putBack returns a coder to the pool and counts the time it spent.
func (r *run) putBack(c *codec.Coder) {
	r.coding.Add(int64(c.Spent))
	c.Spent = 0
	r.e.coders.pool.Put(c)
}

// chooser is an endpoint's decision on entropy coding.
type chooser struct {
	mu sync.Mutex
	entropy.Chooser
}

// shorten reports whether the reduction of this epoch shortens its codes.
func (e *Endpoint) shorten(epoch uint64) bool {
	switch {
	case e.cfg.Entropy == entropy.On:
		return true
	case e.cfg.Entropy == entropy.Off || !e.cfg.Format.HasCodes():
		return false
	}
	e.chooser.mu.Lock()
	defer e.chooser.mu.Unlock()
	return e.chooser.Choose(int(epoch))
}

// note passes a finished reduction to the chooser.
func (e *Endpoint) note(r *run, total time.Duration) {
	var wait time.Duration
	for _, f := range r.flows {
		// The connections of a flow wait simultaneously.
		wait = max(wait, time.Duration(f.waited.Load()/max(1, f.used.Load())))
	}
	e.chooser.mu.Lock()
	defer e.chooser.mu.Unlock()
	e.chooser.Note(entropy.Reduction{
		Coded: r.codec.Short, Values: len(r.data),
		Total: total, Wait: wait, Coding: time.Duration(r.coding.Load()),
	})
}
