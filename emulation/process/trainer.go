//go:build linux

package process

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testbed/record"
	"testbed/train"
	"testbed/train/program"
)

// Trainer locates a program's files in a run's directory for a worker's
// process, and describes how to run it: plain values, which are sent to the
// process.
type Trainer struct {
	program.Config
	Parameters int        // of the program's model
	Folder     string     // of the kept files
	Run        record.Dir // the program's output goes to its logs
}

// Files of Trainer.Folder.
const (
	TrainerInitial = "initial" // parameters: float32, little-endian
	TrainerPython  = "python"  // the Python package
)

// Task makes the task of a worker's process.
func (k *Trainer) Task() (train.Task, error) {
	data, err := os.ReadFile(filepath.Join(k.Folder, TrainerInitial))
	if err != nil {
		return nil, fmt.Errorf("reading the program's initial parameters: %w", err)
	}
	initial := make([]float32, k.Parameters)
	if _, err := binary.Decode(data, binary.LittleEndian, initial); err != nil {
		return nil, fmt.Errorf("reading the program's initial parameters: %w", err)
	}
	log := func(name string) string { return k.Run.Log(name + ".trainer") }
	return program.New(k.Here(filepath.Join(k.Folder, TrainerPython), log), initial), nil
}
