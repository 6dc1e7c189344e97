package sim

import (
	"slices"
	"time"

	"testbed/policy"
	"testbed/record"
	"testbed/train"
)

// upload is an upload to the store under way.
type upload struct {
	sharedTransfer
	train.Upload
	node  int // of the worker
	life  int // of the worker
	begun policy.Time
}

// store is the store's position in the plan: behind the workers.
func (p *planned) store() int { return len(p.workers) + 1 }

// beginUpload begins an upload, if there is one to begin.
func (p *planned) beginUpload(u *train.Upload) {
	if u == nil {
		return
	}
	i := p.find(u.By)
	w, node := &p.workers[i], p.places[i].node
	took := p.links.fetchRequest(p.store(), node) + p.links.fetchState([]int{node}, p.store(), false)
	p.upload = &upload{sharedTransfer{p.in(took)}, *u, node, w.life, p.now}
	p.note(&record.Event{Type: record.UploadStart, Node: w.name, Round: u.OuterSteps})
	p.later(p.upload.end, p.uploaded)
}

// uploaded is the end of the upload, if nothing has put it off.
func (p *planned) uploaded() {
	u := p.upload
	if p.now < u.end {
		p.later(u.end, p.uploaded)
		return
	}
	w := &p.workers[p.find(u.By)]
	e := record.Event{Type: record.UploadDone, Node: w.name, Round: u.OuterSteps, Duration: p.now - u.begun}
	switch {
	case !w.alive || w.life != u.life:
		e.Cause = "its worker is gone"
	case p.cut(u.node, p.store()):
		e.Cause = "its path is cut"
	default:
		e.BytesSent = int64(compressed(p.links.state()))
	}
	p.note(&e)
	p.upload = nil
	p.beginUpload(p.queue.Ended())
}

// shareWithUpload has the reduction that begins share a link with the upload, or the
// upload wait for it. times computes when the reduction ends at each rank.
func (p *planned) shareWithUpload(r *reduction, times func() []time.Duration) {
	if p.scenario.Upload.Yields {
		p.upload.yield(p.now, r.ends)
		return
	}
	var half []policy.Time
	p.links.withHalf(p.upload.node, func() { half = p.allIn(times()) })
	alone := slices.Max(r.ends)
	r.ends = p.upload.share(p.now, r.ends, half)
	r.longest += slices.Max(r.ends) - alone
}

// sharedTransfer is one that has a link to itself until its end, if nothing disturbs it.
type sharedTransfer struct{ end policy.Time }

// share has a reduction begin on the link, which the two then share evenly: queues
// are fair between destinations. full is when it would end for each rank with the
// link to itself, and half with half of it. It returns when it does end: as long as
// the transfer lasts the reduction proceeds as with half the link, and afterwards
// as with all of it. The transfer ends later by what it has not got meanwhile.
func (t *sharedTransfer) share(now policy.Time, full, half []policy.Time) []policy.Time {
	ends := slices.Clone(full)
	slow := slices.Max(half) - now
	if t.end <= now || slow <= 0 {
		return ends
	}
	lasts := 2 * (t.end - now) // on half the link
	share := min(1, float64(lasts)/float64(slow))
	for k := range ends {
		ends[k] += policy.Time(share * float64(half[k]-full[k]))
	}
	t.end += min(lasts, slices.Max(ends)-now) / 2
	return ends
}

// yield has the transfer wait until a reduction is over.
func (t *sharedTransfer) yield(now policy.Time, ends []policy.Time) {
	if t.end > now {
		t.end += max(0, slices.Max(ends)-now)
	}
}
