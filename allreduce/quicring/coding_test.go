package quicring

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"testbed/allreduce"
	"testbed/allreduce/entropy"
)

// heavy is vectors of Student's t with three degrees of freedom: their codes
// are much shorter than the values' eight bits.
func heavy(seed uint64, n, length int) [][]float32 {
	r := rand.New(rand.NewPCG(seed, 8))
	vectors := make([][]float32, n)
	for k := range vectors {
		vectors[k] = make([]float32, length)
		for i := range vectors[k] {
			var s float64
			for range 3 {
				x := r.NormFloat64()
				s += x * x
			}
			vectors[k][i] = float32(r.NormFloat64() / math.Sqrt(s/3))
		}
	}
	return vectors
}

func TestEveryFormatEqualsTheModel(t *testing.T) {
	for _, a := range allreduce.Algorithms {
		for _, bits := range allreduce.Bits {
			for _, n := range []int{2, 3, 5} {
				f := allreduce.Format{Bits: bits, Block: allreduce.DefaultBlock}
				t.Run(fmt.Sprintf("%v/%d bits/n=%d", a, bits, n), func(t *testing.T) { everyFormatEqualsTheModel(t, a, f, n) })
			}
		}
	}
}

func everyFormatEqualsTheModel(t *testing.T, a allreduce.Algorithm, f allreduce.Format, n int) {
	var sent [2]int64
	modes := []entropy.Mode{entropy.Off, entropy.On}
	if !f.HasCodes() {
		modes[1] = entropy.Auto // which never shortens them
	}
	for i, e := range modes {
		r := newRing(t, n, func(c *Config) { c.Format, c.Entropy = f, e })
		for epoch, length := range []int{1, n, 1000, 100_003} {
			inputs := heavy(uint64(length), n, length)
			r.residuals = residuals(n, length)
			lost := residuals(n, length)
			want := model(a, n, f).Mean(inputs, lost)
			for k, o := range r.mustBy(a, uint64(epoch+1), upTo(n), inputs) {
				sameBits(t, fmt.Sprintf("entropy %s length %d rank %d", e, length, k), o.out, want)
				sameBits(t, fmt.Sprintf("what rank %d lost", k), r.residuals[k], lost[k])
				decoded := make([]float32, length)
				if err := o.result.Outcome.Decode(decoded); err != nil {
					t.Fatal(err)
				}
				sameBits(t, "decoded outcome", decoded, want)
				if o.result.Coded != (e == entropy.On) {
					t.Errorf("entropy %s: coded %t", e, o.result.Coded)
				}
				sent[i] = o.result.BytesSent
			}
		}
	}
	if f.HasCodes() && sent[1] > sent[0]*9/10 {
		t.Errorf("%d bytes with entropy coding, %d without", sent[1], sent[0])
	}
}

// TestLongPieces have classes of codes, and travel on as they came.
func TestLongPieces(t *testing.T) {
	const n, length = 4, 4 * 100_000
	inputs := heavy(5, n, length)
	for _, a := range allreduce.Algorithms {
		var sent [2]int64
		for i, e := range []entropy.Mode{entropy.Off, entropy.On} {
			r := newRing(t, n, func(c *Config) { c.PieceValues, c.Entropy = 80<<10, e })
			want := reference(a)(inputs, allreduce.DefaultFormat)
			for k, o := range r.mustBy(a, 1, upTo(n), inputs) {
				sameBits(t, fmt.Sprintf("%v entropy %s rank %d", a, e, k), o.out, want)
				sent[i] = o.result.BytesSent
			}
		}
		if sent[1] > sent[0]*8/10 {
			t.Errorf("%v: %d bytes with entropy coding, %d without", a, sent[1], sent[0])
		}
	}
}

// TestEveryRankDecidesForItself: who shortens its codes need not tell.
func TestEveryRankDecidesForItself(t *testing.T) {
	next := 0
	r := newRing(t, 4, func(c *Config) {
		c.Entropy = []entropy.Mode{entropy.On, entropy.Off, entropy.Auto, entropy.On}[next]
		next++
	})
	inputs := heavy(1, 4, 60_000)
	inputs[1][7] = float32(math.NaN())
	for epoch := range uint64(4) {
		for _, a := range allreduce.Algorithms {
			want := reference(a)(inputs, allreduce.DefaultFormat)
			for k, o := range r.mustBy(a, uint64(len(allreduce.Algorithms))*epoch+uint64(a)+1, upTo(4), inputs) {
				sameBits(t, fmt.Sprintf("rank %d", k), o.out, want)
			}
		}
	}
}

// residuals are room for what each rank loses.
func residuals(n, length int) [][]float32 {
	r := make([][]float32, n)
	for k := range r {
		r[k] = make([]float32, length)
	}
	return r
}

// TestErrorFeedback reduces the same vectors again and again. What one round
// loses the next makes good, so the mean over the rounds nears the exact one;
// without it the error stays.
func TestErrorFeedback(t *testing.T) {
	const n, length, rounds = 3, 20_000, 16
	for _, a := range allreduce.Algorithms {
		for _, bits := range []int{8, 4} {
			gradients := gaussian(3, n, length)
			exact := allreduce.Mean(gradients)
			drift := func(feedback bool) float64 {
				r := newRing(t, n, func(c *Config) { c.Format = allreduce.Format{Bits: bits, Block: allreduce.DefaultBlock} })
				inputs, sum := gaussian(3, n, length), make([]float64, length)
				if feedback {
					r.residuals = residuals(n, length)
				}
				for round := range rounds {
					outcomes := r.mustBy(a, uint64(round+1), upTo(n), inputs)
					for i, x := range outcomes[0].out {
						sum[i] += float64(x) / rounds
					}
					for k := range inputs {
						for i, g := range gradients[k] {
							inputs[k][i] = g
							if feedback {
								inputs[k][i] += r.residuals[k][i]
							}
						}
					}
				}
				mean := make([]float32, length)
				for i, x := range sum {
					mean[i] = float32(x)
				}
				return relativeError(mean, exact)
			}
			with, without := drift(true), drift(false)
			t.Logf("%v, %d bits: error %.5f with feedback, %.5f without", a, bits, with, without)
			if with > without/4 {
				t.Errorf("%v, %d bits: error %.5f with feedback, %.5f without", a, bits, with, without)
			}
		}
	}
}

func TestInvalidCoding(t *testing.T) {
	authority := newAuthority(t)
	for name, edit := range map[string]func(*Config){
		"3 bits":       func(c *Config) { c.Format = allreduce.Format{Bits: 3, Block: allreduce.DefaultBlock} },
		"entropy what": func(c *Config) { c.Entropy = "what" },
	} {
		cfg := Config{Conn: listenUDP(t), TLS: authority.tls(t, "w0")}
		edit(&cfg)
		if e, err := Listen(cfg); err == nil {
			e.Close()
			t.Errorf("%s: accepted", name)
		}
	}
	r := newRing(t, 1, nil)
	x := make([]float32, 10)
	_, err := r.endpoints[0].Reduce(t.Context(), Op{Epoch: 1, Peers: r.peers, Residual: make([]float32, 9)}, x, make([]float32, 10))
	if err == nil {
		t.Error("a residual of another length: accepted")
	}
}
