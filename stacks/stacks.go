// Package stacks reads the folders of stacks: training systems of other people, with
// the adapters that play them. It finds out what a stack needs and is missing here.
//
// A folder has a stack.yaml and Python programs. The folder common has what all
// adapters share.
package stacks

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"testbed/internal/errs"
	"testbed/scenarios/faults"
)

//go:embed */*.py */*.yaml */*.txt */*.sh
var library embed.FS

const (
	settings = "stack.yaml"
	common   = "common"
)

// Stack is a training system, as its folder describes it.
type Stack struct {
	Name        string `yaml:"-"`
	Description string `yaml:"description"`
	// Ours marks a stack whose loop is our own around somebody else's library.
	Ours bool `yaml:"ours"`
	// Python are interpreters to try, in order. {venv} is the stack's virtual
	// environment, and {home} the user's directory.
	Python []string `yaml:"python"`
	// Central is the program in the coordinator's node, with its arguments; empty:
	// there is none. Worker is the program in each worker's node.
	Central []string `yaml:"central"`
	Worker  []string `yaml:"worker"`
	// Probe is a program that ends without an error where the stack can run, and
	// prints its version.
	Probe  string `yaml:"probe"`
	Remedy string `yaml:"remedy"`
	// Install is what testbed stacks install does; nil: it is not ours to install.
	Install *Install `yaml:"install"`
	// Cannot has reasons by inject: what the stack cannot do.
	Cannot map[faults.Op]string `yaml:"cannot"`
	// Inexact says why workers' states differ in the last bits; empty: they are equal.
	Inexact string `yaml:"inexact"`
	// NoJoin says why no worker can join later; empty: it can.
	NoJoin  string            `yaml:"no_join"`
	Options map[string]Option `yaml:"options"`
	// Startup and Silence are the most seconds until the first round begins, and
	// between two marks of any worker.
	Startup float64 `yaml:"startup_s"`
	Silence float64 `yaml:"silence_s"`

	folder fs.FS
}

// Option is a number that the user may choose.
type Option struct {
	Default     float64 `yaml:"default"`
	Description string  `yaml:"description"`
}

// Install is a virtual environment to make.
type Install struct {
	// Python are interpreters to make it with: the first that can import Needs. The
	// environment sees their packages. Remedy says how to get one.
	Python []string `yaml:"python"`
	Needs  string   `yaml:"needs"`
	Remedy string   `yaml:"remedy"`
	// Requirements is a file of pinned packages, with hashes, in the stack's folder.
	Requirements string `yaml:"requirements"`
	// After is a shell script in the folder that gets the environment's directory;
	// empty: there is none.
	After string `yaml:"after"`
	Size  string `yaml:"size"` // and time, for people
}

// Names are the stacks of the library, in order.
func Names() (names []string) {
	entries, _ := library.ReadDir(".")
	for _, e := range entries {
		if _, err := fs.Stat(library, path.Join(e.Name(), settings)); err == nil {
			names = append(names, e.Name())
		}
	}
	return names
}

// Find returns a stack of the library, or the one in a folder if name has a slash.
func Find(name string) (*Stack, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return Read(os.DirFS(name), filepath.Base(filepath.Clean(name)))
	}
	if !slices.Contains(Names(), name) {
		return nil, errs.Usagef("there is no stack %q: the stacks are %s; name a folder with a slash, as ./%[1]s", name, strings.Join(Names(), ", "))
	}
	folder, err := fs.Sub(library, name)
	if err != nil {
		return nil, err
	}
	return Read(folder, name)
}

// Read reads a stack's folder.
func Read(folder fs.FS, name string) (*Stack, error) {
	text, err := fs.ReadFile(folder, settings)
	if err != nil {
		return nil, errs.Usagef("the stack %s has no %s: %w", name, settings, err)
	}
	s := &Stack{Name: name, Startup: 180, Silence: 120, folder: folder}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(s); err != nil {
		return nil, errs.Usagef("%s of the stack %s: %w", settings, name, err)
	}
	if err := s.check(); err != nil {
		return nil, errs.Usagef("%s of the stack %s: %w", settings, name, err)
	}
	return s, nil
}

