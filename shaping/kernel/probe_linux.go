package kernel

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"testbed/internal/errs"
	"testbed/internal/thread"
)

// Probe tries everything that links need, in a temporary namespace of its own.
// It needs CAP_SYS_ADMIN and CAP_NET_ADMIN in the current user namespace, as
// Build does. Without them the first capability reports that, and the others
// report that they could not be tried.
func Probe() Capabilities {
	var found Capabilities
	thread.Do(func() { found = probe() }) // the namespace ends with the thread
	return found
}

func probe() Capabilities {
	steps := []struct {
		feature string
		try     func(*conn) error
	}{
		{featureVeth, probeVeth},
		{featurePacket, probePacket},
		{featureHTB, probeHTB},
		{featureU32, func(c *conn) error {
			return with(c, probeLink, func(index int) error {
				return c.addFilter(index, netlink.MakeHandle(1, 1), offsetSource, 0, 0)
			})
		}},
		{featureBridge, func(c *conn) error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = bridgeName
			return c.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
		}},
		{featureNetem, func(c *conn) error {
			return with(c, probeLink, func(index int) error {
				return c.addLeaf(index, netlink.MakeHandle(1, 1), netlink.MakeHandle(2, 0),
					leaf{limit: 1, netem: &netem{oneWayDelay: time.Microsecond}})
			})
		}},
		{featureHFSC, func(c *conn) error {
			return with(c, probePeer, func(index int) error { return c.addRoot(index, hfsc) })
		}},
		{featureRedirect, func(c *conn) error {
			return with(c, probeLink, func(index int) error {
				attrs := netlink.NewLinkAttrs()
				attrs.Name = pathName(0)
				ifb := &netlink.Ifb{LinkAttrs: attrs}
				if err := c.LinkAdd(ifb); err != nil {
					return err
				}
				return c.redirect(index, ifb.Index)
			})
		}},
	}
	var c *conn
	err := unix.Unshare(unix.CLONE_NEWNET)
	if err == nil {
		c, err = dial()
	}
	all := Capabilities{{Feature: featureNamespace}}
	if err != nil {
		all[0].Err = unsupported(featureNamespace, err)
		for _, s := range steps {
			all = append(all, Capability{s.feature, unsupported(s.feature, errors.New("not tried, because there is no network namespace"))})
		}
		return all
	}
	defer c.close()
	for _, s := range steps {
		err := s.try(c)
		if missing, ok := errors.AsType[*errs.UnsupportedError](err); ok {
			err = missing
		} else if err != nil {
			err = unsupported(s.feature, err)
		}
		all = append(all, Capability{s.feature, err})
	}
	return all
}

const (
	probeLink = "probe"
	probePeer = "probe-peer"
)

func probeVeth(c *conn) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = probeLink
	veth := netlink.NewVeth(attrs)
	veth.PeerName = probePeer
	return c.LinkAdd(veth)
}

func probePacket(*conn) error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	return unix.Close(fd)
}

func probeHTB(c *conn) error {
	return with(c, probeLink, func(index int) error {
		if err := c.addRoot(index, htb); err != nil {
			return err
		}
		return c.setClass(createClass, index, htb, 1, 1e6, 1e6)
	})
}

func with(c *conn, name string, try func(index int) error) error {
	link, err := c.LinkByName(name)
	if err != nil {
		return fmt.Errorf("it needs a veth pair: %w", err)
	}
	return try(link.Attrs().Index)
}
