//go:build !nohost

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"testbed/emulation/cluster"
)

// hostsFlag asks for several hosts.
func hostsFlag(flags *pflag.FlagSet, hosts *string) {
	flags.StringVar(hosts, "hosts", "", "run on several hosts: N@ADDRESS, slurm, slurm:N or kubernetes; see docs/hosts.md")
}

func hostCommand() *cobra.Command {
	var o cluster.HostOptions
	var stay bool
	cmd := &cobra.Command{
		Use: "host --index I --count N --leader ADDRESS", Short: "Take part in a run over several hosts", Args: noArguments,
		Long: `Serves as one host of a run that testbed run --hosts N@ADDRESS leads, until the
run is over. Reads the run's token from standard input. Needs everything that
testbed run needs, and UDP between all hosts of the run. The leader sends the
scenario, and says which nodes are on this host.

If the leader is silent for three seconds, the host ends everything that it has
started, and exits. The host exits with 3 if the leader has gone, or if the run
has failed on another host.

In a pod that testbed manifests describes, testbed host needs neither flags nor a
token.`,
	}
	cmd.Flags().IntVar(&o.Index, "index", 0, "number of this host, from 1; the leader is 0 (default: from the Slurm task)")
	cmd.Flags().IntVar(&o.Count, "count", 0, "number of hosts, including the leader")
	cmd.Flags().StringVar(&o.Leader, "leader", "", "the leader's address")
	cmd.Flags().StringVar(&o.Name, "name", "", "name of this host in the record (default: the machine's host name)")
	cmd.Flags().BoolVar(&stay, "stay", false, "after a run, wait for the next one, until interrupted; for commands with several runs")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report := func(err error) { fmt.Fprintln(cmd.ErrOrStderr(), err) }
		err := cluster.Serve(cmd.Context(), o, stay, report)
		if _, ended := errors.AsType[*cluster.EndedError](err); ended {
			report(err)
			return errInvalid
		}
		return err
	}
	return cmd
}
