package state

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"testbed/policy"
	"testbed/train"
)

// Checkpoint describes the content of a checkpoint. It is the first line of
// one, as JSON. Vectors follow as little-endian float32: the outer parameters,
// the momentum and the writer's Own. The checkpoints of the other workers have
// only their Own.
type Checkpoint struct {
	Format     int    `json:"format"`
	Run        string `json:"run"` // names the run
	OuterSteps int    `json:"outer_steps"`
	Parameters int    `json:"parameters"`
	Hash       string `json:"hash"` // of the outer state
	// Of is the worker whose Own it holds. Residual, Local and Inner are the
	// hashes of its parts, empty for missing ones.
	Of         *policy.ID `json:"of,omitempty"`
	Residual   string     `json:"residual,omitempty"`
	Local      string     `json:"local,omitempty"`
	Inner      string     `json:"inner,omitempty"`
	InnerBytes int        `json:"inner_bytes,omitempty"`
	// Stateless reports that it does not hold the outer state.
	Stateless bool `json:"stateless,omitempty"`
}

const (
	checkpointFormat = 1
	// maxCheckpoint is the largest number of parameters in a checkpoint.
	maxCheckpoint = 1 << 30
	// maxInner is the largest size of an inner optimiser's state, in bytes per
	// parameter.
	maxInner = 64
	// leastInner is its largest size for any number of parameters.
	leastInner = 64 << 10
)

// Own is a worker's own state besides the outer state that all share.
type Own struct {
	Residual []float32 // with error feedback, the quantisation error
	Local    []float32 // its own parameters, from which it goes on
	Inner    []byte    // the state of its inner optimiser
}

func (o Own) empty() bool { return o.Residual == nil && o.Local == nil && o.Inner == nil }

// Saving is the content of a checkpoint to be written.
type Saving struct {
	Run       string
	Of        policy.ID // whose Own
	Own       Own
	Stateless bool // without the outer state
}

// Checkpoint returns a function that writes a checkpoint of the present state.
// The function fails if an outer step comes before its call.
func (o *Outer) Checkpoint(s Saving) func(io.Writer) (Checkpoint, error) {
	steps, _ := o.Version()
	return func(w io.Writer) (c Checkpoint, err error) {
		o.read(func(now *Snapshot) {
			if now.Steps != steps {
				err = fmt.Errorf("outer step %d came before the checkpoint of outer step %d was written", now.Steps, steps)
				return
			}
			if now.Agreed != nil {
				err = fmt.Errorf("outer step %d averaged within one region only, but a checkpoint needs a state of all regions", steps)
				return
			}
			c, err = s.write(w, now)
		})
		return c, err
	}
}

func (s *Saving) write(w io.Writer, now *Snapshot) (Checkpoint, error) {
	c := Checkpoint{
		Format: checkpointFormat, Run: s.Run, OuterSteps: now.Steps, Parameters: len(now.Parameters),
		Hash: now.Hash(), Stateless: s.Stateless,
	}
	var vectors [][]float32
	if !s.Stateless {
		vectors = [][]float32{now.Parameters, now.Momentum}
	}
	if !s.Own.empty() {
		c.Of = &s.Of
	}
	if s.Own.Residual != nil {
		c.Residual = train.Hash(s.Own.Residual)
		vectors = append(vectors, s.Own.Residual)
	}
	if s.Own.Local != nil {
		c.Local = train.Hash(s.Own.Local)
		vectors = append(vectors, s.Own.Local)
	}
	if s.Own.Inner != nil {
		c.Inner, c.InnerBytes = hashBytes(s.Own.Inner), len(s.Own.Inner)
	}
	if err := json.NewEncoder(w).Encode(c); err != nil {
		return c, err
	}
	for _, v := range vectors {
		if err := writeFloats(w, v); err != nil {
			return c, err
		}
	}
	_, err := w.Write(s.Own.Inner)
	return c, err
}

func hashBytes(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:16])
}

