package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"testbed/internal/errs"
	"testbed/policy"
	"testbed/report/words"
	"testbed/scenarios"
)

func listCommand() *cobra.Command {
	var asJSON, policies bool
	cmd := &cobra.Command{
		Use: "list [WORD…]", Short: "List the scenarios of the library, or the policies",
		Long: `Lists the scenarios of the library in topics, by the names that other commands
take. With words it lists only scenarios whose topic, name or description
contains all of them:

  testbed list straggler
  testbed list torchft quorum

With --json the command prints each scenario in full, as in its file.`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&policies, "policies", false, "list the policies, with their parameters and defaults")
	cmd.RunE = func(cmd *cobra.Command, words []string) error {
		if policies {
			if len(words) > 0 {
				return errs.Usagef("--policies lists all policies, and takes no words")
			}
			return listPolicies(cmd, asJSON)
		}
		all, err := scenarios.Library()
		if err != nil {
			return err
		}
		topics := topicsWith(all, words)
		if len(topics) == 0 {
			return errs.Usagef("no scenario of the library has \"%s\" in its topic, name or description; use fewer words, or list all with testbed list", strings.Join(words, `" and "`))
		}
		if asJSON {
			var found []*scenarios.Scenario
			for _, s := range all { // by name, like their files
				if slices.ContainsFunc(topics, func(t topic) bool { return slices.Contains(t.found, s) }) {
					found = append(found, s.Plain())
				}
			}
			return printJSON(cmd, found)
		}
		return printTopics(cmd.OutOrStdout(), topics)
	}
	return cmd
}

// topic is a topic of the library with its listed scenarios.
type topic struct {
	scenarios.Topic
	found []*scenarios.Scenario
}

// topicsWith returns the topics that have scenarios with all the words.
func topicsWith(all []*scenarios.Scenario, words []string) (found []topic) {
	byName := map[string]*scenarios.Scenario{}
	for _, s := range all {
		byName[s.Name] = s
	}
	for _, t := range scenarios.Topics() {
		one := topic{Topic: t}
		for _, name := range t.Scenarios {
			s := byName[name]
			text := strings.ToLower(strings.Join([]string{t.Name, t.Meaning, name, s.Description}, "\n"))
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, strings.ToLower(w)) }) {
				one.found = append(one.found, s)
			}
		}
		if len(one.found) > 0 {
			found = append(found, one)
		}
	}
	return found
}

func printTopics(out io.Writer, topics []topic) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, t := range topics {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s: %s\n", t.Name, t.Meaning)
		for _, s := range t.found {
			fmt.Fprintf(w, "  %s\t%s\t%s\n", s.Name, words.Count(len(s.Workers), "worker"), s.Description)
		}
	}
	return w.Flush()
}

// listPolicies prints the policies, and under each its parameters as written
// after its name in --policy.
func listPolicies(cmd *cobra.Command, asJSON bool) error {
	type listed struct {
		Name       string             `json:"name"`
		Summary    string             `json:"summary"`
		Parameters []policy.Parameter `json:"parameters"`
	}
	var all []listed
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
	for _, name := range policy.Names() {
		p, _ := policy.Named(name)
		one := listed{name, policy.Summary(name), policy.Parameters(p)}
		all = append(all, one)
		fmt.Fprintf(w, "%s\t%s\n", name, one.Summary)
		parameters := ""
		for _, param := range one.Parameters {
			parameters += fmt.Sprintf(":%s=%v", param.Name, param.Default)
		}
		if parameters != "" {
			fmt.Fprintf(w, "\t%s\n", parameters)
		}
	}
	if asJSON {
		return printJSON(cmd, all)
	}
	return w.Flush()
}
