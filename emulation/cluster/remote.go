//go:build linux

package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emulation/network"
	"testbed/internal/errs"
	"testbed/internal/lines"
	"testbed/shaping"
	"testbed/shaping/tunnel"
	"testbed/shaping/userlink"
)

// Hosts are the hosts of a network, in the job that directs all of it. The
// first one is the job's own, the leader. A network on this host alone has one,
// whose name is empty.
type Hosts struct {
	// OnSample is called with another host's observations (a monitor.Sample) when
	// the host was asked for its count; it may be nil.
	OnSample func(host string, sample json.RawMessage) error

	s      *network.Supervisor
	layout *network.Layout // nil: this host alone
	others []*remoteHost
	clocks []tunnel.Stats // as last compared by this host's router
}

// Connect extends the network that the job is about to bring up over the hosts
// of a layout, to which the job has inherited connections. A nil layout is this
// host alone.
func Connect(s *network.Supervisor, layout *network.Layout) (*Hosts, error) {
	h := &Hosts{s: s, layout: layout}
	if layout == nil {
		return h, nil
	}
	for k, host := range layout.Hosts {
		if k == layout.Self {
			continue
		}
		file := s.File(hostFile(k))
		if file == nil {
			return nil, fmt.Errorf("internal error: the sandbox has inherited no connection to the host %s", host.Name)
		}
		h.others = append(h.others, newRemoteHost(s, k, host.Name, file))
	}
	s.Distribute(layout, (*remote)(h))
	return h, nil
}

// hostFile is the name of the file that connects the leader's job to the host
// of that index.
func hostFile(host int) string { return fmt.Sprintf("host-%d", host) }

// Several reports whether there is more than one host.
func (h *Hosts) Several() bool { return h.layout != nil }

// Names are the names of the hosts.
func (h *Hosts) Names() []string {
	names := []string{""}
	if h.Several() {
		names[0] = h.layout.Hosts[0].Name
	}
	for _, r := range h.others {
		names = append(names, r.name)
	}
	return names
}

// Of is the host, by its index among Names, of the node at a place of the plan.
func (h *Hosts) Of(node int) int {
	if !h.Several() {
		return 0
	}
	return h.layout.Of[node]
}

// Nodes are the nodes of a plan on the host of that index, in the plan's order.
func (h *Hosts) Nodes(plan *shaping.Plan, host int) []string {
	names := []string{}
	for k, node := range plan.Nodes {
		if h.Of(k) == host {
			names = append(names, node.Name)
		}
	}
	return names
}

// Start starts a process in the hub of the host of that index.
func (h *Hosts) Start(host int, spec network.ChildSpec) (*network.Child, error) {
	if host > 0 {
		return h.others[host-1].start(spec, "")
	}
	spec.NetNS = network.Hub
	return h.s.StartChild(spec)
}

// ClockOffset is the lead of this host's CLOCK_MONOTONIC over another's, as
// last compared by the routers.
func (h *Hosts) ClockOffset(host string) time.Duration {
	for _, u := range h.clocks {
		if u.From == host {
			return u.Offset
		}
	}
	return 0
}

// remote is the part of the network on other hosts: a network.Remote.
type remote Hosts

func (r *remote) all(so func(*remoteHost) bool) bool {
	return !slices.ContainsFunc(r.others, func(h *remoteHost) bool { return !so(h) })
}

func (r *remote) order(o order) {
	for _, h := range r.others {
		h.order(o)
	}
}

func (r *remote) Build(plan *shaping.Plan) {
	for _, h := range r.others {
		own := *r.layout
		own.Self = h.index
		h.order(order{Build: &buildOrder{Plan: plan, Layout: &own}})
	}
}

func (r *remote) Built() bool { return r.all(func(h *remoteHost) bool { return h.up }) }

func (r *remote) Change(c network.Change) { r.order(order{Change: c}) }

func (r *remote) AskCount() { r.order(order{Count: true}) }

