//go:build linux

package launch

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emulation/programs"
	"testbed/internal/cpuwait"
	"testbed/internal/steady"
)

// pace controls how fast a node computes, by stopping and continuing all
// processes of the node. Unlike cgroups, this needs no right that a sandbox
// lacks, and leaves nothing behind. pace also measures what the node computes.
type pace struct {
	roster *roster
	raise  func(tid int)

	mu        sync.Mutex
	meter     meter
	delays    delays
	frozen    bool
	stopped   bool      // by the throttle
	throttle  *throttle // nil: the node is as fast as it can be
	began     *slowed   // of throttle
	windows   []float64 // shares of a processor, one for each sampleEvery
	slowAt    int       // of windows, when the throttle began
	last      time.Duration
	lastAt    time.Duration
	straddles bool   // the current window has two paces, and counts for neither
	told      sample // the last one
	wake      chan struct{}
}

func newPace(r *roster, raise func(tid int)) *pace {
	return &pace{roster: r, raise: raise, lastAt: steady.Now(), wake: make(chan struct{}, 1)}
}

// freeze stops the node, until thaw.
func (p *pace) freeze() (stopped, left int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen, p.straddles = true, true
	return p.roster.stop()
}

func (p *pace) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen {
		p.frozen, p.straddles = false, true
		if !p.stopped {
			p.roster.resume()
		}
	}
}

// release is thaw for a node that is about to be killed.
func (p *pace) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen, p.stopped = false, false
}

// slow makes the node slower by the factor, until restore.
func (p *pace) slow(factor float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, intended := slowShare(p.windows, factor)
	p.began = &slowed{Before: before, Intended: intended}
	p.throttle = newThrottle(intended, steady.Now(), p.meter.read(p.roster.members()))
	p.slowAt, p.straddles = len(p.windows), true
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// restore is the end of slow. It returns the node's shares during the slow, as
// soFar does.
func (p *pace) restore() *slowed {
	s := p.soFar()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.throttle == nil {
		return nil
	}
	p.throttle, p.straddles = nil, true
	p.windows = p.windows[:p.slowAt] // slow windows do not measure the usual share
	if p.stopped {
		p.stopped = false
		if !p.frozen {
			p.roster.resume()
		}
	}
	return s
}

// soFar returns the node's shares since slow. It is nil if the node is not
// slow, or has not been for long enough.
func (p *pace) soFar() *slowed {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.throttle == nil {
		return nil
	}
	s := *p.began
	if s.Used = typicalShare(p.windows[p.slowAt:]); s.Used == 0 {
		return nil
	}
	return &s
}

// rosterEvery is the time between two searches for new processes of a slow
// node.
const rosterEvery = 100 * time.Millisecond

// keep measures and reports the node, for ever. Meanwhile it applies the
// throttle, if there is one.
func (p *pace) keep(tell func(sample)) {
	runtime.LockOSThread()
	go func() {
		for range time.Tick(sampleEvery) {
			if s, is := p.sample(); is {
				tell(s)
			}
		}
	}()
	raised := false
	for range p.wake {
		if !raised { // processes that are to be stopped must not delay this thread
			p.raise(unix.Gettid())
			raised = true
		}
		var members []int
		for looked := time.Duration(0); ; time.Sleep(throttleTick) {
			if now := steady.Now(); now-looked >= rosterEvery {
				members, looked = p.roster.members(), now
			}
			if !p.look(members) {
				break
			}
		}
	}
}

// look stops or continues the node, as the throttle says. It reports whether
// there is a throttle.
func (p *pace) look(members []int) (slow bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.throttle == nil {
		return false
	}
	run := p.throttle.look(steady.Now(), p.meter.read(members))
	if run == !p.stopped || p.frozen {
		return true
	}
	p.stopped = !run
	sig := unix.SIGSTOP
	if run {
		sig = unix.SIGCONT
	}
	for _, pid := range members {
		_ = unix.Kill(pid, sig) // it may have ended
	}
	return true
}

// sample measures the node's totals so far, and reports whether they have
// changed.
func (p *pace) sample() (s sample, is bool) {
	members := p.roster.members()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := steady.Now()
	s.Processor = p.meter.read(members)
	if p.throttle == nil && len(p.windows) >= mostWindows {
		p.windows = p.windows[1:]
	}
	if len(members) > 0 && !p.frozen && !p.straddles {
		p.windows = append(p.windows, float64(s.Processor-p.last)/float64(now-p.lastAt))
	}
	s.Waited = p.delays.add(cpuwait.Of(nil, members))
	p.last, p.lastAt, p.straddles = s.Processor, now, false
	var err error
	s.Sent, s.Received, err = programs.InterfaceBytes()
	is = err == nil && (len(members) > 0 || s != p.told)
	p.told = s
	return s, is
}

// mostWindows is the number of windows kept of a node that is not slow: ten
// minutes.
const mostWindows = 1200
