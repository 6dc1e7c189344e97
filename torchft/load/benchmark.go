package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// Options determine what a benchmark of a lighthouse measures.
type Options struct {
	Against  string // the address of the lighthouse; empty: one of ours is started
	Groups   int
	Rounds   int           // of quorums
	Interval time.Duration // between the heartbeats of a group
	Beating  time.Duration // how long heartbeats are sent
}

// Benchmark is the capacity of a lighthouse.
type Benchmark struct {
	Against    string      `json:"against,omitempty"`
	Groups     int         `json:"groups"`
	Quorums    *Quorums    `json:"quorums"`
	Heartbeats *Heartbeats `json:"heartbeats"`
	// Of a lighthouse that was started for this: cores that heartbeats kept busy,
	// heartbeats that a core could handle, and peak memory.
	Cores          float64 `json:"heartbeat_cores,omitempty"`
	PerCoreSecond  float64 `json:"heartbeats_per_core_second,omitempty"`
	MaxRSSMegabyte float64 `json:"max_rss_mb,omitempty"`
}

// Measure measures quorums and then heartbeats. It starts a lighthouse for
// each, so that each part's processor time is counted alone.
func Measure(ctx context.Context, o Options) (*Benchmark, error) {
	b := &Benchmark{Against: o.Against, Groups: o.Groups}
	err := b.on(ctx, func(l *Load) (err error) {
		b.Quorums, err = l.Quorums(ctx, o.Rounds)
		return err
	}, func(s *os.ProcessState) { b.MaxRSSMegabyte = maxRSS(s) })
	if err != nil {
		return nil, err
	}
	err = b.on(ctx, func(l *Load) (err error) {
		b.Heartbeats, err = l.Heartbeats(ctx, o.Interval, o.Beating)
		return err
	}, func(s *os.ProcessState) {
		busy := (s.UserTime() + s.SystemTime()).Seconds()
		b.PerCoreSecond = float64(b.Heartbeats.Sent) / busy
		b.Cores = b.Heartbeats.PerSecond / b.PerCoreSecond
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// on measures a lighthouse. ended is called with the state of its process if it
// was started for the measurement.
func (b *Benchmark) on(ctx context.Context, measure func(*Load) error, ended func(*os.ProcessState)) error {
	address, end := b.Against, func() (*os.ProcessState, error) { return nil, nil }
	if address == "" {
		var err error
		if address, end, err = startLighthouse(b.Groups); err != nil {
			return err
		}
	}
	l, err := Connect(ctx, address, b.Groups)
	if err == nil {
		err = measure(l)
	}
	if l != nil {
		l.Close()
	}
	state, endErr := end()
	if err := errors.Join(err, endErr); err != nil {
		return fmt.Errorf("measuring the lighthouse: %w", err)
	}
	if state != nil {
		ended(state)
	}
	return nil
}

// startLighthouse starts a lighthouse in a process of its own, which is this
// program.
func startLighthouse(groups int) (address string, end func() (*os.ProcessState, error), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(self, "lighthouse", "--bind", "127.0.0.1:0", "--min_replicas", strconv.Itoa(groups), "--heartbeat_timeout_ms", "60000")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	end = func() (*os.ProcessState, error) {
		if cmd.Process.Signal(syscall.SIGTERM) != nil { // on systems without signals
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return cmd.ProcessState, nil
		}
		err := cmd.Wait()
		return cmd.ProcessState, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_, _ = end()
		if errors.Is(err, io.EOF) {
			err = errors.New("the process ended before it had an address; see its error above")
		}
		return "", nil, fmt.Errorf("starting a lighthouse: %w", err)
	}
	return strings.TrimSpace(line), end, nil
}

// WriteText writes the benchmark for a person.
func (b *Benchmark) WriteText(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	q, h := b.Quorums, b.Heartbeats
	groups := "1 group"
	if b.Groups != 1 {
		groups = fmt.Sprintf("%d groups", b.Groups)
	}
	fmt.Fprintf(w, "quorum of %s\tp50 %.1f ms\tp99 %.1f ms\t%d bytes per answer\n", groups, q.P50ms, q.P99ms, q.AnswerBytes)
	fmt.Fprintf(w, "the same bytes over plain TCP\t%.1f ms\tthe p99 of a quorum is %.1f times as long\t\n", q.PlainMs, q.Ratio)
	fmt.Fprintf(w, "heartbeats\t%.0f per second\tp99 %.1f ms\t\n", h.PerSecond, h.P99ms)
	if b.Against == "" {
		fmt.Fprintf(w, "the lighthouse's processor time for heartbeats\t%.2f cores\t%.0f heartbeats per second of a core\t\n", b.Cores, b.PerCoreSecond)
	}
	if b.MaxRSSMegabyte > 0 {
		fmt.Fprintf(w, "the lighthouse's memory, at most\t%.0f MB\t\t\n", b.MaxRSSMegabyte)
	}
	return w.Flush()
}
