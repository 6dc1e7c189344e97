//go:build !nohost

package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"testbed/emulation/cluster"
	"testbed/emulation/linkcheck"
	"testbed/experiment"
	"testbed/shaping/probe"
)

func verifyCommand() *cobra.Command {
	var o linkcheck.Options
	var over string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify SCENARIO", Short: "Measure a scenario's network against its plan", Args: oneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Builds the scenario's network and measures every path between nodes: round trip,
one-way delay, jitter, loss, goodput alone and together with all other paths, and
the delay while all links are half busy. Above nine nodes it measures the ring's
neighbours and a sample of the other pairs.

Each property is printed as measured/planned; ! marks a property outside its
tolerance. Goodput is the payload of UDP datagrams: 97.2 % of a rate, which
counts whole Ethernet frames. All delays but the round trip are one-way.

Exits with 3 if a property is outside its tolerance. The cause may be the links,
or a machine that is too busy or too small for these rates.

With --hosts the network covers several hosts, as in a run. One-way delays between
hosts are as exact as the comparison of their clocks.`,
	}
	linksFlag(cmd, &o.Links)
	hostsFlag(cmd.Flags(), &over)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := experiment.CheckLinks(o.Links); err != nil {
			return err
		}
		if o.Scenario, err = loadResolved(args[0]); err != nil {
			return err
		}
		if o.Hosts, err = cluster.ParseRequest(over); err != nil {
			return err
		}
		o.Progress = func(stage string) { fmt.Fprintln(cmd.ErrOrStderr(), stage) }
		report, err := linkcheck.Verify(cmd.Context(), o)
		if err != nil {
			return err
		}
		if asJSON {
			err = printJSON(cmd, report)
		} else {
			err = printReport(cmd, report)
		}
		if err == nil && !report.OK {
			err = errInvalid
		}
		return err
	}
	return cmd
}

func printReport(cmd *cobra.Command, r probe.Report) error {
	out := cmd.OutOrStdout()
	fmt.Fprintln(out, "measured/planned; times in ms, goodput in Mbit/s")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "from\tto\tround trip\tone-way\tp99\tjitter\tloss, 99 % interval\tgoodput\tall at once\thalf busy\tp99")
	for _, p := range r.Pairs {
		fmt.Fprintf(w, "%s\t%s", p.From, p.To)
		for _, q := range []*probe.Property{p.RTT, p.OneWayDelay, p.OneWayDelayP99, p.Jitter} {
			fmt.Fprintf(w, "\t%s", cell(q, "%.2f/%.4g"))
		}
		loss := "–"
		if q := p.Loss; q != nil {
			loss = fmt.Sprintf("%.2f/%.3g %% [%.2f, %.2f]%s", 100*q.Measured, 100*q.Planned, 100*q.Interval[0], 100*q.Interval[1], failed(q))
		}
		if q := p.Reorder; q != nil {
			loss += fmt.Sprintf(", %.2f/%.3g %% reordered%s", 100*q.Measured, 100*q.Planned, failed(q))
		}
		fmt.Fprintf(w, "\t%s\t%s\t%s", loss, cell(p.Goodput, "%.2f/%.2f"), cell(p.GoodputAll, "%.2f/%.2f"))
		fmt.Fprintf(w, "\t%s\t%s\n", cell(p.BusyDelay, "%.2f/%.4g"), cell(p.BusyDelayP99, "%.2f/%.4g"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	wrong := 0
	for _, p := range r.Pairs {
		names, all := p.Properties()
		for k, q := range all {
			if !q.OK {
				fmt.Fprintf(out, "! %s to %s: %s %v\n", p.From, p.To, names[k], q)
				wrong++
			}
		}
	}
	for k, h := range r.Hosts {
		clock := ""
		if k > 0 {
			clock = fmt.Sprintf("; its clock was compared with the leader's to within %.0f µs", h.ClockBound)
		}
		fmt.Fprintf(out, "host %s: %s%s\n", h.Name, strings.Join(h.Nodes, " "), clock)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(out, n)
	}
	if r.OK {
		fmt.Fprintf(out, "ok: all %d pairs of nodes are as planned (%s links)\n", len(r.Pairs), r.Links)
	} else if wrong == 0 {
		fmt.Fprintf(out, "NOT OK: all %d pairs of nodes are as planned, but the lines above report another fault (%s links)\n", len(r.Pairs), r.Links)
	} else {
		fmt.Fprintf(out, "NOT OK: properties outside their tolerance: %d; measured pairs of nodes: %d (%s links)\n", wrong, len(r.Pairs), r.Links)
	}
	return nil
}

func cell(p *probe.Property, format string) string {
	if p == nil {
		return "–"
	}
	return fmt.Sprintf(format, p.Measured, p.Planned) + failed(p)
}

func failed(p *probe.Property) string {
	if p.OK {
		return ""
	}
	return " !"
}
