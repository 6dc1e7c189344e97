package allreduce

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
)

func TestChunksPartitionTheVector(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(0, 1<<20).Draw(t, "length")
		ranks := rapid.IntRange(1, 300).Draw(t, "ranks")
		next := 0
		for c := range ranks {
			lo, hi := Chunk(length, ranks, c)
			if lo != next || hi < lo {
				t.Fatalf("chunk %d is [%d, %d) after %d", c, lo, hi, next)
			}
			if size := hi - lo; size != length/ranks && (size != length/ranks+1 || c >= length%ranks) {
				t.Fatalf("chunk %d has %d values", c, size)
			}
			next = hi
		}
		if next != length {
			t.Fatalf("chunks end at %d of %d", next, length)
		}
	})
}

func TestPiecesPartitionTheChunk(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		chunk := rapid.IntRange(0, 10000).Draw(t, "chunk")
		size := rapid.IntRange(1, 3000).Draw(t, "piece")
		next, n := 0, Pieces(chunk, size)
		for p := range n {
			lo, hi := Piece(chunk, size, p)
			if lo != next || hi-lo > size || (p < n-1 && hi-lo != size) || (chunk > 0 && hi == lo) {
				t.Fatalf("piece %d of %d is [%d, %d) after %d", p, n, lo, hi, next)
			}
			next = hi
		}
		if next != chunk {
			t.Fatalf("pieces end at %d of %d", next, chunk)
		}
	})
}

// TestEveryElementOnceFromEveryRank plays the schedule with sets of ranks in
// place of sums: adding a set that overlaps would count a rank twice.
func TestEveryElementOnceFromEveryRank(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(2, 40).Draw(t, "ranks")
		held := make([][]uint64, ranks) // held[rank][chunk]: the ranks summed in it
		for r := range held {
			held[r] = make([]uint64, ranks)
			for c := range held[r] {
				held[r][c] = 1 << r
			}
		}
		all := uint64(1)<<ranks - 1
		step := func(p Phase, s int) {
			type message struct {
				chunk int
				set   uint64
			}
			inbox := make([]message, ranks)
			for r := range ranks {
				c := Sent(p, r, ranks, s)
				inbox[(r+1)%ranks] = message{c, held[r][c]}
			}
			for r, m := range inbox {
				if want := Received(p, r, ranks, s); m.chunk != want {
					t.Fatalf("%v step %d: rank %d gets chunk %d, expects %d", p, s, r, m.chunk, want)
				}
				if p == ReduceScatter {
					if held[r][m.chunk]&m.set != 0 {
						t.Fatalf("rank %d counts a rank twice in chunk %d", r, m.chunk)
					}
					held[r][m.chunk] |= m.set
				} else {
					held[r][m.chunk] = m.set
				}
			}
		}
		for s := range ranks - 1 {
			step(ReduceScatter, s)
		}
		for r := range ranks {
			if held[r][Owned(r, ranks)] != all {
				t.Fatalf("rank %d owns an unfinished chunk %d", r, Owned(r, ranks))
			}
		}
		for s := range ranks - 1 {
			step(AllGather, s)
		}
		for r := range ranks {
			for c, set := range held[r] {
				if set != all {
					t.Fatalf("rank %d ends with chunk %d from %b", r, c, set)
				}
			}
		}
	})
}

// TestRingIsAPipeline: what a rank sends in a step is what it received in the
// step before, across the border between the phases too.
func TestRingIsAPipeline(t *testing.T) {
	for ranks := 2; ranks < 20; ranks++ {
		for r := range ranks {
			for s := 1; s < ranks-1; s++ {
				for _, p := range []Phase{ReduceScatter, AllGather} {
					if Sent(p, r, ranks, s) != Received(p, r, ranks, s-1) {
						t.Fatalf("%v: rank %d of %d step %d", p, r, ranks, s)
					}
				}
			}
			last := Received(ReduceScatter, r, ranks, ranks-2)
			if Owned(r, ranks) != last || Sent(AllGather, r, ranks, 0) != last {
				t.Fatalf("rank %d of %d: phases do not join", r, ranks)
			}
		}
	}
}

