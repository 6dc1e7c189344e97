package charlm

import (
	"math"
	"math/rand/v2"
	"testing"
)

// reference is the loss of one window in float64, by the definitions.
func reference(c Config, p []float64, tokens, targets []byte) float64 {
	at := 0
	take := func(rows, columns int) func(i, j int) float64 {
		from := p[at:]
		at += rows * columns
		return func(i, j int) float64 { return from[i*columns+j] }
	}
	matrix := func(rows, columns int) [][]float64 {
		m := make([][]float64, rows)
		for i := range m {
			m[i] = make([]float64, columns)
		}
		return m
	}
	times := func(x [][]float64, w func(i, j int) float64, columns int) [][]float64 {
		out := matrix(len(x), columns)
		for i := range out {
			for j := range out[i] {
				for k, v := range x[i] {
					out[i][j] += v * w(k, j)
				}
			}
		}
		return out
	}
	norm := func(x [][]float64, gain func(i, j int) float64) [][]float64 {
		out := matrix(len(x), c.Width)
		for i, row := range x {
			mean := 0.0
			for _, v := range row {
				mean += v * v / float64(c.Width)
			}
			for j, v := range row {
				out[i][j] = v / math.Sqrt(mean+normEpsilon) * gain(0, j)
			}
		}
		return out
	}
	n, size := len(tokens), c.Width/c.Heads
	embedding, positions := take(vocabulary, c.Width), take(c.Context, c.Width)
	x := matrix(n, c.Width)
	for i, token := range tokens {
		for j := range x[i] {
			x[i][j] = embedding(int(token), j) + positions(i, j)
		}
	}
	add := func(y [][]float64) {
		for i := range x {
			for j := range x[i] {
				x[i][j] += y[i][j]
			}
		}
	}
	for range c.Layers {
		qkv := times(norm(x, take(1, c.Width)), take(c.Width, 3*c.Width), 3*c.Width)
		mixed := matrix(n, c.Width)
		for h := range c.Heads {
			for i := range n {
				weights, sum := make([]float64, i+1), 0.0
				for j := range weights {
					for k := range size {
						weights[j] += qkv[i][h*size+k] * qkv[j][c.Width+h*size+k] / math.Sqrt(float64(size))
					}
					weights[j] = math.Exp(weights[j])
					sum += weights[j]
				}
				for j, weight := range weights {
					for k := range size {
						mixed[i][h*size+k] += weight / sum * qkv[j][2*c.Width+h*size+k]
					}
				}
			}
		}
		add(times(mixed, take(c.Width, c.Width), c.Width))
		wide := times(norm(x, take(1, c.Width)), take(c.Width, 4*c.Width), 4*c.Width)
		for i := range wide {
			for j, v := range wide[i] {
				wide[i][j] = math.Pow(math.Max(v, 0), 2)
			}
		}
		add(times(wide, take(4*c.Width, c.Width), c.Width))
	}
	logits := times(norm(x, take(1, c.Width)), take(c.Width, vocabulary), vocabulary)
	loss := 0.0
	for i, target := range targets {
		sum := 0.0
		for _, l := range logits[i] {
			sum += math.Exp(l)
		}
		loss += (math.Log(sum) - logits[i][target]) / float64(n)
	}
	return loss
}

// TestGradient compares loss and gradient with the definitions in float64: every
// parameter's derivative is that of the reference, by differences; with -short
// one in 25.
func TestGradient(t *testing.T) {
	c := Config{Layers: 2, Width: 6, Heads: 2, Context: 7, Batch: 2, Rate: 0.01}
	n := c.Parameters()
	r := rand.New(rand.NewPCG(1, 2))
	p, wide := make([]float32, n), make([]float64, n)
	for i := range p {
		p[i] = float32(r.NormFloat64() * 0.5)
		wide[i] = float64(p[i])
	}
	tokens, targets := []byte("Sir Walter Ell"), []byte("ir Walter Elli")
	loss := func() float64 {
		return (reference(c, wide, tokens[:7], targets[:7]) + reference(c, wide, tokens[7:], targets[7:])) / 2
	}
	net, g := newNetwork(c, c.Batch, true), make([]float32, n)
	for i := range g {
		g[i] = float32(math.NaN()) // none may be left
	}
	net.forward(weightsOf(c, p), tokens, c.Context)
	if got, want := net.loss(targets), loss(); math.Abs(got-want) > 1e-5 {
		t.Fatalf("the loss is %v, want %v", got, want)
	}
	net.backward(weightsOf(c, g), weightsOf(c, p), tokens, c.Context)
	every := 1
	if testing.Short() {
		every = 25
	}
	for _, l := range c.layers() {
		largest, worst, nonzero := 0.0, 0.0, 0
		for i := l.At; i < l.At+l.Len; i += every {
			const h = 1e-5
			was := wide[i]
			wide[i] = was + h
			above := loss()
			wide[i] = was - h
			below := loss()
			wide[i] = was
			want := (above - below) / (2 * h)
			largest = max(largest, math.Abs(want))
			if off := math.Abs(float64(g[i]) - want); !(off <= worst) {
				worst = off
			}
			if want != 0 {
				nonzero++
			}
		}
		if !(worst <= 1e-4*largest) || nonzero == 0 {
			t.Errorf("%s: a derivative is off by %.2g, where the largest of %d is %.2g", l.Name, worst, nonzero, largest)
		}
	}
}

func TestExpAndLog(t *testing.T) {
	worst := 0.0
	for x := float32(-60); x <= 0; x += 0x1p-10 {
		want := math.Exp(float64(x))
		worst = max(worst, math.Abs(float64(exp(x))-want)/want)
	}
	if worst > 3*0x1p-23 {
		t.Errorf("exp is off by %.3g of its value", worst)
	}
	inf, nan := float32(math.Inf(-1)), float32(math.NaN())
	if exp(0) != 1 || exp(-60.01) != 0 || exp(inf) != 0 || exp(nan) == exp(nan) {
		t.Errorf("exp of 0, −60.01, −∞ and NaN are %v, %v, %v and %v", exp(0), exp(-60.01), exp(inf), exp(nan))
	}
	for x := 1e-30; x < 1e30; x *= 1.0137 {
		if want := math.Log(x); math.Abs(log(x)-want) > 1e-15*math.Max(1, math.Abs(want)) {
			t.Errorf("log %v is %v, want %v", x, log(x), want)
		}
	}
	if log(1) != 0 || log(math.NaN()) == log(math.NaN()) {
		t.Errorf("log of 1 and NaN are %v and %v", log(1), log(math.NaN()))
	}
}
