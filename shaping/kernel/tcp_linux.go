package kernel

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// tcpFile is the congestion control of new TCP connections in the namespace of
// who opens it.
const tcpFile = "/proc/sys/net/ipv4/tcp_congestion_control"

// setTCP makes a congestion control that of the current thread's namespace.
func setTCP(name string) error {
	if err := os.WriteFile(tcpFile, []byte(name), 0); err != nil {
		return lacking("the TCP congestion control "+name+" in a namespace",
			fmt.Sprintf("load it with modprobe tcp_%s, allow it with sysctl -w net.ipv4.tcp_allowed_congestion_control=%q, or choose reno", name, "reno "+name), err)
	}
	return nil
}

// TCPAllowed returns nil if connections in nodes can have that congestion
// control here, and else an *errs.UnsupportedError. It needs what Probe needs.
func TCPAllowed(name string) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: thread and namespace die with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- unsupported(featureNamespace, err)
			return
		}
		result <- setTCP(name)
	}()
	return <-result
}

// readTCP returns the congestion control of a namespace.
func readTCP(ns netns.NsHandle) (string, error) {
	var name []byte
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // as above
		err := netns.Set(ns)
		if err == nil {
			name, err = os.ReadFile(tcpFile)
		}
		result <- err
	}()
	if err := <-result; err != nil {
		return "", fmt.Errorf("reading the congestion control of TCP: %w", err)
	}
	return strings.TrimSpace(string(name)), nil
}

// TCP returns the congestion control of TCP connections in the nodes.
func (n *Network) TCP() (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.here) == 0 {
		return "", errors.New("no node is on this host")
	}
	return readTCP(n.nodes[n.here[0]].ns)
}

func tcpLine(name string) string { return "tcp " + name }
