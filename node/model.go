package node

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"testbed/allreduce/quicring"
	"testbed/policy"
	"testbed/worker"
)

// The optimisers of DiLoCo (Douillard et al. 2023): the outer step is SGD with
// Nesterov momentum.
const (
	outerLearningRate = 0.7
	outerMomentum     = 0.9
	innerLearningRate = 0.2
)

// model is a worker's training state. Its objective is synthetic: worker w
// minimises the squared distance to a target of its own, the optimum that all
// share plus noise, so that workers disagree as workers with different data do
// and the mean of their pseudo-gradients leads to the optimum.
type model struct {
	optimum []float32
	target  []float32
	local   []float32 // parameters of the inner optimiser

	mu       sync.RWMutex // guards the outer state
	changed  chan struct{}
	outer    []float32
	momentum []float32
	steps    int                 // outer steps taken
	outcomes []*quicring.Outcome // of the last outer steps, the newest last
}

// newModel makes the state that every worker of a run starts from.
func newModel(seed uint64, id policy.ID, parameters int) *model {
	m := &model{
		optimum: gaussian(seed, 0, parameters), target: gaussian(seed, 2+uint64(id), parameters),
		outer: gaussian(seed, 1, parameters), local: make([]float32, parameters),
		momentum: make([]float32, parameters), changed: make(chan struct{}),
	}
	for i, o := range m.optimum {
		m.target[i] = o + float32(0.3*m.target[i])
	}
	copy(m.local, m.outer)
	return m
}

// gaussian returns n roughly normal values; the stream selects among the
// vectors of one seed.
func gaussian(seed, stream uint64, n int) []float32 {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], stream)
	src := rand.NewChaCha8(key)
	out := make([]float32, n)
	for i := range out {
		// The sum of four uniform 16-bit numbers: mean 2, variance 1/3.
		u := src.Uint64()
		sum := u&0xffff + u>>16&0xffff + u>>32&0xffff + u>>48
		out[i] = (float32(sum)/65536 - 2) * 1.7320508
	}
	return out
}

// innerStep moves the local parameters towards the worker's own target.
func (m *model) innerStep() {
	for i, t := range m.target {
		m.local[i] += float32(innerLearningRate * (t - m.local[i]))
	}
}

// pseudoGradient writes outer − local to out.
func (m *model) pseudoGradient(out []float32) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for i, o := range m.outer {
		out[i] = o - m.local[i]
	}
}

// outerStep applies the mean pseudo-gradient and restarts the local parameters
// from the new outer state. outcome is the gradient in quantised form, or nil if
// there is none.
func (m *model) outerStep(gradient []float32, outcome *quicring.Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := state{outer: m.outer, momentum: m.momentum, steps: m.steps}
	s.step(gradient)
	copy(m.local, m.outer)
	if len(m.outcomes) == worker.KeptOutcomes {
		m.outcomes = slices.Delete(m.outcomes, 0, 1) // a slice of the rest would keep it
	}
	m.outcomes = append(m.outcomes, outcome)
	m.advance(s.steps)
}

// step takes one outer step. The conversions keep the compiler from fusing
// operations, which would give other bits on other machines.
func (s *state) step(gradient []float32) {
	for i, g := range gradient {
		s.momentum[i] = float32(outerMomentum*s.momentum[i]) + g
		s.outer[i] -= float32(outerLearningRate * (g + float32(outerMomentum*s.momentum[i])))
	}
	s.steps++
}

// advance publishes a new version. The caller holds the lock.
func (m *model) advance(steps int) {
	m.steps = steps
	close(m.changed)
	m.changed = make(chan struct{})
}

// version returns the number of outer steps taken and a channel that is closed
// when it changes.
func (m *model) version() (int, <-chan struct{}) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.steps, m.changed
}

// loss returns the mean squared distance of the outer parameters from the
// optimum.
func (m *model) loss() float64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	sum := 0.0
	for i, o := range m.outer {
		d := float64(o - m.optimum[i])
		sum += d * d
	}
	return sum / float64(len(m.outer))
}

// snapshot returns a copy of the outer state.
func (m *model) snapshot() *state {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return &state{outer: slices.Clone(m.outer), momentum: slices.Clone(m.momentum), steps: m.steps}
}

// since returns the outcomes of the outer steps after the given one, and the
// hash of the state that they lead to, if all of them are kept.
func (m *model) since(steps int) (outcomes []*quicring.Outcome, hash string, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	missed, ok := worker.Missed(steps, m.steps, len(m.outcomes))
	if !ok {
		return nil, "", false
	}
	outcomes = append([]*quicring.Outcome{}, m.outcomes[len(m.outcomes)-missed:]...)
	return outcomes, hashFloats(m.outer, m.momentum), !slices.Contains(outcomes, nil)
}

// replace installs a fetched outer state.
func (m *model) replace(s *state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outer, m.momentum, m.outcomes = s.outer, s.momentum, nil
	copy(m.local, m.outer)
	m.advance(s.steps)
}

// stateHash returns the hash of the outer state.
func (m *model) stateHash() string {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return hashFloats(m.outer, m.momentum)
}

const floatsPerChunk = 16 << 10

// hashFloats returns the first half of the SHA-256 of the vectors' bytes,
// little-endian, in hexadecimal.
func hashFloats(vectors ...[]float32) string {
	h := sha256.New()
	for _, v := range vectors {
		writeFloats(h, v) // a hash never fails
	}
	return digest(h)
}

func digest(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)[:16]) }

// writeFloats writes the values little-endian.
func writeFloats(w io.Writer, v []float32) error {
	buf := make([]byte, 0, 4*floatsPerChunk)
	for len(v) > 0 {
		n := min(len(v), floatsPerChunk)
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
