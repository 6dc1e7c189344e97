// Package state holds the outer state of a worker: the parameters that all
// workers of a run share, with the momentum of the outer optimiser. It keeps the
// state's versions, gets one from peers and serves it to them, and writes and
// reads checkpoints. What is trained on it is not its business.
package state

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"testbed/allreduce/codec"
	"testbed/train"
	"testbed/worker"
)

// Snapshot is an outer state of one version, which nothing changes any more.
type Snapshot struct {
	Steps int // outer steps taken: the version

	parameters, momentum []float32
}

// Parameters are those of the model, which nobody may change.
func (s *Snapshot) Parameters() []float32 { return s.parameters }

func (s *Snapshot) hash() string { return train.Hash(s.parameters, s.momentum) }

// check compares a state with the hash that was announced.
func (s *Snapshot) check(hash string) error {
	if got := s.hash(); got != hash {
		return fmt.Errorf("its hash is %s, not %s as announced", got, hash)
	}
	return nil
}

// hashed is a state with its hash, computed or announced.
type hashed struct {
	Snapshot
	digest string
}

// Outer is the outer state of a worker as it is now, with the outcomes of the
// last outer steps. It may be used by several goroutines.
type Outer struct {
	parameters int // how many
	optimiser  train.Outer

	mu       sync.RWMutex
	now      Snapshot // its vectors are written in place
	changed  chan struct{}
	outcomes []*codec.Outcome // of the last outer steps, the newest last
}

// NewOuter returns an outer state of version 0. It takes the parameters over.
func NewOuter(parameters []float32, optimiser train.Outer) *Outer {
	n := len(parameters)
	return &Outer{parameters: n, optimiser: optimiser, now: Snapshot{parameters: parameters, momentum: make([]float32, n)}, changed: make(chan struct{})}
}

// take takes an outer step.
func (s *Snapshot) take(optimiser train.Outer, gradient []float32) {
	optimiser.Step(s.parameters, s.momentum, gradient)
	s.Steps++
}

// Step takes an outer step with a mean pseudo-gradient. outcome is that in
// quantised form, for peers that miss the step, or nil if there is none.
func (o *Outer) Step(gradient []float32, outcome *codec.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now.take(o.optimiser, gradient)
	if len(o.outcomes) == worker.KeptOutcomes {
		o.outcomes = slices.Delete(o.outcomes, 0, 1) // a slice of the rest would keep it
	}
	o.outcomes = append(o.outcomes, outcome)
	o.publish()
}

// Replace goes on from a state that was fetched or read, and takes it over.
func (o *Outer) Replace(s *Snapshot) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now, o.outcomes = *s, nil
	o.publish()
}

// publish tells that there is a new version. The caller holds the lock.
func (o *Outer) publish() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// read calls do with the state, which it may neither change nor keep.
func (o *Outer) read(do func(*Snapshot)) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	do(&o.now)
}

// Read calls do with the parameters, which it may neither change nor keep.
func (o *Outer) Read(do func(parameters []float32)) {
	o.read(func(s *Snapshot) { do(s.parameters) })
}

// Version returns the number of outer steps taken and a channel that is closed
// when it changes.
func (o *Outer) Version() (steps int, changed <-chan struct{}) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.now.Steps, o.changed
}

// Hash returns the Hash of parameters and momentum.
func (o *Outer) Hash() (hash string) {
	o.read(func(s *Snapshot) { hash = s.hash() })
	return hash
}

func (o *Outer) snapshot() (c Snapshot) {
	o.read(func(s *Snapshot) {
		c = Snapshot{Steps: s.Steps, parameters: slices.Clone(s.parameters), momentum: slices.Clone(s.momentum)}
	})
	return c
}

// since returns the outcomes of the outer steps after the given one, and the
// hash of the state that they lead to, if all of them are kept.
func (o *Outer) since(steps int) (outcomes []*codec.Outcome, hash string, ok bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	missed, ok := worker.Missed(steps, o.now.Steps, len(o.outcomes))
	if !ok {
		return nil, "", false
	}
	outcomes = append([]*codec.Outcome{}, o.outcomes[len(o.outcomes)-missed:]...)
	return outcomes, o.now.hash(), !slices.Contains(outcomes, nil)
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

// readFloats reads n values. Memory grows with what is there, and not with what
// is announced.
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
