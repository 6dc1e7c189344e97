package node

import (
	"io"

	"testbed/node/state"
)

// checkpoint saves the outer state and the worker's own state, or with
// stateless only the latter, in the background. It does nothing while an
// earlier save is under way.
func (w *workerDriver) checkpoint(stateless bool) {
	if w.cfg.Save == nil || !w.saves.TryLock() {
		return
	}
	steps := w.machine.OuterSteps()
	own, err := w.learner.Own(steps)
	if err != nil {
		w.cfg.Log.Warn("this worker could not save a checkpoint", "outer_step", steps, "err", err)
		w.saves.Unlock()
		return
	}
	write := w.outer.Checkpoint(state.Saving{Run: w.cfg.Run, Of: w.cfg.ID, Own: own, Stateless: stateless})
	w.background.Go(func() {
		defer w.saves.Unlock()
		if err := w.cfg.Save(write); err != nil {
			w.cfg.Log.Warn("this worker could not save a checkpoint", "outer_step", steps, "err", err)
		}
	})
}

// restore begins from a checkpoint.
func (w *workerDriver) restore(r io.Reader) error {
	s, err := state.ReadState(r, w.cfg.Run, w.cfg.Parameters)
	if err != nil {
		return err
	}
	if w.cfg.keeps() {
		own, err := s.OwnOf(w.cfg.ID, w.cfg.Residual)
		if err == nil {
			err = w.learner.Restore(own, s.OuterSteps)
		}
		if err != nil {
			w.cfg.Log.Warn("this worker could not restore its own saved state, and continues without it", "err", err)
		}
	}
	w.outer.Replace(s.State)
	w.machine.Restored(s.OuterSteps)
	w.coordinator.greeting.OuterSteps, w.coordinator.greeting.Hash = s.OuterSteps, s.Hash
	return nil
}
