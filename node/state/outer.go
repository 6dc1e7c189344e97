// Package state holds the outer state of a worker: the parameters that all
// workers of a run share, with the momentum of the outer optimiser. The package
// keeps the state's versions, fetches the state from peers and serves it to
// them, and writes and reads checkpoints. It does not depend on the training
// task.
package state

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"testbed/allreduce/codec"
	"testbed/policy"
	"testbed/policy/worker"
	"testbed/train"
)

// Snapshot is an outer state of one version, which nothing changes any more.
type Snapshot struct {
	Steps int // outer steps taken: the version
	train.State
}

// check compares a state with the hash that was announced.
func (s *Snapshot) check(hash string) error {
	if got := s.Hash(); got != hash {
		return fmt.Errorf("the received state has the hash %s, but the donor announced %s", got, hash)
	}
	return nil
}

// hashed is a state with its hash, computed or announced.
type hashed struct {
	Snapshot
	digest string
}

// Outer is the present outer state of a worker, with the outcomes of the last
// outer steps. It may be used by several goroutines.
type Outer struct {
	parameters int // how many
	optimiser  train.Outer
	fragments  train.Fragments
	rule       *policy.Grouping

	mu       sync.RWMutex
	now      Snapshot // its vectors are written in place
	changed  chan struct{}
	outcomes []*codec.Outcome // of the last outer steps, the newest last
	// before has, with regions, the hash of the state before each of the outcomes:
	// a region that has lost its state begins another line of them.
	before []string
}

// NewOuter returns an outer state of version 0. It takes ownership of the
// parameters. rule determines which outer steps are a region's own.
func NewOuter(parameters []float32, optimiser train.Outer, fragments train.Fragments, rule *policy.Grouping) *Outer {
	n := len(parameters)
	return &Outer{
		parameters: n, optimiser: optimiser, fragments: fragments, rule: rule,
		now: Snapshot{State: train.State{Parameters: parameters, Momentum: make([]float32, n)}}, changed: make(chan struct{}),
	}
}

// next is the fragment of the outer step after this version.
func (o *Outer) next(s *Snapshot) train.Fragment { return o.fragments.Of(s.Steps + 1) }

// take takes an outer step of the next fragment, to the given version.
func (o *Outer) take(s *Snapshot, gradient []float32, to int) {
	o.optimiser.Take(&s.State, o.next(s), gradient, o.rule.Global(to))
	s.Steps = to
}

// Step takes an outer step with a mean pseudo-gradient of its fragment. outcome
// is its quantised form, for peers that miss the step, or nil if there is none.
func (o *Outer) Step(gradient []float32, outcome *codec.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.outcomes) == worker.KeptOutcomes {
		o.outcomes = slices.Delete(o.outcomes, 0, 1) // a slice of the rest would keep it
	}
	o.outcomes = append(o.outcomes, outcome)
	if o.rule != nil {
		o.before = append(o.before, o.now.Hash())
		o.before = o.before[len(o.before)-len(o.outcomes):]
	}
	o.take(&o.now, gradient, o.now.Steps+1)
	o.publish()
}

// Replace continues from a fetched or read state, and takes ownership of it.
func (o *Outer) Replace(s *Snapshot) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now, o.outcomes, o.before = *s, nil, nil
	o.publish()
}

// Initial declares an unchanged state to be that of a later version.
func (o *Outer) Initial(outerSteps int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now.Steps = outerSteps
}

// publish announces a new version. The caller holds the lock.
func (o *Outer) publish() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// read calls do with the state, which do may neither change nor keep.
func (o *Outer) read(do func(*Snapshot)) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	do(&o.now)
}

// Base calls do with the parameters from which pseudo-gradients of the next
// outer step are measured. do may neither change nor keep them.
func (o *Outer) Base(do func(parameters []float32)) {
	o.read(func(s *Snapshot) { do(s.Base(o.rule.Global(s.Steps + 1))) })
}

// Read calls do with the parameters, which do may neither change nor keep.
func (o *Outer) Read(do func(parameters []float32)) {
	o.read(func(s *Snapshot) { do(s.Parameters) })
}

// Version returns the number of outer steps taken and a channel that is closed
// when it changes.
func (o *Outer) Version() (steps int, changed <-chan struct{}) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.now.Steps, o.changed
}

// Hash returns the Hash of the state.
func (o *Outer) Hash() (hash string) {
	o.read(func(s *Snapshot) { hash = s.Hash() })
	return hash
}

// snapshot returns a copy of the state or, with agreed, of the last one that all
// regions agreed on.
func (o *Outer) snapshot(agreed bool) (c Snapshot) {
	o.read(func(s *Snapshot) {
		if c = *s; agreed {
			c.State = s.Last()
		}
		c.State = c.Clone()
	})
	return c
}

// version returns the version and the hash of snapshot's state, without its
// vectors.
func (o *Outer) version(agreed bool) (steps int, hash string) {
	o.read(func(s *Snapshot) {
		steps, hash = s.Steps, ""
		if agreed {
			hash = s.Last().Hash()
		} else {
			hash = s.Hash()
		}
	})
	return steps, hash
}

// since returns the outcomes of the outer steps after a request's version, and
// the version and the hash of the state after them, if all of them are kept.
// For the last state that all regions agreed on, these are the global steps
// only.
func (o *Outer) since(req request) (outcomes []*codec.Outcome, steps int, hash string, ok bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	now, first := &o.now, o.now.Steps-len(o.outcomes) // version before the first kept outcome
	outcomes = []*codec.Outcome{}
	switch missed, kept := worker.Missed(*req.Have, now.Steps, len(o.outcomes)); {
	case *req.Have < 0 || missed < 0 || !kept && !req.Agreed:
		return nil, 0, "", false
	case !req.Agreed:
		base := now.Hash()
		hash = base
		if o.rule != nil && missed > 0 {
			base = o.before[*req.Have-first]
		}
		if o.rule != nil && req.Base != base {
			return nil, 0, "", false
		}
		outcomes = append(outcomes, o.outcomes[len(o.outcomes)-missed:]...)
	default:
		steps, ok := o.rule.Missed(*req.Have, now.Steps, len(o.outcomes))
		if hash = now.Last().Hash(); !ok {
			return nil, 0, "", false
		}
		for _, to := range steps {
			outcomes = append(outcomes, o.outcomes[to-first-1])
		}
	}
	return outcomes, now.Steps, hash, !slices.Contains(outcomes, nil)
}

const floatsPerWrite = 16 << 10

// writeFloats writes the values little-endian.
func writeFloats(w io.Writer, v []float32) error {
	buf := make([]byte, 0, 4*floatsPerWrite)
	for len(v) > 0 {
		n := min(len(v), floatsPerWrite)
		buf = buf[:0]
		for _, f := range v[:n] {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(f))
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
		v = v[n:]
	}
	return nil
}

// readFloats reads n values. Memory grows with the actual data rather than with
// the announced length.
func readFloats(r io.Reader, n int) ([]float32, error) {
	v := make([]float32, 0, min(n, floatsPerWrite))
	buf := make([]byte, 4*floatsPerWrite)
	for len(v) < n {
		b := buf[:4*min(n-len(v), floatsPerWrite)]
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		for ; len(b) > 0; b = b[4:] {
			v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
	}
	return v, nil
}
