//go:build linux

package cluster

import (
	"context"
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

// goodbye is how long a host waits for the leader to receive the news of its
// failure.
const goodbye = 5 * time.Second

// Serve plays a host's part in a run, until the leader ends the run, or is
// silent for so long that it must be dead. Nothing of the run is left then.
// With stay, Serve waits for the next run, until ctx ends; it calls between
// with the error of a failed run.
func Serve(ctx context.Context, o HostOptions, stay bool, between func(error)) error {
	if err := o.complete(); err != nil {
		return err
	}
	for {
		err := serveRun(ctx, o)
		_, ended := errors.AsType[*EndedError](err)
		another := err == nil || ended || errors.Is(err, errNoLeader)
		if !stay || !another || ctx.Err() != nil {
			return err
		}
		if err != nil {
			between(err)
		}
	}
}

// serveRun is Serve for one run.
func serveRun(ctx context.Context, o HostOptions) (err error) {
	if o.Name == "" {
		if o.Name, err = ownName(); err != nil {
			return err
		}
	}
	socket, port, err := tunnel.Listen("")
	if err != nil {
		return err
	}
	defer socket.Close()
	measuring, meterPort, err := tunnel.Listen("")
	if err != nil {
		return err
	}
	defer measuring.Close()
	sum, err := executable()
	if err != nil {
		return err
	}
	c, err := Join(ctx, o.Leader, o.Token, Hello{
		Index: o.Index, Count: o.Count, Name: o.Name, Port: port, MeterPort: meterPort, Environment: monitor.Environment(nil), Executable: sum,
	})
	if err != nil {
		return err
	}
	meter := &Meter{Socket: measuring}
	defer meter.Close()
	err = work(ctx, c, socket, meter)
	c.Close(err)
	return err
}

// ownName is the name of this host: Slurm's, if Slurm has one for it.
func ownName() (string, error) {
	if name := os.Getenv(slurmNode); name != "" {
		return name, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("finding out this host's name: %w", err)
	}
	return name, nil
}

// work plays this host's part, in a sandbox.
func work(ctx context.Context, c *LeaderConn, socket *os.File, meter *Meter) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	job, err := network.Start(ctx, network.JobSpec{
		Kind: KindHost, Files: []*os.File{socket}, FileNames: []string{network.TunnelFile},
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
			if !measured(ctx, c, meter, v) {
				job.Send(v)
			}
		}
	})
	err = pass(ctx, job, c)
	c.Close(err)
	orders.Wait() // nothing may be sent to a job that is closed
	return err
}

// pass passes the job's notes on to the leader, until the leader ends the run.
func pass(ctx context.Context, job *network.Job, c *LeaderConn) error {
	for {
		n, err := job.Next()
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
			if errors.Is(err, errDone) {
				err = nil
			}
			return err
		case err != nil:
			n = network.Failure(err)
		}
		if sent := c.Send(n); sent == nil && err == nil && !n.Done {
			continue
		}
		select { // until the leader has received it
		case <-ctx.Done():
		case <-time.After(goodbye):
		}
		if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, errDone) {
			err = cause
		}
		return err
	}
}

// await waits until the leader has received the last note, and has ended the run.
func await(c *LeaderConn) {
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
