package main

import (
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"testbed/internal/errs"
	"testbed/internal/units"
	"testbed/policy"
	"testbed/torchft/lighthouse"
)

func lighthouseCommand() *cobra.Command {
	var cfg lighthouse.Config
	var bind string
	var joinTimeout, heartbeatTimeout, tick int64
	cmd := &cobra.Command{
		Use: "lighthouse", Short: "Serve quorums to torchft's clients", Args: noArguments,
		Long: `Serves quorums to torchft's managers over gRPC, and a page about them to browsers,
on the same port. Flags are spelt as torchft's own.

Once the lighthouse listens, it prints its address on stdout: the value of
TORCHFT_LIGHTHOUSE for managers. It ends on SIGTERM. Unless --bind says otherwise,
only this machine can reach it.`,
	}
	f := cmd.Flags()
	f.StringVar(&bind, "bind", "127.0.0.1:29510", "address to listen on")
	f.IntVar(&cfg.MinReplicas, "min_replicas", 0, "replicas that a quorum needs; below a majority of all replicas, two lighthouses can form two quorums at once (required)")
	countedFlag(f, &joinTimeout, units.Millisecond, "join_timeout_ms", 60_000, "how long replicas that asked for a quorum wait for other living replicas")
	countedFlag(f, &heartbeatTimeout, units.Millisecond, "heartbeat_timeout_ms", 5000, "age from which a heartbeat no longer counts")
	countedFlag(f, &tick, units.Millisecond, "quorum_tick_ms", 100, "how often the lighthouse checks for a new quorum")
	f.StringVar(&cfg.Journal, "journal", "", "file that keeps the last quorum across restarts")
	f.BoolVar(&cfg.Compat, "compat", false, "admit disconnected callers, allow empty quorums, and count ids from 1, as torchft does")
	killTokenFlag(cmd, &cfg.KillToken)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg.JoinTimeout, cfg.HeartbeatTimeout = policy.Time(joinTimeout)*1000, policy.Time(heartbeatTimeout)*1000
		cfg.Tick = time.Duration(tick) * time.Millisecond
		if !cfg.Compat {
			cfg.After = time.Now().UnixMilli() // beyond what an earlier lighthouse has used
		}
		// A heartbeat is so little work that waking a second processor for it would
		// double its cost.
		all := runtime.GOMAXPROCS(0)
		cfg.Wide = func(wide bool) { runtime.GOMAXPROCS(map[bool]int{true: all, false: 1}[wide]) }
		if err := cfg.Validate(); err != nil {
			return errs.Usage(err)
		}
		return serve(cmd, bind, "", func(string) (server, error) { return lighthouse.New(cfg) })
	}
	return cmd
}
