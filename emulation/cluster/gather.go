//go:build linux

package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emulation/network"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/shaping/tunnel"
)

// Cluster is the hosts of a run, in the user's process on the leader. The zero
// value is this host alone.
type Cluster struct {
	// Layout is for the job; nil for this host alone. Place fills it in.
	Layout *network.Layout
	// Environments are the other hosts' environments.
	Environments []record.HostEnvironment

	files     []*os.File // for the job, with these names
	fileNames []string
	listener  *Listener
	others    []*HostConn
	meter     Meter
	measuring tunnel.Config // of all hosts' meters
	step      *slurmStep    // or nil
	relays    sync.WaitGroup
}

// Form gathers the hosts that a request asks for, and places the nodes of a
// network on them. A nil request is this host alone. links is the requested
// backend. Form returns the cluster and the backend to use.
func Form(ctx context.Context, r *Request, n *Network, links string, progress func(string)) (c *Cluster, take string, err error) {
	if r == nil {
		return &Cluster{}, links, nil
	}
	if err := CheckLinks(links); err != nil {
		return nil, "", err
	}
	if err := CheckPlacement(n, r.Count, ""); err != nil {
		return nil, "", err
	}
	if c, err = Gather(ctx, *r, progress); err != nil {
		return nil, "", err
	}
	if _, err := c.Place(ctx, n, "", progress); err != nil {
		c.Close(err)
		return nil, "", err
	}
	return c, network.LinksUser, nil
}

// CheckLinks reports a link backend that does not work with several hosts.
func CheckLinks(links string) error {
	if links != network.LinksUser && links != network.LinksAuto {
		return errs.Usagef("--links %s works on one host only; use --links user", links)
	}
	return nil
}

// Job is a job for a network over these hosts.
func (c *Cluster) Job(kind string, spec any) network.JobSpec {
	return network.JobSpec{Kind: kind, Spec: spec, Files: c.files, FileNames: c.fileNames}
}

// admitPatience limits the wait for hosts that a person starts.
const admitPatience = 10 * time.Minute

// Gather waits for the other hosts of a run. It calls progress with the hosts
// that have come.
func Gather(ctx context.Context, r Request, progress func(string)) (c *Cluster, err error) {
	address, err := netip.ParseAddrPort(r.Address)
	if err != nil || !address.Addr().Is4() || address.Addr().IsUnspecified() {
		return nil, errs.Usagef("the leader's address is %q: it must be an IPv4 address that all hosts can reach, with a port, such as 10.0.0.1:7400", r.Address)
	}
	c = &Cluster{}
	if c.listener, err = Listen(r.Address, r.Token); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.Close(err)
		}
	}()
	if err := c.openTunnels(address.Addr()); err != nil {
		return c, err
	}
	name := c.Layout.Hosts[0].Name
	progress(fmt.Sprintf("waiting for %s to connect to %v", errs.Count(r.Count-1, "host"), c.listener.Addr()))
	admitting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if r.Slurm { // they come when Slurm has room for them, however long that takes
		c.step, err = startSlurmStep(&r, c.listener.Addr(), cancel)
		if err != nil {
			return c, err
		}
	} else {
		waited := time.AfterFunc(admitPatience, func() {
			cancel(fmt.Errorf("not all hosts connected to the leader within %.0f minutes; check that testbed host is running on each host and can reach the leader", admitPatience.Minutes()))
		})
		defer waited.Stop()
	}
	sum, err := executable()
	if err != nil {
		return c, err
	}
	c.others, err = c.listener.Admit(admitting, Hello{Count: r.Count, Name: name, Environment: record.Environment{Revision: record.Revision()}, Executable: sum}, progress)
	if cause := context.Cause(admitting); err != nil && cause != nil && ctx.Err() == nil {
		err = cause
	}
	if err != nil {
		return c, err
	}
	for _, h := range c.others {
		c.Layout.Hosts = append(c.Layout.Hosts, tunnel.Host{Name: h.Name, Addr: netip.AddrPortFrom(h.Addr, h.Port)})
		c.measuring.Hosts = append(c.measuring.Hosts, tunnel.Host{Name: h.Name, Addr: netip.AddrPortFrom(h.Addr, h.MeterPort)})
		c.Environments = append(c.Environments, record.HostEnvironment{Name: h.Name, Environment: h.Environment})
		if err := c.connect(h); err != nil {
			return c, err
		}
	}
	return c, nil
}

// openTunnels opens this host's ends of the run's tunnel, and of the tunnel for
// measuring the network between hosts.
func (c *Cluster) openTunnels(address netip.Addr) error {
	name, err := ownName()
	if err != nil {
		return err
	}
	config := func(port uint16) tunnel.Config {
		t := tunnel.Config{
			Hosts:  []tunnel.Host{{Name: name, Addr: netip.AddrPortFrom(address, port)}},
			Secret: make([]byte, tunnel.SecretSize),
		}
		_, _ = rand.Read(t.Secret) // never fails
		return t
	}
	socket, port, err := tunnel.Listen(address.String())
	if err != nil {
		return err
	}
	c.inherit(socket, network.TunnelFile)
	c.Layout = &network.Layout{Config: config(port)}
	if c.meter.Socket, port, err = tunnel.Listen(address.String()); err != nil {
		return err
	}
	c.measuring = config(port)
	return nil
}

// inherit adds a file to those that the job inherits.
func (c *Cluster) inherit(file *os.File, name string) {
	c.files, c.fileNames = append(c.files, file), append(c.fileNames, name)
}

// connect passes messages between the leader's job and a host.
func (c *Cluster) connect(h *HostConn) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("connecting the sandbox with host %s: %w", h.Name, os.NewSyscallError("socketpair", err))
	}
	c.inherit(os.NewFile(uintptr(fds[1]), "host"), hostFile(h.Index))
	ours := os.NewFile(uintptr(fds[0]), "host")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return fmt.Errorf("connecting the sandbox with host %s: %w", h.Name, err)
	}
	c.relays.Go(func() {
		defer conn.Close()
		h.Relay(conn, func(why error) any { return network.Note{Error: why.Error(), Lost: h.Name} })
	})
	return nil
}

// Close ends the run on all hosts, with the reason if it has failed. The
// leader's job must have ended.
func (c *Cluster) Close(failed error) {
	if c.listener == nil {
		return
	}
	for _, f := range append(c.files, c.meter.Socket) {
		f.Close() // closing nil does nothing
	}
	_ = c.meter.Close() // no measurement is under way
	c.listener.Close(failed)
	c.relays.Wait()
	if c.step != nil {
		c.step.end()
	}
}
