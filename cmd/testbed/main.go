// Command testbed compares membership policies for distributed training, in a
// simulator and on a real network inside one Linux machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"testbed/emulation/network"
	"testbed/experiment"
	"testbed/experiment/calibrate"
	"testbed/internal/errs"
	"testbed/policy/program"
	"testbed/scenarios"
)

// Exit codes, as documented in the reference of the command line.
const (
	exitError       = 1
	exitUsage       = 2
	exitInvalid     = 3
	exitUnsupported = 4
)

// invalid reports whether an error comes with a result that may not be used.
func invalid(err error) bool {
	_, is := errors.AsType[*experiment.InvalidError](err)
	return is || errors.Is(err, experiment.ErrLinksDiffer) || errors.Is(err, calibrate.ErrNoRounds)
}

func main() {
	if code, is := startedAgain(os.Args); is {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	top, out := root(), &printed{Writer: os.Stdout}
	top.SetOut(out)
	cmd, err := top.ExecuteContextC(ctx)
	program.End()
	var exit programExit
	if errors.As(err, &exit) {
		os.Exit(exit.Code)
	}
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil && !errors.Is(err, errInvalid) {
		fmt.Fprintln(os.Stderr, "testbed: "+err.Error())
	}
	if err != nil && !out.any && asksForJSON(cmd, os.Args[1:]) {
		_ = writeFailure(out, err) // the exit code reports it, too
	}
	os.Exit(exitCode(err))
}

func exitCode(err error) int {
	var usage *errs.UsageError
	var scenario *scenarios.Error
	var lost *network.LostError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage), errors.As(err, &scenario):
		return exitUsage
	case errors.Is(err, errInvalid), errors.As(err, &lost), invalid(err):
		return exitInvalid
	case errors.Is(err, errors.ErrUnsupported):
		return exitUnsupported
	}
	return exitError
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "testbed",
		Short: "Does a membership policy that wins in simulation win on a real network?",
		Long: `Testbed plays a scenario of distributed training twice: in a deterministic
simulator, and for real, with worker processes in network namespaces on shaped
links that all-reduce int8 pseudo-gradients over QUIC. The same decision code
steers both.

A scenario is named by its file or by its name in the library (testbed list). The
name - reads it from standard input.

With --json a command prints one JSON object on standard output: its result, or
{"error": …} if there is none.

Exit codes: 0 ok; 1 error; 2 wrong usage or invalid scenario; 3 the command ran,
but its result is not valid; 4 not supported on this machine.`,
		Args:         cobra.ArbitraryArgs, // so that RunE reports an unknown command
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return errs.Usagef("unknown command %q; see testbed --help", args[0])
			}
			_, err := io.WriteString(cmd.OutOrStdout(), `Does a membership policy that wins in simulation win on a real network?

  testbed doctor                          what this machine can do
  testbed list                            scenarios to play
  testbed compare persistent_straggler    two policies, simulated and real, in 40 seconds
  testbed --help                          all commands
`)
			return err
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return errs.Usagef("%w; see %s --help", flagError{err}, cmd.CommandPath())
	})
	progressFlag(cmd)
	for _, g := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"play", "Play scenarios:", []*cobra.Command{compareCommand(), runCommand(), simulateCommand(), sweepCommand(), tuneCommand(), estimateCommand()}},
		{"look", "Look at scenarios and results:", []*cobra.Command{listCommand(), planCommand(), reportCommand(), sampleCommand(), convertCommand(), schemaCommand()}},
		{"measure", "Measure the machine:", []*cobra.Command{doctorCommand(), verifyCommand(), benchCommand(), calibrateCommand()}},
		{"network", "Run your own programs on the network:", []*cobra.Command{launchCommand(), netCommand(), inCommand(), markCommand(), stacksCommand()}},
		{"servers", "Servers and several hosts:", []*cobra.Command{lighthouseCommand(), managerCommand(), hostCommand(), manifestsCommand()}},
	} {
		cmd.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.id
			cmd.AddCommand(c)
		}
	}
	cmd.AddCommand(versionCommand(), referenceCommand())
	return cmd
}
