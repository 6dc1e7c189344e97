package charlm

import (
	"math"

	"testbed/train/matrix"
)

// weights are the layers of a flat vector of parameters, or of their gradient.
type weights struct {
	embedding, positions, norm, head []float32
	blocks                           []block
}

// block is a transformer block: x += attention(norm1(x)); x += mlp(norm2(x)).
type block struct{ norm1, qkv, attention, norm2, up, down []float32 }

// weightsOf views a flat vector by the layout of the configuration.
func weightsOf(c Config, flat []float32) weights {
	layers := c.layers()
	next := func() []float32 {
		l := layers[0]
		layers = layers[1:]
		return flat[l.At:][:l.Len:l.Len]
	}
	w := weights{embedding: next(), positions: next()}
	for range c.Layers {
		w.blocks = append(w.blocks, block{next(), next(), next(), next(), next(), next()})
	}
	w.norm, w.head = next(), next()
	return w
}

// network computes predictions and gradients of up to so many windows, in memory
// of its own. It has one user at a time.
//
// It is a usual transformer (GPT-2, Radford et al. 2019) with fewer parts:
// norms before attention and MLP, learned positions, no biases, RMSNorm, and
// the squared ReLU (So et al. 2021), which needs no library function.
type network struct {
	Config
	times matrix.Multiplier

	blocks           []activations
	last, lastNormed []float32 // input and output of the final norm
	lastScales       []float32
	predictions      []float32 // logits, then probabilities, then their gradient

	// Gradients, named after their variables.
	dx, dNormed, dQKV, dWide, dScores []float32
}

// activations are a block's intermediate values, which its gradient needs.
type activations struct {
	in, normed1, qkv, mixed, middle, normed2, wide, active []float32
	scales1, scales2                                       []float32
	attention                                              []float32 // probabilities by window, head, position and position
}

// newNetwork allocates a network for so many windows; with room for gradients
// only if it learns.
func newNetwork(c Config, windows int, learns bool) *network {
	rows := windows * c.Context
	values := func(perRow int) []float32 { return make([]float32, rows*perRow) }
	n := &network{
		Config: c, last: values(c.Width), lastNormed: values(c.Width), lastScales: values(1), predictions: values(vocabulary),
	}
	for range c.Layers {
		n.blocks = append(n.blocks, activations{
			in: values(c.Width), normed1: values(c.Width), qkv: values(3 * c.Width), mixed: values(c.Width),
			middle: values(c.Width), normed2: values(c.Width), wide: values(4 * c.Width), active: values(4 * c.Width),
			scales1: values(1), scales2: values(1), attention: values(c.Heads * c.Context),
		})
	}
	if learns {
		n.dx, n.dNormed, n.dQKV, n.dWide = values(c.Width), values(c.Width), values(3*c.Width), values(4*c.Width)
		n.dScores = make([]float32, c.Context*c.Context)
	}
	return n
}

// forward computes the logits of the byte after each byte of the windows, which
// are rows of so many bytes. They are the first rows of predictions.
func (n *network) forward(w weights, tokens []byte, window int) {
	width, rows := n.Width, len(tokens)
	x := n.blocks[0].in
	for i, token := range tokens {
		embedding, position := w.embedding[int(token)*width:][:width], w.positions[i%window*width:][:width]
		to := x[i*width:][:width]
		for j, e := range embedding {
			to[j] = e + position[j]
		}
	}
	for i, b := range w.blocks {
		a, out := &n.blocks[i], n.last
		if i+1 < len(n.blocks) {
			out = n.blocks[i+1].in
		}
		norm(a.normed1, a.in, b.norm1, a.scales1[:rows])
		n.times.Multiply(n.of(a.qkv, rows, 3*width), n.of(a.normed1, rows, width), matrix.Of(b.qkv, 3*width))
		n.attend(a, rows, window)
		copy(a.middle, a.in[:rows*width])
		n.times.MultiplyAdd(n.of(a.middle, rows, width), n.of(a.mixed, rows, width), matrix.Of(b.attention, width))
		norm(a.normed2, a.middle, b.norm2, a.scales2[:rows])
		n.times.Multiply(n.of(a.wide, rows, 4*width), n.of(a.normed2, rows, width), matrix.Of(b.up, 4*width))
		for j, v := range a.wide[:rows*4*width] {
			v = max(v, 0)
			a.active[j] = v * v
		}
		copy(out, a.middle[:rows*width])
		n.times.MultiplyAdd(n.of(out, rows, width), n.of(a.active, rows, 4*width), matrix.Of(b.down, width))
	}
	norm(n.lastNormed, n.last, w.norm, n.lastScales[:rows])
	n.times.Multiply(n.of(n.predictions, rows, vocabulary), n.of(n.lastNormed, rows, width), matrix.Of(w.head, vocabulary))
}

// of views the first rows.
func (n *network) of(values []float32, rows, columns int) matrix.Matrix {
	return matrix.Of(values[:rows*columns], columns)
}

// head views the part of a window and a head in queries, keys and values (part
// 0, 1 and 2), of parts that lie side by side.
func (n *network) head(values []float32, parts, part, first, window, head int) matrix.Matrix {
	size := n.Width / n.Heads
	return matrix.Of(values, parts*n.Width).Part(first, part*n.Width+head*size, window, size)
}

// scores views the attention of a window and a head: in each row, the weights
// that a position gives to the positions up to itself.
func (n *network) scores(a *activations, first, window, head int) matrix.Matrix {
	at := (first*n.Heads + head*window) * window
	return matrix.Of(a.attention[at:][:window*window], window)
}

