package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"testbed/internal/errs"
	"testbed/internal/units"
	"testbed/torchft/manager"
	"testbed/torchft/port"
)

func managerCommand() *cobra.Command {
	var cfg manager.Config
	var bind, hostname string
	var heartbeat, connect int64
	cmd := &cobra.Command{
		Use: "manager", Short: "Serve as the manager of a torchft replica group", Args: noArguments,
		Long: `Represents the ranks of a replica group. The manager asks the lighthouse for
quorums, and tells every rank the group's own rank in each quorum. It commits a
step of the group if all ranks of the group vote for the step. Flags are spelt as
the arguments of torchft's ManagerServer.

Once the manager listens, it prints its address on stdout. It ends on SIGTERM, and
with exit code 1 on the request Kill, which gets no answer. Unless --bind says
otherwise, only this machine can reach the manager.`,
	}
	f := cmd.Flags()
	f.StringVar(&cfg.ReplicaID, "replica_id", "", "the group's id; a group that restarts needs a new one, such as train_0:UUID (required)")
	f.StringVar(&cfg.Lighthouse, "lighthouse_addr", "", "address of the lighthouse (default $TORCHFT_LIGHTHOUSE)")
	f.StringVar(&hostname, "hostname", "", "name by which other machines reach this manager (default: the name in --bind, or the machine's)")
	f.StringVar(&bind, "bind", "", "address to listen on (default 127.0.0.1:$TORCHFT_MANAGER_PORT, else any port)")
	f.StringVar(&cfg.StoreAddress, "store_addr", "", "address where the group's ranks meet those of other groups (required)")
	f.IntVar(&cfg.WorldSize, "world_size", 0, "ranks in the group (required)")
	countedFlag(f, &heartbeat, units.Millisecond, "heartbeat_interval_ms", 100, "time between two heartbeats")
	countedFlag(f, &connect, units.Millisecond, "connect_timeout_ms", 60_000, "how long a connection to the lighthouse may take")
	f.IntVar(&cfg.QuorumRetries, "quorum_retries", 0, "how often a failed call to the lighthouse is repeated (default $TORCHFT_QUORUM_RETRIES, else 0)")
	f.BoolVar(&cfg.Compat, "compat", false, "count requests and votes of disconnected callers, as torchft does")
	killTokenFlag(cmd, &cfg.KillToken)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg.HeartbeatInterval, cfg.ConnectTimeout = time.Duration(heartbeat)*time.Millisecond, time.Duration(connect)*time.Millisecond
		if err := managerEnvironment(cmd, &cfg, &bind); err != nil {
			return errs.Usage(err)
		}
		cfg.Exit = func(why string) {
			fmt.Fprintf(os.Stderr, "testbed: manager %s: ended by the request Kill: %.200q\n", cfg.ReplicaID, why)
			os.Exit(1)
		}
		cfg.Log = func(line string) { fmt.Fprintf(os.Stderr, "testbed: manager %s: %s\n", cfg.ReplicaID, line) }
		return serve(cmd, bind, hostname, func(address string) (server, error) {
			cfg.Address = address
			return manager.New(cmd.Context(), cfg)
		})
	}
	return cmd
}

// managerEnvironment takes settings without flags from the environment, and
// checks all of them.
func managerEnvironment(cmd *cobra.Command, cfg *manager.Config, bind *string) error {
	if cfg.Lighthouse == "" {
		cfg.Lighthouse = os.Getenv("TORCHFT_LIGHTHOUSE")
	}
	if *bind == "" {
		*bind = net.JoinHostPort("127.0.0.1", "0")
		if p := os.Getenv("TORCHFT_MANAGER_PORT"); p != "" {
			*bind = net.JoinHostPort("127.0.0.1", p)
		}
	}
	if retries := os.Getenv("TORCHFT_QUORUM_RETRIES"); retries != "" && !cmd.Flags().Changed("quorum_retries") {
		n, err := strconv.Atoi(retries)
		if err != nil {
			return fmt.Errorf("TORCHFT_QUORUM_RETRIES is %q: it must be a whole number", retries)
		}
		cfg.QuorumRetries = n
	}
	switch {
	case cfg.ReplicaID == "":
		return errors.New("name the group with --replica_id, such as train_0:UUID")
	case cfg.Lighthouse == "":
		return errors.New("name the lighthouse with --lighthouse_addr or TORCHFT_LIGHTHOUSE, such as http://host:29510")
	case cfg.StoreAddress == "":
		return errors.New("name the group's store with --store_addr, such as host:29600")
	}
	if _, err := port.HostPort(cfg.Lighthouse); err != nil {
		return err
	}
	return cfg.Validate()
}