func TestDefaultPieceValues(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(0, 1<<30).Draw(t, "length")
		ranks := rapid.IntRange(2, MaxRanks).Draw(t, "ranks")
		block := MinBlock * rapid.IntRange(1, MaxBlock/MinBlock).Draw(t, "block/16")
		short := DefaultPieceValues(length, ranks, block, true)
		long := DefaultPieceValues(length, ranks, block, false)
		if short%block != 0 || short < minDefaultPiece || short >= maxShortPiece+block || short > MaxPieceValues {
			t.Fatalf("piece of %d values between short ranks", short)
		}
		if long%block != 0 || long < minDefaultPiece || long >= maxLongPiece+block || long > short {
			t.Fatalf("piece of %d values, between short ranks %d", long, short)
		}
	})
}

func TestRingMeanIsNearMean(t *testing.T) {
	const length = 1 << 15
	r := rand.New(rand.NewPCG(3, 4))
	for _, ranks := range []int{1, 2, 5} {
		vectors := make([][]float32, ranks)
		for k := range vectors {
			vectors[k] = make([]float32, length)
			for i := range vectors[k] {
				vectors[k][i] = float32(r.NormFloat64())
			}
		}
		exact, got := Mean(vectors), RingMean(vectors, DefaultFormat)
		var e, s float64
		for i := range exact {
			d := float64(got[i]) - exact[i]
			e, s = e+d*d, s+exact[i]*exact[i]
		}
		limit := 0.0079 * math.Sqrt(float64(ranks+1)/2) * 1.15
		if ranks == 1 {
			limit = 0
		}
		if rel := math.Sqrt(e / s); rel > limit {
			t.Errorf("%d ranks: relative L2 error %.4f, limit %.4f", ranks, rel, limit)
		}
	}
}

// TestDirectMeanErrorIsFlat: two quantisations, however many ranks there are.
func TestDirectMeanErrorIsFlat(t *testing.T) {
	const length = 1 << 14
	r := rand.New(rand.NewPCG(5, 6))
	for _, ranks := range []int{2, 8, 32} {
		vectors := make([][]float32, ranks)
		for k := range vectors {
			vectors[k] = make([]float32, length)
			for i := range vectors[k] {
				vectors[k][i] = float32(r.NormFloat64())
			}
		}
		exact, got := Mean(vectors), DirectMean(vectors, DefaultFormat)
		var e, s float64
		for i := range exact {
			d := float64(got[i]) - exact[i]
			e, s = e+d*d, s+exact[i]*exact[i]
		}
		rel := math.Sqrt(e / s)
		t.Logf("%d ranks: relative L2 error %.4f", ranks, rel)
		if rel > 0.013 {
			t.Errorf("%d ranks: relative L2 error %.4f, limit 0.013", ranks, rel)
		}
	}
}

func TestHops(t *testing.T) {
	for _, test := range []struct {
		a           Algorithm
		ranks, want int
	}{{Ring, 1, 0}, {Ring, 4, 6}, {Direct, 1, 0}, {Direct, 2, 2}, {Direct, 8, 2}, {Hierarchical, 1, 0}, {Hierarchical, 2, 2}, {Hierarchical, 8, 4}} {
		if got := test.a.Hops(test.ranks); got != test.want {
			t.Errorf("%v with %d ranks: %d hops, want %d", test.a, test.ranks, got, test.want)
		}
	}
}

// TestErrorByBits holds the errors of the ring of four that the documentation
// gives for Gaussian values.
func TestErrorByBits(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	vectors := make([][]float32, 4)
	for k := range vectors {
		vectors[k] = make([]float32, 1<<17)
		for i := range vectors[k] {
			vectors[k][i] = float32(r.NormFloat64())
		}
	}
	exact := Mean(vectors)
	for bits, want := range map[int]float64{32: 4.1e-8, 16: 0.0026, 8: 0.0124, 4: 0.225} {
		var e, s float64
		for i, x := range RingMean(vectors, Format{bits, 1024}) {
			d := float64(x) - exact[i]
			e, s = e+d*d, s+exact[i]*exact[i]
		}
		if got := math.Sqrt(e / s); got < want*0.9 || got > want*1.1 {
			t.Errorf("%d bits: relative error %.3g, documented %.3g", bits, got, want)
		}
	}
}