// scoreScale is the factor of scores before the softmax.
func (n *network) scoreScale() float32 { return 1 / float32(math.Sqrt(float64(n.Width/n.Heads))) }

// attend writes to mixed the values that each position takes from the positions
// up to itself.
func (n *network) attend(a *activations, rows, window int) {
	scale := n.scoreScale()
	for first := 0; first < rows; first += window {
		for head := range n.Heads {
			part := func(part int) matrix.Matrix { return n.head(a.qkv, 3, part, first, window, head) }
			scores := n.scores(a, first, window, head)
			n.times.Multiply(scores, part(0), part(1).Transposed())
			for i := range window {
				row := scores.Values[i*window:][:window]
				for j := range row[:i+1] {
					row[j] *= scale
				}
				softmax(row[:i+1])
				clear(row[i+1:])
			}
			n.times.Multiply(n.head(a.mixed, 1, 0, first, window, head), scores, part(2))
		}
	}
}

// loss returns the mean loss of the predictions in nats a byte, and leaves its
// gradient by logits in their place.
func (n *network) loss(targets []byte) float64 {
	sum, share := 0.0, 1/float32(len(targets))
	for i, target := range targets {
		row := n.predictions[i*vocabulary:][:vocabulary]
		logit := float64(row[target])
		sum += softmax(row) - logit
		row[target]--
		for j := range row {
			row[j] *= share
		}
	}
	return sum / float64(len(targets))
}

// backward sets g to the gradient of the loss of the windows, after forward and
// loss.
func (n *network) backward(g, w weights, tokens []byte, window int) {
	width, rows := n.Width, len(tokens)
	dx, dNormed := n.of(n.dx, rows, width), n.of(n.dNormed, rows, width)
	dPredictions := n.of(n.predictions, rows, vocabulary)
	n.times.Multiply(matrix.Of(g.head, vocabulary), n.of(n.lastNormed, rows, width).Transposed(), dPredictions)
	n.times.Multiply(dNormed, dPredictions, matrix.Of(w.head, vocabulary).Transposed())
	clear(n.dx)
	clear(g.norm)
	normBackward(n.dx, g.norm, n.dNormed, n.last, w.norm, n.lastScales[:rows])
	for i := len(w.blocks) - 1; i >= 0; i-- {
		a, b, d := &n.blocks[i], w.blocks[i], g.blocks[i]
		dWide := n.of(n.dWide, rows, 4*width)
		n.times.Multiply(matrix.Of(d.down, width), n.of(a.active, rows, 4*width).Transposed(), dx)
		n.times.Multiply(dWide, dx, matrix.Of(b.down, width).Transposed())
		for j, v := range a.wide[:rows*4*width] {
			n.dWide[j] *= 2 * max(v, 0)
		}
		n.times.Multiply(matrix.Of(d.up, 4*width), n.of(a.normed2, rows, width).Transposed(), dWide)
		n.times.Multiply(dNormed, dWide, matrix.Of(b.up, 4*width).Transposed())
		clear(d.norm2)
		normBackward(n.dx, d.norm2, n.dNormed, a.middle, b.norm2, a.scales2[:rows])

		n.times.Multiply(matrix.Of(d.attention, width), n.of(a.mixed, rows, width).Transposed(), dx)
		n.times.Multiply(dNormed, dx, matrix.Of(b.attention, width).Transposed()) // of mixed
		n.attendBackward(a, rows, window)
		dQKV := n.of(n.dQKV, rows, 3*width)
		n.times.Multiply(matrix.Of(d.qkv, 3*width), n.of(a.normed1, rows, width).Transposed(), dQKV)
		n.times.Multiply(dNormed, dQKV, matrix.Of(b.qkv, 3*width).Transposed())
		clear(d.norm1)
		normBackward(n.dx, d.norm1, n.dNormed, a.in, b.norm1, a.scales1[:rows])
	}
	clear(g.embedding)
	clear(g.positions)
	for i, token := range tokens {
		embedding, position := g.embedding[int(token)*width:][:width], g.positions[i%window*width:][:width]
		for j, d := range n.dx[i*width:][:width] {
			embedding[j] += d
			position[j] += d
		}
	}
}

// attendBackward sets the gradient of queries, keys and values from the
// gradient of mixed, which is in dNormed.
func (n *network) attendBackward(a *activations, rows, window int) {
	scale := n.scoreScale()
	dScores := matrix.Of(n.dScores[:window*window], window)
	for first := 0; first < rows; first += window {
		for head := range n.Heads {
			part := func(part int) matrix.Matrix { return n.head(a.qkv, 3, part, first, window, head) }
			gradient := func(part int) matrix.Matrix { return n.head(n.dQKV, 3, part, first, window, head) }
			scores, dMixed := n.scores(a, first, window, head), n.head(n.dNormed, 1, 0, first, window, head)
			n.times.Multiply(gradient(2), scores.Transposed(), dMixed)
			n.times.Multiply(dScores, dMixed, part(2).Transposed())
			for i := range window {
				p, d := scores.Values[i*window:][:i+1], dScores.Values[i*window:][:window]
				sum := float32(0)
				for j, v := range p {
					sum += float32(v * d[j])
				}
				for j, v := range p {
					d[j] = v * (d[j] - sum) * scale
				}
				clear(d[i+1:])
			}
			n.times.Multiply(gradient(0), dScores, part(1))
			n.times.Multiply(gradient(1), dScores.Transposed(), part(0))
		}
	}
}
