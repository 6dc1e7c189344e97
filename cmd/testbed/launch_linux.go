//go:build !nohost

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emulation/launch"
	"testbed/emulation/programs"
	"testbed/internal/errs"
	"testbed/record"
	"testbed/shaping/fidelity"
)

func launchCommand() *cobra.Command {
	var o launch.Options
	var f networkFlags
	var perNode []string
	var central, clock string
	cmd := &cobra.Command{
		Use: "launch SCENARIO [flags] -- CMD...", Short: "Run a program in every worker's node of a scenario's network",
		ValidArgsFunction: completeScenario,
		Long: `Builds the scenario's network and starts CMD once in the node of every worker,
with the environment that launchers of distributed programs set. An unmodified
training script runs in all nodes with one line:

    testbed launch homogeneous -- python3 train.py
    testbed launch homogeneous -- torchrun train.py

A node acts as a machine of its own, as in testbed net. Its program finds these
environment variables:

    RANK, NODE_RANK, GROUP_RANK        the worker's number, from 0
    WORLD_SIZE                         how many workers the scenario has
    LOCAL_RANK=0, LOCAL_WORLD_SIZE=1
    MASTER_ADDR, MASTER_PORT           the node of rank 0
    PET_NNODES, PET_NODE_RANK, …       the variables of torchrun, which needs no flags
    JAX_COORDINATOR_ADDRESS            the address for jax.distributed.initialize, which
                                       still needs num_processes and process_id
    GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, TP_SOCKET_IFNAME   eth0
    OMP_NUM_THREADS=1                  unless you set it
    TESTBED_NODE, TESTBED_WORKER       the node's name and the worker's number
    TESTBED_INCARNATION                0; 1 after the first Restart, …
    TESTBED_NODES, TESTBED_ADDR_W0, …  as in testbed net

Standard input is empty. Each line of output is printed with the node's name before
it. --out DIR also writes the unchanged output of w0 to DIR/logs/w0.out.

When a program fails, everything else in its node is killed, daemons too. The other
nodes' programs get SIGTERM, and SIGKILL after --grace. With --keep-going they
continue. The last line of output reports the first failure. testbed launch exits with
the exit code of the first program that failed: 128 + n if signal n ended it, 126 or
127 if it could not be started. SIGINT and SIGTERM are passed on to all programs. A
second signal kills them.

--per-node replaces the program of a node. --central runs a program in the
coordinator's node, which starts before all others and gets SIGTERM when they have
ended. Both flags split their command into words as a shell does, with quotation
marks:

    testbed launch homogeneous --central 'python3 server.py' --per-node 'w0=python3 first.py' -- python3 worker.py

The times of the scenario's injects, and of workers with join_at, count from the start
of a clock. Imports may take a minute, so the clock starts when a worker sends the
first packet to another. A program can start the clock earlier with testbed mark start.
With --clock mark nothing else starts the clock. With --clock command the clock starts
with the programs. The injects have these effects on programs:

    Crash     cuts the node's links, then kills everything in it, like a power failure
    Restart   does what Crash does, then joins the links again and starts CMD anew
    Pause     stops everything that runs in the node, until Resume
    Slow      limits the node to its earlier processor time divided by the factor,
              until Restore; a program that waits or sleeps is not slowed
    Preempt   sends SIGTERM, and crashes what still runs after the notice
    CoordinatorCrash   crashes and restarts the --central program

Partitions and injects on links work as in testbed run. A line at the start lists the
injects that have no effect on programs, such as Leave.

At the end a line on standard error says whether the network matched its plan since the
clock started. --out DIR records the run's events in DIR/programs.jsonl. --strict,
--pcap and --hosts work as in testbed net.`,
	}
	f.add(cmd)
	clockFlag(cmd, &clock, programs.ClockTraffic)
	cmd.Flags().StringArrayVar(&perNode, "per-node", nil, "NODE=CMD: run CMD in this worker's node instead; may be repeated")
	cmd.Flags().StringVar(&central, "central", "", "run this command in the coordinator's node; it starts first and ends last")
	cmd.Flags().IntVar(&o.MasterPort, "master-port", 29500, "MASTER_PORT of the programs")
	cmd.Flags().DurationVar(&o.Grace, "grace", 5*time.Second, "time from SIGTERM to SIGKILL when another program has failed")
	cmd.Flags().BoolVar(&o.KeepGoing, "keep-going", false, "do not end the other programs when one fails")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		names := args
		if dash := cmd.ArgsLenAtDash(); dash >= 0 {
			names = args[:dash]
		}
		if len(names) > 1 {
			return errs.Usagef(`write "--" before the program: %s %s -- %s …`, cmd.CommandPath(), names[0], names[1])
		}
		return oneScenario(cmd, names)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.PerNode, err = perNodeCommands(perNode); err != nil {
			return err
		}
		if o.Central, err = launch.SplitCommand(central); err != nil {
			return errs.Usagef("--central %s: %w", central, err)
		}
		if cmd.Flags().Changed("central") && len(o.Central) == 0 {
			return errs.Usagef("--central is empty: give a command, or leave the flag out")
		}
		if o.Clock, err = clockRule(clock); err != nil {
			return err
		}
		if err := f.network(&o.Network, args[0]); err != nil {
			return err
		}
		o.Command = args[1:]
		return runLaunch(cmd, o, &f)
	}
	return cmd
}

// perNodeCommands reads the values of --per-node.
func perNodeCommands(values []string) (map[string][]string, error) {
	commands := map[string][]string{}
	for _, v := range values {
		node, text, found := strings.Cut(v, "=")
		command, err := launch.SplitCommand(text)
		switch {
		case !found || node == "":
			return nil, errs.Usagef("--per-node %s: write NODE=CMD, as w1='python3 other.py'", v)
		case err != nil:
			return nil, errs.Usagef("--per-node %s: %w", v, err)
		case len(command) == 0:
			return nil, errs.Usagef("--per-node %s: the command is empty; write NODE=CMD", v)
		case commands[node] != nil:
			return nil, errs.Usagef("--per-node %s: %s already has a command; give each node one --per-node", v, node)
		}
		commands[node] = command
	}
	return commands, nil
}

// runLaunch starts programs on a network. It reports their results and the
// network's fidelity. The first failure comes last.
func runLaunch(cmd *cobra.Command, o launch.Options, f *networkFlags) error {
	if err := o.Missing(); err != nil {
		code, err := programs.NotStarted(err)
		fmt.Fprintf(cmd.ErrOrStderr(), "testbed: %v\n", err)
		return programExit{Code: code}
	}
	if err := f.makeOut(); err != nil {
		return err
	}
	o.Dir = f.out
	o.Progress = func(stage string) { fmt.Fprintln(cmd.ErrOrStderr(), "testbed: "+stage) }
	r, err := launch.Run(cmd.Context(), o)
	if err != nil {
		return err
	}
	if r.Fidelity != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "testbed: the network was %s\n", worth(r.Fidelity.Verdict))
		if f.out != "" {
			if err := record.Dir(f.out).WriteJSON(record.FidelityFile, r.Fidelity); err != nil {
				return err
			}
		}
	}
	if r.Unclocked != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "testbed: there is no verdict on the network, and no inject has happened: %s (--clock %s)\n", r.Unclocked, o.Clock)
	}
	if r.Cause != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "testbed: "+r.Cause)
	}
	if f.strict && r.Exit == 0 && r.Fidelity != nil && r.Fidelity.Verdict.Verdict == fidelity.Invalid {
		return errInvalid
	}
	return programExit{Code: r.Exit}
}
