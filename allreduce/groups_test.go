package allreduce

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
)

func drawGroups(t *rapid.T) []int {
	return rapid.SliceOfN(rapid.IntRange(0, 5), 1, 40).Draw(t, "groups")
}

// TestEveryGroupGivesItsValuesOnce plays the schedule of every chunk with sets
// of ranks in place of sums.
func TestEveryGroupGivesItsValuesOnce(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		numbers := drawGroups(t)
		g, ranks := NewGroups(numbers), len(numbers)
		all := uint64(1)<<ranks - 1
		for chunk := range ranks {
			held := make([]uint64, ranks)
			for r := range held {
				held[r] = 1 << r
			}
			for _, step := range []int{Inside, Between} {
				before := slices.Clone(held)
				for from := range ranks {
					for to := range ranks {
						if !g.Sends(ReduceScatter, step, from, to, chunk) {
							continue
						}
						if (numbers[from] == numbers[to]) != (step == Inside) {
							t.Fatalf("step %d takes chunk %d from %d to %d", step, chunk, from, to)
						}
						if held[to]&before[from] != 0 {
							t.Fatalf("rank %d counts a rank twice in chunk %d", to, chunk)
						}
						held[to] |= before[from]
					}
				}
			}
			if held[chunk] != all {
				t.Fatalf("chunk %d is the sum of %b", chunk, held[chunk])
			}
			times := make([]int, ranks) // that the mean has come
			times[chunk] = 1
			for _, step := range []int{Between, Inside} {
				before := slices.Clone(times)
				for from := range ranks {
					for to := range ranks {
						if g.Sends(AllGather, step, from, to, chunk) {
							if before[from] != 1 {
								t.Fatalf("rank %d sends a mean of chunk %d that it does not have", from, chunk)
							}
							times[to]++
						}
					}
				}
			}
			for r, n := range times {
				if n != 1 {
					t.Fatalf("the mean of chunk %d comes to rank %d %d times", chunk, r, n)
				}
			}
		}
	})
}

func TestPeersAreThoseThatAreSentTo(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		numbers := drawGroups(t)
		g, ranks := NewGroups(numbers), len(numbers)
		for rank := range ranks {
			for other := range ranks {
				var out, in bool
				for chunk := range ranks {
					for _, p := range []Phase{ReduceScatter, AllGather} {
						for _, step := range []int{Inside, Between} {
							out = out || g.Sends(p, step, rank, other, chunk)
							in = in || g.Sends(p, step, other, rank, chunk)
						}
					}
				}
				if peer := slices.Contains(g.Peers(rank), other); peer != out || peer != in {
					t.Fatalf("rank %d, other %d: peer %t, sent to %t, received from %t", rank, other, peer, out, in)
				}
			}
		}
	})
}

// TestLoadIsEven: equal groups send the same bytes as the ring from every rank,
// and of those 2(groups-1)/ranks between groups.
func TestLoadIsEven(t *testing.T) {
	for _, size := range []int{1, 2, 4} {
		for _, groups := range []int{1, 2, 3} {
			ranks := size * groups
			numbers := make([]int, ranks)
			for r := range numbers {
				numbers[r] = r % groups
			}
			g := NewGroups(numbers)
			for rank := range ranks {
				var sent [2]int // chunks
				for to := range ranks {
					for chunk := range ranks {
						for _, step := range []int{Inside, Between} {
							for _, p := range []Phase{ReduceScatter, AllGather} {
								if g.Sends(p, step, rank, to, chunk) {
									sent[step]++
								}
							}
						}
					}
				}
				if between := 2 * (groups - 1); sent[Between] != between || sent[Inside]+between != 2*(ranks-1) {
					t.Errorf("%d groups of %d: rank %d sends %d chunks inside and %d between", groups, size, rank, sent[Inside], sent[Between])
				}
			}
		}
	}
}

func TestHierarchicalMean(t *testing.T) {
	const length = 1 << 14
	r := rand.New(rand.NewPCG(7, 8))
	for _, numbers := range [][]int{{0}, {0, 0, 0}, {0, 1, 2}, {4, 4, 1}, {0, 1, 0, 1, 0, 1, 0, 1}, {0, 0, 0, 0, 0, 1, 2, 2}} {
		vectors := make([][]float32, len(numbers))
		for k := range vectors {
			vectors[k] = make([]float32, length)
			for i := range vectors[k] {
				vectors[k][i] = float32(r.NormFloat64())
			}
		}
		exact, got := Mean(vectors), HierarchicalMean(vectors, numbers, DefaultFormat)
		if n := NewGroups(numbers).Len(); n == 1 || n == len(numbers) {
			if direct := DirectMean(vectors, DefaultFormat); !slices.Equal(got, direct) {
				t.Errorf("groups %v are not the direct algorithm", numbers)
			}
		}
		var e, s float64
		for i := range exact {
			d := float64(got[i]) - exact[i]
			e, s = e+d*d, s+exact[i]*exact[i]
		}
		// Values, sums and the mean are quantised once each, at 0.79 %.
		limit := 0.0079 * math.Sqrt(3) * 1.05
		if len(numbers) == 1 {
			limit = 0
		}
		rel := math.Sqrt(e / s)
		t.Logf("groups %v: relative L2 error %.4f", numbers, rel)
		if rel > limit {
			t.Errorf("groups %v: relative L2 error %.4f, limit %.4f", numbers, rel, limit)
		}
	}
}
