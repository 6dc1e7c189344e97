// Package load puts the load of a job's managers on a lighthouse, ours or
// another, and measures its response.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"testbed/internal/stats"
	"testbed/torchft/internal/wire"
	"testbed/torchft/port"
)

// timeout ends a call that a lighthouse does not answer.
const timeout = time.Minute

// Load is managers of groups of a job, each with a connection of its own.
type Load struct {
	ids   []string
	conns []*grpc.ClientConn
}

// Connect returns the load of so many groups on the lighthouse at an address.
func Connect(ctx context.Context, address string, groups int) (*Load, error) {
	l := &Load{}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for i := range groups {
		c, err := port.Dial(address)
		if err != nil {
			l.Close()
			return nil, err
		}
		l.conns = append(l.conns, c)
		l.ids = append(l.ids, fmt.Sprintf("train_%d:0b7b4d9c-2b0f-4f7e-9d43-%012d", i, i))
	}
	return l, l.each(func(i int) error { return port.Ready(ctx, l.conns[i]) })
}

// Close ends the connections.
func (l *Load) Close() {
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// each calls f for every group at once. The error is the first group's that has
// one: a lighthouse that fails gives as many errors as there are groups.
func (l *Load) each(f func(group int) error) error {
	errs := make([]error, len(l.conns))
	var all sync.WaitGroup
	for i := range l.conns {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) < 2 {
		return errors.Join(errs...)
	}
	return fmt.Errorf("%w (groups with errors: %d of %d)", errs[0], len(errs), len(l.conns))
}

// Quorums is the durations of quorums.
type Quorums struct {
	Rounds      int     `json:"rounds"`
	P50ms       float64 `json:"p50_ms"` // from the beginning of all requests to an answer
	P99ms       float64 `json:"p99_ms"`
	AnswerBytes int     `json:"answer_bytes"`
	// PlainMs is the time of as many bytes from one process to as many plain TCP
	// connections, all at once: the lower bound for anything over TCP here.
	PlainMs float64 `json:"plain_tcp_ms"`
	Ratio   float64 `json:"p99_to_plain_tcp"`
}

// Quorums makes all groups ask, all of them for every quorum, for so many
// rounds. The lighthouse must need as many replicas as there are groups, and
// have no others.
func (l *Load) Quorums(ctx context.Context, rounds int) (*Quorums, error) {
	var took []float64
	var size atomic.Int64
	for round := range rounds + 1 {
		begin := time.Now()
		times := make([]float64, len(l.conns))
		err := l.each(func(i int) error {
			n, err := l.ask(ctx, i, int64(round))
			times[i] = ms(time.Since(begin))
			size.Store(int64(n))
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("asking for quorum %d of %d: %w", round+1, rounds+1, err)
		}
		if round > 0 { // the first finds connections and memory cold
			took = append(took, times...)
		}
	}
	slices.Sort(took)
	q := &Quorums{Rounds: rounds, P50ms: stats.Quantile(took, 0.5), P99ms: stats.Quantile(took, 0.99), AnswerBytes: int(size.Load())}
	var plain []float64
	for range rounds {
		d, err := plainTCP(len(l.conns), q.AnswerBytes)
		if err != nil {
			return nil, fmt.Errorf("sending the same bytes over plain TCP: %w", err)
		}
		plain = append(plain, ms(d))
	}
	q.PlainMs = stats.Median(plain)
	q.Ratio = q.P99ms / q.PlainMs
	return q, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// counter is a message of which only the length is counted: a benchmark has no
// time to decode a thousand answers.
type counter struct{ bytes int }

type countingCodec struct{ wire.Codec }

func (countingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*counter).bytes = data.Len()
	return nil
}

func (l *Load) ask(ctx context.Context, group int, step int64) (bytes int, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var answer counter
	err = l.conns[group].Invoke(ctx, wire.LighthouseQuorum, &wire.LighthouseQuorumRequest{Requester: &wire.QuorumMember{
		ReplicaId: l.ids[group], Address: fmt.Sprintf("http://node-%d:29512", group), StoreAddress: fmt.Sprintf("node-%d:29600", group),
		Step: step, WorldSize: 8,
	}}, &answer, grpc.ForceCodecV2(countingCodec{}))
	return answer.bytes, err
}

// plainTCP times a process that sends so many bytes to each of its connections.
func plainTCP(connections, bytes int) (time.Duration, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	var ends [2][]net.Conn
	defer func() {
		for _, c := range slices.Concat(ends[0], ends[1]) {
			_ = c.Close()
		}
	}()
	for range connections {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return 0, err
		}
		ends[0] = append(ends[0], c)
		s, err := l.Accept()
		if err != nil {
			return 0, err
		}
		ends[1] = append(ends[1], s)
	}
	data := make([]byte, bytes)
	begin := time.Now()
	errs := make([]error, 2*connections)
	var all sync.WaitGroup
	for i := range connections {
		all.Go(func() { _, errs[2*i] = ends[0][i].Write(data) })
		all.Go(func() { _, errs[2*i+1] = io.CopyN(io.Discard, ends[1][i], int64(bytes)) })
	}
	all.Wait()
	return time.Since(begin), errors.Join(errs...)
}

// Heartbeats is a lighthouse's handling of heartbeats.
type Heartbeats struct {
	Sent      int     `json:"sent"`
	PerSecond float64 `json:"per_second"`
	P99ms     float64 `json:"p99_ms"` // from sending one to its answer
}

// Heartbeats makes every group send a heartbeat each interval, for so long, at
// different moments.
func (l *Load) Heartbeats(ctx context.Context, interval, long time.Duration) (*Heartbeats, error) {
	begin := time.Now()
	took := make([][]float64, len(l.conns))
	err := l.each(func(i int) error {
		next := begin.Add(interval * time.Duration(i) / time.Duration(len(l.conns)))
		for ; next.Sub(begin) < long; next = next.Add(interval) {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Until(next)):
			}
			sent := time.Now()
			call, cancel := context.WithTimeout(ctx, timeout)
			err := l.conns[i].Invoke(call, wire.Heartbeat, &wire.LighthouseHeartbeatRequest{ReplicaId: l.ids[i]}, &wire.LighthouseHeartbeatResponse{})
			cancel()
			if err != nil {
				return fmt.Errorf("sending a heartbeat of %s: %w", l.ids[i], err)
			}
			took[i] = append(took[i], ms(time.Since(sent)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	all := slices.Concat(took...)
	slices.Sort(all)
	return &Heartbeats{Sent: len(all), PerSecond: float64(len(all)) / time.Since(begin).Seconds(), P99ms: stats.Quantile(all, 0.99)}, nil
}
