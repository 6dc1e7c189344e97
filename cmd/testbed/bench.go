package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

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

// kernelAnswerWithin is the time after which bench kernel begins no further
// round. A round of a size in memory takes up to 2 s.
const kernelAnswerWithin = 10 * time.Second

// byFlag names the flag in an error that names the flag's field.
func byFlag(err error) error {
	if e, ok := errors.AsType[*errs.FieldError](err); ok {
		return errs.Usagef("--%s %s", strings.ReplaceAll(e.Field, "_", "-"), e.Problem)
	}
	return err
}

func benchKernelCommand() *cobra.Command {
	o := bench.KernelOptions{Within: kernelAnswerWithin}
	var all bool
	var sizes []string
	var format outputFormat
	var data string
	cmd := &cobra.Command{
		Use: "kernel", Short: "Compare the int8 kernels with memory and other formats", Args: noArguments,
		Long: `Measures the kernels on one core, in a cache and in memory. A route is one
implementation of the kernels, such as avx2; auto is the route that all other
commands use. The columns compare the speed of auto with copying memory
(× memcpy), with plain Go (× go) and with the fastest route of this processor
(× fastest). Where × fastest is below 1, auto uses a slower route. The
measurement takes about 15 seconds.

--all also measures two cores at once and other projects' formats, in more
rounds, and prints every route. This takes some minutes. With --route, --cores or
--against every row is printed, too. Other projects' formats are reimplemented
in plain Go: their errors and sizes are exact, and their speeds compare with the
route go.

GB/s count the bytes of the float32 values that are encoded, decoded or added
to. For memcpy they count the bytes copied, and for read the bytes read.
Quantising can be faster than memcpy, because it writes a quarter as much.

The last table gives, for each format, the error of encoding and decoding once
(relative L2 norm) and the bias (mean error ÷ root mean square of the values).
The vectors of this table have 1 Mi values: normal; heavy-tailed; 1 % non-zero;
layers of very different scale (mean over the layers); and the file of --data, if
given.`,
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "also measure two cores at once and the formats of --against, and print every route")
	f.IntVar(&o.Block, "block", allreduce.DefaultBlock, "number of values that share a scale")
	f.StringSliceVar(&sizes, "sizes", []string{"256KiB", "256MiB"}, "sizes of the vectors of float32 values; each core has its own vector")
	f.StringSliceVar(&o.Routes, "route", nil, "routes to measure: go, neon, avx2, avx2-stream, avx512, avx512-stream, or auto, which all other commands use (default: all of this processor)")
	f.IntSliceVar(&o.Cores, "cores", []int{1}, "how many cores to use at once (default with --all: 1 and 2)")
	f.IntVar(&o.Rounds, "rounds", 9, "how many times to measure each row; without --rounds and --all, at least 3 times, and more often if time is left")
	f.StringSliceVar(&o.Against, "against", nil, fmt.Sprintf("other projects' formats to measure besides int8 and int4, of %v (default with --all: all)", bench.AgainstNames()))
	f.StringVar(&data, "data", string(bench.Gaussian), fmt.Sprintf("the values: one of %v, or a file, .npy (float32 or float64) or .raw (float32)", bench.DataNames))
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
		given := cmd.Flags().Changed
		everything := all || given("route") || given("cores") || given("against")
		if all {
			o.Within = 0
			if !given("cores") {
				o.Cores = []int{1, min(2, runtime.NumCPU())}
			}
			if !given("against") {
				o.Against = bench.AgainstNames()
			}
		}
		if given("rounds") {
			o.Within = 0
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
		case everything:
			return bench.WriteKernels(cmd.OutOrStdout(), bench.ThisMachine().WithKernels(), results)
		}
		return bench.WriteAnswer(cmd.OutOrStdout(), bench.ThisMachine().WithKernels(), results)
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
		return errs.Usagef(`--json and "--format go" exclude each other; choose one of them`)
	}
	return nil
}
