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
	// Tuned has values of options by one rule for all stacks, TunedRule. Untuned says
	// why no option can keep the rule. A stack has one of the two, or neither.
	Tuned   map[string]Tuned `yaml:"tuned"`
	Untuned string           `yaml:"untuned"`
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
	Least       float64 `yaml:"least" json:",omitempty"`
	Most        float64 `yaml:"most" json:",omitempty"` // 0: no limit
}

// TunedRule is the rule by which options are tuned, in words.
const TunedRule = "a dead worker is noticed within 5 s, and nobody waits for a slow worker for more than 1.5 rounds"

// Tuned is a tuned value of an option: a number, or a number of rounds.
type Tuned struct {
	Value float64 `yaml:"-" json:"value,omitempty"` // if Rounds is 0
	// Rounds is a duration in lengths of a round without faults. The name of the option
	// ends with its unit, _s or _ms.
	Rounds float64 `yaml:"rounds" json:"rounds,omitempty"`
	// Most is the limit of such a duration, in the option's unit; 0 is none.
	Most float64 `yaml:"most" json:"most,omitempty"`
}

// UnmarshalYAML reads a number, or a mapping with rounds.
func (t *Tuned) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&t.Value)
	}
	for k := 0; k+1 < len(n.Content); k += 2 { // Decode does not refuse unknown fields
		if name := n.Content[k].Value; name != "rounds" && name != "most" {
			return fmt.Errorf("line %d: field %s not found in a tuned value", n.Content[k].Line, name)
		}
	}
	type fields Tuned // without this method
	return n.Decode((*fields)(t))
}

func (t Tuned) String() string {
	switch {
	case t.Rounds == 0:
		return fmt.Sprintf("%g", t.Value)
	case t.Most > 0:
		return fmt.Sprintf("%g rounds, at most %g", t.Rounds, t.Most)
	default:
		return fmt.Sprintf("%g rounds", t.Rounds)
	}
}

// units are the endings of options that are durations.
var units = map[string]time.Duration{"_s": time.Second, "_ms": time.Millisecond}

// unit is the unit of an option that is a duration; 0 for another option.
func unit(option string) time.Duration {
	return units[option[max(0, strings.LastIndexByte(option, '_')):]]
}

// in is the value of an option where a round without faults takes so long.
func (t Tuned) in(round time.Duration, option string) float64 {
	if t.Rounds == 0 {
		return t.Value
	}
	v := t.Rounds * float64(round) / float64(unit(option))
	if t.Most > 0 {
		v = min(v, t.Most)
	}
	return v
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
	for option, t := range s.Tuned {
		_, known := s.Options[option]
		switch {
		case !known:
			return fmt.Errorf("tuned.%s: there is no such option", option)
		case t.Value < 0 || t.Rounds < 0 || t.Most < 0:
			return fmt.Errorf("tuned.%s is %s: it must not be below 0", option, t)
		case t.Rounds > 0 && unit(option) == 0:
			return fmt.Errorf("tuned.%s is a number of rounds, but the name of the option ends with neither _s nor _ms", option)
		}
	}
	if len(s.Tuned) > 0 && s.Untuned != "" {
		return errors.New("untuned says why nothing can be tuned, but there is tuned: remove one of the two")
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
	// Values are of all options. Those that are numbers of rounds are 0 before Fit.
	Values map[string]float64
	rounds map[string]Tuned // the others
}

// tunedWord is in the place of an option, for the tuned values of all options.
const tunedWord = "tuned"

// Choose reads a stack as users name it: NAME[:tuned][:option=value]…, where NAME may be
// a folder. An option's value has priority over the tuned one.
func Choose(text string) (*Chosen, error) {
	name, rest, _ := strings.Cut(text, ":")
	s, err := Find(name)
	if err != nil {
		return nil, err
	}
	c := &Chosen{Stack: s, Values: map[string]float64{}, rounds: map[string]Tuned{}}
	for option, o := range s.Options {
		c.Values[option] = o.Default
	}
	first, more, _ := strings.Cut(rest, ":")
	if first == tunedWord {
		if err := c.tune(text); err != nil {
			return nil, err
		}
		rest = more
	}
	for rest != "" {
		var part string
		part, rest, _ = strings.Cut(rest, ":")
		option, value, found := strings.Cut(part, "=")
		if _, known := s.Options[option]; !known || !found {
			return nil, errs.Usagef("stack %s: %q is not OPTION=VALUE; the options of this stack are %s", text, part, strings.Join(slices.Sorted(maps.Keys(s.Options)), ", "))
		}
		number, err := strconv.ParseFloat(value, 64)
		o := s.Options[option]
		switch {
		case err != nil || !(number >= o.Least): // not a number, too
			return nil, errs.Usagef("stack %s: %s is %q: it must be a number, %g or above", text, option, value, o.Least)
		case o.Most > 0 && number > o.Most:
			return nil, errs.Usagef("stack %s: %s is %q: it must be %g at most", text, option, value, o.Most)
		}
		c.Values[option] = number
		delete(c.rounds, option)
	}
	return c, nil
}

// tune takes the tuned values.
func (c *Chosen) tune(text string) error {
	if len(c.Tuned) == 0 {
		why := c.Untuned
		if why == "" {
			why = settings + " has no tuned values"
		}
		return errs.Usagef("stack %s: it cannot be tuned: %s", text, why)
	}
	for option, t := range c.Tuned {
		if t.Rounds > 0 {
			c.rounds[option], c.Values[option] = t, 0
		} else {
			c.Values[option] = t.Value
		}
	}
	return nil
}

// Fit sets the options that are numbers of rounds. round is how long a round takes
// without faults.
func (c *Chosen) Fit(round time.Duration) {
	for option, t := range c.rounds {
		c.Values[option] = t.in(round, option)
	}
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
	remedy := s.Remedy
	if s.Install != nil {
		remedy = "run testbed stacks install " + s.Name + " (" + s.Install.Size + ")"
	}
	dir, err := os.MkdirTemp("", "testbed-stack")
	if err != nil {
		return Ready{}, err
	}
	defer os.RemoveAll(dir)
	if err := s.Extract(dir); err != nil {
		return Ready{}, err
	}
	missing := ""
	for _, candidate := range s.Python {
		python, err := exec.LookPath(s.expand(candidate))
		if err != nil {
			missing = first(missing, "there is no "+s.expand(candidate))
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
	return Ready{}, &errs.UnsupportedError{Missing: "the stack " + s.Name + " cannot run here: " + missing, Fix: remedy}
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
