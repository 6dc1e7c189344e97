package scenarios

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
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
	file, data, err := Source(name)
	if err != nil {
		return nil, err
	}
	return Parse(file, data)
}

// Source returns the file name and the text of a scenario.
func Source(name string) (file string, data []byte, err error) {
	if !strings.ContainsAny(name, "/.") {
		data, err := files.ReadFile("library/" + name + ".yaml")
		if err == nil {
			return name + ".yaml", data, nil
		}
	}
	data, err = os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, &Error{File: name, Problem: "there is no such file and no such scenario in the library, which has " + strings.Join(names(), ", ")}
	}
	if err != nil {
		return "", nil, &Error{File: name, Problem: "cannot be read: " + err.Error()}
	}
	return name, data, nil
}

func names() []string {
	entries, _ := files.ReadDir("library") // embedded: cannot fail
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
	}
	slices.Sort(out)
	return out
}
