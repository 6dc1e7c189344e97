package library

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"testbed/cmd/testbed/cli"
	"testbed/scenarios"
	"testbed/scenarios/placement"
	"testbed/scenarios/planned"
	"testbed/train/program/launch"
)

// Measure measures what this machine carries of a scenario's reductions.
type Measure func(context.Context, *scenarios.Scenario) (*planned.Load, error)

func planCommand(measure Measure) *cobra.Command {
	var asJSON, measured bool
	var hosts int
	cmd := &cobra.Command{
		Use: "plan SCENARIO", Short: "What network a run would install", Args: cli.OneScenario,
		ValidArgsFunction: cli.CompleteScenario,
		Long: `Prints every node's access link and every path, resolved, and the ring's order.
Installs nothing and needs no rights.

With --measure it takes some seconds to find what this machine carries of such
reductions, on a network of its own, as a run does, and says by how much the
scenario has to be dilated (real.dilation) to fit.

With --hosts N it says which nodes are on which of N hosts.`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&measured, "measure", false, "measure what this machine carries, and propose a dilation")
	cmd.Flags().IntVar(&hosts, "hosts", 1, "how many hosts a run would go over")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		s, err := scenarios.Load(args[0])
		if err != nil {
			return err
		}
		plan, err := s.Plan()
		if err != nil {
			return err
		}
		of, err := placement.Contiguous(s, plan, hosts)
		if err != nil {
			return cli.Usage(fmt.Errorf("--hosts: %w", err))
		}
		var load *planned.Load
		if measured {
			if load, err = measure(cmd.Context(), s); err != nil {
				return err
			}
		}
		if asJSON {
			network, err := planned.New(s, plan)
			if err != nil {
				return err
			}
			network.Load = load
			if hosts > 1 {
				network.Hosts = placement.Nodes(plan, of)
			}
			return cli.PrintJSON(cmd, network)
		}
		if hosts > 1 {
			defer func() {
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "\non %d hosts\n  %s\n", hosts, strings.Join(placement.Describe(plan, of), "\n  "))
				}
			}()
		}
		if load != nil {
			defer func() {
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", load.Words(s.Slowdown()))
				}
			}()
		}
		if err := planned.Write(cmd.OutOrStdout(), s, plan); err != nil || !s.Train.Foreign() {
			return err
		}
		words := strings.Join(s.Train.Program, " ") + ", in " + s.Train.Dir
		if path, err := launch.Find(s); err != nil {
			words += "; it CANNOT BE STARTED: " + err.Error()
		} else {
			words += ", which is " + path
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "\nworkers train with a program of your own: %s\n", words)
		return err
	}
	return cmd
}
