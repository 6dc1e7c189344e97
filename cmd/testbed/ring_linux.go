//go:build !nohost

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"testbed/allreduce"
	"testbed/allreduce/bench"
	"testbed/allreduce/entropy"
	emulationbench "testbed/emulation/bench"
	"testbed/emulation/cluster"
	"testbed/emulation/network"
	"testbed/internal/errs"
	"testbed/shaping"
)

// ringFlags are the flags of bench ring.
type ringFlags struct {
	emulationbench.Options
	rate, data string
	format     outputFormat
	row        bool
	over       string
}

func benchRingCommand() *cobra.Command {
	var r ringFlags
	cmd := &cobra.Command{
		Use: "ring [SCENARIO]", Short: "Measure the all-reduce on links of your choice", Args: atMostOneScenario,
		ValidArgsFunction: completeScenario,
		Long: `Builds a network of nodes with equal access links and starts a worker in each.
The workers reduce vectors of float32 values, by default with int8 codes. A time
counts from their common start until the last worker has finished.

The bound is the time that the link needs for 8 bits per value at the given
rate: 2 (N-1)/N × elements bytes. Fewer bits can be faster than the bound.

--against measures other programs on the same links, in turn with the ring.
gloo is PyTorch's all-reduce of the float32 values. iperf3 is a TCP transfer of
the bound's bytes from each node to the next. pccl is PCCL's all-reduce; testbed
stacks install pccl installs PCCL. The results of gloo and PCCL are checked.

PCCL is measured with 1, 4, 8 and 16 connections between neighbours, each time
with float32 values and with uint8 codes (zero_point_scale). An entry such as
pccl:connections=4:quantisation=min_max measures one of these ways, or another.
The quantisation none means float32 values.

Other programs use TCP, and TCP's congestion control can decide their time. So
they are measured under each of --tcp. The default is the scenario's real.tcp,
or reno and bbr.

With a SCENARIO the network has that scenario's workers, in order of their ids,
and its real.links as they are at the start of a run. Injects and traces are not
played. The bound is the slowest link's.

Where no link has delay or loss, --links auto uses a kernel bridge, which costs
no processor time for a router.

Exits with 3 if the ranks end with different bytes.`,
	}
	r.declare(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if len(args) > 0 {
			for _, flag := range linkFlags {
				if cmd.Flags().Changed(flag) {
					return errs.Usagef("--%s cannot be combined with a scenario, which describes the network; remove the flag, or the scenario", flag)
				}
			}
			if r.Scenario, err = loadResolved(args[0]); err != nil {
				return err
			}
		}
		return r.run(cmd)
	}
	return cmd
}

// linkFlags are the flags that a scenario replaces.
var linkFlags = []string{"workers", "rate", "queue", "one-way-delay", "jitter", "loss", "groups", "group-delay"}

