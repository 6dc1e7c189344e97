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
	flags.StringVar(hosts, "hosts", "", "go over several hosts: N@ADDRESS, slurm, slurm:N or kubernetes; see docs/hosts.md")
}

func hostCommand() *cobra.Command {
	var o cluster.HostOptions
	var stay bool
	cmd := &cobra.Command{
		Use: "host --index I --count N --leader ADDRESS", Short: "Play a part of a run that goes over several hosts", Args: noArguments,
		Long: `Is one host of a run that testbed run --hosts N@ADDRESS leads, until that run is
over. Reads the run's token from standard input. Needs what testbed run needs,
and that UDP passes between all hosts of the run; which nodes are here, and all
that is to be known of the scenario, the leader says.

If the leader is silent for three seconds it ends, and so does all that it has
started. Exits with 3 if the leader has gone, or if the run has failed elsewhere.

In a pod that testbed manifests describes it needs no flags and no token.`,
	}
	cmd.Flags().IntVar(&o.Index, "index", 0, "which host this is, from 1; the leader is 0 (default: that of the task in a step of Slurm's)")
	cmd.Flags().IntVar(&o.Count, "count", 0, "how many hosts there are, with the leader")
	cmd.Flags().StringVar(&o.Leader, "leader", "", "the leader's address")
	cmd.Flags().StringVar(&o.Name, "name", "", "what this host is called in the record (default: its own name)")
	cmd.Flags().BoolVar(&stay, "stay", false, "stay for the next run when one is over, until it is interrupted; for commands of several runs")
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
