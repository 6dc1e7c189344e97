//go:build !nohost

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"testbed/emulation/shell"
	"testbed/internal/errs"
)

func inCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "in NODE CMD...", Short: "Run a program in a node, inside testbed net",
		Long: `Runs a program in a node, with the node's network, host name and shared memory.
Works inside testbed net only. Exits with the program's exit code, or with 126 or
127 if the program could not be started. $TESTBED_NODE holds the node's name.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errs.Usagef("name a node and a program, for example: %s w0 ping 10.0.0.3", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			command := args[1:]
			if command[0] == "--" {
				command = command[1:]
			}
			if len(command) == 0 {
				return errs.Usagef(`name a program after "--"`)
			}
			code, err := shell.Enter(args[0], command)
			if err == nil {
				return programExit{Code: code} // of a program on another host
			}
			if code != 0 {
				fmt.Fprintln(os.Stderr, "testbed: "+err.Error())
				return programExit{Code: code}
			}
			return err
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after NODE are the program's
	return cmd
}
