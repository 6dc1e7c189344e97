package entropy

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/allreduce/int8"
	"testbed/internal/rapidtest"
)

// codes returns the codes of n values drawn by next, quantised to 8 bits.
func codes(n, block int, next func(*rand.Rand) float64) []byte {
	r := rand.New(rand.NewPCG(3, 4))
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(next(r))
	}
	f := int8.Format{Bits: 8, Block: block}
	b := make([]byte, f.EncodedLen(n))
	f.Quantise(b, values, nil)
	return b[f.ScalesLen(n):]
}

func gauss(r *rand.Rand) float64 { return r.NormFloat64() }

// student draws from Student's t distribution with 3 degrees of freedom.
func student(r *rand.Rand) float64 {
	var s float64
	for range 3 {
		x := r.NormFloat64()
		s += x * x
	}
	return r.NormFloat64() / math.Sqrt(s/3)
}

func TestRoundTrip(t *testing.T) {
	var c Coder
	rapidtest.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 5000).Draw(t, "n")
		spread := rapid.Float64Range(0.1, 80).Draw(t, "spread")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		in := make([]byte, n)
		for i := range in {
			in[i] = byte(int(r.NormFloat64() * spread))
		}
		before := []byte("before")
		short, ok := c.Encode(before, in)
		if !ok {
			if !bytes.Equal(short, before) {
				t.Fatal("what was there changed")
			}
			return
		}
		short = short[len(before):]
		if len(short) >= n {
			t.Fatalf("%d codes became %d bytes", n, len(short))
		}
		out := make([]byte, n)
		if err := c.Decode(out, short); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(in, out) {
			t.Fatal("other codes came back")
		}
		for _, wrong := range []int{n - 1, n + 1, 0, n / 2} {
			// All equal is all equal at any length; a Huffman code is not.
			if err := c.Decode(make([]byte, wrong), short); err == nil && len(short) > 1 {
				t.Fatalf("%d codes were decoded as %d", n, wrong)
			}
		}
	})
}

// TestClassesRoundTrip has pieces of two classes to four, of stretches that
// differ: normal codes, equal ones, and noise that nothing makes shorter.
func TestClassesRoundTrip(t *testing.T) {
	var c Coder
	rapidtest.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2*classCodes, maxClasses*classCodes+3*stretchCodes).Draw(t, "n")
		noise := rapid.IntRange(0, 9).Draw(t, "noise")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		in := make([]byte, n)
		for stretch := range slices.Chunk(in, stretchCodes) {
			spread := []float64{0, 2, 20, 50}[r.IntN(4)]
			noisy := r.IntN(10) < noise
			for i := range stretch {
				stretch[i] = byte(int(r.NormFloat64() * spread))
				if noisy {
					stretch[i] = byte(r.Uint32())
				}
			}
		}
		short, ok := c.Encode(nil, in)
		if !ok {
			if noise < 5 {
				t.Fatal("nothing became shorter")
			}
			return
		}
		var fresh Coder
		if again, _ := fresh.Encode(nil, in); !bytes.Equal(again, short) {
			t.Fatal("another coder makes another form")
		}
		out := make([]byte, n)
		if err := c.Decode(out, short); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(in, out) {
			t.Fatal("other codes came back")
		}
		if short[0] == 1 {
			return // Huffman codes alone do not notice
		}
		if err := c.Decode(out, short[:len(short)-1]); err == nil {
			t.Fatal("a form cut short was decoded")
		}
		if err := c.Decode(out, append(short, 0)); err == nil {
			t.Fatal("a form with a byte too many was decoded")
		}
	})
}

