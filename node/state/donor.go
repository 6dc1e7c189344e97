package state

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/node/identity"
)

// donor serves the outer state to the peers of the run.
type donor struct {
	Config
	tasks sync.WaitGroup

	mu sync.Mutex
	// served are the last requested states, at most servedStates: fetching a state
	// may take longer than it stays current.
	served []*hashed
}

// serve answers a peer, one request after the other.
func (d *donor) serve(ctx context.Context, conn *quic.Conn) {
	for {
		stream, err := conn.AcceptStream(ctx)
		if err != nil {
			return // the peer has what it wanted, or is gone
		}
		if err := d.answer(ctx, conn, stream); err != nil {
			d.Log.Warn("this node could not send its outer state to a peer", "peer", identity.Peer(conn), "err", err)
			conn.CloseWithError(1, "bad request")
			return
		}
	}
}

func (d *donor) answer(ctx context.Context, conn *quic.Conn, stream *quic.Stream) error {
	defer stream.Close()
	stream.SetReadDeadline(time.Now().Add(d.patience(chunkPatience)))
	var req request
	dec := json.NewDecoder(io.LimitReader(stream, maxRequest))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		stream.CancelRead(1)
		return fmt.Errorf("reading the request: %w", err)
	}
	stream.CancelRead(0) // whatever else it sends
	ctx, cancel := context.WithTimeout(ctx, d.patience(donorPatience))
	defer cancel()
	for {
		steps, changed := d.Outer.Version()
		if steps >= req.OuterSteps {
			break
		}
		select {
		case <-changed:
		case <-conn.Context().Done():
			return context.Cause(conn.Context())
		case <-ctx.Done():
			return json.NewEncoder(stream).Encode(header{Error: fmt.Sprintf("the donor is at outer step %d, not yet at %d", steps, req.OuterSteps)})
		}
	}
	return d.deliver(conn.Context(), &patient{stream, d.patience(chunkPatience)}, req)
}

func (d *donor) deliver(ctx context.Context, w io.Writer, req request) error {
	if req.Have != nil {
		if outcomes, steps, hash, ok := d.Outer.since(req); ok {
			h := header{OuterSteps: steps, Parameters: d.Outer.parameters, Hash: hash, Outcomes: outcomes}
			if err := json.NewEncoder(w).Encode(h); err != nil {
				return err
			}
			for _, o := range outcomes {
				if _, err := w.Write(o.Data); err != nil {
					return err
				}
			}
			return nil
		}
	}
	s := d.snapshot(req.Hash, req.Agreed)
	if s == nil && req.To > 0 {
		return json.NewEncoder(w).Encode(header{Error: "the donor does not hold the state with the hash " + req.Hash})
	}
	if s == nil {
		s = d.snapshot("", req.Agreed)
	}
	if req.From < 0 || req.To > s.chunks() {
		return fmt.Errorf("the peer asked for chunks %d to %d, but the number of chunks is %d", req.From, req.To, s.chunks())
	}
	if err := json.NewEncoder(w).Encode(header{OuterSteps: s.Steps, Parameters: len(s.Parameters), Hash: s.digest, Regional: s.Agreed != nil}); err != nil {
		return err
	}
	if req.From >= req.To {
		return nil
	}
	enc, err := newChunkWriter(w)
	if err != nil {
		return err
	}
	defer enc.close()
	for i := req.From; i < req.To; i++ {
		if !req.WhileBusy {
			if err := d.waitIdle(ctx, enc); err != nil {
				return err
			}
		}
		if err := enc.write(s.chunk(i)); err != nil {
			return err
		}
	}
	return nil
}

// waitIdle holds chunks back while the network is needed otherwise.
func (d *donor) waitIdle(ctx context.Context, w *chunkWriter) error {
	const pause = 5 * time.Millisecond
	for waited := pause; d.Busy != nil && d.Busy(); waited += pause {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if waited%keepAlivePeriod == 0 {
			if err := w.keepAlive(); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshot returns the state with that hash, or the current one, or nil. With
// agreed it is the last state that all regions agreed on, which outlives outer
// steps of regions.
func (d *donor) snapshot(hash string, agreed bool) *hashed {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.served {
		if s.digest == hash {
			return s
		}
	}
	steps, current := d.Outer.version(agreed)
	if hash != "" && current != hash {
		return nil
	}
	for _, s := range d.served {
		if s.digest == current {
			return &hashed{Snapshot{steps, s.State}, current}
		}
	}
	s := &hashed{Snapshot: d.Outer.snapshot(agreed)}
	s.digest = s.Hash()
	if hash != "" && s.digest != hash { // an outer step has come between
		return nil
	}
	if len(d.served) == servedStates {
		d.served = slices.Delete(d.served, 0, 1) // a slice of the rest would keep it
	}
	d.served = append(d.served, s)
	return s
}
