//go:build linux

package network

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"testbed/shaping"
	"testbed/shaping/tunnel"
	"testbed/shaping/userlink"
)

// Remote is the part of a network on other hosts, for the job that has the rest
// of it. Package cluster implements it. The job's goroutine calls all methods,
// and none of them waits.
type Remote interface {
	// Build makes the remote part of the network of a plan, by the machine's clock.
	// Built reports whether all of it carries packets.
	Build(plan *shaping.Plan)
	Built() bool
	// Change changes the links there.
	Change(Change)
	// AskCount asks the routers there for their counts, which
	// Supervisor.RemoteCounted announces. TakeCount adds the oldest count of each
	// host to this host's own. While one of them is missing, it does nothing, and
	// returns false.
	AskCount()
	TakeCount(own *userlink.Stats) (taken bool, err error)
	// End takes the remote part down. Ended reports whether all of it is gone.
	End()
	Ended() bool
	// Start starts a process in the namespace of a node there.
	Start(host int, node string, spec ChildSpec) (*Child, error)
}

// TunnelFile is the name of the file that the job of a network over several hosts
// inherits for its router: the socket of the tunnel, opened on the host's own network.
const TunnelFile = "tunnel"

// Layout has the host of each node of a plan, seen from one of the hosts.
type Layout struct {
	tunnel.Config       // the hosts; the first one leads
	Of            []int `json:"of"` // the host of each node of the plan
}

// Has reports whether the node at a place of the plan is on this host. A nil
// Layout has all nodes.
func (l *Layout) Has(node int) bool { return l == nil || l.Of[node] == l.Self }

// openTunnel opens the tunnel to the other hosts' routers.
func (l *Layout) openTunnel(self *Self, o *userlink.Options) error {
	file := self.File(TunnelFile)
	if file == nil {
		return fmt.Errorf("internal error: the router has inherited no socket for the tunnel between hosts")
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	file.Close()
	if err != nil {
		return fmt.Errorf("duplicating the socket of the tunnel between hosts: %w", os.NewSyscallError("fcntl", err))
	}
	if o.Tunnel, err = tunnel.Open(fd, l.Config); err != nil {
		unix.Close(fd)
		return err
	}
	o.Hosts, o.Self = l.Of, l.Self
	return nil
}

// Distribute extends the network of BringUp over several hosts; this job has
// its own host's part. remote is the rest. It is nil if another host's job
// directs all of them.
func (s *Supervisor) Distribute(layout *Layout, remote Remote) { s.layout, s.remote = layout, remote }

// RemoteCounted handles a count of Remote.TakeCount.
func (s *Supervisor) RemoteCounted() error { return s.network.sumCounts() }
