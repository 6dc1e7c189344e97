package matrix

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// everyRoute runs a test on each way to compute that the machine has.
func everyRoute(t *testing.T, test func(t *testing.T)) {
	before := string(active)
	t.Cleanup(func() { Use(before) })
	for _, name := range Routes() {
		if err := Use(name); err != nil {
			t.Fatal(err)
		}
		t.Run(name, test)
	}
}

// draw makes a matrix of random values without library arithmetic, which may
// itself differ between machines.
func draw(r *rand.Rand, rows, columns int) Matrix {
	values := make([]float32, rows*columns)
	for i := range values {
		values[i] = float32(int32(r.Uint32())) * 0x1p-31
	}
	return Of(values, columns)
}

// product is the definition.
func product(c, a, b Matrix, add bool) []float32 {
	var out []float32
	for i := range c.Rows {
		for j := range c.Columns {
			var sum float32
			if add {
				sum = c.Values[i*c.Down+j]
			}
			for k := range a.Columns {
				sum += float32(a.Values[i*a.Down+k*a.Across] * b.Values[k*b.Down+j*b.Across])
			}
			out = append(out, sum)
		}
	}
	return out
}

// TestProductsAreThoseOfTheDefinition, bit by bit, for whatever shapes and
// views; what is around the result stays as it was.
func TestProductsAreThoseOfTheDefinition(t *testing.T) {
	everyRoute(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		var m Multiplier
		size := func() int { return 1 + r.IntN(40) }
		view := func(rows, columns int) Matrix {
			if r.IntN(2) == 0 {
				rows, columns = columns, rows
				return draw(r, rows+3, columns+5).Part(2, 1, rows, columns).Transposed()
			}
			return draw(r, rows+3, columns+5).Part(2, 1, rows, columns)
		}
		for range 400 {
			rows, inner, columns := size(), size(), size()
			a, b := view(rows, inner), view(inner, columns)
			around := draw(r, rows+3, columns+5)
			c := around.Part(1, 2, rows, columns)
			for _, add := range []bool{false, true} {
				want := slices.Clone(around.Values)
				values := product(c, a, b, add)
				for i := range rows {
					copy(want[(i+1)*around.Down+2:][:columns], values[i*columns:])
				}
				if m.multiply(c, a, b, add); !slices.Equal(around.Values, want) {
					t.Fatalf("%d × %d · %d × %d (%+d, %+d; %+d, %+d), add %v: other values than the definition's", rows, inner, inner, columns, a.Down, a.Across, b.Down, b.Across, add)
				}
			}
		}
	})
}

// TestSameBitsEverywhere pins the bits of a chain of products, so that a
// compiler, a processor or a faster route that rounds differently shows.
func TestSameBitsEverywhere(t *testing.T) {
	everyRoute(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(11, 12))
		var m Multiplier
		x, w := draw(r, 50, 50), draw(r, 50, 50)
		for range 8 {
			y := draw(r, 50, 50)
			m.Multiply(y, x, w)
			m.MultiplyAdd(y, w.Transposed(), x)
			for i, v := range y.Values {
				y.Values[i] = v * 0.125
			}
			x = y
		}
		h := sha256.New()
		binary.Write(h, binary.LittleEndian, x.Values)
		const want = "a471c598a411e2c9a463f5064adfa66e59c679dd027f006341f323f804bd8237"
		if got := hex.EncodeToString(h.Sum(nil)); got != want || math.IsNaN(float64(x.Values[0])) {
			t.Errorf("the product hashes to %s, want %s", got, want)
		}
	})
}

func TestUseNamesTheRoutes(t *testing.T) {
	if err := Use("abacus"); err == nil || !strings.Contains(err.Error(), `this machine has no route "abacus"; choose one of go`) {
		t.Errorf("error %v, want one that names the routes", err)
	}
}

func TestShapesThatDoNotFit(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	a, b, c := draw(r, 4, 5), draw(r, 5, 6), draw(r, 4, 6)
	for name, do := range map[string]func(m *Multiplier){
		"inner":      func(m *Multiplier) { m.Multiply(c, a, a) },
		"rows":       func(m *Multiplier) { m.Multiply(c, b, b.Transposed()) },
		"transposed": func(m *Multiplier) { m.Multiply(c.Transposed(), b.Transposed(), a.Transposed()) },
		"part":       func(*Multiplier) { a.Part(1, 0, 4, 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			do(&Multiplier{})
		}()
	}
}

func BenchmarkMultiply(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	x, w, dy := draw(r, 512, 64), draw(r, 64, 256), draw(r, 512, 256)
	q, k, s := draw(r, 64, 64).Part(0, 0, 64, 16), draw(r, 64, 64).Part(0, 0, 64, 16), draw(r, 64, 64)
	for _, route := range Routes() {
		for _, p := range []struct {
			name    string
			c, a, b Matrix
		}{
			{"forward", dy, x, w},
			{"inputs", x, dy, w.Transposed()},
			{"weights", w, x.Transposed(), dy},
			{"scores", s, q, k.Transposed()},
			{"values", q, s, k},
		} {
			b.Run(route+"/"+p.name, func(b *testing.B) {
				before := string(active)
				defer Use(before)
				if err := Use(route); err != nil {
					b.Fatal(err)
				}
				var m Multiplier
				for b.Loop() {
					m.Multiply(p.c, p.a, p.b)
				}
				perRun := 2 * float64(p.c.Rows) * float64(p.c.Columns) * float64(p.a.Columns)
				b.ReportMetric(perRun*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
