package task

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"testbed/train/charlm"
)

// Trained is a trained model. Its file is a line of JSON, and then the
// parameters as little-endian float32.
type Trained struct {
	Config     charlm.Config `json:"config,omitzero"`
	OuterSteps int           `json:"outer_steps"`
	// Program is the program that trained it, if it is not a CharLM, and Count the
	// number of its parameters.
	Program    []string  `json:"program,omitempty"`
	Count      int       `json:"parameters,omitempty"`
	Parameters []float32 `json:"-"`
}

// NewTrained is a scenario's model after training.
func (s *Spec) NewTrained(outerSteps int, parameters []float32) *Trained {
	t := &Trained{OuterSteps: outerSteps, Parameters: parameters}
	if s.Foreign() {
		t.Program, t.Count = s.Program, len(parameters)
	} else {
		t.Config = s.config()
	}
	return t
}

// Write writes the file.
func (t *Trained) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	if err := json.NewEncoder(out).Encode(t); err != nil {
		return fmt.Errorf("writing the model: %w", err)
	}
	if err := errors.Join(binary.Write(out, binary.LittleEndian, t.Parameters), out.Flush()); err != nil {
		return fmt.Errorf("writing the model: %w", err)
	}
	return nil
}

// ReadTrained reads the file of a CharLM.
func ReadTrained(data []byte) (*Trained, error) {
	line, rest, ok := bytes.Cut(data, []byte("\n"))
	var t Trained
	switch err := json.Unmarshal(line, &t); {
	case !ok || err != nil:
		return nil, errors.New("the file is not a model: it does not begin with a line of JSON")
	case t.Program != nil:
		return nil, fmt.Errorf("only the program that trained the model can interpret its %d parameters (program: %q); name a model of the task %s", t.Count, strings.Join(t.Program, " "), CharLM)
	case t.Config.Validate() != nil:
		return nil, fmt.Errorf("the file is not a model: %w", t.Config.Validate())
	case len(rest) != 4*t.Config.Parameters():
		return nil, fmt.Errorf("the file has %d bytes of parameters instead of %d, so it is damaged", len(rest), 4*t.Config.Parameters())
	}
	for i := range t.Config.Parameters() {
		t.Parameters = append(t.Parameters, math.Float32frombits(binary.LittleEndian.Uint32(rest[4*i:])))
	}
	return &t, nil
}

// Sample writes on from a prompt.
func (t *Trained) Sample(prompt string, bytes int, temperature float64, seed uint64) (string, error) {
	text, err := t.Config.Sample(t.Parameters, []byte(prompt), bytes, temperature, seed)
	return string(text), err
}
