//go:build !nohost

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"testbed/allreduce"
	"testbed/allreduce/entropy"
	"testbed/allreduce/int8"
	"testbed/bench"
	"testbed/node/host/benchmark"
	"testbed/node/host/emulation"
	"testbed/shaping"
)

// ringFlags are the flags of bench ring.
type ringFlags struct {
	benchmark.Options
	rate, data string
	json, row  bool
}

func benchRingCommand() *cobra.Command {
	var r ringFlags
	cmd := &cobra.Command{
		Use: "ring", Short: "Measure the all-reduce on links of your choice", Args: noArguments,
		Long: `Builds a network of nodes with equal access links, starts a worker in each, and has
them reduce vectors of float32 values, by default with int8 codes, all from a common start.
The time is from there to the end of the last one.

The bound is what the wire needs for 8 bit per value at the rate given:
2 (N-1)/N × elements bytes. Below it is what fewer bits would save.

--against measures other programs on the same links, in turn with the ring:
gloo, PyTorch's all-reduce of the float32 values themselves, and iperf3, TCP
from each node to the next with as many bytes as the bound has.

Where nothing is delayed and nothing lost, --links auto takes a bridge of the
kernel's, and no router costs processor time.

Exits with 3 if the ranks end with different bytes.`,
	}
	r.declare(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return r.run(cmd) }
	return cmd
}

func (r *ringFlags) declare(f *pflag.FlagSet) {
	f.IntVar(&r.Workers, "workers", 4, "number of workers")
	f.IntVar(&r.Elements, "elements", 4_000_000, "values in each vector")
	f.StringVar(&r.rate, "rate", "100mbit", "of every link, up and down, as tc writes it; 0 or unlimited: not limited")
	f.TextVar(&r.Links.Queue, "queue", shaping.DefaultQueue, "what may wait for the rate, a time or a size")
	f.TextVar(&r.Links.OneWayDelay, "one-way-delay", shaping.Duration(0), "from each worker to each other")
	f.TextVar(&r.Links.Jitter, "jitter", shaping.Duration(0), "variation of the one-way delay, uniform")
	f.TextVar(&r.Links.Loss, "loss", shaping.Probability(0), "share of packets lost, for example 0.1%")
	f.StringVar(&r.Backend, "links", emulation.LinksAuto, "who carries packets: bridge (the kernel, neither delay nor loss), netem (the kernel), user (a router process), htb (it, but the kernel keeps rates), or auto")
	f.StringVar(&r.Algorithm, "algorithm", allreduce.Ring.String(), "how to reduce: "+strings.Join(allreduce.AlgorithmNames(), ", "))
	f.IntVar(&r.Groups, "groups", 1, "groups of workers, who join them by turns")
	f.TextVar(&r.Links.GroupDelay, "group-delay", shaping.Duration(0), "one-way delay between groups, in the place of the other")
	f.StringVar(&r.Order, "order", allreduce.NaiveOrder, "of the ring: naive, or optimised by the one-way delays, in turn with the naive one")
	f.IntVar(&r.Connections, "connections", 0, "connections to each peer; 0 is as many as losses and jitter on the path ask for")
	f.StringVar(&r.data, "data", string(bench.Gaussian), "distribution of the values: gaussian, or student3 for heavy tails")
	f.IntVar(&r.Block, "block", int8.DefaultBlock, "values per scale")
	f.IntVar(&r.Bits, "bits", 8, "of a value: codes of 8 or 4, bfloat16 with 16, float32 with 32")
	f.StringVar((*string)(&r.Entropy), "entropy", string(entropy.Auto), "shorten codes by entropy coding: auto (while it is faster), on or off")
	f.BoolVar(&r.ErrorFeedback, "error-feedback", false, "add to each vector what the reduction before lost of it")
	f.Uint64Var(&r.Seed, "seed", 42, "of the values, and of what is random on the links")
	f.IntVar(&r.Warmup, "warmup", 1, "reductions before those that are measured")
	f.IntVar(&r.Repeat, "repeat", 5, "reductions that are measured")
	f.DurationVar(&r.Timeout, "timeout", 10*time.Minute, "how long a single reduction may take")
	f.StringSliceVar(&r.Against, "against", nil, "measure others beside it: "+strings.Join(benchmark.RivalNames, ", "))
	f.BoolVar(&r.json, "json", false, "print the result as JSON")
	f.BoolVar(&r.row, "row", false, "print the result as a row of the table in docs/notes/bench.md")
}