func TestClassesAreOfEqualSize(t *testing.T) {
	var c Coder
	for n, want := range map[int]int{2 * classCodes: 2, 3*classCodes + 5: 3, 4 * classCodes: 4, MaxCodes: 4} {
		if got := c.classes(codes(n, 1024, student)); got != want {
			t.Errorf("%d codes of heavy-tailed values: %d classes, %d expected", n, got, want)
		}
		if got := c.classes(codes(n, 1024, gauss)); got != 1 {
			t.Errorf("%d codes of normal values: %d classes, one expected", n, got)
		}
	}
	in := codes(4*classCodes+7, 1024, student)
	short, _ := c.Encode(nil, in)
	m := classMap(short[1:][:mapLen(len(in))])
	last := 0.0
	for class := range 4 {
		n, sum := 0, 0.0
		for i := range len(c.keys) {
			if m.class(i) != class {
				continue
			}
			for _, code := range in[i*stretchCodes : min((i+1)*stretchCodes, len(in))] {
				n++
				sum += math.Abs(float64(int(code^0x80) - 0x80))
			}
		}
		if n < classCodes-stretchCodes || n > classCodes+stretchCodes {
			t.Errorf("class %d has %d codes", class, n)
		}
		if sum/float64(n) <= last {
			t.Errorf("class %d has a mean magnitude of %.1f, the one before it %.1f", class, sum/float64(n), last)
		}
		last = sum / float64(n)
	}
}

// TestClassesPay: classes make heavy-tailed codes shorter than one table does,
// by about a hundredth, and cost nothing with others.
func TestClassesPay(t *testing.T) {
	var c Coder
	for _, test := range []struct {
		name  string
		next  func(*rand.Rand) float64
		limit float64 // of one table's bytes
	}{{"gaussian", gauss, 1.0001}, {"student", student, 0.99}} {
		in := codes(4*classCodes, 1024, test.next)
		one, _ := c.encodeOne(nil, in)
		four, _ := c.Encode(nil, in)
		ratio := float64(len(four)) / float64(len(one))
		t.Logf("%s: %.4f of one table's bytes", test.name, ratio)
		if ratio > test.limit {
			t.Errorf("%s: %.4f of one table's bytes, at most %.3f expected", test.name, ratio, test.limit)
		}
	}
}

func TestBadClasses(t *testing.T) {
	var c Coder
	in := codes(2*classCodes, 1024, student)
	good, ok := c.Encode(nil, in)
	if !ok {
		t.Fatal("not shorter")
	}
	n := 1 + mapLen(len(in))
	for says, edit := range map[string]func([]byte) []byte{
		"has no bytes":                           func(b []byte) []byte { return nil },
		"has 0 classes":                          func(b []byte) []byte { b[0] = 0; return b },
		"has 5 classes":                          func(b []byte) []byte { b[0] = 5; return b },
		"huffman table":                          func(b []byte) []byte { b[0] = 1; clear(b[1:]); return b },
		"of 65536 codes has a length of 3 bytes": func(b []byte) []byte { return b[:4] },
		"ends before class 0":                    func(b []byte) []byte { return b[:n+classHeader-1] },
		"ends before class 1":                    func(b []byte) []byte { return b[:n+classHeader+int(binary.BigEndian.Uint32(b[n:]))] },
		"the class map covers only": func(b []byte) []byte {
			return append(bytes.Repeat([]byte{2}, 1), append(bytes.Repeat([]byte{0xaa}, n-1), make([]byte, 2*classHeader)...)...)
		},
		"class 0 has a length of 4294967295 bytes": func(b []byte) []byte { binary.BigEndian.PutUint32(b[n:], math.MaxUint32); return b },
		"the form of class 1 has a length of":      func(b []byte) []byte { return b[:len(b)-1] },
		"follows the last class (bytes: 1)":        func(b []byte) []byte { return append(b, 0) },
		"class 0: huffman":                         func(b []byte) []byte { clear(b[n+classHeader:]); return b },
		"class 0: huffman streams":                 func(b []byte) []byte { clear(b[1:n]); return b }, // other classes' sizes
		"class 0: short form of 3276":              func(b []byte) []byte { clear(b[n:]); return b },
	} {
		err := c.Decode(make([]byte, len(in)), edit(bytes.Clone(good)))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error about %q, got %v", says, err)
		}
	}
	for _, wrong := range []int{classCodes, len(in) - 1, len(in) + 1, len(in) + stretchCodes, 3 * classCodes} {
		if err := c.Decode(make([]byte, wrong), good); err == nil {
			t.Errorf("%d codes were decoded as %d", len(in), wrong)
		}
	}
}

