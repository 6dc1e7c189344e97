//go:build linux

package host

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlogwriter"

	"testbed/runlog"
)

const (
	// qlogBuffer is how much of a file may wait in memory, and qlogDelay for
	// how long while there are events: what a killed node has not written.
	qlogBuffer = 64 << 10
	qlogDelay  = 100 * time.Millisecond
	// qlogPatience bounds how long a node waits at its end for its connections
	// to have written their last events.
	qlogPatience = time.Second
)

// qlogDir makes the directory of a node's qlog files and opens it, so that the
// node can be handed this one place and no other.
func qlogDir(dir runlog.Dir, name string) (*os.File, error) {
	path := dir.Path(runlog.QlogDir + "/" + name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// qlogs writes a file for each QUIC connection of a node.
type qlogs struct {
	root *os.Root
	log  *slog.Logger
	open sync.WaitGroup
}

// openQlogs takes the directory that the node inherited.
func openQlogs(fd int, log *slog.Logger) (*qlogs, error) {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, fmt.Errorf("opening the directory for qlog files: %w", err)
	}
	return &qlogs{root: root, log: log}, nil
}

// tracer is a node.Tracing. Both ends of a connection name their files after
// the same connection ID. A file that cannot be made is no reason to end the
// run.
func (q *qlogs) tracer(kind string) func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace {
	return func(_ context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace {
		end := "server"
		if isClient {
			end = "client"
		}
		name := fmt.Sprintf("%s-%s-%s.sqlog", kind, end, id)
		f, err := q.root.Create(name)
		if err != nil {
			q.log.Warn("a connection is not recorded", "err", err)
			return nil
		}
		q.open.Add(1)
		w := &qlogFile{file: f, buf: bufio.NewWriterSize(f, qlogBuffer), closed: q.open.Done}
		seq := qlogwriter.NewConnectionFileSeq(w, isClient, id)
		go seq.Run()
		return seq
	}
}

// close waits until all connections, which have been closed, are written.
func (q *qlogs) close() {
	done := make(chan struct{})
	go func() {
		q.open.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(qlogPatience):
		q.log.Warn("the qlog of a connection has no end")
	}
	q.root.Close()
}

// qlogFile writes whole records, so that a file is readable up to where its
// node was killed.
type qlogFile struct {
	file    *os.File
	buf     *bufio.Writer
	flushed time.Time
	closed  func()
}

// Write takes a record in many small parts, the first of which is the
// separator.
func (f *qlogFile) Write(p []byte) (int, error) {
	if len(p) == 1 && p[0] == qlogwriter.RecordSeparator && (f.buf.Buffered() > qlogBuffer/2 || time.Since(f.flushed) > qlogDelay) {
		if err := f.buf.Flush(); err != nil {
			return 0, err
		}
		f.flushed = time.Now()
	}
	return f.buf.Write(p)
}

func (f *qlogFile) Close() error {
	defer f.closed()
	defer f.file.Close()
	return f.buf.Flush()
}
