package node

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math"
	"math/rand/v2"
	"sync"

	"testbed/policy"
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
	steps    int // outer steps taken
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
// from the outcome. The conversions keep the compiler from fusing operations,
// which would give other bits on other machines.
func (m *model) outerStep(gradient []float32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, g := range gradient {
		m.momentum[i] = float32(outerMomentum*m.momentum[i]) + g
		m.outer[i] -= float32(outerLearningRate * (g + float32(outerMomentum*m.momentum[i])))
	}
	copy(m.local, m.outer)
	m.advance(m.steps + 1)
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
func (m *model) snapshot() (outer, momentum []float32, steps int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return append([]float32(nil), m.outer...), append([]float32(nil), m.momentum...), m.steps
}

// replace installs a fetched outer state.
func (m *model) replace(outer, momentum []float32, steps int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.outer, m.momentum = outer, momentum
	copy(m.local, m.outer)
	m.advance(steps)
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

// readFloats fills v with little-endian values.
func readFloats(r io.Reader, v []float32) error {
	buf := make([]byte, 4*floatsPerChunk)
	for len(v) > 0 {
		n := min(len(v), floatsPerChunk)
		if _, err := io.ReadFull(r, buf[:4*n]); err != nil {
			return fmt.Errorf("reading values: %w", err)
		}
		for i := range n {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(buf[4*i:]))
		}
		v = v[n:]
	}
	return nil
}
