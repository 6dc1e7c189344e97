//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"testbed/allreduce"
	"testbed/emulation/network"
	"testbed/node/identity"
	"testbed/node/state"
)

// KindStore is the kind of the process to which outer states are uploaded, whose
// program is RunStore.
const KindStore = "store"

// StoreSpec configures the process of a store.
type StoreSpec struct {
	Addr        netip.Addr
	Credentials identity.Credentials
	Yields      bool // workers that reduce send nothing
	Dilation    float64
	Patience    time.Duration // as in node.WorkerSettings
}

// StoreCommand makes the store get the outer state after OuterSteps outer
// steps, or a newer one, from a worker. Each command has one answer, a
// StoreReport.
type StoreCommand struct {
	From       string
	Addr       netip.Addr
	OuterSteps int
}

// StoreReport reports that the store has got the state after OuterSteps outer
// steps, checked against its Hash, with Bytes on the network. If it has got
// nothing, Error is the reason.
type StoreReport struct {
	OuterSteps int    `json:"outer_steps,omitempty"`
	Hash       string `json:"hash,omitempty"`
	Bytes      int64  `json:"bytes,omitempty"`
	Error      string `json:"error,omitempty"`
}

// RunStore is the process of the store, until there are no more commands.
func RunStore(self *network.Self) error {
	var s StoreSpec
	if err := self.Spec(&s); err != nil {
		return err
	}
	tlsConfig, err := s.Credentials.TLS()
	if err != nil {
		return err
	}
	conn, err := listen(s.Addr, fetchPort)
	if err != nil {
		return err
	}
	states, err := state.Listen(state.Config{Conn: conn, TLS: tlsConfig, Log: self.Log, PacketSize: allreduce.PacketSize, WhileBusy: !s.Yields, Dilation: s.Dilation, Patience: s.Patience})
	if err != nil {
		return err
	}
	defer states.Close()
	self.Ready()
	for commands := self.Commands(); ; {
		var c StoreCommand
		if err := commands.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a command of the sandbox: %w", err)
		}
		self.Tell(take(states, c))
	}
}

func take(states *state.Endpoint, c StoreCommand) StoreReport {
	// A stalled upload ends by itself. The plan determines how long other uploads
	// take.
	ctx := context.Background()
	donor := state.Peer{Name: c.From, Addr: netip.AddrPortFrom(c.Addr, fetchPort)}
	s, bytes, err := states.Fetch(ctx, []state.Peer{donor}, c.OuterSteps, false, false)
	if err != nil {
		return StoreReport{Error: err.Error()}
	}
	return StoreReport{OuterSteps: s.Steps, Hash: s.Hash(), Bytes: bytes}
}
