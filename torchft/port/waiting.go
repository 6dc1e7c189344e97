package port

import (
	"context"
	"slices"
	"sync"
)

// Waiting are the calls that wait for an answer A of a server's core, by
// caller. The server's lock guards them.
type Waiting[K comparable, A any] struct {
	Calls map[K][]chan A
	lock  sync.Locker
}

// NewWaiting returns a Waiting without calls.
func NewWaiting[K comparable, A any](lock sync.Locker) Waiting[K, A] {
	return Waiting[K, A]{map[K][]chan A{}, lock}
}

// Wait asks the core, and waits for the caller's answer. If the caller goes
// before, or the server ends (with the error ending), Wait withdraws the
// request. The lock is held in ask and withdraw, not during the wait.
func (w *Waiting[K, A]) Wait(call, server context.Context, ending error, by K, ask func() error, withdraw func()) (a A, err error) {
	c := make(chan A, 1)
	w.lock.Lock()
	w.Calls[by] = append(w.Calls[by], c)
	if err := ask(); err != nil {
		w.forget(by, c)
		w.lock.Unlock()
		return a, err
	}
	w.lock.Unlock()
	select {
	case a = <-c:
		return a, nil
	case <-call.Done():
		err = call.Err()
	case <-server.Done():
		err = ending
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.forget(by, c) {
		withdraw()
		return a, err
	}
	return <-c, nil // answered meanwhile
}

// forget removes a call. It reports whether it waited.
func (w *Waiting[K, A]) forget(by K, c chan A) bool {
	all := w.Calls[by]
	i := slices.Index(all, c)
	if i < 0 {
		return false
	}
	if w.Calls[by] = slices.Delete(all, i, i+1); len(all) == 1 {
		delete(w.Calls, by)
	}
	return true
}

// Answer answers all calls of a caller. The lock is held.
func (w *Waiting[K, A]) Answer(by K, a A) {
	for _, c := range w.Calls[by] {
		c <- a
	}
	delete(w.Calls, by)
}

// AnswerAll answers all calls. The lock is held.
func (w *Waiting[K, A]) AnswerAll(a A) {
	for by := range w.Calls {
		w.Answer(by, a)
	}
}
