package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// written calls the verb, beside one that plays something, and reads what it writes,
// by kind.
func writtenManifests(t *testing.T, args ...string) (map[string]map[string]any, error) {
	t.Helper()
	root := &cobra.Command{Use: "testbed", SilenceErrors: true, SilenceUsage: true}
	run := &cobra.Command{Use: "run", Run: func(*cobra.Command, []string) {}}
	run.Flags().String("hosts", "", "")
	root.AddCommand(manifestsCommand(), run)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs(append([]string{"manifests", "--image", "some/image"}, args...))
	if err := root.Execute(); err != nil {
		return nil, err
	}
	all := map[string]map[string]any{}
	for in := yaml.NewDecoder(&out); ; {
		var one map[string]any
		if err := in.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		all[one["kind"].(string)] = one
	}
}

// at is what an object has there; a number is an index.
func at(v any, path ...any) any {
	for _, p := range path {
		if k, ok := p.(int); ok {
			v = v.([]any)[k]
		} else {
			v = v.(map[string]any)[p.(string)]
		}
	}
	return v
}

const scenarioText = `seed: 1
workers: [{id: 0, inner_step_mean: 1000}, {id: 1, inner_step_mean: 1000}]
inner_steps: 1
target_outer_steps: 1
horizon: 5000000
heartbeat_period: 1000
heartbeat_miss_threshold: 5
base_latency: 100
bandwidth_bpus: 10
state_bytes: 100
train: {task: charlm, model: {width: 48, heads: 3, batch: 4}, text: data/some.txt}
real: {time_scale: 300}
`

// TestFilesGoAlong: a scenario of the user's and what it names are mounted as they
// lie beside each other here, whatever bytes they are.
func TestFilesGoAlong(t *testing.T) {
	dir := t.TempDir()
	want := map[string]string{"mine.yaml": scenarioText, "data/some.txt": strings.Repeat("\x00\xff\n", 20000)}
	for name, text := range want {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, err := writtenManifests(t, "run", filepath.Join(dir, "mine.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	pod := at(all["Job"], "spec", "template", "spec")
	if args := at(pod, "containers", 0, "args"); at(args, 1) != "/scenario/mine.yaml" {
		t.Errorf("the leader is called with %q", args)
	}
	got := map[string]string{}
	for _, item := range at(pod, "volumes", 2, "configMap", "items").([]any) {
		key := at(item, "key").(string)
		text, ok := at(all["ConfigMap"], "data", key).(string)
		if !ok {
			raw, err := base64.StdEncoding.DecodeString(at(all["ConfigMap"], "binaryData", key).(string))
			if err != nil {
				t.Fatal(err)
			}
			text = string(raw)
		}
		got[at(item, "path").(string)] = text
	}
	if !maps.Equal(got, want) {
		t.Errorf("there are %q, want %q", slices.Collect(maps.Keys(got)), slices.Collect(maps.Keys(want)))
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "some.txt"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := writtenManifests(t, "run", filepath.Join(dir, "mine.yaml")); err == nil || !strings.Contains(err.Error(), "a ConfigMap holds") {
		t.Errorf("too much was taken: %v", err)
	}
}

// TestTokens: each call has one of its own, unless there is a secret.
func TestTokens(t *testing.T) {
	tokens := map[any]bool{}
	for range 2 {
		all, err := writtenManifests(t, "run", "late_join")
		if err != nil {
			t.Fatal(err)
		}
		tokens[at(all["Secret"], "stringData", "token")] = true
	}
	if len(tokens) != 2 {
		t.Errorf("two calls have the tokens %v", tokens)
	}
	all, err := writtenManifests(t, "--secret", "mine", "run", "late_join")
	if err != nil {
		t.Fatal(err)
	}
	if name := at(all["Job"], "spec", "template", "spec", "volumes", 0, "secret", "secretName"); name != "mine" || all["Secret"] != nil {
		t.Errorf("the secret is %v, and there is %v", name, all["Secret"])
	}
}
