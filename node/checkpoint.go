package node

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// Checkpoint says what a checkpoint holds. It is the first line of one, as
// JSON; the outer parameters follow, and then the momentum, as little-endian
// float32.
type Checkpoint struct {
	Format     int    `json:"format"`
	Run        string `json:"run"` // names the run
	OuterSteps int    `json:"outer_steps"`
	Parameters int    `json:"parameters"`
	Hash       string `json:"hash"` // of the outer state
}

const (
	checkpointFormat = 1
	// maxCheckpoint is the largest number of parameters in a checkpoint.
	maxCheckpoint = 1 << 30
)

// writeCheckpoint writes the outer state.
func (m *model) writeCheckpoint(run string, w io.Writer) (Checkpoint, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := Checkpoint{
		Format: checkpointFormat, Run: run, OuterSteps: m.steps, Parameters: len(m.outer),
		Hash: hashFloats(m.outer, m.momentum),
	}
	err := json.NewEncoder(w).Encode(c)
	for _, v := range [][]float32{m.outer, m.momentum} {
		if err == nil {
			err = writeFloats(w, v)
		}
	}
	if err != nil {
		return c, fmt.Errorf("writing a checkpoint: %w", err)
	}
	return c, nil
}

// ReadCheckpoint reads a checkpoint to its end and checks that it is whole.
func ReadCheckpoint(r io.Reader) (Checkpoint, error) {
	c, _, err := readCheckpoint(r)
	return c, err
}

func readCheckpoint(r io.Reader) (Checkpoint, *state, error) {
	var c Checkpoint
	fail := func(err error) (Checkpoint, *state, error) {
		return c, nil, fmt.Errorf("reading a checkpoint: %w", err)
	}
	in := bufio.NewReaderSize(r, 4*floatsPerChunk)
	line, err := in.ReadSlice('\n')
	if err != nil {
		return fail(fmt.Errorf("its first line: %w", err))
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return fail(fmt.Errorf("its first line: %w", err))
	}
	if c.Format != checkpointFormat {
		return fail(fmt.Errorf("it has format %d; this program reads %d", c.Format, checkpointFormat))
	}
	if c.OuterSteps < 1 || c.Parameters < 1 || c.Parameters > maxCheckpoint {
		return fail(fmt.Errorf("outer step %d of %d parameters cannot be", c.OuterSteps, c.Parameters))
	}
	s := &state{steps: c.OuterSteps}
	for _, v := range []*[]float32{&s.outer, &s.momentum} {
		if *v, err = readFloats(in, c.Parameters); err != nil {
			return fail(fmt.Errorf("it is cut off: %w", err))
		}
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return fail(errors.New("it is longer than its first line says"))
	}
	if s.digest = s.hash(); s.digest != c.Hash {
		return fail(fmt.Errorf("its content has the hash %s, its first line says %s", s.digest, c.Hash))
	}
	return c, s, nil
}

// readFloats reads n values. Memory grows with what is there, and not with what
// is announced.
func readFloats(r io.Reader, n int) ([]float32, error) {
	v := make([]float32, 0, min(n, floatsPerChunk))
	buf := make([]byte, 4*floatsPerChunk)
	for len(v) < n {
		b := buf[:4*min(n-len(v), floatsPerChunk)]
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		for ; len(b) > 0; b = b[4:] {
			v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
	}
	return v, nil
}

// checkpoint saves the outer state in the background, unless that is still
// being done for an earlier one.
func (w *worker) checkpoint() {
	if w.cfg.Save == nil || !w.saves.TryLock() {
		return
	}
	w.saving.Go(func() {
		defer w.saves.Unlock()
		if err := w.cfg.Save(func(to io.Writer) (Checkpoint, error) { return w.model.writeCheckpoint(w.cfg.Run, to) }); err != nil {
			w.cfg.Log.Warn("no checkpoint", "err", err)
		}
	})
}

// restore begins from a checkpoint.
func (w *worker) restore(r io.Reader) error {
	c, s, err := readCheckpoint(r)
	switch {
	case err != nil:
		return err
	case c.Run != w.cfg.Run:
		return fmt.Errorf("reading a checkpoint: it is of the run %q, not %q", c.Run, w.cfg.Run)
	case c.Parameters != len(w.model.local):
		return fmt.Errorf("reading a checkpoint: it has %d parameters, this run %d", c.Parameters, len(w.model.local))
	}
	w.model.replace(s)
	w.synced = true
	w.greeting.OuterSteps, w.greeting.Hash = c.OuterSteps, c.Hash
	return nil
}
