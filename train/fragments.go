package train

import (
	"fmt"
	"strings"
)

// Fragment is the part of the flat parameter vector that a round exchanges.
type Fragment struct {
	Spans [][2]int // from, to; in order
	Len   int
}

// Fragments are a parameter vector divided into parts, which rounds exchange in
// turn (Douillard et al. 2025, "Streaming DiLoCo", §3.1).
type Fragments []Fragment

// Of returns the fragment that a round exchanges. Rounds count from 1.
func (f Fragments) Of(round int) Fragment { return f[(round-1)%len(f)] }

// Deal assigns layers to fragments, strided: the first to the first, the second
// to the second, and so on, round after round. Layers of one block, which share
// the part of their names before the dot, stay together. So do neighbours
// without a block. A single layer is cut into equal parts instead.
func Deal(layers []Layer, fragments int) (Fragments, error) {
	var blocks [][2]int
	name := func(l Layer) string {
		block, _, ok := strings.Cut(l.Name, ".")
		if !ok {
			return ""
		}
		return block
	}
	for i, l := range layers {
		if i > 0 && name(l) == name(layers[i-1]) {
			blocks[len(blocks)-1][1] = l.At + l.Len
			continue
		}
		blocks = append(blocks, [2]int{l.At, l.At + l.Len})
	}
	if len(layers) == 1 && fragments > 1 && fragments <= layers[0].Len {
		blocks = nil
		for k := range fragments {
			blocks = append(blocks, [2]int{k * layers[0].Len / fragments, (k + 1) * layers[0].Len / fragments})
		}
	}
	if fragments < 1 || fragments > len(blocks) {
		most, of := len(blocks), "blocks of layers"
		if len(layers) == 1 {
			most, of = layers[0].Len, "parameters"
		}
		return nil, fmt.Errorf("is %d: it must lie between 1 and %d, the number of the model's %s", fragments, most, of)
	}
	dealt := make(Fragments, fragments)
	for i, b := range blocks {
		f := &dealt[i%fragments]
		f.Len += b[1] - b[0]
		if n := len(f.Spans); n > 0 && f.Spans[n-1][1] == b[0] {
			f.Spans[n-1][1] = b[1]
			continue
		}
		f.Spans = append(f.Spans, b)
	}
	return dealt, nil
}

// Exchange determines how rounds combine the outer parameters with a worker's
// local ones.
type Exchange struct {
	Fragments Fragments
	// Mix is the share of its local parameters that a worker keeps of a fragment
	// when it receives the outer ones (α of Streaming DiLoCo).
	Mix float32
	// Overlap is the number of inner steps of the next round after which the
	// worker receives the outer parameters (τ). Until then the reduction has time.
	// With 0 it receives them before the first step.
	Overlap int
	// Late reports that Overlap is all inner steps of a round: then the next
	// pseudo-gradient is measured before the outer step of the round before
	// arrives.
	Late bool
	// Eager makes a worker add its own share of the contribution under way to
	// outer parameters that come Late (Kale, Douillard and Donchev 2025, "Eager
	// Updates").
	Eager bool
}

// Plain reports that each round exchanges everything, and begins at the outer
// parameters after the round before.
func (e *Exchange) Plain() bool { return len(e.Fragments) == 1 && e.Mix == 0 && e.Overlap == 0 }

// Repeats reports that a worker which waits for no outcome begins its next
// round where it began this one. Otherwise its first steps would count twice,
// because outcomes are a round late and of everything.
func (e *Exchange) Repeats() bool { return e.Late && len(e.Fragments) == 1 }

// Each calls do with every span of the fragment, in order. The parameters from
// lo to hi of the whole vector are those from at on of the fragment's vector.
func (f Fragment) Each(do func(at, lo, hi int)) {
	at := 0
	for _, s := range f.Spans {
		do(at, s[0], s[1])
		at += s[1] - s[0]
	}
}

// Layers are the layers of the fragment, or their parts, by their places in its
// own vector. They have no shapes.
func (f Fragment) Layers(of []Layer) (all []Layer) {
	f.Each(func(at, lo, hi int) {
		for _, l := range of {
			if from, to := max(lo, l.At), min(hi, l.At+l.Len); from < to {
				all = append(all, Layer{Name: l.Name, At: at + from - lo, Len: to - from})
			}
		}
	})
	return all
}

// Scatter copies a slice of the fragment's length to its part of a whole vector.
func (f Fragment) Scatter(whole, from []float32) {
	f.Each(func(at, lo, hi int) { copy(whole[lo:hi], from[at:]) })
}

// AddTo adds the fragment's part of a whole vector to a slice of its length.
func (f Fragment) AddTo(to, whole []float32) {
	f.Each(func(at, lo, hi int) {
		to := to[at:][:hi-lo]
		for i, x := range whole[lo:hi] {
			to[i] += x
		}
	})
}

// PseudoGradient writes outer − local of the fragment to a slice of its length.
// outer and local are whole vectors. to may be local if the fragment is
// everything.
func (f Fragment) PseudoGradient(to, outer, local []float32) {
	f.Each(func(at, lo, hi int) {
		to := to[at:][:hi-lo]
		local := local[lo:hi]
		for i, o := range outer[lo:hi] {
			to[i] = o - local[i]
		}
	})
}

// Mix sets the fragment of local parameters to alpha·local + (1−alpha)·outer.
// Both are whole vectors. The conversions are as in Outer.Step.
func (f Fragment) Mix(local, outer []float32, alpha float32) {
	f.Each(func(_, lo, hi int) {
		if alpha == 0 {
			copy(local[lo:hi], outer[lo:hi])
			return
		}
		local := local[lo:hi]
		for i, o := range outer[lo:hi] {
			local[i] = float32(alpha*local[i]) + float32((1-alpha)*o)
		}
	})
}

// StepFragment is Step for a fragment. Parameters and momentum are whole
// vectors; the gradient has the fragment's length.
func (o Outer) StepFragment(f Fragment, parameters, momentum, gradient []float32) {
	f.Each(func(at, lo, hi int) { o.Step(parameters[lo:hi], momentum[lo:hi], gradient[at:][:hi-lo]) })
}

// Share moves parameters by the effect of a worker's own contribution in an
// outer step with so many participants.
func (o Outer) Share(parameters, contribution []float32, participants int) {
	by := float32(o.Rate*float32(1+o.Momentum)) / float32(participants)
	for i, g := range contribution {
		parameters[i] -= float32(by * g)
	}
}