func (r *ringFlags) declare(f *pflag.FlagSet) {
	f.IntVar(&r.Workers, "workers", 4, "number of workers")
	f.IntVar(&r.Elements, "elements", 4_000_000, "number of values in each vector")
	f.StringVar(&r.rate, "rate", "100mbit", "rate of every link in each direction, in tc's notation; 0 or unlimited means no limit")
	f.TextVar(&r.Links.Queue, "queue", shaping.DefaultQueue, "limit of each link's queue, as a time or a size")
	f.TextVar(&r.Links.OneWayDelay, "one-way-delay", shaping.Duration(0), "one-way delay from each worker to every other")
	f.TextVar(&r.Links.Jitter, "jitter", shaping.Duration(0), "variation of the one-way delay, uniform")
	f.TextVar(&r.Links.Loss, "loss", shaping.Probability(0), "share of packets lost, for example 0.1%")
	f.StringVar(&r.Backend, "links", network.LinksAuto, "link backend: bridge (the kernel, without delay and loss), netem (the kernel), user (a router process), htb (a router process, rates by the kernel), or auto")
	f.StringVar(&r.Algorithm, "algorithm", allreduce.Ring.String(), "how to reduce: "+strings.Join(allreduce.AlgorithmNames(), ", "))
	f.IntVar(&r.Groups, "groups", 1, "number of groups, to which workers are assigned in turn")
	f.TextVar(&r.Links.GroupDelay, "group-delay", shaping.Duration(0), "one-way delay between groups, in place of --one-way-delay")
	f.StringVar(&r.Order, "order", allreduce.NaiveOrder, "order of the ring: naive, or optimised by the one-way delays (measured in turn with the naive order)")
	f.IntVar(&r.Connections, "connections", 0, "connections to each peer; 0 chooses by the path's losses and jitter")
	f.StringVar(&r.data, "data", string(bench.Gaussian), fmt.Sprintf("distribution of the values: one of %v", bench.DataNames))
	f.IntVar(&r.Block, "block", allreduce.DefaultBlock, "number of values that share a scale")
	f.IntVar(&r.Bits, "bits", 8, "bits of a value: 8 or 4 (codes), 16 (bfloat16) or 32 (float32)")
	f.StringVar((*string)(&r.Entropy), "entropy", string(entropy.Auto), "shorten codes by entropy coding: auto (while coding is faster), on or off")
	f.BoolVar(&r.ErrorFeedback, "error-feedback", false, "add the last reduction's quantisation error to each vector")
	f.Uint64Var(&r.Seed, "seed", 42, "seed of the values, and of all randomness on the links")
	f.IntVar(&r.Warmup, "warmup", 1, "number of reductions to run before the measured ones")
	f.IntVar(&r.Repeat, "repeat", 5, "number of reductions to measure")
	f.DurationVar(&r.Timeout, "timeout", 10*time.Minute, "how long a single reduction may take")
	f.StringSliceVar(&r.Against, "against", nil, "also measure other programs on the same links: "+strings.Join(emulationbench.RivalNames, ", "))
	f.StringSliceVar(&r.TCP, "tcp", nil, "TCP's congestion controls, under each of which --against measures (default: the scenario's, or reno and bbr)")
	hostsFlag(f, &r.over)
	r.format.declare(f)
	f.BoolVar(&r.row, "row", false, "print the result as a row of the table in docs/notes/bench.md, with gloo and iperf3 under their best congestion control")
}

func (r *ringFlags) run(cmd *cobra.Command) (err error) {
	if !slices.Contains([]string{network.LinksAuto, network.LinksNetem, network.LinksUser, network.LinksHTB, network.LinksBridge}, r.Backend) {
		return errs.Usagef("--links %s: choose auto, bridge, netem, user or htb", r.Backend)
	}
	if err := r.format.check(); err != nil {
		return err
	}
	if r.row && (r.format.json || r.format.name != formatText) {
		return errs.Usagef("--row cannot be combined with --json or --format; choose one of them")
	}
	if r.rate != "0" {
		if r.Links.Rate, err = shaping.ParseRate(r.rate); err != nil {
			return errs.Usagef("--rate: %w", err)
		}
	}
	if r.Hosts, err = cluster.ParseRequest(r.over); err != nil {
		return err
	}
	r.Data = bench.Data(r.data)
	r.Progress = func(stage string) { fmt.Fprintln(cmd.ErrOrStderr(), stage) }
	result, err := emulationbench.Run(cmd.Context(), r.Options)
	if err != nil {
		return byFlag(err)
	}
	switch {
	case r.format.json:
		err = printJSON(cmd, result)
	case r.format.name == formatGo:
		err = result.WriteGo(cmd.OutOrStdout())
	case r.row:
		_, err = fmt.Fprintln(cmd.OutOrStdout(), result.Row())
	default:
		err = result.WriteText(cmd.OutOrStdout())
	}
	if err == nil && !result.BitIdentical {
		err = errInvalid
	}
	return err
}
