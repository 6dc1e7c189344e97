//go:build !nohost

package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"testbed/emulation/cluster"
	"testbed/emulation/monitor"
	"testbed/emulation/shell"
	"testbed/experiment"
	"testbed/internal/errs"
	"testbed/internal/units"
	"testbed/record"
	"testbed/scenarios"
	"testbed/shaping/fidelity"
)

func netCommand() *cobra.Command {
	var o shell.Options
	var limitMB int64
	var out, several string
	var strict bool
	cmd := &cobra.Command{
		Use: "net SCENARIO [flags] [-- CMD...]", Short: "Run your own programs on a scenario's network",
		ValidArgsFunction: completeScenario,
		Long: `Builds the scenario's network and runs CMD on it, or a shell. Inside,

    testbed in w0 CMD...

runs a program in a node. $TESTBED_NODES holds the names of all nodes, and
$TESTBED_ADDR_W0 the address of w0. ip netns exec, ip -n and tc -n know the
nodes too. CMD itself runs at the hub, which has the far ends of all links and no
address. For example:

    testbed net homogeneous -- sh -c 'testbed in w0 ping -c 3 w1'

A node is a machine: its host name is that of the node, all nodes know each
other's names, and shared memory (System V, /dev/shm) is the node's own. Files
elsewhere and process ids are common to all. With --at NODE, CMD itself runs in
a node and has its address: mpiexec, or a server that the others talk to, may
run in the coordinator's.

CMD has the standard input, output and error of testbed net (the input is at its
end where SCENARIO is -). testbed net exits with
CMD's exit code: 128 + n if signal n ended it, 126 or 127 if it could not be
started. When CMD ends, everything that it started ends, and the network goes.

The scenario's workers do not run. Its injects on links (Partition, Link, Cut)
happen, on a clock that starts with CMD.

After CMD a line on standard error says whether the network matched its plan.
--out writes all measurements to fidelity.json. With --strict an invalid network
makes the exit code 3, unless CMD's own is not 0.

With --hosts the nodes are on several hosts, and CMD is on the first. testbed in
runs programs in all nodes alike. For a node on another host it passes on
standard input, output and error, signals and the exit code, without a terminal.

--pcap writes the frames that leave and reach a node to NODE.pcap, in the
directory of --out or the current one. Their checksums are not computed, because
the nodes' network cards are virtual.`,
	}
	linksFlag(cmd, &o.Links)
	hostsFlag(cmd.Flags(), &several)
	cmd.Flags().StringVar(&o.At, "at", "", "run CMD in this node (default: at the hub, without an address)")
	cmd.Flags().StringSliceVar(&o.Pcap, "pcap", nil, "write the frames of this node to NODE.pcap; may be repeated")
	countedFlag(cmd.Flags(), &limitMB, units.Megabyte, "pcap-limit", 256, "greatest size of each NODE.pcap in MB; later frames are not written")
	cmd.Flags().StringVar(&out, "out", "", "directory for fidelity.json and the captures (default: none, and the current one)")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 3 if the network did not match its plan")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		names := args
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			names = args[:dash]
		}
		if len(names) > 1 {
			return errs.Usagef("write -- before the program: %s %s -- %s …", cmd.CommandPath(), names[0], names[1])
		}
		if len(names) == 1 && names[0] == scenarios.Stdin && len(args) == 1 {
			return errs.Usagef("the shell and the scenario - would both read standard input: name a scenario file, or a program after --")
		}
		return oneScenario(cmd, names)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := experiment.CheckLinks(o.Links); err != nil {
			return err
		}
		if limitMB < 1 {
			return errs.Usagef("--pcap-limit %d: must be at least 1", limitMB)
		}
		if o.Scenario, err = loadResolved(args[0]); err != nil {
			return err
		}
		if o.Hosts, err = cluster.ParseRequest(several); err != nil {
			return err
		}
		o.Command, o.PcapLimit = args[1:], limitMB*1e6
		return runNet(cmd, o, out, strict)
	}
	return cmd
}

// runNet runs a program on a network, and tells what that was worth.
func runNet(cmd *cobra.Command, o shell.Options, out string, strict bool) error {
	if out != "" {
		if err := os.MkdirAll(out, 0o755); err != nil {
			return fmt.Errorf("creating the directory of --out: %w", err)
		}
	}
	var note *monitor.Record
	o.Verdict = func(r monitor.Record) { note = &r }
	o.PcapDir = cmp.Or(out, ".")
	o.Progress = func(stage string) { fmt.Fprintln(cmd.ErrOrStderr(), "testbed: "+stage) }
	code, err := shell.Run(cmd.Context(), o)
	switch {
	case err != nil:
		return err
	case note == nil:
		return programExit{Code: code}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "testbed: the network was %s\n", worth(note.Verdict))
	if out != "" {
		if err := record.Dir(out).WriteJSON(record.FidelityFile, note); err != nil {
			return err
		}
	}
	if strict && code == 0 && note.Verdict.Verdict == fidelity.Invalid {
		return errInvalid
	}
	return programExit{Code: code}
}

// worth says in a line what a network was worth.
func worth(v fidelity.Verdict) string {
	if len(v.Reasons) == 0 {
		return string(v.Verdict)
	}
	return fmt.Sprintf("%s: %s", v.Verdict, strings.Join(v.Reasons, "; "))
}
