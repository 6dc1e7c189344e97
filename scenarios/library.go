package scenarios

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"testbed/internal/errs"
)

//go:embed library
var files embed.FS

// Library returns the scenarios of the embedded library, by name.
func Library() ([]*Scenario, error) {
	entries, err := files.ReadDir("library")
	if err != nil {
		return nil, fmt.Errorf("reading the embedded library: %w", err)
	}
	var all []*Scenario
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		s, err := Load(strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// Load reads a scenario by the name of its file or by its name in the library.
func Load(name string) (*Scenario, error) {
	source, err := Find(name)
	if err != nil {
		return nil, err
	}
	return source.Parse()
}

// Source is the text of a scenario and where it was found.
type Source struct {
	File string
	Text []byte
	dir  fs.FS // of the file, where it may name others
}

// Parse reads and validates the scenario, and the files that it names.
func (s Source) Parse() (*Scenario, error) { return parse(s.File, s.Text, s.dir) }

// Stdin names the scenario that is read from standard input, once for a
// process. Files that the scenario names are looked up in the current
// directory.
const Stdin = "-"

var stdin = sync.OnceValues(func() ([]byte, error) { return io.ReadAll(io.LimitReader(os.Stdin, maxFileBytes+1)) })

// Find looks a scenario up, by the name of its file or in the library, or reads it from
// standard input.
func Find(name string) (Source, error) {
	if name == Stdin {
		data, err := stdin()
		if err != nil {
			return Source{}, &Error{File: "stdin", Problem: "cannot be read: " + errs.Cause(err).Error()}
		}
		return Source{"stdin", data, os.DirFS(".")}, nil
	}
	if !strings.ContainsAny(name, "/.") {
		data, err := files.ReadFile("library/" + name + ".yaml")
		if err == nil {
			dir, err := fs.Sub(files, "library")
			return Source{name + ".yaml", data, dir}, err
		}
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Source{}, &Error{File: name, Problem: "there is neither such a file nor such a scenario in the library; the library contains " + strings.Join(names(), ", ")}
	}
	if err != nil {
		return Source{}, &Error{File: name, Problem: "cannot be read: " + errs.Cause(err).Error()}
	}
	return Source{name, data, os.DirFS(filepath.Dir(name))}, nil
}

func names() []string {
	entries, _ := files.ReadDir("library") // embedded: cannot fail
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		out = append(out, strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
	}
	slices.Sort(out)
	return out
}
