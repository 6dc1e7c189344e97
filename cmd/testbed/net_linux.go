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
	"testbed/emulation/programs"
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
	var f networkFlags
	var clock string
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

A node acts as a machine of its own: its host name is that of the node, all nodes
know each other's names, and shared memory (System V, /dev/shm) is the node's own.
All nodes share other files and the process ids. With --at NODE, CMD itself runs in
a node and has the node's address. mpiexec, or a server that other nodes talk to,
may run in the coordinator's node.

CMD has the standard input, output and error of testbed net. The standard input is
empty if SCENARIO is -. testbed net exits with CMD's exit code: 128 + n if signal n
ended CMD, 126 or 127 if CMD could not be started. When CMD ends, everything that
it started ends, and the network is removed.

The scenario's workers do not run. Its injects on links (Partition, Link, Cut)
happen, on a clock that starts with CMD. With --clock mark it starts when testbed
mark start is called, at the hub or in a node; with --clock traffic when a worker
sends the first packet to another, or with a mark before that.

After CMD a line on standard error says whether the network matched its plan
since the clock started. --out writes all measurements to fidelity.json, and the
events to programs.jsonl. With --strict, testbed net exits with 3 if the network
is invalid and CMD's exit code is 0.

With --hosts the nodes are on several hosts, and CMD is on the first. testbed in
runs programs in all nodes alike. For a node on another host, testbed in passes on
standard input, output and error, signals and the exit code, without a terminal.

--pcap writes the frames that leave and reach a node to NODE.pcap, in the
directory of --out or the current one. Their checksums are not computed, because
the nodes' network cards are virtual.`,
	}
	f.add(cmd)
	clockFlag(cmd, &clock, programs.ClockCommand)
	cmd.Flags().StringVar(&o.At, "at", "", "run CMD in this node (default: at the hub, without an address)")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		names := args
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			names = args[:dash]
		}
		if len(names) > 1 {
			return errs.Usagef(`write "--" before the program: %s %s -- %s …`, cmd.CommandPath(), names[0], names[1])
		}
		if len(names) == 1 && names[0] == scenarios.Stdin && len(args) == 1 {
			return errs.Usagef(`the shell and the scenario "-" would both read standard input; name a scenario file, or add -- and a program`)
		}
		return oneScenario(cmd, names)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.Clock, err = clockRule(clock); err != nil {
			return err
		}
		if f.several != "" && o.Clock == programs.ClockTraffic {
			return errs.Usagef("--clock traffic sees the workers of one host only; use --clock mark, or leave --hosts out")
		}
		if err := f.network(&o.Network, args[0]); err != nil {
			return err
		}
		o.Command = args[1:]
		return runNet(cmd, o, &f)
	}
	return cmd
}

// networkFlags are the flags of commands that run users' programs on a network.
type networkFlags struct {
	links, out, several string
	pcap                []string
	limitMB             int64
	strict              bool
}

func (f *networkFlags) add(cmd *cobra.Command) {
	linksFlag(cmd, &f.links)
	hostsFlag(cmd.Flags(), &f.several)
	cmd.Flags().StringSliceVar(&f.pcap, "pcap", nil, "write the frames of this node to NODE.pcap; may be repeated")
	countedFlag(cmd.Flags(), &f.limitMB, units.Megabyte, "pcap-limit", 256, "maximum size of each NODE.pcap in MB; later frames are not written")
	cmd.Flags().StringVar(&f.out, "out", "", "directory for fidelity.json, programs.jsonl and the captures (default: only the captures are written, to the current directory)")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "exit with 3 if the network did not match its plan")
}

// network sets the network that the flags ask for, of a scenario.
func (f *networkFlags) network(n *programs.Network, scenario string) (err error) {
	if err := experiment.CheckLinks(f.links); err != nil {
		return err
	}
	if f.limitMB < 1 {
		return errs.Usagef("--pcap-limit %d must be at least 1", f.limitMB)
	}
	if n.Scenario, err = loadResolved(scenario); err != nil {
		return err
	}
	n.Links, n.Pcap, n.PcapDir, n.PcapLimit = f.links, f.pcap, cmp.Or(f.out, "."), f.limitMB*1e6
	n.Hosts, err = cluster.ParseRequest(f.several)
	return err
}

// makeOut makes the directory of --out, if it is set.
func (f *networkFlags) makeOut() error {
	if f.out == "" {
		return nil
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return fmt.Errorf("creating the directory of --out: %w", err)
	}
	return nil
}

// runNet runs a program on a network, and reports the network's fidelity.
func runNet(cmd *cobra.Command, o shell.Options, f *networkFlags) error {
	if err := f.makeOut(); err != nil {
		return err
	}
	o.Dir = f.out
	var note *monitor.Record
	o.Verdict = func(r monitor.Record) { note = &r }
	o.Progress = func(stage string) { fmt.Fprintln(cmd.ErrOrStderr(), "testbed: "+stage) }
	code, err := shell.Run(cmd.Context(), o)
	switch {
	case err != nil:
		return err
	case note == nil:
		return programExit{Code: code}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "testbed: the network was %s\n", worth(note.Verdict))
	if f.out != "" {
		if err := record.Dir(f.out).WriteJSON(record.FidelityFile, note); err != nil {
			return err
		}
	}
	if f.strict && code == 0 && note.Verdict.Verdict == fidelity.Invalid {
		return errInvalid
	}
	return programExit{Code: code}
}

// worth describes a network's fidelity in a line.
func worth(v fidelity.Verdict) string {
	if len(v.Reasons) == 0 {
		return string(v.Verdict)
	}
	return fmt.Sprintf("%s: %s", v.Verdict, strings.Join(v.Reasons, "; "))
}
