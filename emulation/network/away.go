//go:build linux

package network

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

	"testbed/internal/errs"
	"testbed/shaping"
	"testbed/shaping/userlink"
)

// order is what the leader has another host do: one of these.
type order struct {
	Share *shareSpec  `json:"share,omitempty"` // build your part of the network
	Start *startOrder `json:"start,omitempty"`

	Child   string          `json:"child,omitempty"` // whom the next six are for
	Command json.RawMessage `json:"command,omitempty"`
	Close   bool            `json:"close,omitempty"`
	Signal  syscall.Signal  `json:"signal,omitempty"`
	Group   bool            `json:"group,omitempty"` // with Signal
	Fetch   string          `json:"fetch,omitempty"` // what is in the memory of that name
	Fill    *fill           `json:"fill,omitempty"`  // before it is started

	Plan  *shaping.Plan `json:"plan,omitempty"` // is the network's from now on
	Paces []pace        `json:"paces,omitempty"`
	Count bool          `json:"count,omitempty"` // tell it
	End   bool          `json:"end,omitempty"`   // take the network down

	// from is what all of Fill is read from, when its turn has come.
	from *os.File
}

// fill is a part of what a process finds in the memory of a name when it is started.
type fill struct {
	Name string `json:"name"`
	At   int64  `json:"at"`
	Data []byte `json:"data"`
}

// startOrder is a ChildSpec for another host. Its files are all memory, which holds
// what was in them here (fill).
type startOrder struct {
	Name      string          `json:"name"`
	Node      string          `json:"node,omitempty"` // whose namespace; none: the hub
	Kind      string          `json:"kind"`
	Spec      json.RawMessage `json:"spec"`
	Env       []string        `json:"env,omitempty"`
	FileNames []string        `json:"files,omitempty"`
	Watched   bool            `json:"watched,omitempty"`
}

// tidings are what another host tells the leader: one of these.
type tidings struct {
	Up bool `json:"up,omitempty"` // its part of the network carries packets

	Child  string       `json:"child,omitempty"` // of whom the next four are
	Report *childReport `json:"report,omitempty"`
	Ended  string       `json:"ended,omitempty"` // how
	Log    []byte       `json:"log,omitempty"`
	Chunk  *chunk       `json:"chunk,omitempty"`

	Count *count `json:"count,omitempty"`
}

// count is what a host has counted and seen of itself.
type count struct {
	Count  *userlink.Stats `json:"count"`
	Sample json.RawMessage `json:"sample,omitempty"`
}

// chunk is a part of what is in a memory.
type chunk struct {
	Data []byte `json:"data,omitempty"`
	Err  string `json:"err,omitempty"`
	Last bool   `json:"last,omitempty"`
}

// fetch is a memory on its way to a file here.
type fetch struct {
	to   *os.File
	done func(error) error
}

// away is another host, as the leader's job sees it.
type away struct {
	name     string
	host     int
	s        *Supervisor
	orders   chan order
	children map[string]*Child
	logs     map[string]*os.File
	counts   []count
	up       bool
	ended    bool
}

// maxOrders bounds what may wait for a host that does not read: it is dead soon.
const maxOrders = 4096

func newAway(s *Supervisor, host int, name string, conn io.ReadWriteCloser) *away {
	a := &away{name: name, host: host, s: s, orders: make(chan order, maxOrders), children: map[string]*Child{}, logs: map[string]*os.File{}}
	go func() {
		out := json.NewEncoder(conn)
		for o := range a.orders {
			if o.from != nil {
				if err := o.pour(out.Encode); err != nil {
					s.Post(func() error { return fmt.Errorf("telling the host %s what %s begins with: %w", name, o.Child, err) })
				}
				continue
			}
			if out.Encode(o) != nil {
				return // its end is told by who reads
			}
		}
	}()
	go func() {
		in := json.NewDecoder(bufio.NewReader(conn))
		for {
			var n Note
			if err := in.Decode(&n); err != nil {
				n = Note{Error: fmt.Sprintf("the connection to the host %s has ended: %v", name, err), Lost: name}
			}
			s.Post(func() error { return a.heard(n) })
			if n.Error != "" || n.Done {
				return
			}
		}
	}()
	return a
}

