// Package charlm is a language model of characters that trains within a run: a
// small transformer over bytes with AdamW, on the processor alone. Its
// parameters and losses are the same bits on every machine: package matrix
// computes products, every other operation is rounded on its own, and functions
// that libraries compute differently are implemented here.
package charlm

import (
	"cmp"
	"fmt"
	"math"

	"testbed/train"
)

// vocabulary is the number of tokens: every byte is one.
const vocabulary = 256

// Config is a model and its training.
type Config struct {
	Layers  int // transformer blocks
	Width   int // values per position
	Heads   int // of attention; they divide the width
	Context int // bytes that a prediction sees at most
	Batch   int // windows of Context bytes per inner step

	Rate   float64 // learning rate of AdamW
	Decay  float64 // its weight decay, of matrices only
	Warmup int     // inner steps over which the rate rises from 0, counted over all rounds
}

// Defaults returns a model of 135,488 parameters, which takes some 20 ms a step
// on one core with vector instructions, and learns words within some hundred
// steps.
func Defaults() Config {
	return Config{Layers: 2, Width: 64, Heads: 4, Context: 64, Batch: 8, Rate: 3e-3, Decay: 0.1, Warmup: 40}
}

// Bounds of the sizes. The largest model has 10⁸ parameters.
const (
	maxLayers  = 32
	maxWidth   = 512
	maxContext = 1024
	maxBatch   = 1024
	maxMemory  = 1 << 30 // bytes, of a worker
)

// Validate returns an error that names the field and the fix.
func (c Config) Validate() error {
	between := func(field string, value, least, most int) error {
		if value < least || value > most {
			return fmt.Errorf("%s is %d: it must lie between %d and %d", field, value, least, most)
		}
		return nil
	}
	number := func(field string, value, most float64) error {
		if !(value >= 0 && value <= most) {
			return fmt.Errorf("%s is %v: it must lie between 0 and %v", field, value, most)
		}
		return nil
	}
	err := cmp.Or(
		between("layers", c.Layers, 1, maxLayers),
		between("width", c.Width, 1, maxWidth),
		between("heads", c.Heads, 1, maxWidth),
		between("context", c.Context, 1, maxContext),
		between("batch", c.Batch, 1, maxBatch),
		number("rate", c.Rate, 1),
		number("decay", c.Decay, 1),
		between("warmup", c.Warmup, 0, math.MaxInt32),
	)
	switch {
	case err != nil:
		return err
	case c.Width%c.Heads != 0:
		return fmt.Errorf("width is %d, but heads is %d: make width a multiple of heads", c.Width, c.Heads)
	case c.memory() > maxMemory:
		return fmt.Errorf("batch is %d: with layers %d, width %d, heads %d and context %d, each worker needs %d MiB, but may use at most %d MiB; lower one of these numbers",
			c.Batch, c.Layers, c.Width, c.Heads, c.Context, c.memory()>>20, maxMemory>>20)
	}
	return nil
}

// memory returns the approximate number of bytes of a trainer: parameters,
// gradient and two pairs of moments, and, for each byte of a batch, the memory
// of newNetwork.
func (c Config) memory() int64 {
	perByte := c.Layers*(16*c.Width+c.Heads*c.Context) + 11*c.Width + vocabulary
	return 4 * (6*int64(c.Parameters()) + int64(c.Batch*c.Context)*int64(perByte))
}

// Parameters returns the number of the model's parameters.
func (c Config) Parameters() int {
	layers := c.layers()
	last := layers[len(layers)-1]
	return last.At + last.Len
}

// Parts are the layers of the parameters, without gaps.
func (c Config) Parts() []train.Layer { return c.layers() }

// layers lays the parameters out.
func (c Config) layers() []train.Layer {
	var layers []train.Layer
	at := 0
	layer := func(name string, shape ...int) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		layers = append(layers, train.Layer{Name: name, Shape: shape, At: at, Len: n})
		at += n
	}
	layer("embedding", vocabulary, c.Width)
	layer("positions", c.Context, c.Width)
	for b := range c.Layers {
		in := func(name string) string { return fmt.Sprintf("block%d.%s", b, name) }
		layer(in("norm1"), c.Width)
		layer(in("qkv"), c.Width, 3*c.Width)
		layer(in("attention"), c.Width, c.Width)
		layer(in("norm2"), c.Width)
		layer(in("up"), c.Width, 4*c.Width)
		layer(in("down"), 4*c.Width, c.Width)
	}
	layer("norm", c.Width)
	layer("head", c.Width, vocabulary)
	return layers
}