func (s *Stack) check() error {
	switch {
	case len(s.Worker) == 0:
		return errors.New("worker is missing: name the program of a worker, such as [worker.py]")
	case len(s.Python) == 0:
		return errors.New("python is missing: name interpreters to try, such as [python3]")
	case s.Probe == "":
		return errors.New("probe is missing: name a program that ends without an error where the stack can run")
	case s.Remedy == "" && s.Install == nil:
		return errors.New("remedy is missing: say how to install what the stack needs")
	case s.Startup <= 0 || s.Silence <= 0:
		return fmt.Errorf("startup_s is %g and silence_s is %g: both must be above 0", s.Startup, s.Silence)
	}
	for op, why := range s.Cannot {
		if !slices.Contains(faults.Ops, op) || why == "" {
			return fmt.Errorf("cannot.%s: name an inject of workers, such as %s, and a reason", op, faults.Leave)
		}
	}
	programs := []string{s.Worker[0], s.Probe}
	if len(s.Central) > 0 {
		programs = append(programs, s.Central[0])
	}
	if s.Install != nil {
		if len(s.Install.Python) == 0 || s.Install.Needs == "" || s.Install.Remedy == "" {
			return errors.New("install lacks a field: give python (interpreters to make the environment with), needs (modules that they must import) and remedy (how to get such an interpreter)")
		}
		programs = append(programs, s.Install.Requirements)
		if s.Install.After != "" {
			programs = append(programs, s.Install.After)
		}
	}
	for _, program := range programs {
		if _, err := fs.Stat(s.folder, program); err != nil {
			return fmt.Errorf("the folder has no file %s: %w", program, err)
		}
	}
	return nil
}

// prefix marks names of stacks where results name a policy.
const prefix = "stack:"

// Label is the name of a stack, as users name it, in the place of a policy's name.
func Label(text string) string { return prefix + text }

// Labelled returns the stack of a Label; ok is false for a policy's name.
func Labelled(label string) (text string, ok bool) { return strings.CutPrefix(label, prefix) }

// Chosen is a stack with options.
type Chosen struct {
	*Stack
	Values map[string]float64 // of all options
}

