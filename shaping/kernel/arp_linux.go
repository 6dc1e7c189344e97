package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// CountARP begins to count, in Strays, the ARP packets that nodes on this host
// send. The caller is in the hub. Counting ends with the network.
func (n *Network) CountARP() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range n.here {
		fd, err := arpSocket(n.nodes[i].outside)
		if err != nil {
			return fmt.Errorf("counting the ARP packets of node %s: %w", n.plan.Nodes[i].Name, err)
		}
		n.nodes[i].arp = os.NewFile(uintptr(fd), "ARP of "+n.plan.Nodes[i].Name)
	}
	return nil
}

// arpSocket counts ARP packets that come from an interface. Nobody reads them:
// the kernel also counts packets without room. A socket for a single protocol
// does not see packets that a bridge takes, so a filter selects them.
func arpSocket(link int) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil { // protocol 0: nothing yet
		return -1, os.NewSyscallError("socket", err)
	}
	const etherType = 12
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: etherType},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.ETH_P_ARP, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1}, // one byte of it
		{Code: unix.BPF_RET | unix.BPF_K},
	}
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	err = errors.Join(
		os.NewSyscallError("setsockopt", unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})),
		os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)),
		os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link})),
	)
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// arps is the number of packets counted since the last call.
func (n *node) arps() (uint64, error) {
	if n.arp == nil {
		return 0, nil
	}
	stats, err := unix.GetsockoptTpacketStats(int(n.arp.Fd()), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, os.NewSyscallError("getsockopt", err)
	}
	return uint64(stats.Packets), nil
}
