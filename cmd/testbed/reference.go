package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"testbed/internal/errs"
	"testbed/record"
)

// referenceCommand writes the reference of the command line, for packages and for
// docs/commands.md.
func referenceCommand() *cobra.Command {
	return &cobra.Command{
		Use: "reference man DIR | reference markdown", Hidden: true,
		Short: "Write the manual pages or the page of all commands",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 2 && args[0] == "man":
				return manPages(cmd.Root(), args[1])
			case len(args) == 1 && args[0] == "markdown":
				return commandsPage(cmd.OutOrStdout(), cmd.Root())
			}
			return errs.Usagef("say what to write: testbed reference man DIR, or testbed reference markdown")
		},
	}
}

// manPages writes a manual page for each command into dir. Their date is that
// of SOURCE_DATE_EPOCH
// (https://reproducible-builds.org/specs/source-date-epoch/).
func manPages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	header := &doc.GenManHeader{Section: "1", Source: "Testbed " + record.Version, Manual: "Testbed"}
	if os.Getenv("SOURCE_DATE_EPOCH") == "" {
		now := time.Now()
		header.Date = &now
	}
	return doc.GenManTree(root, header, dir)
}

// commandsPage writes all commands with their flags as one page.
func commandsPage(w io.Writer, root *cobra.Command) error {
	out := &strings.Builder{}
	out.WriteString("# Commands\n\nThis reference is the output of `testbed COMMAND --help` for every command.\n`make generate` writes it. The JSON that commands print is in\n[Results and records](results.md).\n")
	var write func(*cobra.Command)
	write = func(c *cobra.Command) {
		if c.Hidden || !c.IsAvailableCommand() && c != root {
			return
		}
		fmt.Fprintf(out, "\n## %s\n\n", c.CommandPath())
		fmt.Fprintf(out, "%s\n\n```\n%s\n```\n", c.Short, strings.Join(slices.DeleteFunc([]string{c.UseLine(), c.Long}, isEmpty), "\n\n"))
		flags(out, c.NonInheritedFlags())
		for _, sub := range c.Commands() {
			write(sub)
		}
	}
	write(root)
	_, err := io.WriteString(w, out.String())
	return err
}

func isEmpty(s string) bool { return s == "" }

// flags writes a table of the flags that help shows.
func flags(out *strings.Builder, set *pflag.FlagSet) {
	first := true
	cell := strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;")
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if first {
			out.WriteString("\n| flag | default | meaning |\n|---|---|---|\n")
			first = false
		}
		kind, usage := pflag.UnquoteUsage(f)
		standard := f.DefValue
		if standard == "false" || standard == "[]" {
			standard = ""
		}
		if standard != "" {
			standard = "`" + standard + "`"
		}
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", strings.TrimSpace("--"+f.Name+" "+kind), standard, cell.Replace(usage))
	})
}
