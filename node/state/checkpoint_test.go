package state

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/policy"
)

// ahead is a model after one outer step.
func ahead(seed uint64, parameters int) *Outer {
	m := newTestOuter(seed, parameters)
	m.Step(slices.Clone(m.now.Parameters), nil)
	return m
}

func TestCheckpointIsWholeOrNone(t *testing.T) {
	m := ahead(1, 40_000)
	for kind, saving := range map[string]Saving{
		"state":              {Run: "run"},
		"state and residual": {Run: "run", Of: 3, Own: Own{Residual: m.now.Momentum}},
		"residual":           {Run: "run", Of: 4, Own: Own{Residual: m.now.Momentum}, Stateless: true},
		"everything":         {Run: "run", Of: 6, Own: Own{Residual: m.now.Momentum, Inner: []byte("moments"), Local: m.now.Parameters}},
		"local":              {Run: "run", Of: 6, Own: Own{Local: m.now.Parameters}, Stateless: true},
	} {
		write := m.Checkpoint(saving)
		var b bytes.Buffer
		c, err := write(&b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readCheckpoint(bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if diff := cmp.Diff(c, got.Checkpoint); diff != "" || c.OuterSteps != 1 || c.Run != "run" || c.Hash != m.Hash() {
			t.Fatalf("%s: %+v\n%s", kind, c, diff)
		}
		if (got.State == nil) != saving.Stateless || got.State != nil && (got.State.Hash() != c.Hash || got.State.Steps != 1) || !slices.Equal(got.own.Residual, saving.Own.Residual) || !slices.Equal(got.own.Local, saving.Own.Local) {
			t.Errorf("%s: read something else than was written", kind)
		}
		for name, damage := range map[string]func([]byte) []byte{
			"empty":     func(b []byte) []byte { return nil },
			"cut off":   func(b []byte) []byte { return b[:len(b)-1] },
			"longer":    func(b []byte) []byte { return append(b, 0) },
			"a bit":     func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
			"last bit":  func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
			"header":    func(b []byte) []byte { return b[bytes.IndexByte(b, '\n')+1:] },
			"other":     func(b []byte) []byte { return bytes.Replace(b, []byte(`"format":1`), []byte(`"format":2`), 1) },
			"too large": func(b []byte) []byte { return bytes.Replace(b, []byte(":40000,"), []byte(":1073741824,"), 1) },
		} {
			if _, err := ReadCheckpoint(bytes.NewReader(damage(bytes.Clone(b.Bytes())))); err == nil {
				t.Errorf("%s, %s: no error", kind, name)
			}
		}
		if _, err := write(&limited{1000}); err == nil {
			t.Errorf("%s: a checkpoint that could not be written brought no error", kind)
		}
		m.now.Steps++
		if _, err := write(io.Discard); err == nil {
			t.Errorf("%s: written of another state than at its beginning", kind)
		}
		m.now.Steps--
	}
}

// TestResidualFitsItsState: a worker goes on with what it had set aside only if
// that is its own, and of the state that it restores.
func TestResidualFitsItsState(t *testing.T) {
	const n = 100
	m, other := ahead(1, n), ahead(2, n)
	write := func(id policy.ID, m *Outer, stateless bool) []byte {
		var b bytes.Buffer
		if _, err := m.Checkpoint(Saving{Run: "run", Of: id, Own: Own{Residual: m.now.Momentum, Inner: []byte{1, 2}}, Stateless: stateless})(&b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	for name, c := range map[string]struct {
		state, residual []byte
		want            bool
	}{
		"its own":           {write(1, m, false), write(0, m, true), true},
		"in its checkpoint": {write(0, m, false), nil, true},
		"another worker's":  {write(1, m, false), write(2, m, true), false},
		"of another state":  {write(1, m, false), write(0, other, true), false},
		"none":              {write(1, m, false), nil, false},
		"damaged":           {write(1, m, false), write(0, m, true)[:300], false},
	} {
		s, err := ReadState(bytes.NewReader(c.state), "run", n)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var own io.Reader
		if c.residual != nil {
			own = bytes.NewReader(c.residual)
		}
		of, err := s.OwnOf(0, own)
		if got := err == nil; got != c.want || got && !(slices.Equal(of.Residual, m.now.Momentum) && bytes.Equal(of.Inner, []byte{1, 2})) {
			t.Errorf("%s: taken over: %v (%v), want %v", name, got, err, c.want)
		}
	}
	for name, read := range map[string]func() (*Saved, error){
		"a residual alone": func() (*Saved, error) { return ReadState(bytes.NewReader(write(0, m, true)), "run", n) },
		"another run":      func() (*Saved, error) { return ReadState(bytes.NewReader(write(0, m, false)), "walk", n) },
		"another model":    func() (*Saved, error) { return ReadState(bytes.NewReader(write(0, m, false)), "run", n+1) },
	} {
		if _, err := read(); err == nil {
			t.Errorf("a worker may begin from %s", name)
		}
	}
}

type limited struct{ left int }

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func FuzzReadCheckpoint(f *testing.F) {
	var b bytes.Buffer
	if _, err := ahead(1, 8).Checkpoint(Saving{Run: "run"})(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(b.Bytes()[:40])
	f.Add([]byte(`{"format":1,"outer_steps":1,"parameters":1073741824}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := readCheckpoint(bytes.NewReader(b))
		if err == nil && c.State != nil && (c.State.Hash() != c.Hash || len(c.State.Parameters) != c.Parameters || len(c.State.Momentum) != c.Parameters) {
			t.Errorf("accepted %+v", c)
		}
	})
}

// BenchmarkCheckpoint is what a checkpoint of a million parameters costs the
// worker that makes it, apart from the writing.
func BenchmarkCheckpoint(b *testing.B) {
	m := newTestOuter(1, 1_000_000)
	b.SetBytes(8_000_000)
	for b.Loop() {
		if _, err := m.Checkpoint(Saving{Run: "run"})(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
