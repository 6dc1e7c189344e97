//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"testbed/emulation/monitor"
	"testbed/emulation/network"
	"testbed/emulation/sandbox"
	"testbed/shaping/tunnel"
)

// Run is the job of a host that is not the leader.
func Run(s *network.Supervisor, _ json.RawMessage) error {
	return network.RunShare(s, func(n *network.Network) network.Watcher {
		queues := monitor.NewQueues(n.Kernel.Nodes())
		return &watcher{monitor.WatchLinks(n, n.Kernel.Nodes(), queues), queues}
	})
}

// watcher looks at a host as the leader's monitor wants it.
type watcher struct {
	links  *monitor.Links
	queues *monitor.QueueLog
}

// Sample is a monitor.Sample.
func (w *watcher) Sample(pids map[string]int, last bool) any {
	waits := map[string]time.Duration{}
	for name, pid := range pids {
		waits[name] = monitor.RunnableWait(pid)
	}
	s := monitor.Sample{At: time.Now(), Machine: monitor.ReadMachine(), Waits: waits}
	if last {
		s.Busy = w.links.Stop()
	} else {
		s.Busy = w.links.Round()
	}
	s.Queues, s.QueuesLost = w.queues.Take()
	return s
}

// Server says which host of a run this one is.
type Server struct {
	Index, Count int
	Leader       string // its address
	Token        string
	Name         string // of this host; its own if empty
}

// goodbye is how long a host waits for the leader to hear that it has failed.
const goodbye = 5 * time.Second

// Serve is a host of a run, until the leader ends it, or is silent for so long that
// it must be dead. Nothing of the run is left then.
func Serve(ctx context.Context, m Server) (err error) {
	if m.Name == "" {
		if m.Name, err = ownName(); err != nil {
			return err
		}
	}
	socket, port, err := tunnel.Listen("")
	if err != nil {
		return err
	}
	defer socket.Close()
	measuring, surveyPort, err := tunnel.Listen("")
	if err != nil {
		return err
	}
	defer measuring.Close()
	c, err := Join(ctx, m.Leader, m.Token, Hello{
		Index: m.Index, Count: m.Count, Name: m.Name, Port: port, SurveyPort: surveyPort, Environment: monitor.Environment(nil),
	})
	if err != nil {
		return err
	}
	surveyor := &Surveyor{Socket: measuring}
	defer surveyor.Close()
	err = work(ctx, c, socket, surveyor)
	c.Close(err)
	return err
}

// ownName is what this host is called: by Slurm, if that knows it.
func ownName() (string, error) {
	if name := os.Getenv(slurmNode); name != "" {
		return name, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("asking for this host's name: %w", err)
	}
	return name, nil
}

// work plays this host's part, in a sandbox.
func work(ctx context.Context, c *Connection, socket *os.File, surveyor *Surveyor) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	job, err := network.Start(ctx, network.JobSpec{
		Kind: network.KindShare, Files: []*os.File{socket}, FileNames: []string{network.TunnelFile},
	}, sandbox.Config{Stderr: os.Stderr})
	if err != nil {
		_ = c.Send(network.Failure(err)) // the leader may have gone, too
		await(c)
		return err
	}
	defer job.Close()
	var orders sync.WaitGroup
	orders.Go(func() {
		for {
			v, err := c.Next()
			if err != nil {
				cancel(err)
				return
			}
			if !surveyed(ctx, c, surveyor, v) {
				job.Send(v)
			}
		}
	})
	err = pass(ctx, job, c)
	c.Close(err)
	orders.Wait() // nothing may be sent to a job that is closed
	return err
}

// pass passes what the job tells on to the leader, until that ends the run.
func pass(ctx context.Context, job *network.Job, c *Connection) error {
	for {
		n, err := job.Next()
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
			if errors.Is(err, ErrDone) {
				err = nil
			}
			return err
		case err != nil:
			n = network.Failure(err)
		}
		if sent := c.Send(n); sent == nil && err == nil && !n.Done {
			continue
		}
		select { // until the leader has heard it
		case <-ctx.Done():
		case <-time.After(goodbye):
		}
		if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, ErrDone) {
			err = cause
		}
		return err
	}
}

// await waits until the leader has heard what was said last, and has ended the run.
func await(c *Connection) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := c.Next(); err != nil {
				return
			}
		}
	}()
	select {
	case <-ended:
	case <-time.After(goodbye):
	}
}
