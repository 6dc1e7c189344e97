package node

import (
	"io"
	"slices"

	"testbed/node/state"
)

// checkpoint saves the outer state, or with stateless only the residual, in the
// background, unless that is still being done for an earlier one.
func (w *workerDriver) checkpoint(stateless bool) {
	if w.cfg.Save == nil || stateless && w.buffers.residual == nil || !w.saves.TryLock() {
		return
	}
	// The buffer of the residual is soon another one's.
	write := w.outer.Checkpoint(state.Saving{Run: w.cfg.Run, Of: w.cfg.ID, Residual: slices.Clone(w.buffers.residual), Stateless: stateless})
	w.background.Go(func() {
		defer w.saves.Unlock()
		if err := w.cfg.Save(write); err != nil {
			w.cfg.Log.Warn("no checkpoint", "err", err)
		}
	})
}

// restore begins from a checkpoint.
func (w *workerDriver) restore(r io.Reader) error {
	s, err := state.ReadState(r, w.cfg.Run, w.cfg.Scenario.Real.Parameters)
	if err != nil {
		return err
	}
	if w.buffers.residual != nil {
		residual, err := s.ResidualOf(w.cfg.ID, w.cfg.Residual)
		if err != nil {
			w.cfg.Log.Warn("going on without what quantisation had taken", "err", err)
		} else {
			w.buffers.residual = residual
		}
	}
	w.outer.Replace(s.State)
	w.machine.Restored(s.OuterSteps)
	w.coordinator.greeting.OuterSteps, w.coordinator.greeting.Hash = s.OuterSteps, s.Hash
	return nil
}
