//go:build linux

package bench

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"testbed/allreduce/bench"
	"testbed/emulation/network"
	"testbed/shaping/kernel"
)

// gloo is PyTorch's all-reduce over TCP: the sum of float32 vectors of the
// same length as the ring's.
type gloo struct {
	python string
	ranks  []*glooRank
}

type glooRank struct {
	*tool
	lines *bufio.Reader
}

// glooScript is one rank: a line in, a line out.
//
//go:embed gloo.py
var glooScript string

const (
	glooPort    = "7101"
	glooMissing = "PyTorch is not installed, or was built without gloo: install PyTorch with apt-get install python3-torch, or with pip install torch"
)

// glooAnswer is a line of the script. Times are in seconds.
type glooAnswer struct {
	Took  float64 `json:"took"` // from the common start
	CPU   float64 `json:"cpu"`
	Error string  `json:"error"`
}

func (g *gloo) start(b *benchmark) (string, error) {
	version, err := g.findPython(b)
	if err != nil {
		return "", err
	}
	s := b.spec.Settings
	for rank, name := range b.spec.Nodes {
		t, err := b.startTool(b.network.NS(name), []string{"GLOO_SOCKET_IFNAME=" + kernel.NodeInterface, "OMP_NUM_THREADS=1"},
			g.python, "-c", glooScript, b.network.Addr(b.spec.Nodes[0]).String(), glooPort,
			strconv.Itoa(rank), strconv.Itoa(s.Workers), strconv.Itoa(s.Elements), strconv.FormatFloat(b.spec.Timeout.Seconds(), 'f', 3, 64))
		if err != nil {
			return "", err
		}
		g.ranks = append(g.ranks, &glooRank{t, bufio.NewReader(t.out)})
	}
	if _, _, err := g.answers(network.StartupPatience + b.preparation()); err != nil {
		return "", err
	}
	return "PyTorch " + version, nil
}

// glooProbe prints the version of PyTorch, or the error that its import ends with.
const glooProbe = `
try:
    import torch, torch.distributed as d
    d.init_process_group
    print(torch.__version__)
except BaseException as e:
    print("!", type(e).__name__ + ":", str(e).strip().replace("\n", " "))
`

// findPython finds a Python that has PyTorch: the user's, or else the system's,
// which has a distribution's packages.
func (g *gloo) findPython(b *benchmark) (version string, err error) {
	var problems []string
	for _, g.python = range []string{"python3", "/usr/bin/python3"} {
		var out []byte
		probe, err := b.startTool(network.Hub, nil, g.python, "-c", glooProbe)
		if err == nil {
			out, err = probe.finish(network.StartupPatience)
		}
		problem := probed(string(out), err)
		if problem == "" {
			return strings.TrimSpace(string(out)), nil
		}
		if problem != glooMissing {
			problems = append(problems, g.python+": "+problem)
		}
	}
	if len(problems) > 0 {
		return "", errors.New("PyTorch cannot be used: " + strings.Join(problems, "; "))
	}
	return "", errors.New(glooMissing)
}

// probed reports what is wrong with a Python for which the probe printed out or
// failed: glooMissing if it is absent or has no PyTorch, and nothing if all is
// well.
func probed(out string, err error) string {
	out = strings.TrimSpace(out)
	said, failed := strings.CutPrefix(out, "! ")
	switch {
	case errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist):
		return glooMissing
	case err != nil:
		return err.Error()
	case failed && (strings.Contains(said, "No module named 'torch'") || strings.HasPrefix(said, "AttributeError:")):
		return glooMissing
	case failed:
		return said
	case out == "":
		return "the import of PyTorch printed no version"
	}
	return ""
}

func (g *gloo) once(b *benchmark) (seconds, cpu float64, err error) {
	if err := g.say(strconv.FormatInt((bench.Monotonic() + leadTime).Nanoseconds(), 10)); err != nil {
		return 0, 0, err
	}
	if seconds, _, err = g.answers(network.StartupPatience + b.spec.Timeout); err != nil {
		return 0, 0, err
	}
	if err := g.say("cpu"); err != nil {
		return 0, 0, err
	}
	_, cpu, err = g.answers(network.StartupPatience)
	return seconds, cpu, err
}

// say writes a line to all ranks.
func (g *gloo) say(line string) error {
	for _, r := range g.ranks {
		if _, err := fmt.Fprintln(r.in, line); err != nil {
			return err
		}
	}
	return nil
}

// answers reads a line of each rank. It returns the longest time, and the sum
// of the CPU times.
func (g *gloo) answers(patience time.Duration) (took, cpu float64, err error) {
	until := time.Now().Add(patience)
	for rank, r := range g.ranks {
		if err := r.out.SetReadDeadline(until); err != nil {
			return 0, 0, err
		}
		line, err := r.lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return 0, 0, fmt.Errorf("the gloo program of rank %d ended without an answer", rank)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, 0, fmt.Errorf("the gloo program of rank %d did not answer within %v", rank, patience)
		case err != nil:
			return 0, 0, fmt.Errorf("reading the answer of the gloo program of rank %d: %w", rank, err)
		}
		var a glooAnswer
		if err := json.Unmarshal(line, &a); err != nil {
			return 0, 0, fmt.Errorf("parsing the answer of the gloo program of rank %d: %w", rank, err)
		}
		if a.Error != "" {
			return 0, 0, fmt.Errorf("the gloo program of rank %d failed: %s", rank, a.Error)
		}
		took, cpu = max(took, a.Took), cpu+a.CPU
	}
	return took, cpu, nil
}

func (g *gloo) stop() {
	for _, r := range g.ranks {
		r.end()
	}
	g.ranks = nil
}
