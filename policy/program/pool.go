package program

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"sync"
)

// pool holds the processes of a program that wait for a run.
type pool struct {
	spec spec
	once bool // a process ends with its run

	mutex sync.Mutex
	hello *hello // of the first process
	said  []byte // likewise, as it came
	idle  []*process
	fine  []map[string]Value // accepted parameters
}

// maxFine is the largest number of accepted parameters that are kept.
const maxFine = 64

// pools are the pools of this process, which End empties.
var (
	poolsMutex sync.Mutex
	pools      = map[spec]*pool{}
)

// warm returns the pool of a program whose processes wait for further runs.
func warm(s spec) *pool {
	poolsMutex.Lock()
	defer poolsMutex.Unlock()
	if pools[s] == nil {
		pools[s] = &pool{spec: s}
	}
	return pools[s]
}

// End ends all waiting processes. No process may be asked meanwhile.
func End() {
	poolsMutex.Lock()
	defer poolsMutex.Unlock()
	var all sync.WaitGroup
	for _, p := range pools {
		for _, q := range p.idle {
			all.Go(q.end)
		}
	}
	all.Wait()
	clear(pools)
}

// take returns a process for exclusive use.
func (p *pool) take() (*process, error) {
	p.mutex.Lock()
	if n := len(p.idle); n > 0 {
		q := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mutex.Unlock()
		return q, nil
	}
	p.mutex.Unlock()
	q, err := start(p.spec)
	if err != nil {
		return nil, err
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	switch {
	case p.hello == nil:
		p.hello, p.said = q.hello, q.said
	case !bytes.Equal(p.said, q.said):
		return nil, q.problem(errors.New(`answers the question "hello" differently than before: the program has changed, or its answers depend on more than the questions`), "restart the command, and make equal questions get equal answers")
	}
	return q, nil
}

// give takes back a process, whose run may be over.
func (p *pool) give(q *process, over bool) {
	if q.broken || over && p.once {
		q.end()
		return
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.idle = append(p.idle, q)
}

// close ends the waiting processes, if they are not to wait for another run.
func (p *pool) close() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.once {
		for _, q := range p.idle {
			q.end()
		}
		p.idle = nil
	}
}

// accepted reports whether the program is known to accept parameters.
func (p *pool) accepted(given map[string]Value) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.ContainsFunc(p.fine, func(fine map[string]Value) bool { return maps.Equal(fine, given) })
}

// accept notes that the program accepts parameters.
func (p *pool) accept(given map[string]Value) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.fine = append(p.fine[max(0, len(p.fine)-maxFine+1):], given)
}

// known is the program's hello, nil before it was started.
func (p *pool) known() *hello {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.hello
}
