//go:build linux

package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"testbed/allreduce/bench"
	"testbed/emulation/sandbox"
	"testbed/internal/errs"
	"testbed/shaping/kernel"
)

// rival is another program, measured on the links of a benchmark.
type rival interface {
	// start starts its processes and returns its version. If a program is missing,
	// the error says what to install.
	start(b *benchmark) (version string, err error)
	// once measures it once. It returns the seconds, and the CPU seconds of all
	// its processes.
	once(b *benchmark) (seconds, cpu float64, err error)
	// stop ends the processes of start, even after an error.
	stop()
}

// RivalNames lists the rivals of a benchmark.
var RivalNames = []string{"iperf3", "gloo"}

func newRival(name string) (rival, error) {
	switch name {
	case "iperf3":
		return &iperf3{}, nil
	case "gloo":
		return &gloo{}, nil
	}
	return nil, errs.Fieldf("against", "%s: choose from %s", name, strings.Join(RivalNames, ", "))
}

// lossProof is the congestion control for paths that lose packets: it does not
// mistake a loss for a full queue (BBR; Cardwell et al. 2016).
const lossProof = "bbr"

// chooseTCP chooses the rivals' congestion control for the links, if the
// scenario names none: shaping.DefaultTCP or, if a path loses packets and the
// kernel allows it in nodes, lossProof.
func (b *benchmark) chooseTCP() {
	if plan := b.spec.Plan; plan.TCP == "" && plan.Lossy() && kernel.TCPAllowed(lossProof) == nil {
		plan.TCP = lossProof
	}
}

// startRivals starts the available rivals. A missing one gets a problem, and
// the others go on.
func (b *benchmark) startRivals() {
	for _, name := range b.spec.Against {
		r, err := newRival(name)
		if err != nil {
			continue // Run has checked the names
		}
		c := &contest{rival: r, result: bench.Rival{Name: name}}
		if c.result.Version, err = r.start(b); err != nil {
			c.fail(b, err)
		}
		b.rivals = append(b.rivals, c)
	}
}

// fail ends a contest.
func (c *contest) fail(b *benchmark, err error) {
	c.result.Problem = err.Error()
	b.s.Tell("%s: %s", c.result.Name, c.result.Problem)
}

// tool is another project's program that runs in a node, or in the hub.
type tool struct {
	name    string
	process *sandbox.Process
	in, out *os.File // ends of its standard input and output
}

// startTool starts a program in a namespace, or the hub. Its standard error is
// discarded: tools report on their output.
func (b *benchmark) startTool(ns int, env []string, name string, args ...string) (*tool, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, err
	}
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer stdout.Close()
	t := &tool{name: name, in: in, out: out}
	t.process, err = b.s.Box.Start(sandbox.Command{
		Name: name, NetNS: ns, Path: path, Args: args, Env: env, Stdin: stdin, Stdout: stdout,
	})
	if err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// finish reads the program's whole output, and waits for its end.
func (t *tool) finish(patience time.Duration) ([]byte, error) {
	defer t.close()
	if err := t.out.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(t.out)
	if err != nil {
		t.process.Kill()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, fmt.Errorf("%s did not end within %v", t.name, patience)
		}
		return nil, fmt.Errorf("reading the output of %s: %w", t.name, err)
	}
	if status := t.process.Wait(); !status.Success() {
		return data, fmt.Errorf("%s failed: %v", t.name, status)
	}
	return data, nil
}

func (t *tool) close() {
	t.in.Close()
	t.out.Close()
}

// end ends the program at once.
func (t *tool) end() {
	t.process.Kill()
	t.process.Wait()
	t.close()
}
