package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"testbed/scenarios"
	"testbed/shaping"
)

// maxMatrix is the number of nodes up to which plan prints the matrix of paths.
const maxMatrix = 12

func planCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "plan SCENARIO", Short: "What network a run would install", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long:              "Prints every node's access link and every path, resolved. Installs nothing and needs no rights.",
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := scenarios.Load(args[0])
		if err != nil {
			return err
		}
		plan, err := s.Plan()
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd, plan)
		}
		return printPlan(cmd, s, plan)
	}
	return cmd
}

func printPlan(cmd *cobra.Command, s *scenarios.Scenario, plan *shaping.Plan) error {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s: %d nodes; 1 ms of scenario time takes %v\n\n", s.Name, len(plan.Nodes), s.RealDuration(1000))
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "node\taddress\trate up\trate down\tqueue")
	for _, n := range plan.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", n.Name, n.Addr.Addr(), n.RateUp, n.RateDown, n.Queue)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(plan.Nodes) > maxMatrix {
		fmt.Fprintf(out, "\n%d paths; see --json\n", len(plan.Nodes)*(len(plan.Nodes)-1))
		return nil
	}
	fmt.Fprintln(out, "\none-way delay ± jitter, loss; from the row's node to the column's")
	fmt.Fprint(w, "\t")
	for _, n := range plan.Nodes {
		fmt.Fprintf(w, "%s\t", n.Name)
	}
	fmt.Fprintln(w)
	for i, n := range plan.Nodes {
		fmt.Fprintf(w, "%s\t", n.Name)
		for j := range plan.Nodes {
			fmt.Fprintf(w, "%s\t", describePath(plan.Paths[i][j], i == j))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func describePath(p shaping.PathPlan, self bool) string {
	switch {
	case self:
		return "·"
	case p.Cut:
		return "cut"
	}
	parts := []string{time.Duration(p.OneWayDelay).String()}
	if p.Jitter > 0 {
		parts[0] += " ± " + time.Duration(p.Jitter).String()
		if p.JitterDistribution != 0 {
			parts[0] += " " + p.JitterDistribution.String()
		}
	}
	if loss := p.MeanLoss(); p.LossBurst != (shaping.LossBurst{}) {
		parts = append(parts, loss.String()+" in bursts")
	} else if loss > 0 {
		parts = append(parts, loss.String())
	}
	for _, share := range []struct {
		of   shaping.Probability
		what string
	}{{p.Duplicate, "duplicated"}, {p.Reorder, "overtaking"}, {p.Corrupt, "corrupt"}} {
		if share.of > 0 {
			parts = append(parts, share.of.String()+" "+share.what)
		}
	}
	return strings.Join(parts, ", ")
}
