package train

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"testbed/internal/rapidtest"
)

// TestDeal: every parameter is in one fragment, what makes up a block is in the
// same one, and blocks go to the fragments in turn.
func TestDeal(t *testing.T) {
	rapidtest.Check(t, func(t *rapid.T) {
		var layers []Layer
		var blockOf []int // of each layer
		at, blocks := 0, 0
		for i := range rapid.IntRange(1, 8).Draw(t, "blocks") {
			for j := range rapid.IntRange(1, 3).Draw(t, "layers") {
				n := rapid.IntRange(1, 20).Draw(t, "parameters")
				layers, blockOf = append(layers, Layer{Name: fmt.Sprintf("block%d.%d", i, j), At: at, Len: n}), append(blockOf, i)
				at += n
			}
			blocks++
		}
		most := blocks
		if len(layers) == 1 {
			most = at
		}
		p := rapid.IntRange(1, most).Draw(t, "fragments")
		dealt, err := Deal(layers, p)
		if err != nil {
			t.Fatal(err)
		}
		whole := make([]float32, at)
		for i := range whole {
			whole[i] = float32(i)
		}
		in := make([]int, at)
		for round := 1; round <= p; round++ {
			f := dealt.Of(round + p*rapid.IntRange(0, 3).Draw(t, "later"))
			part := make([]float32, f.Len)
			f.AddTo(part, whole)
			if !slices.IsSorted(part) {
				t.Fatalf("fragment %d is out of order", round)
			}
			for _, v := range part {
				in[int(v)] += round
			}
			back := make([]float32, at)
			f.Scatter(back, part)
			f.AddTo(part, whole)
			for k, v := range part {
				if back[int(v)/2] != v/2 || v == 0 && k > 0 {
					t.Fatalf("fragment %d: %v does not come back", round, v/2)
				}
			}
		}
		for i, l := range layers {
			for k := l.At; k < l.At+l.Len; k++ {
				if want := blockOf[i]%p + 1; len(layers) > 1 && in[k] != want {
					t.Fatalf("parameter %d of %s is in fragment %d of %d, want %d", k, l.Name, in[k], p, want)
				}
			}
		}
		if slices.Contains(in, 0) {
			t.Fatal("a parameter is in no fragment")
		}
	})
}

func TestDealKeepsBlocksTogether(t *testing.T) {
	layers := []Layer{{Name: "embedding", Len: 5}, {Name: "positions", At: 5, Len: 2}, {Name: "block0.a", At: 7, Len: 3},
		{Name: "block0.b", At: 10, Len: 3}, {Name: "block1.a", At: 13, Len: 4}, {Name: "head", At: 17, Len: 1}}
	dealt, err := Deal(layers, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(dealt); got != "[{[[0 7] [17 18]] 8} {[[7 13]] 6} {[[13 17]] 4}]" {
		t.Errorf("dealt as %s", got)
	}
	for p, want := range map[int]string{0: "is 0: it must lie between 1 and 4,", 5: "is 5: it must lie between 1 and 4, the number of the model's blocks of layers"} {
		if _, err := Deal(layers, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d fragments: error %v", p, err)
		}
	}
	if _, err := Deal([]Layer{{Len: 10}}, 20); err == nil || !strings.Contains(err.Error(), "is 20: it must lie between 1 and 10, the number of the model's parameters") {
		t.Errorf("a stand-in of 10 parameters in 20 fragments: error %v", err)
	}
}

// TestMixAndShare by hand.
func TestMixAndShare(t *testing.T) {
	f, err := Deal([]Layer{{Len: 2}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	local := []float32{1, 2}
	f[0].Mix(local, []float32{3, 6}, 0.5)
	if !slices.Equal(local, []float32{2, 4}) {
		t.Errorf("mixed to %v", local)
	}
	f[0].Mix(local, []float32{3, 6}, 0)
	if !slices.Equal(local, []float32{3, 6}) {
		t.Errorf("replaced by %v", local)
	}
	Outer{Rate: 0.5, Momentum: 1}.Share(local, []float32{4, 8}, 4)
	if !slices.Equal(local, []float32{2, 4}) {
		t.Errorf("with its own share they are %v", local)
	}
}
