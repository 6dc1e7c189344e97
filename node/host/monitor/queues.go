//go:build linux

package monitor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"testbed/policy"
	"testbed/runlog"
)

const (
	// queueTick is the time of which the most that waited is written down.
	queueTick = 20 * time.Millisecond
	// maxQueues bounds the file: some 70 MB.
	maxQueues = 1 << 20
)

// QueueLog writes down how much waits at the links of a run, where it changes. A
// nil one does nothing.
type QueueLog struct {
	names []string
	time  func(time.Time) policy.Time
	file  *os.File
	out   *bufio.Writer
	links []queuePeak
	kept  int
	lost  int
}

// queuePeak is what a node's links have shown since begin.
type queuePeak struct {
	begin       time.Time
	most, known runlog.Queue
}

// NewQueueLog begins the file in a run directory, of the nodes of those names;
// at tells the scenario time of a time.
func NewQueueLog(dir runlog.Dir, names []string, at func(time.Time) policy.Time) (*QueueLog, error) {
	file, err := os.OpenFile(dir.Path(runlog.QueuesFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("writing the run directory: %w", err)
	}
	return &QueueLog{names: names, time: at, file: file, out: bufio.NewWriter(file), links: make([]queuePeak, len(names))}, nil
}

// saw takes in how many bytes wait at the links of a node.
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
		l.write(runlog.Queue{T: l.time(p.begin), Node: l.names[i], Up: p.most.Up, Down: p.most.Down})
	}
	p.begin, p.known, p.most = time.Time{}, p.most, runlog.Queue{}
}

func (l *QueueLog) write(q runlog.Queue) {
	if l.kept == maxQueues {
		l.lost++
		return
	}
	l.kept++
	line, err := json.Marshal(q)
	if err == nil {
		_, _ = l.out.Write(append(line, '\n')) // Flush has the first error
	}
}

// Close ends the file and says how many changes did not fit in it.
func (l *QueueLog) Close() (lost int, err error) {
	if l == nil {
		return 0, nil
	}
	if err := errors.Join(l.out.Flush(), l.file.Close()); err != nil {
		return l.lost, fmt.Errorf("writing %s: %w", runlog.QueuesFile, err)
	}
	return l.lost, nil
}
