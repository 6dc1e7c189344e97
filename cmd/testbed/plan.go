package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"testbed/emulation/cluster"
	"testbed/experiment"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/scenarios"
)

func planCommand() *cobra.Command {
	var asJSON, measured bool
	var set []string
	var hosts int
	var place string
	cmd := &cobra.Command{
		Use: "plan SCENARIO", Short: "Show the network that a run would install", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Prints every node's access link, every path, and the ring's order. Says whether
join_timeout of the policy torchft is shorter than a round. Installs nothing and
needs no rights.

--measure builds a small network for some seconds, and measures how much reduction
traffic this machine can handle. It proposes a dilation (real.dilation) at which
the machine can handle the scenario's traffic.

--hosts N shows which nodes are on which of N equal hosts, the traffic between the
hosts, and how fast the hosts' network has to be. A real run places nodes by the
processors of its hosts and the delays between them. With --place you place them:
--place w0-w3/w4,w5/w6 for three hosts, the leader first.`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	setFlag(cmd, &set)
	cmd.Flags().BoolVar(&measured, "measure", false, "measure how much traffic this machine can handle, and propose a dilation")
	cmd.Flags().IntVar(&hosts, "hosts", 1, "number of hosts")
	cmd.Flags().StringVar(&place, "place", "", "the workers of each host, as w0-w3/w4,w5, the leader first; see docs/hosts.md")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		s, err := changedScenario(args[0], set)
		if err != nil {
			return err
		}
		values, err := s.Resolve("")
		if err != nil {
			return err
		}
		if err := s.CheckTime(values); err != nil {
			return err
		}
		plan, network := values.Plan, cluster.NetworkOf(values)
		if place != "" && !cmd.Flags().Changed("hosts") {
			hosts = strings.Count(place, "/") + 1
		}
		of, err := placed(network, hosts, place)
		if err != nil {
			return errs.Usage(err)
		}
		var load *scenarios.MachineLoad
		if measured {
			if load, err = measureLoad(cmd.Context(), s); err != nil {
				return err
			}
		}
		if asJSON {
			shown, err := scenarios.NewNetwork(s, plan)
			if err != nil {
				return err
			}
			shown.Load = load
			if hosts > 1 {
				shown.Hosts = cluster.NodesByHost(plan, of)
				if shown.HostTraffic, _, err = cluster.Traffic(network, of); err != nil {
					return err
				}
			}
			return printJSON(cmd, struct {
				*scenarios.Network
				Torchft *experiment.JoinTimeout `json:"torchft,omitempty"`
			}{shown, experiment.CompareJoinTimeout(s, "torchft")})
		}
		return writePlan(cmd.OutOrStdout(), s, network, of, load)
	}
	return cmd
}

// writePlan writes a plan for a person, with the placement on hosts.
func writePlan(out io.Writer, s *scenarios.Scenario, network *cluster.Network, of []int, load *scenarios.MachineLoad) error {
	if err := scenarios.WriteNetwork(out, s, network.Plan); err != nil {
		return err
	}
	if s.Train.Foreign() {
		words := strings.Join(s.Train.Program, " ") + ", in " + s.Train.Dir
		var wrong *scenarios.Error
		switch path, err := s.FindProgram(); {
		case errors.As(err, &wrong):
			words += ". ERROR: " + wrong.Problem
		default:
			words += "; the program is the file " + path
		}
		fmt.Fprintf(out, "\nworkers train with a program of your own: %s\n", words)
	}
	fmt.Fprintln(out)
	if j := experiment.CompareJoinTimeout(s, "torchft"); j != nil {
		fmt.Fprintf(out, "%v\n", j)
	}
	scenarios.WriteIgnored(out, "ignored by run", s.Ignored(record.Real, false), true)
	scenarios.WriteIgnored(out, "ignored by simulate", s.Ignored(record.Sim, false), true)
	scenarios.WriteIgnored(out, "ignored by simulate --network links", s.Ignored(record.SimLinks, false), true)
	if load != nil {
		fmt.Fprintf(out, "\n%s\n", load.Words(s.Slowdown()))
	}
	if slices.Max(of) == 0 {
		return nil
	}
	lines, err := cluster.DescribePlacement(network, of)
	if err == nil {
		_, err = fmt.Fprintf(out, "\nplacement on %d hosts:\n  %s\n", slices.Max(of)+1, strings.Join(lines, "\n  "))
	}
	return err
}

// placed places the nodes on equal hosts, as --place demands or else by itself.
func placed(network *cluster.Network, hosts int, place string) ([]int, error) {
	if place != "" {
		of, err := cluster.ParsePlacement(place, network, hosts)
		if err != nil {
			err = fmt.Errorf("--place %s, for --hosts %d: %w", place, hosts, err)
		}
		return of, err
	}
	of, err := cluster.ContiguousPlacement(network, hosts)
	if err != nil {
		err = fmt.Errorf("--hosts: %w", err)
	}
	return of, err
}
