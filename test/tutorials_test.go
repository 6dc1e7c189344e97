//go:build linux

package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"testbed/experiment/calibrate"
	"testbed/internal/testenv"
	"testbed/internal/transcript"
)

// TestTutorials does what the pages of docs/tutorials ask their reader to do, and holds
// what is printed against what they show. transcript.Block has the notation.
func TestTutorials(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/tutorials/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no tutorials: %v", err)
	}
	for _, page := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			walk(t, page)
		})
	}
}

// needsOf is what commands and files with such a word need of the machine.
var needsOf = map[string]func(*testing.T){
	"import torch":   func(t *testing.T) { needPython(t, "torch") },
	"import testbed": func(t *testing.T) { needPython(t, "numpy") },
	"gloo":           func(t *testing.T) { needPython(t, "torch") },
	"iperf3": func(t *testing.T) {
		_, err := exec.LookPath("iperf3")
		testenv.Need(t, err)
	},
}

// walk goes through a page, in a folder that stands for the reader's clone.
func walk(t *testing.T, page string) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := transcript.Blocks(string(text))
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	r := newReader(t)
	typed := 0
	for _, b := range blocks {
		at := func(line int) string { return fmt.Sprintf("%s:%d", page, line) }
		for word, need := range needsOf {
			if strings.Contains(b.Text, word) {
				need(t)
			}
		}
		switch file := b.File(); {
		case file != "":
			if !strings.Contains(b.Above, filepath.Base(file)) {
				t.Errorf("%s: the paragraph above does not name the file %s", at(b.Line), file)
			}
			r.write(file, b.Text)
		case b.Lang == "console":
			if b.Measured() {
				needSandbox(t)
			}
			commands, err := b.Commands()
			if err != nil {
				t.Fatalf("%s: %v", page, err)
			}
			for _, c := range commands {
				typed++
				out := r.enter(c.Text)
				switch {
				case b.Measured() && (out.code == exitInvalid || out.code == 0 && strings.Contains(out.stdout, "suspect")):
					// The machine was too busy for what the page shows.
					t.Logf("%s: %s\n%s%s", at(c.Line), c.Text, out.stdout, out.stderr)
					if strings.Contains(out.stderr, calibrate.ErrNoRounds.Error()) {
						return // the rest of the page uses the calibration
					}
					continue
				case out.code == exitUnsupported:
					testenv.Need(t, errors.New(out.stdout+out.stderr))
				case b.Fails() && out.code != exitError && out.code != exitUsage, !b.Fails() && out.code != 0:
					t.Fatalf("%s: %s: exit code %d\n%s\n%s", at(c.Line), c.Text, out.code, out.stdout, out.stderr)
				}
				printed := out.stdout
				if b.Fails() {
					printed = out.stderr
				}
				if c.Want == "" {
					continue
				}
				if err := transcript.Match(printed, c.Want, b.Measured()); err != nil {
					t.Errorf("%s: %s: %v", at(c.Line), c.Text, err)
				}
			}
		default:
			t.Errorf("%s: the block is neither a file nor commands, so nobody tests it", at(b.Line))
		}
	}
	if typed == 0 {
		t.Errorf("%s has no commands", page)
	}
}

// reader follows a page.
type reader struct {
	*testing.T
	dir      string
	root     string // of the repository
	overlay  string // file that adds the reader's Go files to the repository's
	env      []string
	exported []string          // commands that the shell remembers
	sources  map[string]string // Go files of the reader, by where they would be in the clone
}

// newReader has a folder with the command and what else pages use of a clone.
func newReader(t *testing.T) *reader {
	t.Helper()
	watchSources(t)
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{T: t, dir: t.TempDir(), root: root, sources: map[string]string{}}
	for name, target := range map[string]string{"testbed": program, "python": filepath.Join(root, "python"), "scenarios": filepath.Join(root, "scenarios")} {
		if err := os.Symlink(target, filepath.Join(r.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	// go build builds the repository with the reader's files, into the folder.
	compiler, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	r.overlay = filepath.Join(bin, "overlay.json")
	script := fmt.Sprintf("#!/bin/sh\nset -e\n[ \"$1\" = build ]\nshift\nrm -f testbed\nexec '%s' build -C '%s' -overlay '%s' -o \"$PWD/testbed\" \"$@\"\n", compiler, root, r.overlay)
	if err := testenv.WriteExecutable(filepath.Join(bin, "go"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	r.env = append(os.Environ(), mark+"="+t.Name(), "TMPDIR="+temporary(t), "PATH="+bin+":"+os.Getenv("PATH"))
	return r
}

// write puts a file into the folder.
func (r *reader) write(name, text string) {
	r.Helper()
	file := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		r.Fatal(err)
	}
	if filepath.Ext(name) == ".go" {
		r.sources[filepath.Join(r.root, name)] = file
	}
}

// enter plays a command, as the shell would that the reader has had open all along.
func (r *reader) enter(line string) result {
	r.Helper()
	if strings.HasPrefix(line, "export ") {
		r.exported = append(r.exported, line)
		return result{}
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": r.sources})
	if err == nil {
		err = os.WriteFile(r.overlay, overlay, 0o644)
	}
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", strings.Join(append(r.exported, line), "\n"))
	cmd.Dir, cmd.Env = r.dir, r.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		r.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}
