package main

import (
	"time"

	"github.com/spf13/cobra"

	"testbed/internal/errs"
	"testbed/torchft/load"
)

func benchLighthouseCommand() *cobra.Command {
	var o load.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use: "lighthouse", Short: "Measure a lighthouse under the load of many managers", Args: noArguments,
		Long: `Plays the managers of many replica groups. All of them ask a lighthouse for
quorums at once, and then send it heartbeats. By default the lighthouse is
Testbed's own, in a separate process. --against measures another lighthouse, which
must have no replicas yet and a --min_replicas equal to the number of groups.
docs/torchft.md explains the figures.`,
	}
	f := cmd.Flags()
	f.StringVar(&o.Against, "against", "", "address of the lighthouse, such as http://host:29510")
	f.IntVar(&o.Groups, "groups", 1000, "replica groups")
	f.IntVar(&o.Rounds, "rounds", 10, "quorums to measure")
	f.DurationVar(&o.Interval, "heartbeat-interval", 100*time.Millisecond, "time between two heartbeats of a group")
	f.DurationVar(&o.Beating, "for", 10*time.Second, "how long heartbeats are sent")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.Groups < 1:
			return errs.Usagef("--groups %d must be at least 1", o.Groups)
		case o.Rounds < 1:
			return errs.Usagef("--rounds %d must be at least 1", o.Rounds)
		case o.Interval <= 0:
			return errs.Usagef("--heartbeat-interval %v must be above 0", o.Interval)
		case o.Beating < o.Interval:
			return errs.Usagef("--for %v must not be shorter than --heartbeat-interval, which is %v", o.Beating, o.Interval)
		}
		b, err := load.Measure(cmd.Context(), o)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd, b)
		}
		return b.WriteText(cmd.OutOrStdout())
	}
	return cmd
}
