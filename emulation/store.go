//go:build linux

package emulation

import (
	"encoding/json"
	"fmt"

	"testbed/emulation/network"
	"testbed/emulation/process"
	"testbed/node/identity"
	"testbed/policy"
	"testbed/record"
	"testbed/train"
)

// store is the process to which outer states are uploaded, if the scenario has
// uploads.
type store struct {
	child *network.Child // or nil
	queue train.UploadQueue
	now   train.Upload // under way
	since policy.Time
}

// gone reports whether there is no store, or no longer one.
func (s *store) gone() bool { return s.child == nil || s.child.Ended }

// startStore starts the store, if the scenario needs one.
func (p *player) startStore(authority *identity.Authority) error {
	upload := p.spec.Scenario.Upload
	if upload.Every == 0 {
		return nil
	}
	credentials, err := authority.Issue(train.StoreNode)
	if err != nil {
		return err
	}
	p.store.child, err = p.startChild(network.ChildSpec{
		Name: train.StoreNode, Kind: process.KindStore, Env: network.WorkerEnv(len(p.spec.Scenario.Workers)),
		Spec:   process.StoreSpec{Addr: p.network.Addr(train.StoreNode), Credentials: credentials, Yields: upload.Yields, Dilation: p.spec.Scenario.Slowdown(), Patience: p.spec.Scenario.Patience},
		OnData: p.uploaded,
		OnEnd: func(_ *network.Child, reason string) error {
			if !p.over {
				line := "the node \"store\", which receives uploads, ended unexpectedly: " + reason
				p.monitor.Failed(line)
				p.s.Tell("%s; see %s", line, p.s.Log(train.StoreNode))
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	return p.s.Await(network.StartupPatience, "the store to start", func() bool { return p.store.child.Ready || p.store.child.Ended })
}

// upload begins an upload, if one is due.
func (p *player) upload(u *train.Upload) error {
	if u == nil || p.store.gone() {
		return nil
	}
	p.store.now, p.store.since = *u, p.clock.now()
	name := u.By.Node()
	_ = p.store.child.Send(process.StoreCommand{From: name, Addr: p.network.Addr(name), OuterSteps: u.OuterSteps}) // the only error is that it has ended
	return p.record(record.Event{T: p.store.since, Type: record.UploadStart, Node: name, Round: u.OuterSteps})
}

// uploaded handles a report of the store.
func (p *player) uploaded(data json.RawMessage) error {
	var r process.StoreReport
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("internal error: parsing a report of the node store: %w", err)
	}
	if p.over {
		return nil
	}
	s := &p.store
	now := p.clock.now()
	if err := p.record(record.Event{
		T: now, Type: record.UploadDone, Node: s.now.By.Node(), Round: max(s.now.OuterSteps, r.OuterSteps),
		Duration: now - s.since, BytesSent: r.Bytes, Hash: r.Hash, Cause: r.Error,
	}); err != nil {
		return err
	}
	return p.upload(s.queue.Ended())
}
