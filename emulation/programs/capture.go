//go:build linux

package programs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emulation/network"
	"testbed/internal/errs"
	"testbed/shaping/packetring"
)

// KindCapture is the kind of the process of a capture, RunCapture.
const KindCapture = "capture"

const (
	// captureLinger is how long a capture goes on after the program's end, to
	// include frames under way.
	captureLinger = 50 * time.Millisecond
	// captureRest is how long a capture sleeps after it has read all frames: so it
	// takes many frames at a time, and little from the nodes' processors.
	captureRest = time.Millisecond
)

type captureSpec struct {
	File  string
	Limit int64
}

// captured counts a capture's frames.
type captured struct {
	Frames int
	Beyond int // frames beyond the limit of the file
	Missed int // frames that came too fast
}

// capture is a capture under way.
type capture struct {
	node  string
	child *network.Child
	saw   *captured // nil before its end
}

// startCapture starts to write the frames of a node.
func startCapture(s *network.Supervisor, links *network.Network, name string, spec captureSpec) (*capture, error) {
	c := &capture{node: name}
	var err error
	c.child, err = s.StartChild(network.ChildSpec{
		Name: "capture-" + name, NetNS: links.NS(name), Kind: KindCapture, Spec: spec,
		OnData: func(data json.RawMessage) error {
			c.saw = new(captured)
			return json.Unmarshal(data, c.saw)
		},
	})
	if err != nil {
		return nil, err
	}
	return c, s.Await(network.StartupPatience, "the capture of "+name+" to start", func() bool { return c.child.Ready || c.child.Ended })
}

// endCaptures lets the captures write the rest, and reports their counts.
func endCaptures(s *network.Supervisor, all []*capture) error {
	for _, c := range all {
		c.child.CloseCommands()
	}
	for _, c := range all {
		if err := s.Await(network.StartupPatience, "the process "+c.child.Name+" to end", func() bool { return c.child.Ended }); err != nil {
			return err
		}
		if c.saw == nil {
			return c.child.Err()
		}
		s.Tell("%s.pcap: %s", c.node, c.saw)
	}
	return nil
}

func (c *captured) String() string {
	text := errs.Count(c.Frames, "frame")
	var without []string
	if n := c.Beyond; n > 0 {
		without = append(without, fmt.Sprintf("%d that did not fit into the size limit of the file", n))
	}
	if n := c.Missed; n > 0 {
		without = append(without, fmt.Sprintf("%d MISSED because frames came too fast", n))
	}
	if len(without) > 0 {
		text += ", without " + strings.Join(without, " and ")
	}
	return text
}

// RunCapture is the process of a capture: it runs in the node's namespace
// until its commands end.
func RunCapture(self *network.Self) error {
	var s captureSpec
	if err := self.Spec(&s); err != nil {
		return err
	}
	file, err := os.Create(s.File)
	if err != nil {
		return err
	}
	defer file.Close()
	ring, err := packetring.Open(true)
	if err != nil {
		return err
	}
	defer ring.Close()
	w := newPcapWriter(file, s.Limit)
	var ending atomic.Bool
	go func() {
		var none struct{}
		_ = self.Commands().Decode(&none) // returns at the end of the file
		time.Sleep(captureLinger)
		ending.Store(true)
	}()
	self.Ready()
	if err := drain(ring, w, ending.Load); err != nil {
		return err
	}
	if err := errors.Join(w.flush(), file.Close()); err != nil {
		return err
	}
	self.Tell(captured{Frames: w.frames, Beyond: w.beyond, Missed: int(ring.Drops())})
	return nil
}

// drain writes frames as they come, until it is ending and none is left.
func drain(ring *packetring.Ring, w *pcapWriter, ending func() bool) error {
	wait := []unix.PollFd{{Fd: int32(ring.FD()), Events: unix.POLLIN}}
	for {
		last := ending()
		for f, ok := ring.Read(); ok; f, ok = ring.Read() {
			if f.Ethernet {
				w.write(f.At, f.Data[packetring.VnetHeader:], f.Length)
			}
			ring.Release()
		}
		if last {
			return nil
		}
		time.Sleep(captureRest)
		if _, err := unix.Poll(wait, int(captureLinger/time.Millisecond)); err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
	}
}
