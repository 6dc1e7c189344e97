//go:build linux

package monitor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"testbed/internal/lines"
	"testbed/policy"
	"testbed/record"
)

const (
	// queueTick is the period over which the largest queue is recorded.
	queueTick = 20 * time.Millisecond
	// maxQueues limits the file, to some 70 MB. maxKept limits the entries that
	// wait for Take.
	maxQueues, maxKept = 1 << 20, 1 << 15
)

// QueueLog records the queues of a run's links, when they change. A nil one
// does nothing.
type QueueLog struct {
	names []string
	time  func(time.Time) policy.Time
	links []queuePeak

	mu    sync.Mutex
	file  *os.File // nil on a host that is not the leader
	out   *bufio.Writer
	begin policy.Time    // of the file
	taken []record.Queue // without a file
	kept  int
	lost  int
}

// queuePeak has the largest queues of a node's links since begin.
type queuePeak struct {
	begin       time.Time
	most, known record.Queue
}

// NewQueueLog begins the file in a run directory, for the nodes of those names.
// at returns the scenario time of a time.
func NewQueueLog(dir record.Dir, names []string, at func(time.Time) policy.Time) (*QueueLog, error) {
	file, err := lines.Append(dir.Path(record.QueuesFile))
	if err != nil {
		return nil, fmt.Errorf("writing the run directory: %w", err)
	}
	return &QueueLog{names: names, time: at, file: file, out: bufio.NewWriter(file), begin: at(time.Now()), links: make([]queuePeak, len(names))}, nil
}

// NewQueues keeps the queues of a host other than the leader until the leader
// asks for them. Times are nanoseconds of that host's CLOCK_MONOTONIC.
func NewQueues(names []string) *QueueLog {
	began, clock := clocks()
	at := func(t time.Time) policy.Time { return policy.Time(clock + t.Sub(began)) }
	return &QueueLog{names: names, time: at, links: make([]queuePeak, len(names))}
}

// Take returns the entries since its last call, and the number of entries
// without room.
func (l *QueueLog) Take() (queues []record.Queue, lost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queues, lost = l.taken, l.lost
	l.taken, l.lost = nil, 0
	return queues, lost
}

// Enter records entries that another host has taken. This host's
// CLOCK_MONOTONIC is ahead of that host's by offset.
func (l *QueueLog) Enter(queues []record.Queue, lost int, offset time.Duration) {
	if l == nil {
		return
	}
	now, clock := clocks()
	for _, q := range queues {
		if q.T = l.time(now.Add(time.Duration(q.T) + offset - clock)); q.T >= l.begin {
			l.write(q)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost += lost
}

// clocks reads the time and CLOCK_MONOTONIC at the same moment. It takes the
// shortest of several attempts, because the thread may be preempted in between.
func clocks() (now time.Time, clock time.Duration) {
	shortest := time.Duration(math.MaxInt64)
	for range 8 {
		var ts unix.Timespec
		begin := time.Now()
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
		if took := time.Since(begin); took < shortest {
			shortest, now, clock = took, begin, time.Duration(ts.Nano())
		}
	}
	return now, clock
}

// saw records the number of bytes waiting at the links of a node.
func (l *QueueLog) saw(i int, at time.Time, up, down uint64) {
	if l == nil {
		return
	}
	p := &l.links[i]
	if p.begin.IsZero() {
		p.begin = at
	}
	p.most.Up, p.most.Down = max(p.most.Up, up), max(p.most.Down, down)
	if at.Sub(p.begin) < queueTick {
		return
	}
	if p.most != p.known {
		l.write(record.Queue{T: l.time(p.begin), Node: l.names[i], Up: p.most.Up, Down: p.most.Down})
	}
	p.begin, p.known, p.most = time.Time{}, p.most, record.Queue{}
}

func (l *QueueLog) write(q record.Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.kept == maxQueues || len(l.taken) == maxKept:
		l.lost++
		return
	case l.file == nil:
		l.taken = append(l.taken, q)
		return
	}
	l.kept++
	line, err := json.Marshal(q)
	if err == nil {
		_, _ = l.out.Write(append(line, '\n')) // Flush returns the first error
	}
}

// Close ends the file and returns the number of changes that did not fit.
func (l *QueueLog) Close() (lost int, err error) {
	if l == nil {
		return 0, nil
	}
	if err := errors.Join(l.out.Flush(), l.file.Close()); err != nil {
		return l.lost, fmt.Errorf("writing %s: %w", record.QueuesFile, err)
	}
	return l.lost, nil
}
