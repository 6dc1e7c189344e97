package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"testbed/allreduce/int8"
	"testbed/bench"
)

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench", Short: "Benchmarks with their references in the same run",
		Args: cobra.ArbitraryArgs, // so that RunE judges an unknown one
		Long: `Measures what the all-reduce (ring) and its kernels (kernel) take, beside
references on the same machine in the same run. docs/bench.md says how, and
what every figure means. Leave the machine alone meanwhile.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown benchmark %q; see %s --help", args[0], cmd.CommandPath())}
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(benchKernelCommand(), benchRingCommand())
	return cmd
}

// byFlag names the flag where an error names the field that it sets.
func byFlag(err error) error {
	if e, ok := errors.AsType[*bench.FieldError](err); ok {
		return usageError{fmt.Errorf("--%s %s", strings.ReplaceAll(e.Field, "_", "-"), e.Problem)}
	}
	return err
}

func benchKernelCommand() *cobra.Command {
	var o bench.KernelOptions
	var sizes []string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "kernel", Short: "Measure the int8 kernels beside copying and reading memory", Args: noArguments,
		Long: `Measures every kernel on every route that this processor has, in turn with
copying memory (memcpy) and reading it (read), so that what disturbs the machine
disturbs all of them.

GB/s are bytes of float32 values, of those that are encoded, decoded or added
to, per second; of memcpy the bytes copied and of read the bytes read. So
quantise may well be faster than memcpy: it writes a quarter as much.`,
	}
	f := cmd.Flags()
	f.IntVar(&o.Block, "block", int8.DefaultBlock, "values per scale")
	f.StringSliceVar(&sizes, "sizes", []string{"256KiB", "256MiB"}, "of the float32 values; each core has its own")
	f.StringSliceVar(&o.Routes, "route", nil, "ways to compute: go, avx2, avx512 (default all that this processor has)")
	f.IntSliceVar(&o.Cores, "cores", []int{1, min(2, runtime.NumCPU())}, "how many cores at once")
	f.IntVar(&o.Rounds, "rounds", 9, "how often each is measured")
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, text := range sizes {
			size, err := bench.ParseSize(text)
			if err != nil {
				return usageError{fmt.Errorf("--sizes: %w", err)}
			}
			o.Sizes = append(o.Sizes, size)
		}
		if err := o.Check(); err != nil {
			return byFlag(err)
		}
		o.Progress = func(stage string) { fmt.Fprintln(cmd.ErrOrStderr(), stage) }
		results, err := bench.Kernels(o)
		if err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd, results)
		}
		return printKernels(cmd, results)
	}
	return cmd
}

func printKernels(cmd *cobra.Command, results []bench.Kernel) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "kernel\troute\tsize\tcores\tGB/s\tspread\t× memcpy\t× read\t× one core\t")
	for _, k := range results {
		scaling := ""
		if k.Cores > 1 && k.Scaling > 0 {
			scaling = fmt.Sprintf("%.2f", k.Scaling)
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%d\t%.2f\t%.0f %%\t%.2f\t%.2f\t%s\t\n",
			k.Kernel, k.Route, bench.Size(k.Bytes), k.Cores, k.GBs, 100*k.Spread, k.Ratio, k.ReadRatio, scaling)
	}
	return w.Flush()
}