// pour sends the content of a file in parts, and closes it.
func (o order) pour(send func(any) error) error {
	defer o.from.Close()
	for at := int64(0); ; at += chunkSize {
		data := make([]byte, chunkSize)
		n, err := o.from.ReadAt(data, at)
		if n > 0 {
			if send(order{Child: o.Child, Fill: &fill{o.Fill.Name, at, data[:n]}}) != nil {
				return nil // the host's end is told by who reads
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

// order has the host do something. A host that has stopped reading is lost.
func (a *away) order(o order) {
	select {
	case a.orders <- o:
	default:
		a.s.Post(func() error {
			return &LostError{a.name, fmt.Sprintf("the host %s takes no more orders", a.name)}
		})
	}
}

// heard takes a note of the host's job.
func (a *away) heard(n Note) error {
	switch {
	case a.ended:
		return nil
	case n.Done:
		a.ended = true
		return nil
	case n.Error != "":
		return n.Failed(a.name)
	case n.Stage != "":
		a.s.note(Note{Stage: "host " + a.name + ": " + n.Stage, Quiet: n.Quiet})
		return nil
	}
	var t tidings
	if err := json.Unmarshal(n.Data, &t); err != nil {
		return fmt.Errorf("reading what the host %s tells: %w", a.name, err)
	}
	switch {
	case t.Up:
		a.up = true
	case t.Count != nil && t.Count.Count != nil:
		a.counts = append(a.counts, *t.Count)
		return a.s.network.tell()
	case t.Log != nil:
		return a.log(t.Child, t.Log)
	case t.Child != "":
		return a.child(t)
	}
	return nil
}

// Failed is the error of a host's note that has one, nil if it has none.
func (n Note) Failed(host string) error {
	switch {
	case n.Error == "":
		return nil
	case n.Lost != "":
		return &LostError{n.Lost, n.Error}
	case n.Mend != "":
		return &errs.UnsupportedError{Missing: "host " + host + ": " + n.Error, Fix: n.Mend}
	default:
		return fmt.Errorf("host %s: %s", host, n.Error)
	}
}

// child takes the tidings of a child.
func (a *away) child(t tidings) error {
	c := a.children[t.Child]
	switch {
	case c == nil:
		return nil
	case t.Report != nil:
		return c.reported(*t.Report)
	case t.Chunk != nil:
		return c.fetched(t.Chunk)
	case t.Ended != "":
		delete(a.children, t.Child)
		c.Ended = true
		reason := t.Ended
		if c.Failure != "" {
			reason = c.Failure
		}
		if c.spec.OnEnd != nil {
			return c.spec.OnEnd(c, reason)
		}
	}
	return nil
}

// log writes down what a process there has written.
func (a *away) log(child string, text []byte) error {
	file := a.logs[child]
	if file == nil {
		name := child
		if child == routerName || child == proberName {
			name += "-" + a.name
		}
		file = os.Stderr
		if a.s.Dir != "" {
			var err error
			if file, err = os.OpenFile(a.s.Dir.Log(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
				return err
			}
		}
		a.logs[child] = file
	}
	_, err := file.Write(text)
	return err
}

// start starts a process on the host; node is whose namespace it is in.
func (a *away) start(spec ChildSpec, node string) (*Child, error) {
	raw, err := json.Marshal(spec.Spec)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, err)
	}
	c := &Child{Name: spec.Name, spec: spec, s: a.s, away: a}
	for k, file := range spec.Files {
		fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("starting %s: %w", spec.Name, os.NewSyscallError("fcntl", err))
		}
		a.order(order{Child: spec.Name, Fill: &fill{Name: spec.FileNames[k]}, from: os.NewFile(uintptr(fd), spec.FileNames[k])})
	}
	a.children[spec.Name] = c
	a.order(order{Start: &startOrder{
		Name: spec.Name, Node: node, Kind: spec.Kind, Spec: raw, Env: spec.Env, FileNames: spec.FileNames, Watched: spec.Watched,
	}})
	return c, nil
}

// Fetch copies what is in a memory that the child shares, under that name, to the
// file that stands for it here, and calls done then. On this host they are the
// same.
func (c *Child) Fetch(name string, to *os.File, done func(error) error) error {
	if c.away == nil {
		return done(nil)
	}
	if err := to.Truncate(0); err != nil {
		return done(err)
	}
	if _, err := to.Seek(0, io.SeekStart); err != nil {
		return done(err)
	}
	c.fetching = append(c.fetching, fetch{to, done})
	c.away.order(order{Child: c.Name, Fetch: name})
	return nil
}

// fetched takes a part of the memory that was asked for first.
func (c *Child) fetched(part *chunk) error {
	if len(c.fetching) == 0 {
		return nil
	}
	f := c.fetching[0]
	_, err := f.to.Write(part.Data)
	if err == nil && part.Err != "" {
		err = fmt.Errorf("host %s: %s", c.away.name, part.Err)
	}
	if !part.Last && err == nil {
		return nil
	}
	c.fetching = c.fetching[1:]
	return f.done(err)
}

// StartNode starts a process in the namespace of the node of its name, on the host
// of that node.
func (n *Network) StartNode(spec ChildSpec) (*Child, error) { return n.StartIn(spec.Name, spec) }

// StartIn starts a process of any name in the namespace of a node, on the host of that
// node.
func (n *Network) StartIn(node string, spec ChildSpec) (*Child, error) {
	if a := n.awayOf(node); a != nil {
		return a.start(spec, node)
	}
	spec.NetNS = n.NS(node)
	return n.s.StartChild(spec)
}

// StartOn starts a process in the hub of a host.
func (n *Network) StartOn(host int, spec ChildSpec) (*Child, error) {
	if host > 0 {
		return n.s.away[host-1].start(spec, "")
	}
	spec.NetNS = Hub
	return n.s.StartChild(spec)
}

// Hosts are the names of the hosts that the network goes over, the first of which
// leads. Where there is but this one its name is empty.
func (n *Network) Hosts() []string {
	names := []string{""}
	if n.Spread() {
		names[0] = n.s.spread.Hosts[0].Name
	}
	for _, a := range n.s.away {
		names = append(names, a.name)
	}
	return names
}

// NodesOn are the nodes on that one of Hosts, in the order of the plan.
func (n *Network) NodesOn(host int) []string {
	names := []string{}
	for _, node := range n.Plan.Nodes {
		if n.HostOf(node.Name) == host {
			names = append(names, node.Name)
		}
	}
	return names
}

// HostOf is which of Hosts a node is on.
func (n *Network) HostOf(node string) int {
	if !n.Spread() {
		return 0
	}
	return n.s.spread.Of[n.Plan.Index(node)]
}

// Spread says whether the network goes over several hosts.
func (n *Network) Spread() bool { return n.s.spread != nil }

// ClockOffset is by how much this host's CLOCK_MONOTONIC is ahead of another's, as
// the router said last.
func (n *Network) ClockOffset(host string) time.Duration {
	if n.count != nil {
		for _, u := range n.count.Underlay {
			if u.From == host {
				return u.Offset
			}
		}
	}
	return 0
}

func (n *Network) awayOf(node string) *away {
	if host := n.HostOf(node); host > 0 {
		return n.s.away[host-1]
	}
	return nil
}

// startAway has the other hosts build their parts of the network.
func (n *Network) startAway() error {
	for _, a := range n.s.away {
		own := *n.s.spread
		own.Self = a.host
		a.order(order{Share: &shareSpec{Plan: n.Plan, Spread: &own}})
	}
	return nil
}

// changeAway has the other hosts change their parts.
func (n *Network) changeAway(plan *shaping.Plan) {
	c := n.toRouter(plan)
	if c.Plan == nil && c.Paces == nil {
		return
	}
	for _, a := range n.s.away {
		a.order(order{Plan: c.Plan, Paces: c.Paces})
	}
}

func (n *Network) endAway() {
	for _, a := range n.s.away {
		a.order(order{End: true})
	}
}

func (s *Supervisor) awayReady() bool {
	return !slices.ContainsFunc(s.away, func(a *away) bool { return !a.up })
}

func (s *Supervisor) awayEnded() bool {
	return !slices.ContainsFunc(s.away, func(a *away) bool { return !a.ended })
}

func (s *Supervisor) awayCounted() bool {
	return !slices.ContainsFunc(s.away, func(a *away) bool { return len(a.counts) == 0 })
}