func (r *remote) TakeCount(own *userlink.Stats) (bool, error) {
	if !r.all(func(h *remoteHost) bool { return len(h.counts) > 0 }) {
		return false, nil
	}
	r.clocks = slices.Clone(own.Underlay)
	for _, h := range r.others {
		c := h.counts[0]
		h.counts = h.counts[1:]
		own.Add(c.Count)
		if r.OnSample != nil && c.Sample != nil {
			if err := r.OnSample(h.name, c.Sample); err != nil {
				return true, err
			}
		}
	}
	return true, nil
}

func (r *remote) End() { r.order(order{End: true}) }

func (r *remote) Ended() bool { return r.all(func(h *remoteHost) bool { return h.ended }) }

func (r *remote) Start(host int, node string, spec network.ChildSpec) (*network.Child, error) {
	return r.others[host-1].start(spec, node)
}

// remoteHost is another host, in the leader's job.
type remoteHost struct {
	name   string
	index  int
	s      *network.Supervisor
	orders chan order
	procs  map[string]*remoteProcess // by name, until they end
	logs   map[string]*os.File       // of all processes there ever were
	hub    map[string]bool           // processes that are in no node
	counts []count
	up     bool
	ended  bool
}

// maxOrders is the most orders that may wait for a host that does not read: it
// will soon count as dead.
const maxOrders = 4096

func newRemoteHost(s *network.Supervisor, index int, name string, conn io.ReadWriteCloser) *remoteHost {
	h := &remoteHost{name: name, index: index, s: s, orders: make(chan order, maxOrders), procs: map[string]*remoteProcess{}, logs: map[string]*os.File{}, hub: map[string]bool{}}
	gone := make(chan struct{})
	go func() {
		out := json.NewEncoder(conn)
		for {
			var o order
			select {
			case o = <-h.orders:
			case <-gone:
				return
			}
			if o.from != nil {
				if err := o.sendFile(out.Encode); err != nil {
					s.Post(func() error { return fmt.Errorf("sending host %s the initial data of %s: %w", name, o.Child, err) })
				}
				continue
			}
			if out.Encode(o) != nil {
				return // the reader below reports the host's end
			}
		}
	}()
	go func() {
		defer close(gone)
		in := json.NewDecoder(bufio.NewReader(conn))
		for {
			var n network.Note
			if err := in.Decode(&n); err != nil {
				n = network.Note{Error: fmt.Sprintf("the connection to the host %s ended unexpectedly: %v", name, err), Lost: name}
			}
			s.Post(func() error { return h.heard(n) })
			if n.Error != "" || n.Done {
				return
			}
		}
	}()
	return h
}

