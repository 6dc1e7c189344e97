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

// beginUpload begins an upload, if one is due.
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

// uploaded is called at the end of the upload, unless it has been put off.
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
		e.Cause = "the uploading worker is gone"
	case p.cut(u.node, p.store()):
		e.Cause = "the path to the store is cut"
	default:
		e.BytesSent = int64(compressed(p.links.state()))
	}
	p.note(&e)
	p.upload = nil
	p.beginUpload(p.queue.Ended())
}

// shareWithUpload lets a beginning reduction share a link with the upload, or
// puts off the upload. times computes when the reduction ends at each rank.
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

// sharedTransfer is a transfer that has a link to itself until its end, unless
// it has to share.
type sharedTransfer struct{ end policy.Time }

// share begins a reduction on the link. The two share it evenly, because queues
// are fair between destinations. full has the reduction's end for each rank
// with the whole link, half with half of it. share returns the actual ends:
// during the transfer the reduction proceeds as with half the link, afterwards
// as with all of it. The transfer's end is put off by the time that it lost.
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

// yield makes the transfer wait until a reduction is over.
func (t *sharedTransfer) yield(now policy.Time, ends []policy.Time) {
	if t.end > now {
		t.end += max(0, slices.Max(ends)-now)
	}
}
