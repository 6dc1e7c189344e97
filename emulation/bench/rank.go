//go:build linux

package bench

import (
	"context"
	"net"
	"time"

	"testbed/allreduce/bench"
	"testbed/allreduce/quicring"
	"testbed/emulation/network"
	"testbed/node/identity"
	"testbed/shaping/kernel"
)

// ringPort is the port of every rank. Each has a network of its own, so they
// never clash.
const ringPort = 7001

// rankSpec configures a process as a rank of a benchmark; see
// bench.WorkerConfig.
type rankSpec struct {
	Settings    bench.Settings
	Rank        int
	Peers       []quicring.Peer
	ShortPaths  bool
	Credentials identity.Credentials
	Timeout     time.Duration
	Patience    time.Duration // as in quicring.Config
}

// RunRank is the process of a rank.
func RunRank(self *network.Self) error {
	var s rankSpec
	if err := self.Spec(&s); err != nil {
		return err
	}
	tlsConfig, err := s.Credentials.TLS()
	if err != nil {
		return err
	}
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(s.Peers[s.Rank].Addr))
	if err != nil {
		return err
	}
	orders := make(chan bench.Order)
	go func() {
		defer close(orders)
		commands := self.Commands()
		for {
			var o bench.Order
			if commands.Decode(&o) != nil {
				return // end of the file
			}
			orders <- o
		}
	}()
	return bench.RunWorker(context.Background(), bench.WorkerConfig{
		Settings: s.Settings, Rank: s.Rank, Peers: s.Peers, ShortPaths: s.ShortPaths, Timeout: s.Timeout, Patience: s.Patience,
		Conn: conn, TLS: tlsConfig, Log: self.Log, Interface: kernel.NodeInterface, Orders: orders,
		Report: func(r bench.Report) {
			if r.Ready {
				self.Ready()
			} else {
				self.Tell(r)
			}
		},
	})
}
