// Package stacks reads the folders of stacks: training systems of other people, with
// the adapters that play them. It finds out what a stack needs and is missing here.
//
// A folder has a stack.yaml and Python programs. The folder common has what all
// adapters share.
package stacks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

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
	NoJoin string `yaml:"no_join"`
	// MinWorkers is the least number of workers; 0: any number.
	MinWorkers int               `yaml:"min_workers"`
	Options    map[string]Option `yaml:"options"`
	// Tuned has values of options by one rule for all stacks, TunedRule. Untuned says
	// why no option can keep the rule. A stack has one of the two, or neither.
	Tuned   map[string]Tuned `yaml:"tuned"`
	Untuned string           `yaml:"untuned"`
	// Startup and Silence are the most seconds until the first round begins, and
	// between two marks of any worker.
	Startup float64 `yaml:"startup_s"`
	Silence float64 `yaml:"silence_s"`

	folder fs.FS
	dir    string // the folder on this machine, as an absolute path; empty: the library's
}

// Option is a number that the user may choose.
type Option struct {
	Default     float64 `yaml:"default"`
	Description string  `yaml:"description"`
	Least       float64 `yaml:"least" json:",omitempty"`
	Most        float64 `yaml:"most" json:",omitempty"` // 0: no limit
}

// fault says in words why a value is out of the option's range; it is empty if it is not.
func (o Option) fault(value float64) string {
	switch {
	case o.Most > 0 && !(value >= o.Least && value <= o.Most):
		return fmt.Sprintf("must be a number from %g to %g", o.Least, o.Most)
	case !(value >= o.Least) || math.IsInf(value, 0):
		return fmt.Sprintf("must be a number, %g or above", o.Least)
	}
	return ""
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

// plain is where a tuned value goes that is a number, and not fields.
func (t *Tuned) plain() *float64 { return &t.Value }

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

// in is the value of an option where a round without faults takes so long. It is in the
// range of the option.
func (t Tuned) in(round time.Duration, name string, o Option) float64 {
	v := t.Rounds * float64(round) / float64(unit(name))
	if t.Most > 0 {
		v = min(v, t.Most)
	}
	if o.Most > 0 {
		v = min(v, o.Most)
	}
	return max(v, o.Least)
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
		dir, err := filepath.Abs(name)
		if err != nil {
			return nil, fmt.Errorf("looking for the folder of the stack %s: %w", name, err)
		}
		if about, err := os.Stat(dir); err != nil || !about.IsDir() || dir == "/" {
			return nil, errs.Usagef("%s is not the folder of a stack; name a folder that contains %s, such as ./mine, or ./mine:timeout_s=5 with an option", name, settings)
		}
		return read(os.DirFS(dir), filepath.Base(dir), dir)
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
func Read(folder fs.FS, name string) (*Stack, error) { return read(folder, name, "") }

func read(folder fs.FS, name, dir string) (*Stack, error) {
	s := &Stack{Name: name, Startup: 180, Silence: 120, folder: folder, dir: dir}
	about, err := fs.Stat(folder, settings)
	if err == nil && (!about.Mode().IsRegular() || about.Size() > mostSettings) {
		return nil, errs.Usagef("%s is not a file of at most %d MiB", s.file(), mostSettings>>20)
	}
	var text []byte
	if err == nil {
		text, err = fs.ReadFile(folder, settings)
	}
	if err != nil {
		return nil, errs.Usagef("the stack %s has no readable %s: %w", cmp.Or(dir, name), settings, reason(err))
	}
	if err := decode(text, s); err != nil {
		return nil, errs.Usagef("%s:%w", s.file(), err)
	}
	if err := s.check(); err != nil {
		return nil, errs.Usagef("%s: %w", s.file(), err)
	}
	return s, nil
}

// file is the path of the stack's settings, for errors.
func (s *Stack) file() string { return filepath.Join(cmp.Or(s.dir, s.Name), settings) }

// reason is an error of a file system without the path, which the reader knows.
func reason(err error) error {
	if p, is := errors.AsType[*fs.PathError](err); is {
		return p.Err
	}
	return err
}

// Limits of a stack's folder and settings.
const (
	mostBytes    = 64 << 20
	mostSettings = 1 << 20
	mostSeconds  = 1e6
)

// identifier is a name that cannot be mistaken for something else on a command line.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (s *Stack) check() error {
	switch {
	case len(s.Worker) == 0:
		return errors.New("worker is missing: name the program of a worker, such as [worker.py]")
	case len(s.Python) == 0 || slices.Contains(s.Python, ""):
		return errors.New("python is missing, or has an empty name: name interpreters to try, such as [python3]")
	case s.Probe == "":
		return errors.New("probe is missing: name a program that ends without an error where the stack can run")
	case s.Remedy == "" && s.Install == nil:
		return errors.New("remedy is missing: say how to install what the stack needs")
	}
	for field, seconds := range map[string]float64{"startup_s": s.Startup, "silence_s": s.Silence} {
		if seconds <= 0 || seconds > mostSeconds {
			return fmt.Errorf("%s is %g: it must be above 0 and at most %g", field, seconds, mostSeconds)
		}
	}
	for op, why := range s.Cannot {
		if !slices.Contains(faults.Ops, op) || why == "" {
			return fmt.Errorf("cannot.%s: name an inject of workers, such as %s, and a reason", op, faults.Leave)
		}
	}
	for name, o := range s.Options {
		switch why := o.fault(o.Default); {
		case !identifier.MatchString(name):
			return fmt.Errorf("options.%s: the name of an option may contain only letters, digits and \"_\", and must not begin with a digit", name)
		case o.Description == "":
			return fmt.Errorf("options.%s.description is missing: say what the option does, in its unit", name)
		case why != "":
			return fmt.Errorf("options.%s.default is %g: it %s", name, o.Default, why)
		}
	}
	if err := s.checkTuned(); err != nil {
		return err
	}
	programs := map[string]string{"worker": s.Worker[0], "probe": s.Probe}
	if len(s.Central) > 0 {
		programs["central"] = s.Central[0]
	}
	if s.Install != nil {
		if len(s.Install.Python) == 0 || s.Install.Needs == "" || s.Install.Remedy == "" {
			return errors.New("install lacks a field: give python (interpreters to make the environment with), needs (modules that they must import) and remedy (how to get such an interpreter)")
		}
		programs["install.requirements"] = s.Install.Requirements
		if s.Install.After != "" {
			programs["install.after"] = s.Install.After
		}
	}
	for _, field := range slices.Sorted(maps.Keys(programs)) {
		program := programs[field]
		if program == "" || path.Base(program) != program {
			return fmt.Errorf("%s: %q must be the name of a file directly in the stack's folder", field, program)
		}
		switch about, err := fs.Stat(s.folder, program); {
		case err != nil:
			return fmt.Errorf("%s: the folder has no file %s: %w", field, program, reason(err))
		case !about.Mode().IsRegular():
			return fmt.Errorf("%s: %s is not a file", field, program)
		}
	}
	return nil
}

// optionNames lists the options for an error.
func (s *Stack) optionNames() string {
	if len(s.Options) == 0 {
		return "the stack has no options"
	}
	return "the options of this stack are " + strings.Join(slices.Sorted(maps.Keys(s.Options)), ", ")
}

// checkTuned checks the tuned values of options.
func (s *Stack) checkTuned() error {
	for name, t := range s.Tuned {
		o, known := s.Options[name]
		switch why := o.fault(t.Value); {
		case !known:
			return fmt.Errorf("tuned.%s: there is no such option; %s", name, s.optionNames())
		case t.Rounds < 0 || t.Most < 0:
			return fmt.Errorf("tuned.%s is %s: the fields rounds and most must not be negative", name, t)
		case t.Rounds == 0 && t.Most > 0:
			return fmt.Errorf("tuned.%s.rounds is missing, although most limits it: add rounds, or remove most", name)
		case t.Rounds > 0 && unit(name) == 0:
			return fmt.Errorf("tuned.%s is a number of rounds, but the name of the option ends with neither \"_s\" nor \"_ms\"; give a plain number", name)
		case t.Rounds == 0 && why != "":
			return fmt.Errorf("tuned.%s is %s: it %s", name, t, why)
		}
	}
	if len(s.Tuned) > 0 && s.Untuned != "" {
		return errors.New(`"untuned" says why nothing can be tuned, but there is also "tuned": remove one of the two`)
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
	name, rest, found := strings.Cut(text, ":")
	s, err := Find(name)
	if err != nil {
		return nil, err
	}
	c := &Chosen{Stack: s, Values: map[string]float64{}, rounds: map[string]Tuned{}}
	for option, o := range s.Options {
		c.Values[option] = o.Default
	}
	if first, more, others := strings.Cut(rest, ":"); found && first == tunedWord {
		if err := c.tune(text); err != nil {
			return nil, err
		}
		rest, found = more, others
	}
	given := map[string]bool{}
	for found {
		var part string
		part, rest, found = strings.Cut(rest, ":")
		option, value, valued := strings.Cut(part, "=")
		o, known := s.Options[option]
		switch {
		case !valued:
			return nil, errs.Usagef("stack %s: %q is not OPTION=VALUE; %s", text, part, s.optionNames())
		case !known:
			return nil, errs.Usagef("stack %s: there is no option %q; %s", text, option, s.optionNames())
		case given[option]:
			return nil, errs.Usagef("stack %s: %s is given twice: keep one", text, option)
		}
		given[option] = true
		number, err := strconv.ParseFloat(value, 64)
		if why := o.fault(number); err != nil || why != "" {
			return nil, errs.Usagef("stack %s: %s is %q: it %s", text, option, value, cmp.Or(why, "must be a number"))
		}
		c.Values[option] = number
		delete(c.rounds, option)
	}
	return c, nil
}

// tune takes the tuned values.
func (c *Chosen) tune(text string) error {
	if len(c.Tuned) == 0 {
		return errs.Usagef("stack %s: it cannot be tuned: %s", text, cmp.Or(c.Untuned, settings+" has no tuned values"))
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
		c.Values[option] = t.in(round, option, c.Options[option])
	}
}

// Limits of a probe. It imports torch, perhaps on a busy machine.
const (
	probeLimit   = 3 * time.Minute
	probeOutput  = 1 << 20 // bytes
	longestLine  = 300     // of a probe, in an error and as a version
	probeMessage = 16 << 10
)

// Ready is a stack that can run here.
type Ready struct {
	Python  string // the interpreter, as an absolute path
	Version string // of the stack's software
}

// Check returns the interpreter that can run a stack, and the version of its software.
// If no interpreter can, the error is an *errs.UnsupportedError.
func (s *Stack) Check(ctx context.Context) (Ready, error) {
	missing := ""
	for _, candidate := range s.Interpreters() {
		python, err := exec.LookPath(candidate)
		if err != nil {
			missing = first(missing, noProgram(candidate, err))
			continue
		}
		if python, err = filepath.Abs(python); err != nil {
			return Ready{}, err
		}
		version, why := s.probe(ctx, python)
		if err := ctx.Err(); err != nil {
			return Ready{}, err
		}
		if why == "" {
			return Ready{Python: python, Version: version}, nil
		}
		missing = first(missing, python+": "+why)
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
	if s.dir != "" {
		return "run testbed stacks install " + s.dir
	}
	return "run testbed stacks install " + s.Name + " (" + s.Install.Size + ")"
}

// noProgram says in words why a program was not found.
func noProgram(name string, err error) string {
	if e, is := errors.AsType[*exec.Error](err); is {
		err = e.Err
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return "there is no " + name
	}
	return name + ": " + reason(err).Error()
}

// first keeps the first reason: the first interpreter is the preferred one.
func first(had, now string) string {
	if had != "" {
		return had
	}
	return now
}

// probe runs the probe with an interpreter, and returns what is missing in words. Nothing
// is written for it, because a command that is killed could not remove it. A probe of the
// library comes on standard input.
func (s *Stack) probe(ctx context.Context, python string) (version, missing string) {
	limit := min(probeLimit, time.Duration(s.Startup*float64(time.Second)))
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	text, err := fs.ReadFile(s.folder, s.Probe)
	if err != nil {
		return "", s.Probe + ": " + reason(err).Error()
	}
	var out, errors *tail
	err = contain(func() *exec.Cmd {
		cmd := exec.CommandContext(ctx, python, "-")
		cmd.Stdin = bytes.NewReader(text)
		if s.dir != "" {
			cmd = exec.CommandContext(ctx, python, filepath.Join(s.dir, s.Probe))
		}
		cmd.Env = append(os.Environ(), Env()...)
		cmd.WaitDelay = time.Second
		out, errors = &tail{stop: stop}, &tail{stop: stop}
		cmd.Stdout, cmd.Stderr = out, errors
		return cmd
	})
	last := errors.last()
	switch version := out.last(); {
	case out.over() || errors.over():
		return "", fmt.Sprintf("%s printed more than %d MiB", s.Probe, probeOutput>>20)
	case ctx.Err() != nil:
		return "", fmt.Sprintf("%s did not end within %.3g s", s.Probe, limit.Seconds())
	case err != nil && last != "":
		return "", last
	case err != nil:
		return "", s.Probe + " failed: " + err.Error()
	case version == "":
		return "", s.Probe + " ended well, but printed no version"
	default:
		return version, ""
	}
}

// tail keeps the end of an output, and calls stop when the output is too long.
type tail struct {
	stop  func()
	mutex sync.Mutex
	text  []byte
	all   int
}

func (t *tail) Write(text []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.text = append(t.text, text...)
	t.text = t.text[max(0, len(t.text)-probeMessage):]
	if t.all += len(text); t.all > probeOutput {
		t.stop()
	}
	return len(text), nil
}

func (t *tail) over() bool {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.all > probeOutput
}

func (t *tail) last() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return lastLine(string(t.text))
}

// lastLine is the last line of a text, as one that can be shown: without control
// characters, and not too long.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	line := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.TrimSpace(lines[len(lines)-1]))
	if cut := []rune(line); len(cut) > longestLine {
		return string(cut[:longestLine]) + " …"
	}
	return line
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
	room := int64(mostBytes)
	for _, folder := range []fs.FS{shared, s.folder} { // Python finds modules beside a program
		files, err := fs.ReadDir(folder, ".")
		if err != nil {
			return fmt.Errorf("reading the folder of the stack %s: %w", s.Name, err)
		}
		for _, f := range files {
			about, err := fs.Stat(folder, f.Name())
			if err != nil || !about.Mode().IsRegular() { // a folder, a pipe, a broken link
				continue
			}
			if err := copyFile(folder, f.Name(), to, &room); err != nil {
				return fmt.Errorf("copying the folder of the stack %s: %w", s.Name, err)
			}
		}
	}
	return nil
}

// copyFile copies a file of a stack's folder to a directory, and takes its size from the
// room that is left.
func copyFile(folder fs.FS, name, to string, room *int64) error {
	from, err := folder.Open(name)
	if err != nil {
		return fmt.Errorf("%s: %w; make the file readable, or move it elsewhere", name, reason(err))
	}
	defer from.Close()
	file, err := os.Create(filepath.Join(to, name))
	if err != nil {
		return err
	}
	n, err := io.Copy(file, io.LimitReader(from, *room+1))
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if *room -= n; *room < 0 {
		return fmt.Errorf("its files have more than %d MiB; leave only the stack's programs there", mostBytes>>20)
	}
	return nil
}

// Venv is the directory of the stack's virtual environment. The environment of a user's
// folder is none of the library's, whatever the folder's name.
func (s *Stack) Venv() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = filepath.Join(os.TempDir(), "cache")
	}
	name := s.Name
	if s.dir != "" {
		name = fmt.Sprintf("%s-%x", name, sha256.Sum256([]byte(s.dir)))[:len(name)+9]
	}
	return filepath.Join(cache, "testbed", "stacks", name)
}

func (s *Stack) expand(text string) string {
	home, _ := os.UserHomeDir() // without one, a file that does not exist
	return strings.NewReplacer("{venv}", s.Venv(), "{home}", home).Replace(text)
}
