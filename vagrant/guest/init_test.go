//go:build linux

package guest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inGuest is set by the kernel's command line for its first process.
const inGuest = "TESTBED_GUEST"

// The lines by which the guest tells on its console what it does.
const (
	beginMark = "guest: begin "
	endMark   = "guest: end "
	passMark  = "passed"
	failMark  = "failed"
)

// step is something to run in the guest.
type step struct {
	name    string
	command string
	args    []string
	timeout time.Duration // by the guest's clock
}

// steps are what the guest does. The router of the user-space links is left
// out: an emulated processor is too slow for its rates, and it needs no
// special kernel.
var steps = []step{
	{"links", "/links.test", []string{"-test.v", "-test.run=^Test|Measured", "-test.skip=^TestSixtyFour|/^(user|htb)$|//^(user|htb)$"}, stepTimeout},
	{"netem", "/init", []string{"-test.v", "-test.run=^TestNetem"}, stepTimeout},
	{"command", "/init", []string{"-test.v", "-test.run=^TestCommand"}, stepTimeout},
}

// noiseGuest is the value of inGuest in the guest of BenchmarkNoise, and
// noiseSteps what it does.
const noiseGuest = "noise"

var noiseSteps = []step{{"noise", "/init", []string{"-test.v", "-test.run=^TestUnderNoise"}, 10 * time.Minute}}

// stepTimeout bounds each step of TestMeasuredGuest.
const stepTimeout = 2 * time.Minute

// TestMain makes the binary the guest's first process when it is one.
func TestMain(m *testing.M) {
	if os.Getpid() == 1 && os.Getenv(inGuest) != "" {
		serve()
		fmt.Println("guest: switching off:", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
	}
	os.Exit(m.Run())
}

// serve sets the machine up and runs the steps.
func serve() {
	if err := setUp(); err != nil {
		fmt.Println("guest:", err)
		return
	}
	all := steps
	switch os.Getenv(inGuest) {
	case noiseGuest:
		all = noiseSteps
	case headlineGuest:
		all = headlineSteps
	case benchGuest:
		all = benchSteps()
	}
	for _, s := range all {
		fmt.Println(beginMark + s.name)
		start, verdict := time.Now(), passMark
		if err := s.run(); err != nil {
			fmt.Println("guest:", err)
			verdict = failMark
		}
		fmt.Printf("%s%s %s %.1f\n", endMark, s.name, verdict, time.Since(start).Seconds())
	}
}

func setUp() error {
	for _, m := range []struct{ kind, target string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
	} {
		if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	all, err := filepath.Glob("/modules/*.ko") // in an order in which they load
	if err != nil {
		return fmt.Errorf("looking for modules: %w", err)
	}
	for _, path := range all {
		if err := loadModule(path); err != nil {
			return fmt.Errorf("loading %s: %w", path, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

func (s step) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.command, s.args...)
	cmd.Env = []string{inGuest + "=" + os.Getenv(inGuest), "PATH=/bin", "CI=true"} // nothing may be skipped
	cmd.Dir = "/tmp"
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// report is what the guest tells about one step.
type report struct {
	name    string
	passed  bool
	seconds string // by the guest's clock
	output  string
}

// readConsole calls done after every step that the guest reports, and returns
// what else it says: before, between and after steps, and in one cut short.
func readConsole(r io.Reader, done func(report)) (rest string, err error) {
	var text, current strings.Builder
	running := false
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := strings.TrimRight(in.Text(), "\r")
		if strings.HasPrefix(line, beginMark) {
			running = true
			current.Reset()
		} else if words := strings.Fields(strings.TrimPrefix(line, endMark)); strings.HasPrefix(line, endMark) && len(words) == 3 {
			done(report{words[0], words[1] == passMark, words[2], current.String()})
			running = false
		} else if running {
			current.WriteString(line + "\n")
		} else {
			text.WriteString(line + "\n")
		}
	}
	if running {
		text.WriteString(current.String())
	}
	return text.String(), in.Err()
}

func TestReadConsole(t *testing.T) {
	console := "SeaBIOS\r\nguest: begin one\r\nfine\r\nguest: end one passed 1.5\r\nguest: begin two\r\nguest: end two failed 0.1\r\n" +
		"guest: begin three\r\nKernel panic\r\n"
	var got []report
	rest, err := readConsole(strings.NewReader(console), func(r report) { got = append(got, r) })
	want := []report{{"one", true, "1.5", "fine\n"}, {"two", false, "0.1", ""}}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || rest != "SeaBIOS\nKernel panic\n" {
		t.Errorf("got %+v, the rest %q, %v; want %+v", got, rest, err, want)
	}
}
