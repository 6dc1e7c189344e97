//go:build linux

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"testbed/emulation/monitor"
	"testbed/emulation/network"
	"testbed/internal/steady"
	"testbed/shaping/userlink"
)

// KindHost is the kind of the job of a host other than the leader: RunHost.
const KindHost = "host"

// hostJob is the job of such a host.
type hostJob struct {
	s        *network.Supervisor
	network  *network.Network
	watch    watch // nil until the network is up
	children map[string]*network.Child
	memories map[string]map[string]*os.File // of children, by name
	asked    int                            // number of the router's counts still to come, before its last
	ending   bool
}

// watch observes the host while the network is up. It returns the observations
// since its last call, given the present processes by name. The last call
// returns the observations of the whole time.
type watch func(pids map[string]int, last bool) any

// RunHost makes this host's part of a network and starts processes on it, as the
// leader orders, until the leader orders the end.
func RunHost(s *network.Supervisor, _ json.RawMessage) error {
	h := &hostJob{s: s, children: map[string]*network.Child{}, memories: map[string]map[string]*os.File{}}
	go func() {
		for {
			var o order
			if err := s.NextCommand(&o); err != nil {
				return // the process that started this sandbox ends it
			}
			s.Post(func() error { return h.take(o) })
		}
	}()
	return s.HandleUntil(func() bool { return h.ending })
}

// take carries out an order.
func (h *hostJob) take(o order) error {
	switch {
	case o.Build != nil:
		return h.build(o.Build)
	case o.Start != nil:
		return h.start(o.Start)
	case h.network == nil:
		return errors.New("internal error: the leader sent an order before the order to build the network")
	case o.Fill != nil:
		return h.fill(o.Child, o.Fill)
	case o.Child != "":
		return h.child(o)
	case o.Plan != nil || o.Paces != nil:
		return h.network.Change(o.Change)
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

// build builds this host's part of a network.
func (h *hostJob) build(o *buildOrder) (err error) {
	h.s.Distribute(o.Layout, nil)
	if h.network, err = h.s.BringUp(o.Plan, 1, network.LinksUser, h.counted); err != nil {
		return err
	}
	h.watch = watchHost(h.network)
	return h.s.Hand(hostReport{Up: true})
}

// watchHost observes a host for the leader's monitor: it returns a
// monitor.Sample.
func watchHost(n *network.Network) watch {
	queues := monitor.NewQueues(n.Kernel.Nodes())
	links := monitor.WatchLinks(n, n.Kernel.Nodes(), queues)
	return func(pids map[string]int, last bool) any {
		waits := map[string]time.Duration{}
		for name, pid := range pids {
			waits[name] = monitor.RunnableWait(pid)
		}
		s := monitor.Sample{At: steady.Now(), Machine: monitor.ReadMachine(), Waits: waits}
		if last {
			s.Busy = links.Stop()
		} else {
			s.Busy = links.Round()
		}
		s.Queues, s.QueuesLost = queues.Take()
		return s
	}
}

// counted reports a count of the router, with the observations meanwhile.
func (h *hostJob) counted(stats *userlink.Stats) {
	last := h.ending && h.asked == 0
	h.asked = max(h.asked-1, 0)
	if h.watch == nil {
		return
	}
	pids := map[string]int{}
	for name, c := range h.children {
		pids[name] = c.Process.Pid()
	}
	raw, err := json.Marshal(h.watch(pids, last))
	if err != nil {
		raw = nil // the sample is missing, and the leader reports that
	}
	_ = h.s.Hand(hostReport{Count: &count{stats, raw}}) // it can be JSON
}

// start starts a process.
func (h *hostJob) start(o *startOrder) error {
	spec := network.ChildSpec{
		Name: o.Name, NetNS: network.Hub, Kind: o.Kind, Spec: o.Spec, Env: o.Env, FileNames: o.FileNames, Watched: o.Watched,
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
	spec.Log = w
	go h.passLog(o.Name, r)
	spec.OnReport = func(r network.Report) { _ = h.s.Hand(hostReport{Child: o.Name, Report: &r}) } // it was JSON before
	spec.OnEnd = func(c *network.Child, reason string) error {
		if h.children[o.Name] == c {
			delete(h.children, o.Name)
			for _, m := range h.memories[o.Name] {
				m.Close()
			}
			delete(h.memories, o.Name)
		}
		return h.s.Hand(hostReport{Child: o.Name, Ended: reason})
	}
	c, err := h.s.StartChild(spec)
	if err == nil {
		h.children[o.Name] = c
	}
	return err
}

// memory is the memory that a process shares under a name, or will share once
// it is started.
func (h *hostJob) memory(child, name string) (*os.File, error) {
	all := h.memories[child]
	if all == nil {
		all = map[string]*os.File{}
		h.memories[child] = all
	}
	if all[name] == nil {
		file, err := network.NewMemory(name + " of " + child)
		if err != nil {
			return nil, err
		}
		all[name] = file
	}
	return all[name], nil
}

// fill fills a memory of a process that is about to be started. The process
// reads it from the beginning.
func (h *hostJob) fill(child string, f *fill) error {
	file, err := h.memory(child, f.Name)
	if err == nil {
		_, err = file.WriteAt(f.Data, f.At)
	}
	return err
}

// passLog reports a process's output, until the process has ended.
func (h *hostJob) passLog(name string, from *os.File) {
	defer from.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			text := append([]byte(nil), buf[:n]...)
			h.s.Post(func() error { return h.s.Hand(hostReport{Child: name, Log: text}) })
		}
		if err != nil {
			return
		}
	}
}

// child carries out an order for one process. An ended process does not receive
// it.
func (h *hostJob) child(o order) error {
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
		c.Signal(o.Signal)
	case o.Fetch != "":
		return h.fetch(o.Child, o.Fetch)
	}
	return nil
}

// fetch reports the content of a memory. A gradient takes a few chunks. The job
// does nothing else meanwhile.
func (h *hostJob) fetch(child, name string) error {
	memory := h.memories[child][name]
	report := func(c chunk) error { return h.s.Hand(hostReport{Child: child, Chunk: &c}) }
	if memory == nil {
		return report(chunk{Err: fmt.Sprintf("the process %s shares no memory with the name %q", child, name), Last: true})
	}
	info, err := memory.Stat()
	if err != nil {
		return report(chunk{Err: err.Error(), Last: true})
	}
	for at := int64(0); ; at += chunkSize {
		data := make([]byte, min(chunkSize, info.Size()-at))
		if _, err := memory.ReadAt(data, at); err != nil && !errors.Is(err, io.EOF) {
			return report(chunk{Err: err.Error(), Last: true})
		}
		if err := report(chunk{Data: data, Last: at+chunkSize >= info.Size()}); err != nil || at+chunkSize >= info.Size() {
			return err
		}
	}
}
