//go:build linux

package host

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"testbed/node/host/sandbox"
	"testbed/shaping/kernel"
	"testbed/shaping/userlink"
)

// startupPatience bounds how long processes may take to come up; emulated
// machines are slow.
const startupPatience = 2 * time.Minute

// RunInside is what the binary does as the init of a sandbox. It returns when
// the job is over; the kernel then removes all that is left. A job that failed
// has been told of, and is no error here.
func RunInside() error {
	// Links are made in the namespace of the thread that makes them.
	runtime.LockOSThread()
	box, err := sandbox.Init()
	if err != nil {
		return err
	}
	notes := json.NewEncoder(os.NewFile(sandbox.FirstFile+1, "notes"))
	i := &inside{
		box: box, tell: func(n note) { _ = notes.Encode(n) }, // nobody hears: the lifeline ends us
		nodes: map[string]*child{}, inbox: make(chan any, 1024),
	}
	if err := i.work(); err != nil {
		n := note{Error: err.Error()}
		var unsupported *kernel.UnsupportedError
		if errors.As(err, &unsupported) {
			n.Error, n.Mend = fmt.Sprintf("%s: not available here: %v", unsupported.Feature, unsupported.Err), unsupported.Mend
		}
		i.tell(n)
		return nil
	}
	i.tell(note{Done: true})
	return nil
}

// inside is the init of a sandbox at its job: the network that it has made
// and the processes that it has started on it.
type inside struct {
	job
	network
	box   *sandbox.Inside
	tell  func(note)
	words *json.Decoder
	nodes map[string]*child
	inbox chan any // childReport, childEnd, func() error

	captures []*child

	// What a job makes of the reports and ends of processes, if anything.
	onReport func(*child, nodeReport)
	onEnd    func(c *child, reason string) error
	// routed is the count of the router at its end.
	routed *userlink.Stats
	// closing says that the router is meant to end.
	closing bool
}

func (i *inside) work() error {
	i.words = json.NewDecoder(bufio.NewReader(os.NewFile(sandbox.FirstFile, "words")))
	if err := i.words.Decode(&i.job); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	switch {
	case i.Run != nil:
		return (&play{inside: i}).run()
	case i.Net != nil:
		return i.runNet()
	case i.Verify != nil:
		return i.runVerify()
	case i.Bench != nil:
		return i.runBench()
	}
	i.probe()
	return nil
}

// await handles what comes in until done, an error, or the end of patience.
func (i *inside) await(what string, done func() bool) error {
	return i.awaitFor(startupPatience, what, done)
}

func (i *inside) awaitFor(most time.Duration, what string, done func() bool) error {
	patience := time.NewTimer(most)
	defer patience.Stop()
	for !done() {
		select {
		case m := <-i.inbox:
			if err := i.handle(m); err != nil {
				return err
			}
		case <-patience.C:
			return fmt.Errorf("waited %v for %s in vain%s; see %s", most, what, i.traffic(), i.logs())
		}
	}
	return nil
}

// traffic is what the router has done so far, for the error of a wait in vain:
// it tells links that carry nothing from nodes that say nothing.
func (i *inside) traffic() string {
	router := i.nodes[routerName]
	if router == nil || router.ended {
		return ""
	}
	i.routed = nil
	if router.words.Encode(routerWord{}) != nil {
		return ""
	}
	patience := time.After(time.Second)
	for i.routed == nil {
		select {
		case m := <-i.inbox:
			if i.handle(m) != nil {
				return ""
			}
		case <-patience:
			return ", while the router did not answer"
		}
	}
	s := i.routed
	return fmt.Sprintf(", while the router carried %d packets, lost %d by intention, and dropped %d for lack of room and %d that it could not read",
		s.Packets, s.Lost, unplanned(s)+s.QueueFull, s.Unknown+s.Oversize)
}

func (i *inside) handle(m any) error {
	switch m := m.(type) {
	case func() error:
		return m()
	case childReport:
		m.child.ready = m.child.ready || m.report.Ready
		if m.report.Error != "" {
			m.child.lastErr = m.report.Error
		}
		if m.report.Router != nil {
			i.routed = m.report.Router
		}
		if m.report.Captured != nil {
			m.child.captured = m.report.Captured
		}
		if p := m.report.Probed; p != nil && p.Done {
			m.child.probed = p
		}
		if i.onReport != nil {
			i.onReport(m.child, m.report)
		}
	case childEnd:
		return i.ended(m.child, m.status)
	}
	return nil
}

// ended judges the end of a process.
func (i *inside) ended(c *child, status sandbox.Status) error {
	c.ended = true
	c.wordsTo.Close()
	reason := status.String()
	if c.lastErr != "" {
		reason = c.lastErr
	}
	switch {
	case c.name == routerName && !i.closing:
		return fmt.Errorf("the router died: %s; see %s", reason, i.log(c.name))
	case i.onEnd != nil:
		return i.onEnd(c, reason)
	}
	return nil
}