// Choose reads a stack as users name it: NAME[:option=value]…, where NAME may be a
// folder.
func Choose(text string) (*Chosen, error) {
	name, rest, _ := strings.Cut(text, ":")
	s, err := Find(name)
	if err != nil {
		return nil, err
	}
	c := &Chosen{Stack: s, Values: map[string]float64{}}
	for option, o := range s.Options {
		c.Values[option] = o.Default
	}
	for rest != "" {
		var part string
		part, rest, _ = strings.Cut(rest, ":")
		option, value, found := strings.Cut(part, "=")
		if _, known := s.Options[option]; !known || !found {
			return nil, errs.Usagef("stack %s: %q is not OPTION=VALUE; the options of this stack are %s", text, part, strings.Join(slices.Sorted(maps.Keys(s.Options)), ", "))
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil || number < 0 {
			return nil, errs.Usagef("stack %s: %s is %q: it must be a number, 0 or above", text, option, value)
		}
		c.Values[option] = number
	}
	return c, nil
}

// probeLimit is how long a probe may take. It imports torch, perhaps on a busy machine.
const probeLimit = 3 * time.Minute

// Ready is a stack that can run here.
type Ready struct {
	Python  string // the interpreter, as an absolute path
	Version string // of the stack's software
}

// Check returns the interpreter that can run a stack, and the version of its software.
// If no interpreter can, the error is an *errs.UnsupportedError.
func (s *Stack) Check(ctx context.Context) (Ready, error) {
	dir, err := os.MkdirTemp("", "testbed-stack")
	if err != nil {
		return Ready{}, err
	}
	defer os.RemoveAll(dir)
	if err := s.Extract(dir); err != nil {
		return Ready{}, err
	}
	missing := ""
	for _, candidate := range s.Interpreters() {
		python, err := exec.LookPath(candidate)
		if err != nil {
			missing = first(missing, "there is no "+candidate)
			continue
		}
		if python, err = filepath.Abs(python); err != nil {
			return Ready{}, err
		}
		version, why := s.probe(ctx, python, dir)
		if why == "" {
			return Ready{Python: python, Version: version}, nil
		}
		missing = first(missing, python+": "+why)
	}
	if err := ctx.Err(); err != nil {
		return Ready{}, err
	}
	return Ready{}, &errs.UnsupportedError{Missing: "the stack " + s.Name + " cannot run here: " + missing, Fix: s.Fix()}
}

// Interpreters are the interpreters to try, in order: paths, or names of commands.
func (s *Stack) Interpreters() (all []string) {
	for _, candidate := range s.Python {
		all = append(all, s.expand(candidate))
	}
	return all
}

// ProbeText is the text of the program Probe.
func (s *Stack) ProbeText() (string, error) {
	text, err := fs.ReadFile(s.folder, s.Probe)
	if err != nil {
		return "", fmt.Errorf("reading the folder of the stack %s: %w", s.Name, err)
	}
	return string(text), nil
}

// Fix says how to get the software that the stack needs.
func (s *Stack) Fix() string {
	if s.Install == nil {
		return s.Remedy
	}
	return "run testbed stacks install " + s.Name + " (" + s.Install.Size + ")"
}

// first keeps the first reason: the first interpreter is the preferred one.
func first(had, now string) string {
	if had != "" {
		return had
	}
	return now
}

// probe runs the probe with an interpreter, and returns what is missing in words.
func (s *Stack) probe(ctx context.Context, python, dir string) (version, missing string) {
	ctx, stop := context.WithTimeout(ctx, probeLimit)
	defer stop()
	cmd := exec.CommandContext(ctx, python, filepath.Join(dir, "adapter", s.Probe))
	cmd.Env = append(os.Environ(), Env()...)
	cmd.WaitDelay = time.Second
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	if err := cmd.Run(); err != nil {
		if last := lastLine(errors.String()); last != "" {
			return "", last
		}
		return "", err.Error()
	}
	return lastLine(out.String()), ""
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// Env are the variables that adapters need.
func Env() []string { return []string{"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"} }

// Command is a program of the stack with its arguments, when the stack was extracted to
// a directory.
func (s *Stack) Command(python, dir string, words []string) []string {
	if len(words) == 0 {
		return nil
	}
	return append([]string{python, filepath.Join(dir, "adapter", words[0])}, words[1:]...)
}

// Extract writes the stack's folder, and what all adapters share, to DIR/adapter.
func (s *Stack) Extract(dir string) error {
	shared, err := fs.Sub(library, common)
	if err != nil {
		return err
	}
	to := filepath.Join(dir, "adapter")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("writing the adapters of the stack %s: %w", s.Name, err)
	}
	for _, folder := range []fs.FS{shared, s.folder} { // Python finds modules beside a program
		files, err := fs.ReadDir(folder, ".")
		if err != nil {
			return fmt.Errorf("reading the folder of the stack %s: %w", s.Name, err)
		}
		for _, f := range files {
			if f.IsDir() {
				continue
			}
			text, err := fs.ReadFile(folder, f.Name())
			if err == nil {
				err = os.WriteFile(filepath.Join(to, f.Name()), text, 0o644)
			}
			if err != nil {
				return fmt.Errorf("writing the adapters of the stack %s: %w", s.Name, err)
			}
		}
	}
	return nil
}

// Venv is the directory of the stack's virtual environment.
func (s *Stack) Venv() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = filepath.Join(os.TempDir(), "cache")
	}
	return filepath.Join(cache, "testbed", "stacks", s.Name)
}

func (s *Stack) expand(text string) string {
	home, _ := os.UserHomeDir() // without one, a file that does not exist
	return strings.NewReplacer("{venv}", s.Venv(), "{home}", home).Replace(text)
}
