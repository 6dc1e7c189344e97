package sim

import (
	"slices"
	"time"

	"testbed/policy"
	"testbed/record"
	"testbed/train"
)

// uploading is an upload to the store under way.
type uploading struct {
	SharedTransfer
	train.Upload
	place *place
	life  int // of the worker
	begun policy.Time
}

// store is the store's position in the plan: behind the workers.
func (w *world) store() int { return len(w.workers) + 1 }

// upload begins an upload, if there is one to begin.
func (s *simulator) upload(u *train.Upload) {
	if u == nil {
		return
	}
	w, i := s.links, s.find(u.By)
	p := &w.workers[i]
	took := w.FetchRequest(w.store(), p.node) + w.FetchState([]int{p.node}, w.store(), false)
	w.upload = &uploading{SharedTransfer{End: s.now + w.scenario(took)}, *u, p, s.workers[i].life, s.now}
	s.note(&record.Event{Type: record.UploadStart, Node: s.workers[i].name, Round: u.OuterSteps})
	s.later(w.upload.End, s.uploaded)
}

// uploaded is the end of the upload, if nothing has put it off.
func (s *simulator) uploaded() {
	w, u := s.links, s.links.upload
	if s.now < u.End {
		s.later(u.End, s.uploaded)
		return
	}
	worker := &s.workers[s.find(u.By)]
	e := record.Event{Type: record.UploadDone, Node: worker.name, Round: u.OuterSteps, Duration: s.now - u.begun}
	switch {
	case !worker.alive || worker.life != u.life:
		e.Cause = "its worker is gone"
	case w.cut(u.place.node, w.store()):
		e.Cause = "its path is cut"
	default:
		e.BytesSent = w.Uploaded()
	}
	s.note(&e)
	w.upload = nil
	s.upload(w.queue.Ended())
}

// besideUpload has the reduction that begins share a link with the upload, or the
// upload wait for it.
func (w *world) besideUpload(now policy.Time, r *reduction, reduction func() []time.Duration) {
	if w.played.Real.Upload.Yields {
		w.upload.Yield(now, r.ends)
		return
	}
	var half []policy.Time
	w.Halved(w.upload.place.node, func() { half = w.after(now, reduction()) })
	alone := slices.Max(r.ends)
	r.ends = w.upload.Share(now, r.ends, half)
	r.longest += slices.Max(r.ends) - alone
}

// after converts real times after a moment.
func (w *world) after(now policy.Time, took []time.Duration) (at []policy.Time) {
	for _, d := range took {
		at = append(at, now+w.scenario(d))
	}
	return at
}
