//go:build linux

package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"testbed/shaping"
	"testbed/shaping/userlink"
)

// KindShare is the kind of the job of a host that is not the leader: RunShare. It
// takes orders and tells tidings.
const KindShare = "share"

// proberName is the prober's among the processes. No node is called so.
const proberName = "prober"

// shareSpec is a host's part of a network.
type shareSpec struct {
	Plan   *shaping.Plan // by the machine's clock
	Spread *Spread
}

// Watcher looks at a host's part of a network while it is up.
type Watcher interface {
	// Sample is what it has seen since it was called last, with the processes that
	// are there by name; the last one is of all the time.
	Sample(pids map[string]int, last bool) any
}

// share is the job of a host.
type share struct {
	s        *Supervisor
	network  *Network
	watch    func(*Network) Watcher
	watcher  Watcher
	children map[string]*Child
	memories map[string]map[string]*os.File // of children, by name
	asked    int                            // counts of the router that are to come, before its last
	ending   bool
}

// RunShare makes a host's part of a network and starts processes on it, as the
// leader orders, until that orders the end. watch is called when the network is
// up.
func RunShare(s *Supervisor, watch func(*Network) Watcher) error {
	h := &share{s: s, watch: watch, children: map[string]*Child{}, memories: map[string]map[string]*os.File{}}
	go func() {
		for {
			var o order
			if err := s.NextCommand(&o); err != nil {
				return // whoever started this sandbox ends it
			}
			s.Post(func() error { return h.take(o) })
		}
	}()
	return s.HandleUntil(func() bool { return h.ending })
}

// take carries an order out.
func (h *share) take(o order) error {
	switch {
	case o.Share != nil:
		return h.bringUp(o.Share)
	case o.Start != nil:
		return h.start(o.Start)
	case h.network == nil:
		return errors.New("an order before there is a network")
	case o.Fill != nil:
		return h.fill(o.Child, o.Fill)
	case o.Child != "":
		return h.child(o)
	case o.Plan != nil:
		return h.network.change(o.Plan)
	case o.Paces != nil:
		return h.network.change(paced(h.network.carried, o.Paces))
	case o.Count:
		h.asked++
		h.network.AskCount()
	case o.End:
		h.ending = true
		_, err := h.network.TakeDown()
		return err
	}
	return nil
}

// paced is a plan in which nodes have other paces.
func paced(plan *shaping.Plan, paces []pace) *shaping.Plan {
	p := *plan
	p.Nodes = append([]shaping.NodePlan(nil), plan.Nodes...)
	for _, c := range paces {
		p.Nodes[c.Node].PaceUp, p.Nodes[c.Node].PaceDown = c.Up, c.Down
	}
	return &p
}

func (h *share) bringUp(spec *shareSpec) (err error) {
	h.s.spread = spec.Spread
	if h.network, err = h.s.BringUp(spec.Plan, 1, LinksUser, h.counted); err != nil {
		return err
	}
	h.watcher = h.watch(h.network)
	return h.s.Hand(tidings{Up: true})
}

// counted tells a count of the router, and what was seen meanwhile.
func (h *share) counted(stats *userlink.Stats) {
	last := h.ending && h.asked == 0
	h.asked = max(h.asked-1, 0)
	if h.watcher == nil {
		return
	}
	pids := map[string]int{}
	for name, c := range h.children {
		pids[name] = c.Process.Pid()
	}
	raw, err := json.Marshal(h.watcher.Sample(pids, last))
	if err != nil {
		raw = nil // the sample is missing, and the leader says so
	}
	_ = h.s.Hand(tidings{Count: &count{stats, raw}}) // it can be JSON
}

