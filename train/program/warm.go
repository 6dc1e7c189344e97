//go:build linux

package program

import (
	"context"
	"slices"
	"sync"

	"testbed/train/program/wire"
)

// Warm keeps processes of a program from one run to the next, if the program
// has declared when it joined that it can train for one run after another. It
// is safe for concurrent use.
type Warm struct {
	mu     sync.Mutex
	idle   []*process
	closed bool
}

// take returns a waiting process, or nil.
func (w *Warm) take(cfg *Config) *process {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, p := range w.idle {
		if slices.Equal(p.cfg.Command, cfg.Command) && p.cfg.Dir == cfg.Dir && slices.Equal(p.cfg.Env, cfg.Env) && p.cfg.OwnGroup == cfg.OwnGroup {
			w.idle = slices.Delete(w.idle, i, i+1)
			return p
		}
	}
	return nil
}

// keep takes back a process whose run is over, and reports whether it keeps it.
func (w *Warm) keep(p *process) bool {
	if w == nil || !p.again || p.failed || p.owed > 0 || p.layout == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.idle = append(w.idle, p)
	}
	return !w.closed
}

// Close ends all waiting processes. From now on none is kept.
func (w *Warm) Close() {
	w.mu.Lock()
	idle := w.idle
	w.idle, w.closed = nil, true
	w.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range idle {
		all.Go(p.end)
	}
	all.Wait()
}

// begin returns a process of the program that has joined: a warm one, or a new
// one. A warm process that does not join, or joins differently than before, is
// replaced by a new one.
func begin(ctx context.Context, cfg *Config, name, role string, worker int) (*process, wire.Message, error) {
	if p := cfg.Warm.take(cfg); p != nil {
		if join, err := p.rejoin(ctx, cfg, name, role, worker); err == nil {
			return p, join, nil
		}
		p.kill()
		if err := ctx.Err(); err != nil {
			return nil, wire.Message{}, err
		}
	}
	p, err := start(cfg, name, role, worker)
	if err != nil {
		return nil, wire.Message{}, err
	}
	join, err := p.join(ctx)
	if err != nil {
		p.kill()
		return nil, join, err
	}
	p.again = join.Again
	return p, join, nil
}

// rejoin makes a waiting process begin another run.
func (p *process) rejoin(ctx context.Context, cfg *Config, name, role string, worker int) (wire.Message, error) {
	p.cfg, p.name = cfg, name
	if err := p.welcome(role, worker); err != nil {
		return wire.Message{}, err
	}
	return p.join(ctx)
}

// over ends the part of a process in a run: it is kept for another one, or ended.
func (c *Config) over(p *process) {
	if !c.Warm.keep(p) {
		p.end()
	}
}
