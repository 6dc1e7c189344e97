package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"testbed/internal/errs"
	"testbed/torchft/load"
)

// benchmark is what bench lighthouse prints.
type benchmark struct {
	Against    string           `json:"against,omitempty"`
	Groups     int              `json:"groups"`
	Quorums    *load.Quorums    `json:"quorums"`
	Heartbeats *load.Heartbeats `json:"heartbeats"`
	// Of a lighthouse that was started for this: cores that heartbeats kept busy,
	// heartbeats that a core would take, and the most memory at any time.
	Cores          float64 `json:"heartbeat_cores,omitempty"`
	PerCoreSecond  float64 `json:"heartbeats_per_core_second,omitempty"`
	MaxRSSMegabyte float64 `json:"max_rss_mb,omitempty"`
}

// BenchCommand is a verb below bench.
func BenchCommand() *cobra.Command {
	var b benchmark
	var rounds int
	var interval, long time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use: "lighthouse", Short: "The load of a job's managers on a lighthouse", Args: NoArguments,
		Long: `Has the managers of many groups ask a lighthouse for quorums, all at once, and
then send it heartbeats. The lighthouse is one of ours in a process of its own,
or with --against any other: it has to need as many replicas as there are
groups (--min_replicas), and have none. docs/torchft.md says what the figures mean.`,
	}
	f := cmd.Flags()
	f.StringVar(&b.Against, "against", "", "address of the lighthouse, such as http://host:29510")
	f.IntVar(&b.Groups, "groups", 1000, "replica groups")
	f.IntVar(&rounds, "rounds", 10, "quorums")
	f.DurationVar(&interval, "heartbeat-interval", 100*time.Millisecond, "pause between a group's heartbeats")
	f.DurationVar(&long, "for", 10*time.Second, "how long heartbeats are sent")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if b.Groups < 1 || rounds < 1 || interval <= 0 || long < interval {
			return errs.Usagef("--groups and --rounds must be at least 1, and --for not below --heartbeat-interval")
		}
		if err := b.measure(cmd.Context(), rounds, interval, long); err != nil {
			return err
		}
		if asJSON {
			return PrintJSON(cmd, &b)
		}
		return b.print(cmd)
	}
	return cmd
}

// measure has a lighthouse for each part, so that its account of time is of that
// part alone.
func (b *benchmark) measure(ctx context.Context, rounds int, interval, long time.Duration) error {
	err := b.on(ctx, func(l *load.Load) (err error) {
		b.Quorums, err = l.Quorums(ctx, rounds)
		return err
	}, func(s *os.ProcessState) { b.MaxRSSMegabyte = maxRSS(s) })
	if err != nil {
		return err
	}
	return b.on(ctx, func(l *load.Load) (err error) {
		b.Heartbeats, err = l.Heartbeats(ctx, interval, long)
		return err
	}, func(s *os.ProcessState) {
		busy := (s.UserTime() + s.SystemTime()).Seconds()
		b.PerCoreSecond = float64(b.Heartbeats.Sent) / busy
		b.Cores = b.Heartbeats.PerSecond / b.PerCoreSecond
	})
}

// on measures a lighthouse, and if it is started for that looks at what became
// of its process.
func (b *benchmark) on(ctx context.Context, measure func(*load.Load) error, became func(*os.ProcessState)) error {
	address, end := b.Against, func() (*os.ProcessState, error) { return nil, nil }
	if address == "" {
		var err error
		if address, end, err = startLighthouse(b.Groups); err != nil {
			return err
		}
	}
	l, err := load.Connect(ctx, address, b.Groups)
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
		became(state)
	}
	return nil
}

// startLighthouse starts one in a process of its own.
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
		if cmd.Process.Signal(syscall.SIGTERM) != nil { // where there are no signals
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
		return "", nil, fmt.Errorf("starting a lighthouse: %w", err)
	}
	return strings.TrimSpace(line), end, nil
}

func (b *benchmark) print(cmd *cobra.Command) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
	q, h := b.Quorums, b.Heartbeats
	fmt.Fprintf(w, "quorum of %d groups\tp50 %.1f ms\tp99 %.1f ms\t%d bytes an answer\n", b.Groups, q.P50ms, q.P99ms, q.AnswerBytes)
	fmt.Fprintf(w, "the same bytes over plain TCP\t%.1f ms\tp99 takes %.1f times that\t\n", q.PlainMs, q.Ratio)
	fmt.Fprintf(w, "heartbeats\t%.0f a second\tp99 %.1f ms\t\n", h.PerSecond, h.P99ms)
	if b.Against == "" {
		fmt.Fprintf(w, "the lighthouse for heartbeats\t%.2f cores\t%.0f a core-second\t\n", b.Cores, b.PerCoreSecond)
	}
	if b.MaxRSSMegabyte > 0 {
		fmt.Fprintf(w, "its memory, at most\t%.0f MB\t\t\n", b.MaxRSSMegabyte)
	}
	return w.Flush()
}
