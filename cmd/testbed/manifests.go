package main

import (
	_ "embed"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emulation/cluster"
	"testbed/internal/errs"
	"testbed/scenarios"
)

func manifestsCommand() *cobra.Command {
	var m cluster.Manifests
	cmd := &cobra.Command{
		Use: "manifests --image IMAGE [--hosts N] VERB SCENARIO …", Short: "Write Kubernetes manifests for the hosts of a run",
		Long: `Writes manifests with which Kubernetes starts the hosts of a run: an indexed Job
whose pods are the hosts, a headless service, a secret with a token, and your
scenario file, if SCENARIO is one. VERB SCENARIO … is the command that the leader
plays, as you would write it after testbed, without --hosts:

  testbed manifests --image registry.example/testbed --hosts 3 \
      run persistent_straggler --policy straggler | kubectl create -f -

The image needs this testbed in its PATH, and sh. docs/hosts.md says how to make
it, and how to get the record.`,
		Args: cobra.ArbitraryArgs, DisableFlagsInUseLine: true,
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // the verb's flags come after it
	f.IntVar(&m.Hosts, "hosts", 2, "number of hosts")
	f.StringVar(&m.Image, "image", "", "the image of the containers")
	f.IntVar(&m.CPUs, "cpus", 2, "how many processors each host asks for")
	f.StringVar(&m.Name, "name", "", "name of all objects (default testbed-SCENARIO)")
	f.StringVar(&m.Namespace, "namespace", "", "namespace of all objects (default: kubectl's)")
	f.StringVar(&m.Secret, "secret", "", "an existing secret with the token under the key "+cluster.TokenKey+" (default: a new one)")
	f.DurationVar(&m.Keep, "keep", 10*time.Minute, "how long the leader stays after the run, so that the record can be copied")
	f.BoolVar(&m.Privileged, "privileged", false, "make the pods privileged, for clusters without user namespaces for pods")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 && args[1] == scenarios.Stdin {
			return errs.Usagef("the manifest cannot take a scenario from standard input; name a scenario file or a scenario of the library")
		}
		if len(args) < 2 || strings.HasPrefix(args[1], "-") {
			return errs.Usagef("name a command and its scenario, for example: testbed manifests --image IMAGE run persistent_straggler --policy straggler")
		}
		if err := checkVerb(cmd.Root(), args); err != nil {
			return err
		}
		source, err := scenarios.Find(args[1])
		if err != nil {
			return err
		}
		s, err := source.Parse()
		if err != nil {
			return err
		}
		if err := m.Complete(args, s.Name, len(s.Workers)); err != nil {
			return err
		}
		if source.File == args[1] { // it is not in the library
			if err := m.Mount(source.File, source.Text, s.Traces); err != nil {
				return err
			}
		}
		return m.Write(cmd.OutOrStdout())
	}
	return cmd
}

// checkVerb reports a verb that cannot be called in this way, with hosts.
func checkVerb(root *cobra.Command, args []string) error {
	verb, rest, err := root.Find(args)
	if err != nil || verb == root {
		return errs.Usagef("unknown command %q; see testbed --help", args[0])
	}
	// Without a real network, verbs do not know all of their flags.
	if hosts := verb.Flags().Lookup("hosts"); !verb.FParseErrWhitelist.UnknownFlags && (hosts == nil || hosts.Value.Type() != "string") {
		return errs.Usagef("testbed %s cannot run on several hosts; use for example testbed run", verb.Name())
	}
	if err := verb.ParseFlags(rest); err != nil {
		return errs.Usagef("testbed %s: %w", verb.Name(), err)
	}
	if verb.Flags().Changed("hosts") {
		return errs.Usagef("--hosts must come before the command, as a number: testbed manifests --hosts 3 run …")
	}
	if err := verb.ValidateArgs(verb.Flags().Args()); err != nil {
		return err
	}
	if verb.PreRunE != nil {
		return verb.PreRunE(verb, verb.Flags().Args())
	}
	return nil
}
