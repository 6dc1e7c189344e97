package main

import (
	"crypto/rand"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"testbed/internal/errs"
	"testbed/scenarios"
)

// manifestsCommand is testbed manifests.
func manifestsCommand() *cobra.Command {
	var m manifests
	cmd := &cobra.Command{
		Use: "manifests --image IMAGE [--hosts N] VERB SCENARIO …", Short: "Write what Kubernetes needs to start the hosts of a run",
		Long: `Writes manifests with which Kubernetes starts the hosts of a run: an indexed Job
of which each pod is a host, and what its pods need: a headless service, a secret
with a token, and a scenario that is a file of yours. VERB SCENARIO … is what the
leader is to play, as you would write it after testbed, without --hosts:

  testbed manifests --image registry.example/testbed --hosts 3 \
      run persistent_straggler --policy straggler | kubectl create -f -

The image has this testbed in its PATH, and sh; docs/hosts.md says how to make it,
and how to get the record.`,
		Args: cobra.ArbitraryArgs, DisableFlagsInUseLine: true,
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // those of the verb come after it
	f.IntVar(&m.Hosts, "hosts", 2, "how many hosts")
	f.StringVar(&m.Image, "image", "", "the image of the containers")
	f.IntVar(&m.CPUs, "cpus", 2, "how many processors each host asks for")
	f.StringVar(&m.Name, "name", "", "of all that is made (default testbed-SCENARIO)")
	f.StringVar(&m.Namespace, "namespace", "", "where it is made (default: where kubectl makes it)")
	f.StringVar(&m.Secret, "secret", "", "one that is there and has the token, under the key "+TokenKey+" (default: a new one)")
	f.DurationVar(&m.Keep, "keep", 10*time.Minute, "how long the leader stays when the run is over, for the record to be copied")
	f.BoolVar(&m.Privileged, "privileged", false, "have pods with all rights on their nodes, for clusters that have no user namespaces for pods")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := m.complete(cmd.Root(), args); err != nil {
			return err
		}
		return m.write(cmd.OutOrStdout())
	}
	return cmd
}

// Where things are in a container.
const (
	results          = "/results"
	manifestScenario = "/scenario"
)

// manifests are all that the page takes.
type manifests struct {
	Name, Namespace, Image, Secret string
	Token                          string // or empty, if the secret is there
	Hosts, CPUs                    int
	Privileged                     bool
	Keep                           time.Duration
	Args                           []string // what the leader plays
	Files                          []file   // of the scenario, if it is none of the library
}

// file is one below the directory of the scenario.
type file struct {
	Key, Path string
	content   []byte
}

// What Kubernetes allows for the name of all of them, with the number of a host
// behind it, and for a namespace.
var (
	name  = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$`)
	space = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$`)
)

// complete says all that is not said by flags.
func (m *manifests) complete(root *cobra.Command, args []string) error {
	wrong := func(format string, args ...any) error { return errs.Usagef(format, args...) }
	if len(args) < 2 || strings.HasPrefix(args[1], "-") {
		return wrong("say what is to be played, the scenario behind the verb, for example: testbed manifests --image IMAGE run persistent_straggler --policy straggler")
	}
	if err := check(root, args); err != nil {
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
	if m.Name == "" {
		m.Name = strings.Trim(fmt.Sprintf("%.51s", "testbed-"+regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(s.Name), "-")), "-")
	}
	switch {
	case m.Hosts < 2 || m.Hosts > len(s.Workers):
		return wrong("--hosts %d: 2 at the least, and at the most %d, as there are workers", m.Hosts, len(s.Workers))
	case m.Image == "":
		return wrong("--image: name one that has testbed in it; docs/hosts.md says how to make it")
	case m.CPUs < 1:
		return wrong("--cpus %d: 1 at the least", m.CPUs)
	case m.Keep < 0:
		return wrong("--keep %v: 0s at the least", m.Keep)
	case !space.MatchString(m.Namespace):
		return wrong("--namespace %s is no name of one", m.Namespace)
	case !name.MatchString(m.Name):
		return wrong("--name %s: take lower-case letters, digits and -, a letter first, 52 at the most", m.Name)
	}
	if m.Secret == "" {
		m.Secret, m.Token = m.Name, rand.Text()
	}
	m.Args = slices.Insert(slices.Clone(args), 2, "--hosts", "kubernetes")
	if source.File != args[1] { // it is one of the library
		return nil
	}
	m.Args[1] = path.Join(manifestScenario, filepath.Base(source.File))
	return m.take(source, s)
}

// check says whether the verb can be called like that, with hosts.
func check(root *cobra.Command, args []string) error {
	verb, rest, err := root.Find(args)
	if err != nil || verb == root {
		return errs.Usagef("there is no verb %q; see testbed --help", args[0])
	}
	// Where there is no real network verbs do not know all of their flags.
	if hosts := verb.Flags().Lookup("hosts"); !verb.FParseErrWhitelist.UnknownFlags && (hosts == nil || hosts.Value.Type() != "string") {
		return errs.Usagef("testbed %s does not go over several hosts", verb.Name())
	}
	if err := verb.ParseFlags(rest); err != nil {
		return errs.Usagef("testbed %s: %w", verb.Name(), err)
	}
	if verb.Flags().Changed("hosts") {
		return errs.Usagef("--hosts comes before the verb here, as a number")
	}
	if err := verb.ValidateArgs(verb.Flags().Args()); err != nil {
		return err
	}
	if verb.PreRunE != nil {
		return verb.PreRunE(verb, verb.Flags().Args())
	}
	return nil
}

// maxFiles is what a ConfigMap holds at the most, in bytes.
const maxFiles = 1 << 20

// take takes the user's scenario along, and the files that it names.
func (m *manifests) take(source scenarios.Source, s *scenarios.Scenario) error {
	m.Files = []file{{"scenario", filepath.Base(source.File), source.Text}}
	for k, name := range slices.Sorted(maps.Keys(s.Traces)) {
		m.Files = append(m.Files, file{fmt.Sprintf("file-%d", k), name, s.Traces[name]})
	}
	size := 0
	for _, f := range m.Files {
		size += len(f.content)
	}
	if size > maxFiles {
		return errs.Usagef("%s and the files that it names have %d bytes, and a ConfigMap holds %d; make them smaller", source.File, size, maxFiles)
	}
	return nil
}

// ConfigMap is what a ConfigMap has of the files.
func (m *manifests) ConfigMap() (string, error) {
	data := map[string]map[string]string{}
	for _, f := range m.Files {
		kind, content := "data", string(f.content)
		if !utf8.Valid(f.content) {
			kind, content = "binaryData", base64.StdEncoding.EncodeToString(f.content)
		}
		if data[kind] == nil {
			data[kind] = map[string]string{}
		}
		data[kind][f.Key] = content
	}
	text, err := yaml.Marshal(data)
	return string(text), err
}

// Of has names that a page and those who read it in a pod share.
func (m *manifests) Of() map[string]string {
	return map[string]string{
		"hosts": Hosts, "leader": Leader, "address": Address, "key": TokenKey, "secret": TokenDir,
		"results": results, "scenario": manifestScenario,
	}
}

//go:embed run.yaml.tmpl
var text string

var page = template.Must(template.New("").Funcs(template.FuncMap{"json": func(v any) (string, error) {
	s, err := json.Marshal(v) // which is YAML, too
	return string(s), err
}}).Parse(text))

// write writes the manifests.
func (m *manifests) write(to io.Writer) error {
	if err := page.Execute(to, m); err != nil {
		return fmt.Errorf("writing the manifests: %w", err)
	}
	return nil
}
