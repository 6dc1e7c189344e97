package cluster

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

	"go.yaml.in/yaml/v3"

	"testbed/internal/errs"
)

// Places of files in a container of a run.
const (
	resultsDir  = "/results"
	scenarioDir = "/scenario"
)

// Manifests are the Kubernetes manifests that start the hosts of a run.
type Manifests struct {
	Name       string // of all objects; empty: after the scenario
	Namespace  string // empty: kubectl's default
	Image      string // of the containers
	Secret     string // an existing secret, with a token under TokenKey; empty: a new one
	Hosts      int
	CPUs       int  // that each host asks for
	Privileged bool // pods have all rights on their nodes
	Keep       time.Duration

	Token string        // of a new secret
	Args  []string      // the leader's command
	Files []mountedFile // of the scenario, if it is not in the library
}

// mountedFile is a file below scenarioDir.
type mountedFile struct {
	Key, Path string
	content   []byte
}

// Kubernetes's rules for the name of all objects, to which the number of a host
// is appended, and for a namespace.
var (
	jobName   = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$`)
	namespace = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$`)
	unnamed   = regexp.MustCompile(`[^a-z0-9]+`)
)

// Complete checks the options for a command of the leader whose second argument
// is a scenario of that name, with so many workers. It fills in missing
// options.
func (m *Manifests) Complete(args []string, scenario string, workers int) error {
	if m.Name == "" {
		m.Name = strings.Trim(fmt.Sprintf("%.51s", "testbed-"+unnamed.ReplaceAllString(strings.ToLower(scenario), "-")), "-")
	}
	switch {
	case workers < 2:
		return errs.Usagef("the scenario has %s, but a run over several hosts needs at least 2; add workers", errs.Count(workers, "worker"))
	case m.Hosts < 2 || m.Hosts > workers:
		return errs.Usagef("--hosts %d: the number of hosts must be from 2 to %d, the number of workers", m.Hosts, workers)
	case m.Image == "":
		return errs.Usagef("--image: name a container image that contains testbed; docs/hosts.md shows how to build one")
	case m.CPUs < 1:
		return errs.Usagef("--cpus %d: the number of processors must be at least 1", m.CPUs)
	case m.Keep < 0:
		return errs.Usagef("--keep %v: the time must not be negative", m.Keep)
	case !namespace.MatchString(m.Namespace):
		return errs.Usagef("--namespace %s: use at most 63 lower-case letters, digits and hyphens, beginning and ending with a letter or a digit", m.Namespace)
	case !jobName.MatchString(m.Name):
		return errs.Usagef("--name %s: use at most 52 lower-case letters, digits and hyphens, beginning with a letter and ending with a letter or a digit", m.Name)
	}
	if m.Secret == "" {
		m.Secret, m.Token = m.Name, rand.Text()
	}
	m.Args = slices.Insert(slices.Clone(args), 2, "--hosts", "kubernetes")
	return nil
}

// maxFiles is the limit of a ConfigMap, in bytes.
const maxFiles = 1 << 20

// Mount adds the scenario of a file, and the files that it names, for the
// leader to play.
func (m *Manifests) Mount(file string, text []byte, named map[string][]byte) error {
	m.Args[1] = path.Join(scenarioDir, filepath.Base(file))
	m.Files = []mountedFile{{"scenario", filepath.Base(file), text}}
	for k, name := range slices.Sorted(maps.Keys(named)) {
		m.Files = append(m.Files, mountedFile{fmt.Sprintf("file-%d", k), name, named[name]})
	}
	size := 0
	for _, f := range m.Files {
		size += len(f.content)
	}
	if size > maxFiles {
		return errs.Usagef("%s and the files that it names have %d bytes together, but a ConfigMap holds at most %d bytes; make the files smaller", file, size, maxFiles)
	}
	return nil
}

// ConfigMap is the content of the ConfigMap with the files.
func (m *Manifests) ConfigMap() (string, error) {
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

// Of has the names that the manifests share with the program in a pod.
func (m *Manifests) Of() map[string]string {
	return map[string]string{
		"hosts": podHosts, "leader": podLeader, "address": podAddress, "key": TokenKey, "secret": tokenDir,
		"results": resultsDir, "scenario": scenarioDir,
	}
}

//go:embed run.yaml.tmpl
var manifestsText string

var manifestsTemplate = template.Must(template.New("").Funcs(template.FuncMap{"json": func(v any) (string, error) {
	s, err := json.Marshal(v) // JSON is YAML, too
	return string(s), err
}}).Parse(manifestsText))

// Write writes the manifests.
func (m *Manifests) Write(to io.Writer) error {
	if err := manifestsTemplate.Execute(to, m); err != nil {
		return fmt.Errorf("writing the manifests: %w", err)
	}
	return nil
}
