package state

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"testbed/policy"
	"testbed/train"
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

// Saving is what a checkpoint is to hold.
type Saving struct {
	Run       string
	Of        policy.ID // whose residual
	Residual  []float32 // nil: there is none
	Stateless bool      // leaves the state out
}

// Checkpoint returns what writes a checkpoint of the state as it is now. It fails
// if an outer step comes before it is called.
func (o *Outer) Checkpoint(s Saving) func(io.Writer) (Checkpoint, error) {
	steps, _ := o.Version()
	return func(w io.Writer) (c Checkpoint, err error) {
		o.read(func(now *Snapshot) {
			if now.Steps != steps {
				err = fmt.Errorf("outer step %d came before that of step %d was written", now.Steps, steps)
				return
			}
			c, err = s.write(w, now)
		})
		if err != nil {
			return c, fmt.Errorf("writing a checkpoint: %w", err)
		}
		return c, nil
	}
}

func (s *Saving) write(w io.Writer, now *Snapshot) (Checkpoint, error) {
	c := Checkpoint{
		Format: checkpointFormat, Run: s.Run, OuterSteps: now.Steps, Parameters: len(now.parameters),
		Hash: now.hash(), Stateless: s.Stateless,
	}
	var vectors [][]float32
	if !s.Stateless {
		vectors = [][]float32{now.parameters, now.momentum}
	}
	if s.Residual != nil {
		c.Of, c.Residual = &s.Of, train.Hash(s.Residual)
		vectors = append(vectors, s.Residual)
	}
	if err := json.NewEncoder(w).Encode(c); err != nil {
		return c, err
	}
	for _, v := range vectors {
		if err := writeFloats(w, v); err != nil {
			return c, err
		}
	}
	return c, nil
}

// Saved is a checkpoint with what it holds.
type Saved struct {
	Checkpoint
	State *Snapshot // nil in a stateless one

	residual []float32 // nil if it holds none
}

// ReadCheckpoint reads a checkpoint to its end and checks that it is whole.
func ReadCheckpoint(r io.Reader) (Checkpoint, error) {
	s, err := readCheckpoint(r)
	if err != nil {
		return Checkpoint{}, err
	}
	return s.Checkpoint, nil
}

func readCheckpoint(r io.Reader) (*Saved, error) {
	s, err := readSaved(r)
	if err != nil {
		return nil, fmt.Errorf("reading a checkpoint: %w", err)
	}
	return s, nil
}

func readSaved(r io.Reader) (*Saved, error) {
	in := bufio.NewReaderSize(r, 4*floatsPerWrite)
	c, err := readFirstLine(in)
	if err != nil {
		return nil, err
	}
	s := &Saved{Checkpoint: c}
	var vectors []*[]float32
	if !c.Stateless {
		s.State = &Snapshot{Steps: c.OuterSteps}
		vectors = append(vectors, &s.State.parameters, &s.State.momentum)
	}
	if c.Of != nil {
		vectors = append(vectors, &s.residual)
	}
	for _, v := range vectors {
		if *v, err = readFloats(in, c.Parameters); err != nil {
			return nil, fmt.Errorf("it is cut off: %w", err)
		}
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, errors.New("it is longer than its first line says")
	}
	differs := func(what, got, want string) error {
		return fmt.Errorf("its %s has the hash %s, its first line says %s", what, got, want)
	}
	if s.State != nil {
		if got := s.State.hash(); got != c.Hash {
			return nil, differs("state", got, c.Hash)
		}
	}
	if got := train.Hash(s.residual); c.Of != nil && got != c.Residual {
		return nil, differs("residual", got, c.Residual)
	}
	return s, nil
}

func readFirstLine(in *bufio.Reader) (c Checkpoint, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return c, fmt.Errorf("its first line: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	switch err := dec.Decode(&c); {
	case err != nil:
		return c, fmt.Errorf("its first line: %w", err)
	case c.Format != checkpointFormat:
		return c, fmt.Errorf("it has format %d; this program reads %d", c.Format, checkpointFormat)
	case c.OuterSteps < 1 || c.Parameters < 1 || c.Parameters > maxCheckpoint:
		return c, fmt.Errorf("outer step %d of %d parameters cannot be", c.OuterSteps, c.Parameters)
	case c.Stateless && c.Of == nil:
		return c, errors.New("it holds nothing")
	}
	return c, nil
}

// ReadState reads a checkpoint from which a worker of a run can begin.
func ReadState(r io.Reader, run string, parameters int) (*Saved, error) {
	s, err := readCheckpoint(r)
	switch {
	case err != nil:
		return nil, err
	case s.Run != run:
		return nil, fmt.Errorf("reading a checkpoint: it is of the run %q, not %q", s.Run, run)
	case s.Stateless:
		return nil, errors.New("reading a checkpoint: it holds no state")
	case s.Parameters != parameters:
		return nil, fmt.Errorf("reading a checkpoint: it has %d parameters, this run %d", s.Parameters, parameters)
	}
	return s, nil
}

// ResidualOf returns what a worker had set aside when it held the state in the
// checkpoint: from there if it wrote that, else from one of its own, which is nil
// if it has none.
func (s *Saved) ResidualOf(id policy.ID, own io.Reader) ([]float32, error) {
	with := s
	if s.Of == nil || *s.Of != id {
		if own == nil {
			return nil, errors.New("there is no checkpoint of it")
		}
		var err error
		if with, err = readCheckpoint(own); err != nil {
			return nil, err
		}
	}
	if with.Of == nil || *with.Of != id || with.Run != s.Run || with.Hash != s.Hash || with.Parameters != s.Parameters {
		return nil, errors.New("reading a checkpoint: it is no residual of this worker with this state")
	}
	return with.residual, nil
}
