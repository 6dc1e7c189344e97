//go:build linux

package network

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"testbed/shaping/tunnel"
	"testbed/shaping/userlink"
)

// Files that the job of a network over several hosts inherits.
const (
	// TunnelFile is the socket of the tunnel, opened on the host's own network.
	TunnelFile = "tunnel"
	// hostFile, with the host's place, is at the leader the connection to another
	// host.
	hostFile = "host-%d"
)

// HostFile is the name of the file that connects the leader's job with the host at
// that place.
func HostFile(host int) string { return fmt.Sprintf(hostFile, host) }

// Spread says how a network goes over several hosts, seen from one of them. The
// leader is the first of them.
type Spread struct {
	tunnel.Config
	Of []int `json:"of"` // the host of each node of the plan
}

// has says whether the node at that place of the plan is on this host.
func (s *Spread) has(node int) bool { return s == nil || s.Of[node] == s.Self }

// enter opens the tunnel for a router.
func (s *Spread) enter(self *Self, o *userlink.Options) error {
	file := self.File(TunnelFile)
	if file == nil {
		return fmt.Errorf("the router has no socket for the tunnel")
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	file.Close()
	if err != nil {
		return fmt.Errorf("opening the tunnel: %w", os.NewSyscallError("fcntl", err))
	}
	if o.Tunnel, err = tunnel.Open(fd, s.Config); err != nil {
		unix.Close(fd)
		return err
	}
	o.Hosts, o.Self = s.Of, s.Self
	return nil
}

// SpreadOver has the network that BringUp makes go over several hosts, if spread is
// given. This one is the leader, whose job has the files for that.
func (s *Supervisor) SpreadOver(spread *Spread) error {
	if spread == nil {
		return nil
	}
	s.spread = spread
	for host, h := range spread.Hosts {
		if host == spread.Self {
			continue
		}
		file := s.files[HostFile(host)]
		if file == nil {
			return fmt.Errorf("the job has no connection to the host %s", h.Name)
		}
		s.away = append(s.away, newAway(s, host, h.Name, file))
	}
	return nil
}