// start starts a process.
func (h *share) start(o *startOrder) error {
	spec := ChildSpec{
		Name: o.Name, NetNS: Hub, Kind: o.Kind, Spec: o.Spec, Env: o.Env, FileNames: o.FileNames, Watched: o.Watched,
	}
	if o.Node != "" {
		spec.NetNS = h.network.NS(o.Node)
	}
	for _, name := range o.FileNames {
		file, err := h.memory(o.Name, name)
		if err != nil {
			return err
		}
		spec.Files = append(spec.Files, file)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting %s: %w", o.Name, err)
	}
	defer w.Close()
	spec.log = w
	go h.passLog(o.Name, r)
	spec.onReport = func(r childReport) { _ = h.s.Hand(tidings{Child: o.Name, Report: &r}) } // it was JSON before
	spec.OnEnd = func(c *Child, reason string) error {
		if h.children[o.Name] == c {
			delete(h.children, o.Name)
			for _, m := range h.memories[o.Name] {
				m.Close()
			}
			delete(h.memories, o.Name)
		}
		return h.s.Hand(tidings{Child: o.Name, Ended: reason})
	}
	c, err := h.s.StartChild(spec)
	if err == nil {
		h.children[o.Name] = c
	}
	return err
}

// memory is what a process shares under a name, or will when it is started.
func (h *share) memory(child, name string) (*os.File, error) {
	all := h.memories[child]
	if all == nil {
		all = map[string]*os.File{}
		h.memories[child] = all
	}
	if all[name] == nil {
		file, err := NewMemory(name + " of " + child)
		if err != nil {
			return nil, err
		}
		all[name] = file
	}
	return all[name], nil
}

// fill fills a memory of a process that is about to be started. The process begins to
// read at the beginning.
func (h *share) fill(child string, f *fill) error {
	file, err := h.memory(child, f.Name)
	if err == nil {
		_, err = file.WriteAt(f.Data, f.At)
	}
	return err
}

// passLog tells what a process writes, until it has ended.
func (h *share) passLog(name string, from *os.File) {
	defer from.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			text := append([]byte(nil), buf[:n]...)
			h.s.Post(func() error { return h.s.Hand(tidings{Child: name, Log: text}) })
		}
		if err != nil {
			return
		}
	}
}

// child carries out what is for one process. One that has ended does not hear it.
func (h *share) child(o order) error {
	c := h.children[o.Child]
	switch {
	case c == nil:
	case o.Command != nil:
		_ = c.Send(o.Command)
	case o.Close:
		c.CloseCommands()
	case o.Signal != 0 && o.Group:
		c.SignalGroup(o.Signal)
	case o.Signal != 0:
		_ = c.Process.Signal(o.Signal)
	case o.Fetch != "":
		return h.fetch(o.Child, h.memories[o.Child][o.Fetch])
	}
	return nil
}

// chunkSize is how much of a memory goes in one piece.
const chunkSize = 256 << 10

// fetch tells what is in a memory. A gradient's worth takes a few pieces; the job
// does nothing else meanwhile.
func (h *share) fetch(child string, memory *os.File) error {
	tell := func(c chunk) error { return h.s.Hand(tidings{Child: child, Chunk: &c}) }
	if memory == nil {
		return tell(chunk{Err: "there is no such memory", Last: true})
	}
	info, err := memory.Stat()
	if err != nil {
		return tell(chunk{Err: err.Error(), Last: true})
	}
	for at := int64(0); ; at += chunkSize {
		data := make([]byte, min(chunkSize, info.Size()-at))
		if _, err := memory.ReadAt(data, at); err != nil && !errors.Is(err, io.EOF) {
			return tell(chunk{Err: err.Error(), Last: true})
		}
		if err := tell(chunk{Data: data, Last: at+chunkSize >= info.Size()}); err != nil || at+chunkSize >= info.Size() {
			return err
		}
	}
}

// NewMemory makes memory that a process and the sandbox's init share, with the
// size of what is in it. It is gone when both are.
func NewMemory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making memory for %s: %w", name, os.NewSyscallError("memfd_create", err))
	}
	return os.NewFile(uintptr(fd), "memory"), nil
}