func (r *ringFlags) run(cmd *cobra.Command) (err error) {
	if !slices.Contains([]string{emulation.LinksAuto, emulation.LinksNetem, emulation.LinksUser, emulation.LinksHTB, emulation.LinksBridge}, r.Backend) {
		return usageError{fmt.Errorf("--links %s: choose auto, bridge, netem, user or htb", r.Backend)}
	}
	if r.json && r.row {
		return usageError{errors.New("--json and --row: choose one")}
	}
	if r.rate != "0" {
		if r.Links.Rate, err = shaping.ParseRate(r.rate); err != nil {
			return usageError{fmt.Errorf("--rate: %w", err)}
		}
	}
	r.Data = bench.Data(r.data)
	r.Progress = func(stage string) { fmt.Fprintln(cmd.ErrOrStderr(), stage) }
	result, err := benchmark.Run(cmd.Context(), r.Options)
	if err != nil {
		return byFlag(err)
	}
	switch {
	case r.json:
		err = printJSON(cmd, result)
	case r.row:
		_, err = fmt.Fprintln(cmd.OutOrStdout(), result.Row())
	default:
		err = printRing(cmd, result)
	}
	if err == nil && !result.BitIdentical {
		err = errInvalid
	}
	return err
}

func printRing(cmd *cobra.Command, r *bench.Ring) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	format := fmt.Sprintf("int%d in blocks of %d", r.Bits, r.Block)
	switch r.Bits {
	case 16:
		format = "bfloat16"
	case 32:
		format = "float32"
	}
	line("all-reduce", "%d workers × %d values (%s), %s, %s", r.Workers, r.Elements, r.Data, r.Algorithm, format)
	line("links", "%v up and down, one-way delay %v ± %v, loss %v (%s)", r.Links.Rate, r.Links.OneWayDelay, r.Links.Jitter, r.Links.Loss, r.Links.Backend)
	if r.Groups > 1 {
		line("groups", "%d, one-way delay between them %v", r.Groups, r.Links.GroupDelay)
	}
	line("machine", "%s, %d cores, Linux %s, %s", r.Machine.Processor, r.Machine.Cores, r.Machine.Kernel, r.Machine.Go)
	line("time", "%.4g s, median of %d, spread %.0f %%", r.SecondsMedian, r.Repeat, 100*r.Spread)
	if r.BoundSeconds != nil {
		line("bound", "%.4g s at 8 bit per value: %.3f × the bound", *r.BoundSeconds, *r.RatioToBound)
	}
	if r.BusyLink != "" {
		line("", "that of the planned rate; links gave %.1f %% of it while packets waited, or were nearer to it (%s)", 100*r.BusyShare, r.BusyLink)
	}
	if o := r.Ordered; o != nil {
		line("order", "%v: %.3f × as fast as the naive order (%.4g s), predicted %.3f ×", o.Ring, o.MeasuredGain, o.NaiveSecondsMedian, o.PredictedGain)
	}
	line("phases", "start %.4g s, reduce-scatter %.4g s, all-gather %.4g s", r.Phases.StartSeconds, r.Phases.ReduceScatterSeconds, r.Phases.AllGatherSeconds)
	line("bandwidth", "%.3f GB/s of float32, %.3f GB/s of the bus", r.AlgorithmGBs, r.BusGBs)
	line("bytes", "%.2f MB of frames, %.2f MB on the wire, %d connections, all workers", float64(r.FrameBytes)/1e6, float64(r.BytesOnWire)/1e6, r.ConnectionsUsed)
	line("coding", "entropy %s: codes shortened in %.0f %% of the reductions", r.Entropy, 100*r.CodedShare)
	line("processor", "%.3g s of the workers, %.3g s of the router", r.CPUSeconds, r.RouterCPUSeconds)
	if r.MemoryBytes != nil {
		line("memory", "%.1f MB beyond input and output, %.2f × the vector", float64(*r.MemoryBytes)/1e6, r.MemoryRatio)
	}
	line("error", "%.3f %% (relative L2)", 100*r.RelativeError)
	if r.ErrorFeedback {
		line("", "%.3f %% of the mean over all reductions, with error feedback", 100*r.AveragedError)
	}
	for _, a := range r.Against {
		if a.Problem != "" {
			line(a.Name, "%s", a.Problem)
			continue
		}
		line(a.Name, "%.4g s, spread %.0f %%, processor %.3g s: the ring takes %.3f × its time (%s)", a.SecondsMedian, 100*a.Spread, a.CPUSeconds, a.Ratio, a.Version)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, n := range r.Notes {
		fmt.Fprintln(cmd.OutOrStdout(), "note: "+n)
	}
	if !r.BitIdentical {
		fmt.Fprintln(cmd.OutOrStdout(), "NOT VALID: the ranks ended with different bytes")
	}
	return nil
}
