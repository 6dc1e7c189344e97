//go:build linux

package bench

import (
	_ "embed"
	"errors"
	"io/fs"
	"os/exec"
	"strconv"
	"strings"

	"testbed/allreduce/bench"
	"testbed/emulation/network"
	"testbed/shaping/kernel"
)

// gloo is PyTorch's all-reduce over TCP: the sum of the ring's vectors.
type gloo struct {
	python string
}

//go:embed gloo.py
var glooScript string

const glooMissing = "PyTorch is not installed, or was built without gloo; install PyTorch with apt-get install python3-torch, or with pip install torch"

func (*gloo) fits(*bench.Settings) error { return nil }

func (*gloo) memory(s *bench.Settings) int64 { return 150<<20 + 4*int64(s.Elements) }

func (g *gloo) players(b *benchmark, tcp string) []player {
	s := b.spec.Settings
	p := &reducers{python: g.python, env: []string{"GLOO_SOCKET_IFNAME=" + kernel.NodeInterface, "OMP_NUM_THREADS=1"}}
	port := b.port()
	for rank, name := range b.spec.Nodes {
		p.programs = append(p.programs, program{
			who: "the gloo program of " + name, ns: b.network.NS(name), script: glooScript, rank: rank,
			args: []string{b.network.Addr(b.spec.Nodes[0]).String(), port, strconv.Itoa(rank), strconv.Itoa(s.Workers), strconv.FormatFloat(b.spec.Timeout.Seconds(), 'f', 3, 64)},
		})
	}
	p.measured = []way{{result: bench.Rival{Name: "gloo"}, reduces: true, divisor: float64(s.Workers), slices: 1}}
	return []player{p}
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

// find finds a Python that has PyTorch: the user's, or else the system's, which
// has a distribution's packages.
func (g *gloo) find(b *benchmark) (version string, err error) {
	var problems []string
	for _, g.python = range []string{"python3", "/usr/bin/python3"} {
		var out []byte
		probe, err := b.startTool(network.Hub, nil, g.python, "-c", glooProbe)
		if err == nil {
			out, err = probe.finish(network.StartupPatience)
		}
		problem := probed(string(out), err)
		if problem == "" {
			return "PyTorch " + strings.TrimSpace(string(out)), nil
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
