package main

import (
	"cmp"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"testbed/record"
)

// versionInfo describes this program for testbed version.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // of the source; empty if unknown
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version, and what it was built from", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionInfo{record.Version, record.Revision(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if asJSON {
				return printJSON(cmd, v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "testbed %s (revision %s, %s, %s)\n", v.Version, cmp.Or(v.Revision, "unknown"), v.Go, v.Platform)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
