package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"testbed/allreduce"
	"testbed/allreduce/bench"
	"testbed/internal/errs"
)

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench", Short: "Benchmark the ring, its kernels, or a lighthouse, against references",
		Args: cobra.ArbitraryArgs, // so that RunE reports an unknown one
		Long: `Measures the all-reduce (ring), its kernels (kernel) and a lighthouse
(lighthouse), each against references on the same machine in the same run.
docs/bench.md explains the figures. Leave the machine idle meanwhile.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return errs.Usagef("unknown benchmark %q; see %s --help", args[0], cmd.CommandPath())
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(benchKernelCommand(), benchRingCommand(), benchLighthouseCommand())
	return cmd
}

// byFlag names the flag in an error that names the flag's field.
func byFlag(err error) error {
	if e, ok := errors.AsType[*errs.FieldError](err); ok {
		return errs.Usagef("--%s %s", strings.ReplaceAll(e.Field, "_", "-"), e.Problem)
	}
	return err
}

func benchKernelCommand() *cobra.Command {
	var o bench.KernelOptions
	var sizes []string
	var format outputFormat
	var data string
	cmd := &cobra.Command{
		Use: "kernel", Short: "Compare the int8 kernels with memory and other formats", Args: noArguments,
		Long: `Measures every kernel on every route of this processor, in turn with copying
memory (memcpy), reading it (read), and other projects' formats (--against). A
disturbance of the machine therefore reaches all of them alike. Other projects'
formats are reimplemented in plain Go: their errors and sizes are exact, and
their speeds compare with the route go.

GB/s count the bytes of the float32 values that are encoded, decoded or added
to; for memcpy the bytes copied, for read the bytes read. Quantising can be
faster than memcpy, because it writes a quarter as much.

The second table gives, for each format, the error of encoding and decoding once
(relative L2 norm) and the bias (mean error ÷ root mean square of the values).
Its vectors have 1 Mi values: normal; heavy-tailed; 1 % non-zero; layers of very
different scale (mean over the layers); and the file of --data, if given.`,
	}
	f := cmd.Flags()
	f.IntVar(&o.Block, "block", allreduce.DefaultBlock, "values per scale")
	f.StringSliceVar(&sizes, "sizes", []string{"256KiB", "256MiB"}, "of the float32 values; each core has its own")
	f.StringSliceVar(&o.Routes, "route", nil, "ways to compute: go, neon, avx2, avx512, the latter two with -stream, or auto, which all other commands use (default: all of this processor)")
	f.IntSliceVar(&o.Cores, "cores", []int{1, min(2, runtime.NumCPU())}, "how many cores at once")
	f.IntVar(&o.Rounds, "rounds", 9, "how often each is measured")
	f.StringSliceVar(&o.Against, "against", bench.AgainstNames(), "formats to measure besides int8 and int4; empty: none")
	f.StringVar(&data, "data", string(bench.Gaussian), fmt.Sprintf("the values, of %v, or a file: .npy (float32 or float64) or .raw (float32)", bench.DataNames))
	format.declare(f)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if o.Sizes, err = bench.ParseSizes(sizes); err != nil {
			return errs.Usagef("--sizes: %w", err)
		}
		if err := format.check(); err != nil {
			return err
		}
		if o.Data = bench.Data(data); filepath.Ext(data) != "" {
			if o.Values, err = bench.ReadVector(data); err != nil {
				return errs.Usagef("--data: %w", err)
			}
		}
		if err := o.Check(); err != nil {
			return byFlag(err)
		}
		o.Progress = func(stage string) { fmt.Fprintln(cmd.ErrOrStderr(), stage) }
		results, err := bench.Kernels(o)
		if err != nil {
			return err
		}
		switch {
		case format.json:
			return printJSON(cmd, results)
		case format.name == formatGo:
			return bench.WriteGoKernels(cmd.OutOrStdout(), bench.ThisMachine(), results)
		}
		return bench.WriteKernels(cmd.OutOrStdout(), results)
	}
	return cmd
}

// outputFormat is how a benchmark's result is printed.
type outputFormat struct {
	name string
	json bool
}

const formatText, formatGo = "text", "go"

func (o *outputFormat) declare(f *pflag.FlagSet) {
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	f.StringVar(&o.name, "format", formatText, "how to print the result: text, or go, which benchstat reads")
}

func (o *outputFormat) check() error {
	switch {
	case o.name != formatText && o.name != formatGo:
		return errs.Usagef("--format %s: choose text or go", o.name)
	case o.json && o.name == formatGo:
		return errs.Usagef("--json and --format go: choose one")
	}
	return nil
}
