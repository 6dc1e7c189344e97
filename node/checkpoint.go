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
	"slices"

	"testbed/policy"
)

// Checkpoint says what a checkpoint holds. It is the first line of one, as
// JSON; vectors follow as little-endian float32: the outer parameters, the
// momentum and, with error feedback, the writer's residual. In the checkpoints
// of the other workers there is only that.
type Checkpoint struct {
	Format     int    `json:"format"`
	Run        string `json:"run"` // names the run
	OuterSteps int    `json:"outer_steps"`
	Parameters int    `json:"parameters"`
	Hash       string `json:"hash"` // of the outer state
	// Of is the worker whose residual it holds, and Residual the hash of that.
	Of       *policy.ID `json:"of,omitempty"`
	Residual string     `json:"residual,omitempty"`
	// Stateless says that it does not hold the outer state.
	Stateless bool `json:"stateless,omitempty"`
}

const (
	checkpointFormat = 1
	// maxCheckpoint is the largest number of parameters in a checkpoint.
	maxCheckpoint = 1 << 30
)

// snapshotter writes checkpoints of the state that the model holds now.
type snapshotter struct {
	run      string
	model    *model
	steps    int       // outer steps taken
	of       policy.ID // whose residual
	residual []float32 // nil: there is none
	// stateless leaves the state out.
	stateless bool
}

func (s *snapshotter) write(w io.Writer) (Checkpoint, error) {
	m := s.model
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := Checkpoint{
		Format: checkpointFormat, Run: s.run, OuterSteps: s.steps, Parameters: len(m.outer),
		Hash: hashFloats(m.outer, m.momentum), Stateless: s.stateless,
	}
	fail := func(err error) (Checkpoint, error) { return c, fmt.Errorf("writing a checkpoint: %w", err) }
	if m.steps != s.steps {
		return fail(fmt.Errorf("outer step %d came before that of step %d was written", m.steps, s.steps))
	}
	var vectors [][]float32
	if !s.stateless {
		vectors = [][]float32{m.outer, m.momentum}
	}
	if s.residual != nil {
		c.Of, c.Residual = &s.of, hashFloats(s.residual)
		vectors = append(vectors, s.residual)
	}
	if err := json.NewEncoder(w).Encode(c); err != nil {
		return fail(err)
	}
	for _, v := range vectors {
		if err := writeFloats(w, v); err != nil {
			return fail(err)
		}
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
	if c.Stateless && c.Of == nil {
		return fail(errors.New("it holds nothing"))
	}
	s := &state{steps: c.OuterSteps}
	var vectors []*[]float32
	if !c.Stateless {
		vectors = append(vectors, &s.outer, &s.momentum)
	}
	if c.Of != nil {
		vectors = append(vectors, &s.residual)
	}
	for _, v := range vectors {
		if *v, err = readFloats(in, c.Parameters); err != nil {
			return fail(fmt.Errorf("it is cut off: %w", err))
		}
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return fail(errors.New("it is longer than its first line says"))
	}
	differs := func(what, got, want string) error {
		return fmt.Errorf("its %s has the hash %s, its first line says %s", what, got, want)
	}
	if s.digest = s.hash(); !c.Stateless && s.digest != c.Hash {
		return fail(differs("state", s.digest, c.Hash))
	}
	if got := hashFloats(s.residual); c.Of != nil && got != c.Residual {
		return fail(differs("residual", got, c.Residual))
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

// checkpoint saves the outer state, or with stateless only the residual, in the
// background, unless that is still being done for an earlier one.
func (w *workerDriver) checkpoint(stateless bool) {
	if w.cfg.Save == nil || stateless && w.buffers.residual == nil || !w.saves.TryLock() {
		return
	}
	// The buffer of the residual is soon another one's.
	s := snapshotter{run: w.cfg.Run, model: w.model, of: w.cfg.ID, residual: slices.Clone(w.buffers.residual), stateless: stateless}
	s.steps, _ = w.model.version()
	w.saving.Go(func() {
		defer w.saves.Unlock()
		if err := w.cfg.Save(s.write); err != nil {
			w.cfg.Log.Warn("no checkpoint", "err", err)
		}
	})
}

// restore begins from a checkpoint.
func (w *workerDriver) restore(r io.Reader) error {
	c, s, err := readCheckpoint(r)
	switch {
	case err != nil:
		return err
	case c.Run != w.cfg.Run:
		return fmt.Errorf("reading a checkpoint: it is of the run %q, not %q", c.Run, w.cfg.Run)
	case c.Stateless:
		return errors.New("reading a checkpoint: it holds no state")
	case c.Parameters != len(w.model.local):
		return fmt.Errorf("reading a checkpoint: it has %d parameters, this run %d", c.Parameters, len(w.model.local))
	}
	if w.buffers.residual != nil {
		if err := w.restoreResidual(c, s); err != nil {
			w.cfg.Log.Warn("going on without what quantisation had taken", "err", err)
		}
	}
	w.model.replace(s)
	w.machine.Restored(c.OuterSteps)
	w.greeting.OuterSteps, w.greeting.Hash = c.OuterSteps, c.Hash
	return nil
}

// restoreResidual takes over what this worker had set aside when it held the
// state in the checkpoint, which has it if this worker wrote it.
func (w *workerDriver) restoreResidual(c Checkpoint, s *state) error {
	hash := c.Hash
	if c.Of == nil || *c.Of != w.cfg.ID {
		if w.cfg.Residual == nil {
			return errors.New("there is no checkpoint of it")
		}
		var err error
		if c, s, err = readCheckpoint(w.cfg.Residual); err != nil {
			return err
		}
	}
	if c.Of == nil || *c.Of != w.cfg.ID || c.Run != w.cfg.Run || c.Hash != hash || len(s.residual) != len(w.buffers.residual) {
		return errors.New("reading a checkpoint: it is no residual of this worker with this state")
	}
	w.buffers.residual = s.residual
	return nil
}