func TestRatios(t *testing.T) {
	var c Coder
	for _, test := range []struct {
		name  string
		next  func(*rand.Rand) float64
		limit float64
	}{{"gaussian", gauss, 0.93}, {"student", student, 0.73}} {
		in := codes(1<<15, 1024, test.next)
		short, ok := c.Encode(nil, in)
		ratio := float64(len(short)) / float64(len(in))
		t.Logf("%s: %.3f", test.name, ratio)
		if !ok || ratio > test.limit {
			t.Errorf("%s: ratio %.3f, at most %.2f expected", test.name, ratio, test.limit)
		}
	}
}

func TestEdges(t *testing.T) {
	var c Coder
	same := bytes.Repeat([]byte{7}, 1000)
	short, ok := c.Encode(nil, same)
	if !ok || len(short) != 1 {
		t.Errorf("1000 equal codes became %d bytes, %t", len(short), ok)
	}
	r := rand.New(rand.NewPCG(1, 1))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	if _, ok := c.Encode(nil, noise); ok {
		t.Error("noise became shorter")
	}
	zeros := make([]byte, MaxCodes)
	if short, ok = c.Encode(nil, zeros); !ok || len(short) > 100 {
		t.Errorf("%d zeros became %d bytes, %t", len(zeros), len(short), ok)
	}
	if _, ok := c.Encode(nil, make([]byte, MaxCodes+1)); ok {
		t.Error("more than MaxCodes were taken")
	}
	most := codes(MaxCodes, 1024, gauss)
	if short, ok = c.Encode(nil, most); !ok {
		t.Fatal("MaxCodes were not taken")
	}
	out := make([]byte, len(most))
	if err := c.Decode(out, short); err != nil || !bytes.Equal(out, most) {
		t.Errorf("MaxCodes came back differently: %v", err)
	}
	for _, bad := range [][]byte{nil, {}, make([]byte, 1000), make([]byte, 999)} {
		if err := c.Decode(out[:1000], bad); err == nil {
			t.Errorf("%d bytes of nothing were decoded", len(bad))
		}
	}
	// An error leaves the coder usable.
	if err := c.Decode(out, short); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	var c Coder
	short, _ := c.Encode(nil, codes(3000, 1024, gauss))
	f.Add(short, uint16(750))
	f.Add([]byte{5}, uint16(5))
	f.Add([]byte{0x84, 0x12, 0, 0, 1}, uint16(25))
	for k := 2; k <= maxClasses; k++ {
		// Equal codes in all classes but the last: long seeds make fuzzing slow.
		in := make([]byte, k*classCodes+100)
		for i := range in {
			in[i] = byte(20 * (i / stretchCodes % k))
		}
		in[len(in)-1] = 1
		short, _ := c.Encode(nil, in)
		f.Add(short, uint16(len(in)/4))
	}
	f.Fuzz(func(t *testing.T, short []byte, quarter uint16) {
		const guard = 0xa5
		n := 4 * int(quarter) // up to MaxCodes
		b := bytes.Repeat([]byte{guard}, n+64)
		_ = c.Decode(b[:n:n], short)
		for _, x := range b[n:] {
			if x != guard {
				t.Fatal("it wrote behind the codes")
			}
		}
	})
}

// world is a link and a processor that a rank could find itself with.
type world struct{ link, cpu, coding, ratio float64 } // ns for a value

func (w world) reduce(coded bool, noise float64) Reduction {
	link, cpu := w.link, w.cpu
	r := Reduction{Coded: coded, Values: 1e6}
	if coded {
		link, cpu = link*w.ratio, cpu+w.coding
		r.Coding = time.Duration(w.coding * 1e6)
	}
	total := max(link, cpu)
	r.Total = time.Duration(total * 1e6 * noise)
	r.Wait = time.Duration((total - cpu) * 1e6)
	return r
}