// sendFile sends the content of a file in parts, and closes it.
func (o order) sendFile(send func(any) error) error {
	defer o.from.Close()
	for at := int64(0); ; at += chunkSize {
		data := make([]byte, chunkSize)
		n, err := o.from.ReadAt(data, at)
		if n > 0 {
			if send(order{Child: o.Child, Fill: &fill{o.Fill.Name, at, data[:n]}}) != nil {
				return nil // the reader of the host reports its end
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// order sends the host an order. A host that has stopped reading is lost.
func (h *remoteHost) order(o order) {
	select {
	case h.orders <- o:
	default:
		h.s.Post(func() error {
			return &network.LostError{Host: h.name, Why: fmt.Sprintf("the host %s no longer reads the leader's messages", h.name)}
		})
	}
}

// heard handles a note of the host's job.
func (h *remoteHost) heard(n network.Note) error {
	switch {
	case h.ended:
		return nil
	case n.Done:
		h.ended = true
		return nil
	case n.Error != "":
		return failed(n, h.name)
	case n.Stage != "":
		h.s.Note(network.Note{Stage: "host " + h.name + ": " + n.Stage, Quiet: n.Quiet})
		return nil
	}
	var r hostReport
	if err := json.Unmarshal(n.Data, &r); err != nil {
		return fmt.Errorf("internal error: parsing a report of the host %s: %w", h.name, err)
	}
	switch {
	case r.Up:
		h.up = true
	case r.Count != nil && r.Count.Count != nil:
		h.counts = append(h.counts, *r.Count)
		return h.s.RemoteCounted()
	case r.Log != nil:
		return h.log(r.Child, r.Log)
	case r.Child != "":
		return h.process(r)
	}
	return nil
}

// failed is the error of a host's note that has one, nil if it has none.
func failed(n network.Note, host string) error {
	switch {
	case n.Error == "":
		return nil
	case n.Lost != "":
		return &network.LostError{Host: n.Lost, Why: n.Error}
	case n.Fix != "":
		return &errs.UnsupportedError{Missing: "host " + host + ": " + n.Error, Fix: n.Fix}
	default:
		return fmt.Errorf("host %s: %s", host, n.Error)
	}
}

// process handles a report of a process.
func (h *remoteHost) process(r hostReport) error {
	p := h.procs[r.Child]
	switch {
	case p == nil:
		return nil
	case r.Report != nil:
		return p.child.Reported(*r.Report)
	case r.Chunk != nil:
		return p.fetched(r.Chunk)
	case r.Ended != "":
		delete(h.procs, r.Child)
		return p.child.HasEnded(r.Ended)
	}
	return nil
}

// log writes the output of a process there to a log.
func (h *remoteHost) log(process string, text []byte) error {
	file := h.logs[process]
	if file == nil {
		file = os.Stderr
		if h.s.Dir != "" {
			name := process
			if h.hub[process] { // each host may have a process of that name
				name += "-" + h.name
			}
			var err error
			if file, err = lines.AppendText(h.s.Dir.Log(name)); err != nil {
				return err
			}
		}
		h.logs[process] = file
	}
	_, err := file.Write(text)
	return err
}

// start starts a process in the namespace of a node there, or in the hub if that is
// empty.
func (h *remoteHost) start(spec network.ChildSpec, node string) (*network.Child, error) {
	raw, err := json.Marshal(spec.Spec)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	h.hub[spec.Name] = node == ""
	p := &remoteProcess{host: h, name: spec.Name}
	p.child = h.s.NewRemoteChild(spec, p)
	for k, file := range spec.Files {
		fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("starting %s: %w", spec.Name, os.NewSyscallError("fcntl", err))
		}
		h.order(order{Child: spec.Name, Fill: &fill{Name: spec.FileNames[k]}, from: os.NewFile(uintptr(fd), spec.FileNames[k])})
	}
	h.procs[spec.Name] = p
	h.order(order{Start: &startOrder{
		Name: spec.Name, Node: node, Kind: spec.Kind, Spec: raw, Env: spec.Env, FileNames: spec.FileNames, Watched: spec.Watched,
	}})
	return p.child, nil
}

// remoteProcess is a process on another host: a network.Control.
type remoteProcess struct {
	host     *remoteHost
	name     string
	child    *network.Child
	fetching []fetch // in the order of the requests
}

// fetch is a memory that is being copied to a file here.
type fetch struct {
	to   *os.File
	done func(error) error
}

// Send sends the process a command.
func (p *remoteProcess) Send(command any) error {
	raw, err := json.Marshal(command)
	if err == nil {
		p.host.order(order{Child: p.name, Command: raw})
	}
	return err
}

// CloseCommands reports that no more commands will come.
func (p *remoteProcess) CloseCommands() { p.host.order(order{Child: p.name, Close: true}) }

// Signal sends a signal.
func (p *remoteProcess) Signal(signal syscall.Signal, group bool) {
	p.host.order(order{Child: p.name, Signal: signal, Group: group})
}

// Fetch copies a memory of the process to a file here.
func (p *remoteProcess) Fetch(name string, to *os.File, done func(error) error) error {
	if err := to.Truncate(0); err != nil {
		return done(err)
	}
	if _, err := to.Seek(0, io.SeekStart); err != nil {
		return done(err)
	}
	p.fetching = append(p.fetching, fetch{to, done})
	p.host.order(order{Child: p.name, Fetch: name})
	return nil
}

// fetched handles a part of the memory that was requested first.
func (p *remoteProcess) fetched(part *chunk) error {
	if len(p.fetching) == 0 {
		return nil
	}
	f := p.fetching[0]
	_, err := f.to.Write(part.Data)
	if err == nil && part.Err != "" {
		err = fmt.Errorf("host %s: %s", p.host.name, part.Err)
	}
	if !part.Last && err == nil {
		return nil
	}
	p.fetching = p.fetching[1:]
	return f.done(err)
}
