package charlm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"

	"testbed/train"
)

// Split determines the part of the text that a worker trains on.
type Split string

const (
	// IID: every worker draws windows from the whole training text, with a stream
	// of its own.
	IID Split = "iid"
	// Contiguous cuts the training text into one part for each worker, so that
	// their data differ.
	Contiguous Split = "contiguous"
)

const (
	// heldOut is the held-out share of the text, at its end.
	heldOut = 10 // one part in so many
	// validationWindows is the most windows of the held-out text, evenly spaced,
	// over which the validation loss is a mean. A validation takes as long as some
	// seven steps.
	validationWindows = 128
)

// task is the task of New.
type task struct {
	config Config
	seed   uint64
	shards [][]byte // by worker
	held   []byte
}

// New returns the task of training a model on a text. Errors name the field.
func New(c Config, seed uint64, text []byte, workers int, split Split) (train.Task, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if workers < 1 {
		return nil, fmt.Errorf("there are %d workers: a task needs at least one", workers)
	}
	if len(text) == 0 {
		return nil, errors.New("the text is empty; there is nothing to learn")
	}
	parts := workers
	switch split {
	case IID:
		parts = 1
	case Contiguous:
	default:
		return nil, fmt.Errorf("split is %q: choose %s or %s", split, IID, Contiguous)
	}
	least := c.Context + 1 // a window and the byte after it
	end := len(text) - max(len(text)/heldOut, least)
	if end < parts*least {
		training := "1 training part"
		if parts > 1 {
			training = fmt.Sprintf("%d training parts", parts)
		}
		return nil, fmt.Errorf("the text has %d bytes, but needs %s and 1 validation part of at least %d bytes each, which is the context and one byte; use a longer text, or lower train.model.context", len(text), training, least)
	}
	t := &task{config: c, seed: seed, held: text[end:]}
	for w := range workers {
		if split == IID {
			t.shards = append(t.shards, text[:end])
		} else {
			t.shards = append(t.shards, text[w*end/workers:(w+1)*end/workers])
		}
	}
	return t, nil
}

func (t *task) Layers() []train.Layer { return t.config.layers() }

func (t *task) TokensPerStep() int { return t.config.Batch * t.config.Context }

// stream returns the random numbers for a step. For step 0 they are those of
// the initial parameters of the layer numbered first.
func (t *task) stream(first, round, step int) *rand.ChaCha8 {
	var key [32]byte
	for i, word := range []uint64{t.seed, uint64(first), uint64(round), uint64(step)} {
		binary.LittleEndian.PutUint64(key[8*i:], word)
	}
	return rand.NewChaCha8(key)
}

// Start draws each matrix evenly from an interval around 0. Its deviation is
// 0.05 for bytes and positions, and otherwise the inverse root of the number of
// values that a product adds up. Layers that add to the residual stream begin
// at 0, like the last layer of a branch in Fixup (Zhang, Dauphin and Ma 2019).
// Otherwise untrained blocks drown the bytes, and 800 steps reach 2.18 nats a
// byte instead of 1.85. Gains are 1.
func (t *task) Start() []float32 {
	parameters := make([]float32, t.config.Parameters())
	for i, l := range t.config.layers() {
		values := parameters[l.At:][:l.Len]
		if len(l.Shape) == 1 {
			for j := range values {
				values[j] = 1
			}
			continue
		}
		deviation := 1 / math.Sqrt(float64(l.Shape[0]))
		switch {
		case i < 2:
			deviation = 0.05
		case strings.HasSuffix(l.Name, ".attention"), strings.HasSuffix(l.Name, ".down"):
			continue
		}
		width, src := float32(deviation*math.Sqrt(3)), t.stream(i, 0, 0)
		for j := range values {
			values[j] = float32(float32(int32(src.Uint64()>>32))*0x1p-31) * width
		}
	}
	return parameters
}

// windows copies a batch of a shard to tokens, and the byte after each of them
// to targets.
func (t *task) windows(tokens, targets []byte, src *rand.ChaCha8, shard []byte) {
	for at := 0; at < len(tokens); at += t.config.Context {
		start, _ := bits.Mul64(src.Uint64(), uint64(len(shard)-t.config.Context))
		copy(tokens[at:][:t.config.Context], shard[start:])
		copy(targets[at:][:t.config.Context], shard[start+1:])
	}
}

// Validate returns the loss on the held-out text in nats a byte.
func (t *task) Validate(parameters []float32) (float64, error) {
	w := weightsOf(t.config, parameters)
	n := newNetwork(t.config, 1, false)
	windows := min((len(t.held)-1)/t.config.Context, validationWindows)
	sum := 0.0
	for i := range windows {
		start := i * (len(t.held) - 1 - t.config.Context) / max(windows-1, 1)
		n.forward(w, t.held[start:][:t.config.Context], t.config.Context)
		sum += n.loss(t.held[start+1:][:t.config.Context])
	}
	return sum / float64(windows), nil
}
