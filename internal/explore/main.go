// Explore looks for failures, and keeps a log of its attempts. It is not part
// of CI. By default it runs the random tests with fresh seeds:
//
//	go run ./internal/explore -for 10m
//	go run ./internal/explore -for 1h -run ./node
//
// With -suite it runs go test ./... so many times, to find tests that a busy
// machine can falsify:
//
//	go run ./internal/explore -suite 20
//
// With -play it plays scenarios of the library with testbed run, again and
// again: with a wall clock that is set by minutes and years, on full disks,
// with signals to its processes, and together with programs that take the
// processor. It looks for wrong results that are called valid, for workers
// evicted without reason, for runs that do not end or leave something behind,
// and for unreadable records:
//
//	go run ./internal/explore -play -for 1h
//
// Failures are printed with the command that repeats them. Their output is kept
// next to the log.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/internal/lines"
)

func main() {
	length := flag.Duration("for", 10*time.Minute, "how long to run tests with fresh seeds")
	pattern := flag.String("run", "./...", "the packages whose tests to run")
	suite := flag.Int("suite", 0, "run all tests of the packages this many times, instead of the random tests with fresh seeds")
	name := flag.String("log", filepath.Join("runs", "explore.log"), "file to which a line for each run is added")
	play := flag.Bool("play", false, "play real runs with injected faults, instead of tests")
	seed := flag.Uint64("seed", 0, "with -play, the seed of the runs and of the injected faults; 0 chooses a fresh seed")
	flag.Parse()
	found, err := explore(*length, *pattern, *suite, *play, *seed, *name)
	if err != nil {
		fmt.Fprintln(os.Stderr, "explore:", err)
		os.Exit(2)
	}
	if found > 0 {
		os.Exit(1)
	}
}

// explore returns the number of failed runs.
func explore(length time.Duration, pattern string, suite int, play bool, seed uint64, name string) (found int, err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return 0, err
	}
	file, err := lines.AppendText(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	l := &log{file: file, name: name}
	if play {
		if seed == 0 {
			seed = uint64(1 + rand.Uint32())
		}
		err := playRuns(length, seed, l)
		return l.found, err
	}
	for range suite {
		if err := l.run("go", "test", "-count=1", pattern); err != nil {
			return l.found, err
		}
	}
	if suite > 0 {
		return l.found, nil
	}
	all, err := randomTests(pattern)
	if err != nil {
		return 0, err
	}
	for end := time.Now().Add(length); time.Now().Before(end); {
		for _, p := range slices.Sorted(maps.Keys(all)) {
			seed := fmt.Sprintf("-rapid.seed=%d", 1+rand.Uint32())
			if err := l.run("go", "test", "-count=1", "-timeout=30m", "-run=^("+strings.Join(all[p], "|")+")$", p, seed); err != nil {
				return l.found, err
			}
			if time.Now().After(end) {
				break
			}
		}
	}
	return l.found, nil
}

// log has a line for each run.
type log struct {
	file  *os.File
	name  string
	found int
}

// run runs a command and logs the result. The error is that the result could
// not be logged.
func (l *log) run(command ...string) error {
	revision, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		revision = []byte("unknown")
	}
	began := time.Now()
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	verdict := "ok"
	if err != nil {
		verdict = "FAILED"
	}
	line := fmt.Sprintf("%s %s %s %.0fs %q\n", began.UTC().Format(time.RFC3339), bytes.TrimSpace(revision), verdict, time.Since(began).Seconds(), command)
	fmt.Print(line)
	if _, err := l.file.WriteString(line); err != nil {
		return err
	}
	if err == nil {
		return nil
	}
	l.found++
	kept := fmt.Sprintf("%s.%s.txt", l.name, began.UTC().Format("20060102-150405"))
	fmt.Printf("%s\nthe command's output is in %s. To run the command again:\n", failures(out), kept)
	for _, word := range command {
		if strings.ContainsAny(word, "|()$") {
			word = "'" + word + "'"
		}
		fmt.Print(word, " ")
	}
	fmt.Println()
	return os.WriteFile(kept, out, 0o644)
}

// failures are the lines of go test that name failures.
func failures(out []byte) []byte {
	var all [][]byte
	for line := range bytes.Lines(out) {
		if text := bytes.TrimSpace(line); bytes.HasPrefix(text, []byte("--- FAIL")) || bytes.HasPrefix(text, []byte("FAIL\t")) || bytes.HasPrefix(text, []byte("panic:")) {
			all = append(all, text)
		}
	}
	return bytes.Join(all, []byte("\n"))
}

// randomTests are the tests with random cases, by package: those that reach
// rapidtest through functions of their package. Measured tests are excluded.
func randomTests(pattern string) (map[string][]string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.ImportPath}} {{.Dir}}", pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pattern, err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		p, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			return nil, err
		}
		uses := map[string][]string{} // by function, the names in it
		for _, name := range names {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			for _, d := range file.Decls {
				if f, is := d.(*ast.FuncDecl); is && f.Body != nil {
					uses[f.Name.Name] = append(uses[f.Name.Name], named(f.Body)...)
				}
			}
		}
		for f := range uses {
			if strings.HasPrefix(f, "Test") && !strings.HasPrefix(f, "TestMeasured") && f != "TestMain" && leads(uses, f, map[string]bool{}) {
				all[p] = append(all[p], f)
			}
		}
		slices.Sort(all[p])
		if all[p] == nil {
			delete(all, p)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no random tests", pattern)
	}
	return all, nil
}

// named are the names in a function, with their package if it is another one.
func named(body ast.Node) (all []string) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, is := n.X.(*ast.Ident); is {
				all = append(all, x.Name+"."+n.Sel.Name)
			}
			all = append(all, n.Sel.Name)
		case *ast.Ident:
			all = append(all, n.Name)
		}
		return true
	})
	return all
}

// leads reports whether a function uses rapidtest, or names a function that
// does.
func leads(uses map[string][]string, f string, seen map[string]bool) bool {
	if seen[f] {
		return false
	}
	seen[f] = true
	return slices.ContainsFunc(uses[f], func(name string) bool {
		return name == "rapidtest.Check" || name == "rapidtest.Seed" || uses[name] != nil && leads(uses, name, seen)
	})
}