func TestChooser(t *testing.T) {
	for _, test := range []struct {
		name   string
		world  world
		wanted bool
	}{
		{"100 Mbit/s", world{link: 80, cpu: 10, coding: 4, ratio: 0.91}, true},
		{"400 Mbit/s", world{link: 20, cpu: 10, coding: 4, ratio: 0.91}, true},
		{"a link as fast as memory", world{link: 0.1, cpu: 10, coding: 4, ratio: 0.91}, false},
		{"coding takes longer than the link", world{link: 12, cpu: 10, coding: 4, ratio: 0.91}, false},
		{"incompressible", world{link: 80, cpu: 10, coding: 4, ratio: 1}, false},
		{"a fast link and heavy tails", world{link: 20, cpu: 10, coding: 4, ratio: 0.65}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c Chooser
			r := rand.New(rand.NewPCG(9, 9))
			wrong := 0
			const n = 320
			start := []float64{5, 1.5, 1.2} // connections get going
			for i := range n {
				coded := c.Choose(i)
				if coded != test.wanted {
					wrong++
				}
				noise := 1 + 0.02*r.Float64()
				if i < len(start) {
					noise *= start[i]
				}
				c.Note(test.world.reduce(coded, noise))
			}
			// The first ones, and one look at the other in every 16.
			if limit := 3 + n/retryEvery; wrong > limit {
				t.Errorf("%d of %d reductions went the slower way, at most %d expected", wrong, n, limit)
			}
		})
	}
}

// TestChooserAtTheStart: what the first reductions took, and which of them are
// coded then.
func TestChooserAtTheStart(t *testing.T) {
	const no, yes = false, true
	for name, test := range map[string]struct {
		took []int // ms
		want []bool
	}{
		"cold first, no gain":  {[]int{500, 100, 100, 100, 100, 100, 100}, []bool{no, no, yes, no, yes, no, no}},
		"cold first, a gain":   {[]int{500, 100, 90, 100, 90, 90, 90}, []bool{no, no, yes, no, yes, yes, yes}},
		"ever faster, no gain": {[]int{500, 140, 120, 100, 100, 100, 100}, []bool{no, no, yes, no, yes, no, no}},
		"ever faster, a gain":  {[]int{500, 140, 110, 100, 90, 90, 90}, []bool{no, no, yes, no, yes, yes, yes}},
		"warm from the start":  {[]int{90, 100, 90, 100, 90, 90, 90}, []bool{no, no, yes, no, yes, yes, yes}},
		"coding makes it slow": {[]int{500, 100, 130, 100, 130, 100, 100}, []bool{no, no, yes, no, yes, no, no}},
	} {
		var c Chooser
		for i, ms := range test.took {
			coded := c.Choose(i)
			if coded != test.want[i] {
				t.Errorf("%s: reduction %d is coded: %t", name, i, coded)
			}
			took := time.Duration(ms) * time.Millisecond
			c.Note(Reduction{Coded: coded, Values: 1e6, Total: took, Wait: took, Coding: took / 100})
		}
	}
}

func TestChooserFollowsTheLink(t *testing.T) {
	var c Chooser
	slow, fast := world{80, 10, 4, 0.8}, world{2, 10, 4, 0.8}
	play := func(w world, from, n int) (coded int) {
		for i := from; i < from+n; i++ {
			choice := c.Choose(i)
			if choice {
				coded++
			}
			c.Note(w.reduce(choice, 1))
		}
		return coded
	}
	if n := play(slow, 0, 64); n < 55 {
		t.Errorf("coded %d of 64 on the slow link", n)
	}
	play(fast, 64, 48) // it learns
	if n := play(fast, 112, 64); n > 5 {
		t.Errorf("coded %d of 64 on the fast link", n)
	}
	play(slow, 176, 48)
	if n := play(slow, 224, 64); n < 55 {
		t.Errorf("coded %d of 64 back on the slow link", n)
	}
}

func BenchmarkCoder(b *testing.B) {
	for _, d := range []struct {
		name string
		next func(*rand.Rand) float64
	}{{"gaussian", gauss}, {"student", student}} {
		in := codes(1<<17, 1024, d.next)
		var c Coder
		short, _ := c.Encode(nil, in)
		out := make([]byte, len(in))
		b.Run("encode/"+d.name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			buffer := make([]byte, 0, len(in))
			for b.Loop() {
				c.Encode(buffer[:0], in)
			}
		})
		b.Run("decode/"+d.name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				if err := c.Decode(out, short); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