// Saved is a checkpoint with its content.
type Saved struct {
	Checkpoint
	State *Snapshot // nil in a stateless one

	own Own
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
		vectors = append(vectors, &s.State.Parameters, &s.State.Momentum)
	}
	if c.Residual != "" {
		vectors = append(vectors, &s.own.Residual)
	}
	if c.Local != "" {
		vectors = append(vectors, &s.own.Local)
	}
	for _, v := range vectors {
		if *v, err = readFloats(in, c.Parameters); err != nil {
			return nil, shortened(err)
		}
	}
	if c.Inner != "" { // memory grows with the actual data
		if s.own.Inner, err = io.ReadAll(io.LimitReader(in, int64(c.InnerBytes))); err == nil && len(s.own.Inner) < c.InnerBytes {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, shortened(err)
		}
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the file is longer than announced in its first line")
	}
	differs := func(what, got, want string) error {
		return fmt.Errorf("the hash of the file's %s is %s, but the first line announces %s", what, got, want)
	}
	if s.State != nil {
		if got := s.State.Hash(); got != c.Hash {
			return nil, differs("state", got, c.Hash)
		}
	}
	if got := train.Hash(s.own.Residual); c.Residual != "" && got != c.Residual {
		return nil, differs("residual", got, c.Residual)
	}
	if got := train.Hash(s.own.Local); c.Local != "" && got != c.Local {
		return nil, differs("local parameters", got, c.Local)
	}
	if got := hashBytes(s.own.Inner); c.Inner != "" && got != c.Inner {
		return nil, differs("optimiser", got, c.Inner)
	}
	return s, nil
}

// shortened explains an error after the first line.
func shortened(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file is shorter than announced in its first line")
	}
	return err
}

func readFirstLine(in *bufio.Reader) (c Checkpoint, err error) {
	line, err := in.ReadSlice('\n')
	switch {
	case errors.Is(err, io.EOF):
		return c, errors.New("the file ends before the end of its first line")
	case err != nil:
		return c, fmt.Errorf("the file's first line: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	switch err := dec.Decode(&c); {
	case err != nil:
		return c, fmt.Errorf("the file's first line is not that of a checkpoint: %w", err)
	case c.Format != checkpointFormat:
		return c, fmt.Errorf("the file has format %d, but this program reads format %d; use the version of testbed that wrote the file", c.Format, checkpointFormat)
	case c.OuterSteps < 1 || c.Parameters < 1 || c.Parameters > maxCheckpoint:
		return c, fmt.Errorf("the file's first line has impossible values: outer step %d, %d parameters", c.OuterSteps, c.Parameters)
	case c.Stateless && c.Of == nil:
		return c, errors.New("the file holds neither an outer state nor a worker's own state")
	case c.Of == nil && (c.Residual+c.Local+c.Inner != "") || c.InnerBytes < 0 || c.InnerBytes > leastInner+maxInner*c.Parameters:
		return c, errors.New("the file's first line has impossible values for the worker's own state")
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
		return nil, fmt.Errorf("reading a checkpoint: another run, %q, wrote the file; the checkpoint of the run %q is needed", s.Run, run)
	case s.Stateless:
		return nil, errors.New("reading a checkpoint: the file holds no outer state")
	case s.Parameters != parameters:
		return nil, fmt.Errorf("reading a checkpoint: the file contains %d parameters, but the run needs %d", s.Parameters, parameters)
	}
	return s, nil
}

// OwnOf returns a worker's own state at the checkpoint: from the checkpoint if
// the worker wrote it, otherwise from own, the worker's own checkpoint, which
// is nil if there is none.
func (s *Saved) OwnOf(id policy.ID, own io.Reader) (Own, error) {
	with := s
	if s.Of == nil || *s.Of != id {
		if own == nil {
			return Own{}, errors.New("the worker has no checkpoint of its own")
		}
		var err error
		if with, err = readCheckpoint(own); err != nil {
			return Own{}, err
		}
	}
	if with.Of == nil || *with.Of != id || with.Run != s.Run || with.Hash != s.Hash || with.Parameters != s.Parameters {
		return Own{}, errors.New("reading a checkpoint: the worker's own checkpoint belongs to another worker, run or outer state")
	}
	return with.own, nil
}
