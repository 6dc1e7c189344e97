//go:build linux

package emulation

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/emulation/process"
	"testbed/node"
	"testbed/node/state"
	"testbed/record"
)

// Until a run is over, this folder of the run directory has everything needed
// to resume it.
const (
	resumeDir   = "resume"
	journalFile = "journal.jsonl"
	// keptCheckpoints is the number of checkpoints kept: the last one, and another
	// in case it is damaged.
	keptCheckpoints = 2
	// aside ends the names of files that the run does not resume from.
	aside = ".aside"
)

// keep writes a worker's checkpoint to the run directory, in the background.
func (p *player) keep(w *worker, saved state.Checkpoint) error {
	began := time.Now()
	return w.child.Fetch(process.Memory, w.memory, func(err error) error {
		if err != nil {
			p.s.Tell("the checkpoint of %s after outer step %d could not be saved: %v", w.name, saved.OuterSteps, err)
			w.command(node.Command{Op: process.OpSaved})
			return nil
		}
		p.write(w, saved, began)
		return nil
	})
}

// write is keep once the memory is here.
func (p *player) write(w *worker, saved state.Checkpoint, began time.Time) {
	p.keeping.Go(func() {
		name := checkpointName(saved.OuterSteps)
		if saved.Stateless {
			name = residualName(saved.OuterSteps, w.name)
		}
		err := storeCheckpoint(p.s.Dir.Path(resumeDir), name, w.memory)
		p.s.Post(func() error {
			w.command(node.Command{Op: process.OpSaved})
			if err != nil {
				p.s.Tell("the file %s of %s could not be saved: %v", name, w.name, err)
				return nil
			}
			if saved.Stateless {
				return nil
			}
			return p.record(record.Event{
				T: p.clock.now(), Type: record.Checkpoint, Node: w.name, Round: saved.OuterSteps, Hash: saved.Hash,
				Duration: p.spec.Scenario.ClockTime(time.Since(began)),
			})
		})
	})
}

// keepModel keeps the trained model, from the last checkpoint.
func (p *player) keepModel() error {
	s := p.spec.Scenario
	if !s.Train.Real() {
		return nil
	}
	dir := p.s.Dir.Path(resumeDir)
	all, err := checkpoints(dir)
	if err != nil || len(all) == 0 {
		return err
	}
	file, err := os.Open(filepath.Join(dir, checkpointName(all[len(all)-1])))
	if err != nil {
		return err
	}
	defer file.Close()
	saved, err := state.ReadState(file, p.spec.Name, s.Parameters)
	if err != nil {
		return err
	}
	out, err := os.Create(p.s.Dir.Path(record.ModelFile))
	if err != nil {
		return err
	}
	return errors.Join(s.Train.NewTrained(saved.OuterSteps, saved.State.Parameters).Write(out), out.Close())
}

// storeCheckpoint writes the content of a memory to a file, whole or not at
// all, and removes files older than the last checkpoints.
func storeCheckpoint(dir, name string, memory *os.File) error {
	info, err := memory.Stat()
	if err != nil {
		return err
	}
	temporary := filepath.Join(dir, "."+name+".new") // others may be written simultaneously
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, io.NewSectionReader(memory, 0, info.Size()))
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close(), memory.Truncate(0)); err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	all, err := checkpoints(dir)
	if err != nil || len(all) < keptCheckpoints {
		return err
	}
	return removeBefore(dir, all[len(all)-keptCheckpoints])
}

// removeBefore removes the files of outer steps before that one.
func removeBefore(dir string, steps int) error {
	return eachKept(dir, func(of int, file string) error {
		if of >= steps {
			return nil
		}
		return os.Remove(file)
	})
}

// putAside renames the files of outer steps after that one, so that they no
// longer count.
func putAside(dir string, steps int) error {
	return eachKept(dir, func(of int, file string) error {
		if of <= steps || strings.HasSuffix(file, aside) {
			return nil
		}
		return os.Rename(file, file+aside)
	})
}

// eachKept calls do with each file of an outer step. The file may be gone by
// then.
func eachKept(dir string, do func(of int, file string) error) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		var of int
		if _, none := fmt.Sscanf(e.Name(), "outer-%d.", &of); none != nil {
			continue
		}
		if failed := do(of, filepath.Join(dir, e.Name())); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// syncDir makes the names in a directory survive a crash of the machine.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func checkpointName(steps int) string { return fmt.Sprintf("outer-%d.checkpoint", steps) }

// residualName is the file name of a worker's residual, which only fits the
// state of the same outer step.
func residualName(steps int, worker string) string {
	return fmt.Sprintf("outer-%d.%s.residual", steps, worker)
}

// checkpoints returns the outer steps of the checkpoints in a directory, in
// order.
func checkpoints(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var steps []int
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), "outer-")
		text, end := strings.CutSuffix(text, ".checkpoint")
		if n, err := strconv.Atoi(text); ok && end && err == nil {
			steps = append(steps, n)
		}
	}
	slices.Sort(steps)
	return steps, nil
}
