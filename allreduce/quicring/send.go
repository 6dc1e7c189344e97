package quicring

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"testbed/allreduce"
)

// flow is the traffic of one reduction to one peer. Its senders, one for every
// connection of the link, share the work: the first connection that can send
// takes the next frame.
type flow struct {
	r      *run
	to     Peer
	jobs   chan job // has room for all; closed after the last
	frames int64    // in all
	queued atomic.Int64
	sent   atomic.Int64 // bytes
	used   atomic.Int64 // connections that have carried frames
	ended  atomic.Int64 // frames on the streams that have ended
	waited atomic.Int64 // nanoseconds in which connections accepted nothing, summed

	drained chan struct{} // closed when all jobs have been taken
	once    sync.Once

	mu      sync.Mutex
	link    *link
	over    bool // no more senders may start
	senders sync.WaitGroup
}

// put queues a frame.
func (f *flow) put(j job) {
	f.jobs <- j
	if f.queued.Add(1) == f.frames {
		close(f.jobs)
	}
}

// run sends all frames that are put, or fails the reduction.
func (f *flow) run() {
	l, err := f.r.e.connect(f.r.aborted, f.to)
	if err != nil {
		f.fail(err)
		return
	}
	defer f.r.e.release(l)
	f.mu.Lock()
	f.link = l
	f.mu.Unlock()
	for i, conn := range l.connections() {
		f.join(conn, i == 0)
	}
	stop := l.grow(f)
	select {
	case <-f.drained:
	case <-f.r.aborted.Done():
	}
	stop()
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	f.senders.Wait()
}

// join adds a connection to the flow, unless there is nothing left to send. A
// reduction fails with the link's first connection, even if that one carries
// nothing.
func (f *flow) join(conn *quic.Conn, vital bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return
	}
	f.senders.Go(func() {
		if err := f.send(conn, vital); err != nil {
			f.fail(err)
		}
	})
}

func (f *flow) fail(err error) {
	f.r.abort(&PeerError{f.to.Name, fmt.Errorf("send to %s: %w", f.to.Name, explain(err))})
}

// suspect marks the link after a failure, if there is a link.
func (f *flow) suspect() {
	if f.link != nil {
		f.link.suspect()
	}
}

// send writes frames over one connection until there are no more. The stream
// opens with the first frame, so the peer does not see it before.
func (f *flow) send(conn *quic.Conn, vital bool) error {
	var j job
	select {
	case first, more := <-f.jobs:
		if !more {
			f.once.Do(func() { close(f.drained) })
			return nil
		}
		j = first
	case <-conn.Context().Done():
		if !vital {
			return nil
		}
		return context.Cause(conn.Context())
	case <-f.r.aborted.Done():
		return context.Cause(f.r.aborted)
	}
	stream, err := conn.OpenStreamSync(f.r.aborted)
	if err != nil {
		return err
	}
	f.used.Add(1)
	stop := context.AfterFunc(f.r.aborted, func() { reset(stream, codeAborted) })
	err = f.sendAll(stream, j)
	if stop() && err == nil {
		return f.link.finish(stream)
	}
	if err == nil {
		err = context.Cause(f.r.aborted)
	}
	reset(stream, codeAborted)
	return err
}

func (f *flow) sendAll(stream *quic.Stream, j job) error {
	b := make([]byte, 0, f.r.layout.largest())
	f.r.scratch.Add(int64(cap(b)))
	by := f.r.e.coders.get()
	defer f.r.putBack(by)
	for frames := int64(1); ; frames++ {
		frame := f.r.algorithm.frame(b, j, by)
		start := time.Now()
		n, err := stream.Write(frame)
		f.waited.Add(int64(time.Since(start)))
		f.sent.Add(int64(n))
		if err != nil {
			return err
		}
		var more bool
		select {
		case j, more = <-f.jobs:
			if !more {
				f.once.Do(func() { close(f.drained) })
				return f.end(stream, b, frames)
			}
		case <-stream.Context().Done():
			// The peer gave up. Reacting to it even with nothing to write lets an abort
			// travel all the way back around the ring. The other way it can get lost,
			// because a reset overtakes the data, including the header that identifies
			// the reduction.
			return context.Cause(stream.Context())
		case <-f.r.aborted.Done():
			return context.Cause(f.r.aborted)
		}
	}
}

// end writes the end of a stream that has carried so many frames. The last
// stream to end has the number of streams: all that carry frames have been
// counted by then.
func (f *flow) end(stream *quic.Stream, b []byte, frames int64) error {
	streams := 0
	if f.ended.Add(frames) == f.frames {
		streams = int(f.used.Load())
	}
	_, err := stream.Write(allreduce.AppendHeader(b, f.r.endHeader(streams)))
	return err
}
