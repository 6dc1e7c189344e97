package kernel

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"testbed/internal/thread"
)

// tcpFile has the congestion control of new TCP connections in the opening
// thread's namespace.
const tcpFile = "/proc/sys/net/ipv4/tcp_congestion_control"

// setTCP sets the congestion control of the current thread's namespace.
func setTCP(name string) error {
	if err := os.WriteFile(tcpFile, []byte(name), 0); err != nil {
		return lacking("the TCP congestion control "+name+" in a namespace",
			fmt.Sprintf("load it with modprobe tcp_%s, allow it with sysctl -w net.ipv4.tcp_allowed_congestion_control=%q, or choose reno", name, "reno "+name), err)
	}
	return nil
}

// TCPAllowed returns nil if connections in nodes can have that congestion
// control here, and otherwise an *errs.UnsupportedError. It needs the same
// rights as Probe.
func TCPAllowed(name string) error {
	var err error
	thread.Do(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = unsupported(featureNamespace, err)
			return
		}
		err = setTCP(name)
	})
	return err
}

// readTCP returns the congestion control of a namespace.
func readTCP(ns netns.NsHandle) (string, error) {
	var name []byte
	err := inNamespace(ns, func() (err error) {
		name, err = os.ReadFile(tcpFile)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading the congestion control of TCP: %w", err)
	}
	return strings.TrimSpace(string(name)), nil
}

// TCP returns the congestion control of TCP connections in the nodes.
func (n *Network) TCP() (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.here) == 0 {
		return "", errors.New("reading the congestion control of TCP: no node of the network is on this host")
	}
	return readTCP(n.nodes[n.here[0]].ns)
}

// SetTCP sets the congestion control of new TCP connections in the nodes on
// this host. Open connections keep theirs.
func (n *Network) SetTCP(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range n.here {
		if err := inNamespace(n.nodes[i].ns, func() error { return setTCP(name) }); err != nil {
			return fmt.Errorf("node %s: setting the congestion control of TCP: %w", n.plan.Nodes[i].Name, err)
		}
	}
	return nil
}

// windowFiles have the smallest, initial and largest bytes of the buffers of
// TCP connections in a namespace: to receive and to send.
var windowFiles = []string{"/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"}

// bufferShare is the number of buffer bytes per byte of a window: the kernel
// keeps half of the buffer for its own accounting (tcp_adv_win_scale).
const bufferShare = 2

// setWindows enlarges the buffers of TCP connections in the nodes as the plan
// demands. Larger buffers stay. It returns an error for buffers that it could
// not set.
func (n *Network) setWindows() error {
	for _, i := range n.here {
		node := &n.nodes[i]
		want := min(bufferShare*n.plan.Window(i), math.MaxInt32/2)
		if want <= node.window {
			continue
		}
		if err := inNamespace(node.ns, func() error { return raiseWindows(want) }); err != nil {
			return fmt.Errorf("node %s: enlarging the TCP buffers for the links: %w", n.plan.Nodes[i].Name, err)
		}
		node.window = want
	}
	return nil
}

// raiseWindows is setWindows for the current thread's namespace.
func raiseWindows(want int) error {
	for _, file := range windowFiles {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var least, first, most int
		if _, err := fmt.Sscan(string(text), &least, &first, &most); err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		if most >= want {
			continue
		}
		if err := os.WriteFile(file, fmt.Appendf(nil, "%d %d %d", least, first, want), 0); err != nil {
			return err
		}
	}
	return nil
}

// ShortWindows is the reason why TCP connections in the nodes may have smaller
// buffers than the links need, nil if they are large enough.
func (n *Network) ShortWindows() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.short
}

// Window is the largest window, in bytes, of TCP connections in the node at a
// place of the plan, as the kernel has it.
func (n *Network) Window(i int) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	window := math.MaxInt
	err := inNamespace(n.nodes[i].ns, func() error {
		for _, file := range windowFiles {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			var least, first, most int
			if _, err := fmt.Sscan(string(text), &least, &first, &most); err != nil {
				return fmt.Errorf("reading %s: %w", file, err)
			}
			window = min(window, most/bufferShare)
		}
		return nil
	})
	return window, err
}

// inNamespace calls a function on a thread in a namespace.
func inNamespace(ns netns.NsHandle, do func() error) error {
	var err error
	thread.Do(func() {
		if err = netns.Set(ns); err == nil {
			err = do()
		}
	})
	return err
}

func tcpLine(name string) string { return "tcp " + name }
