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

// Request is for a run over several hosts.
type Request struct {
	Count   int    // of hosts, this one, the leader, too
	Address string // where it listens for the others, as they reach it
	Token   string
	// Slurm has Slurm start the others; else somebody else does.
	Slurm bool
}

// admitPatience bounds the wait for hosts that a person starts.
const admitPatience = 10 * time.Minute

// Hosts are those of a run, gathered at the leader.
type Hosts struct {
	// Spread lacks the places of the nodes.
	Spread *network.Spread
	// Files are for the job of the leader, with those names.
	Files     []*os.File
	FileNames []string
	// Environments are those of the other hosts.
	Environments []record.HostEnvironment

	leader   *Leader
	members  []*RemoteHost
	surveyor Surveyor
	meeting  tunnel.Config // of the survey
	step     *step         // or nil
	relays   sync.WaitGroup
}

// Gather waits for the other hosts of a run. told hears who has come.
func Gather(ctx context.Context, r Request, told func(string)) (h *Hosts, err error) {
	address, err := netip.ParseAddrPort(r.Address)
	if err != nil || !address.Addr().Is4() || address.Addr().IsUnspecified() {
		return nil, errs.Usagef("the leader's address is %q; give an IPv4 address that all hosts reach, and a port, as 10.0.0.1:7400", r.Address)
	}
	h = &Hosts{}
	if h.leader, err = Listen(r.Address, r.Token); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.Close(err)
		}
	}()
	socket, port, err := tunnel.Listen(address.Addr().String())
	if err != nil {
		return h, err
	}
	h.add(socket, network.TunnelFile)
	var surveyPort uint16
	if h.surveyor.Socket, surveyPort, err = tunnel.Listen(address.Addr().String()); err != nil {
		return h, err
	}
	name, err := ownName()
	if err != nil {
		return h, err
	}
	h.Spread = &network.Spread{Config: tunnel.Config{
		Hosts:  []tunnel.Host{{Name: name, Addr: netip.AddrPortFrom(address.Addr(), port)}},
		Secret: make([]byte, tunnel.SecretSize),
	}}
	h.meeting = tunnel.Config{
		Hosts:  []tunnel.Host{{Name: name, Addr: netip.AddrPortFrom(address.Addr(), surveyPort)}},
		Secret: make([]byte, tunnel.SecretSize),
	}
	_, _ = rand.Read(h.Spread.Secret) // never fails
	_, _ = rand.Read(h.meeting.Secret)
	told(fmt.Sprintf("waiting for %d hosts at %v", r.Count-1, h.leader.Addr()))
	admitting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !r.Slurm { // else they come when there is room for them
		waited := time.AfterFunc(admitPatience, func() { cancel(fmt.Errorf("waited %v for all hosts in vain", admitPatience)) })
		defer waited.Stop()
	}
	if r.Slurm {
		if h.step, err = startStep(&r, h.leader.Addr(), cancel); err != nil {
			return h, err
		}
	}
	h.members, err = h.leader.Admit(admitting, Hello{Count: r.Count, Name: name, Environment: record.Environment{Revision: record.Revision()}}, told)
	if cause := context.Cause(admitting); err != nil && cause != nil && ctx.Err() == nil {
		err = cause
	}
	if err != nil {
		return h, err
	}
	for _, m := range h.members {
		h.Spread.Hosts = append(h.Spread.Hosts, tunnel.Host{Name: m.Name, Addr: netip.AddrPortFrom(m.Addr, m.Port)})
		h.meeting.Hosts = append(h.meeting.Hosts, tunnel.Host{Name: m.Name, Addr: netip.AddrPortFrom(m.Addr, m.SurveyPort)})
		h.Environments = append(h.Environments, record.HostEnvironment{Name: m.Name, Environment: m.Environment})
		if err := h.connect(m); err != nil {
			return h, err
		}
	}
	return h, nil
}

func (h *Hosts) add(file *os.File, name string) {
	h.Files, h.FileNames = append(h.Files, file), append(h.FileNames, name)
}

// connect passes on what the leader's job and a host say to each other.
func (h *Hosts) connect(m *RemoteHost) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("connecting host %s with the sandbox: %w", m.Name, os.NewSyscallError("socketpair", err))
	}
	theirs := os.NewFile(uintptr(fds[1]), "host")
	h.add(theirs, network.HostFile(m.Index))
	ours := os.NewFile(uintptr(fds[0]), "host")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return fmt.Errorf("connecting host %s with the sandbox: %w", m.Name, err)
	}
	h.relays.Go(func() {
		defer conn.Close()
		m.Relay(conn, func(why error) any { return network.Note{Error: why.Error(), Lost: m.Name} })
	})
	return nil
}

// Close ends the run for all hosts, with the reason if it has failed. The leader's
// job has ended.
func (h *Hosts) Close(failed error) {
	for _, f := range append(h.Files, h.surveyor.Socket) {
		f.Close() // nil is refused, and that is all
	}
	_ = h.surveyor.Close() // nobody measures any more
	h.leader.Close(failed)
	h.relays.Wait()
	if h.step != nil {
		h.step.end()
	}
}
