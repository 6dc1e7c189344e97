//go:build linux

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlogwriter"

	"testbed/emulation/network"
	"testbed/node"
)

const (
	// qlogBuffer is the most data of a file that may wait in memory, and qlogDelay
	// the longest wait while there are events: a killed node loses this data.
	qlogBuffer = 32 << 10
	qlogDelay  = 100 * time.Millisecond
	// QlogPatience limits how long a node waits at its end for its closed
	// connections to write their last events: the time in which a busy machine
	// runs its runnable threads.
	QlogPatience = 10 * time.Second
)

// withQlog runs a node that records its connections if it has a directory for
// that. When it returns, every file is complete.
func withQlog(self *network.Self, run func(node.Tracing) error) error {
	dir := self.File(Qlog)
	if dir == nil {
		return run(nil)
	}
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return fmt.Errorf("opening the directory for qlog files: %w", err)
	}
	q := &qlogs{root: root, log: self.Log, open: map[*qlogFile]bool{}}
	defer q.close()
	return run(q.tracer)
}

// OpenQlog makes the directory of a node's qlog files and opens it, so that the
// node can be given this one place and no other.
func OpenQlog(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return os.Open(dir)
}

// TrimQlog removes incomplete last records from the files in a node's
// directory: the kernel interrupts a write when the process is killed.
func TrimQlog(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "*.sqlog"))
	for _, name := range names {
		err = errors.Join(err, trim(name))
	}
	return err
}

func trim(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	for part := make([]byte, qlogBuffer); end > 0; {
		begin := max(end-int64(len(part)), 0)
		n, err := f.ReadAt(part[:end-begin], begin)
		if err != nil {
			return err
		}
		if k := bytes.LastIndexByte(part[:n], '\n'); k >= 0 {
			end = begin + int64(k) + 1
			break
		}
		end = begin
	}
	return f.Truncate(end)
}

// qlogs writes a file for each QUIC connection of a node.
type qlogs struct {
	root *os.Root
	log  *slog.Logger

	mu   sync.Mutex
	open map[*qlogFile]bool
	idle chan struct{} // set at the end; closed when no file is open
}

// tracer is a node.Tracing. Both ends of a connection name their files after
// the same connection ID. A file that cannot be made does not end the run.
func (q *qlogs) tracer(kind string) func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace {
	return func(_ context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace {
		end := "server"
		if isClient {
			end = "client"
		}
		name := fmt.Sprintf("%s-%s-%s.sqlog", kind, end, id)
		w, err := q.create(name)
		if err != nil {
			q.log.Warn("a connection could not be recorded in a qlog file", "file", name, "err", err)
			return nil
		}
		seq := qlogwriter.NewConnectionFileSeq(w, isClient, id)
		go seq.Run()
		return seq
	}
}

func (q *qlogs) create(name string) (*qlogFile, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idle != nil {
		return nil, errors.New("the node is shutting down")
	}
	file, err := q.root.Create(name)
	if err != nil {
		return nil, err
	}
	f := &qlogFile{file: file}
	f.closed = func() { q.closed(f) }
	q.open[f] = true
	return f, nil
}

func (q *qlogs) closed(f *qlogFile) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.open[f] {
		return // close has not waited for it
	}
	delete(q.open, f)
	if q.idle != nil && len(q.open) == 0 {
		close(q.idle)
	}
}

// close waits until all connections, which have been closed, are written. It
// ends the files of the others with their last whole record: the process may
// then exit.
func (q *qlogs) close() {
	q.mu.Lock()
	q.idle = make(chan struct{})
	if len(q.open) == 0 {
		close(q.idle)
	}
	q.mu.Unlock()
	select {
	case <-q.idle:
	case <-time.After(QlogPatience):
	}
	q.mu.Lock()
	left := q.open
	q.open = nil
	q.mu.Unlock()
	for f := range left {
		q.log.Warn("the qlog file of a connection is incomplete", "file", f.file.Name())
		if err := f.end(); err != nil {
			q.log.Warn("a qlog file could not be completed", "file", f.file.Name(), "err", err)
		}
	}
	q.root.Close()
}

// qlogFile writes whole records only.
type qlogFile struct {
	file   *os.File
	closed func()

	mu      sync.Mutex
	ended   bool
	buf     []byte
	whole   int // number of bytes of buf in whole records
	flushed time.Time
}

// Write receives a record in many small parts. Only the last part has a line
// feed, at its end.
func (f *qlogFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return 0, os.ErrClosed
	}
	f.buf = append(f.buf, p...)
	if bytes.HasSuffix(p, []byte{'\n'}) {
		f.whole = len(f.buf)
		if f.whole > qlogBuffer || time.Since(f.flushed) > qlogDelay {
			return len(p), f.flush()
		}
	}
	return len(p), nil
}

func (f *qlogFile) flush() error {
	_, err := f.file.Write(f.buf[:f.whole])
	f.buf = f.buf[:copy(f.buf, f.buf[f.whole:])]
	f.whole, f.flushed = 0, time.Now()
	return err
}

// end writes the remaining whole records. Nothing is written after it.
func (f *qlogFile) end() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return nil
	}
	f.ended = true
	return errors.Join(f.flush(), f.file.Close())
}

// Close ends the file.
func (f *qlogFile) Close() error {
	defer f.closed()
	return f.end()
}
