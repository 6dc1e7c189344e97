//go:build linux

package bench

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"testbed/allreduce/bench"
	"testbed/allreduce/rivals"
	"testbed/emulation/network"
	"testbed/internal/errs"
	"testbed/stacks"
)

// pccl is PCCL's all-reduce over TCP: the mean of the ring's vectors.
type pccl struct {
	connections []int
	ways        []string // of quantising
	python      string
}

//go:embed pccl.py
var pcclScript string

//go:embed pccl_master.py
var pcclMasterScript string

// mostPCCL is the number of operations that PCCL runs at once
// (PCCL_MAX_CONCURRENT_COLLECTIVE_OPS). Each uses one connection.
const mostPCCL = 16

// Ways of quantising, as pccl.py names them. pcclCodecs has the codecs.
const (
	pcclNone      = "none"
	pcclMinMax    = "min_max"
	pcclZeroPoint = "zero_point_scale"
)

var pcclCodecs = map[string]string{pcclNone: "", pcclMinMax: "pccl_minmax", pcclZeroPoint: "pccl_zeropoint"}

// newPCCL reads the options, option=value:…. Without an option, PCCL is measured
// with several of its values.
func newPCCL(text, options string) (*pccl, error) {
	p := &pccl{connections: []int{1, 4, 8, mostPCCL}, ways: []string{pcclNone, pcclZeroPoint}}
	for _, option := range strings.FieldsFunc(options, func(r rune) bool { return r == ':' }) {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "connections":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > mostPCCL {
				return nil, errs.Fieldf("against", "%s: connections must be a number between 1 and %d", text, mostPCCL)
			}
			p.connections = []int{n}
		case "quantisation":
			if _, ok := pcclCodecs[value]; !ok {
				return nil, errs.Fieldf("against", "%s: choose the quantisation from %s, %s and %s", text, pcclNone, pcclMinMax, pcclZeroPoint)
			}
			p.ways = []string{value}
		default:
			return nil, errs.Fieldf("against", "%s: pccl has the options connections and quantisation, as in pccl:connections=4:quantisation=%s", text, pcclMinMax)
		}
	}
	return p, nil
}

func (p *pccl) fits(s *bench.Settings) error {
	if n := slices.Max(p.connections); s.Elements < n*s.Workers {
		return errs.Fieldf("elements", "is %d: pccl with %s and %s needs at least %d; choose more elements, or fewer connections, as in --against pccl:connections=1",
			s.Elements, errs.Count(n, "connection"), errs.Count(s.Workers, "worker"), n*s.Workers)
	}
	return nil
}

// memory: a program needs 30 MB for each number of connections, and its
// quantised values.
func (p *pccl) memory(s *bench.Settings) int64 {
	return int64(len(p.connections)) * (30<<20 + int64(s.Elements))
}

// find finds the interpreter of the stack pccl.
func (p *pccl) find(b *benchmark) (version string, err error) {
	s, err := stacks.Find("pccl")
	if err != nil {
		return "", err
	}
	probe, err := s.ProbeText()
	if err != nil {
		return "", err
	}
	missing := fmt.Errorf("PCCL is not installed; %s", s.Fix())
	for _, p.python = range s.Interpreters() {
		t, err := b.startTool(network.Hub, stacks.Env(), p.python, "-c", "import sys; sys.stderr = sys.stdout\n"+probe)
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		out, err := t.finish(network.StartupPatience)
		last := lastOf(strings.NewReader(string(out)))
		if err == nil && last != "" {
			return last, nil
		}
		if last == "" {
			last = fmt.Sprint(err)
		}
		missing = fmt.Errorf("PCCL cannot be used: %s; %s", last, s.Fix())
	}
	return "", missing
}

func (p *pccl) players(b *benchmark, tcp string) (all []player) {
	s := b.spec.Settings
	patience := strconv.Itoa(int((network.StartupPatience / 2).Seconds()))
	for _, k := range p.connections {
		first := b.spec.Nodes[0]
		address := b.network.Addr(first).String() + ":" + b.port()
		x := &reducers{python: p.python, env: append(stacks.Env(), "OMP_NUM_THREADS=1")}
		x.programs = append(x.programs, program{who: "PCCL's master", ns: b.network.NS(first), script: pcclMasterScript, args: []string{address}, rank: -1})
		for rank, name := range b.spec.Nodes {
			x.programs = append(x.programs, program{
				who: "the PCCL program of " + name, ns: b.network.NS(name), script: pcclScript, rank: rank,
				args: []string{address, strconv.Itoa(s.Workers), strconv.Itoa(k), patience},
			})
		}
		for _, quantisation := range p.ways {
			w := way{result: bench.Rival{Name: "pccl", Connections: k, Quantisation: quantisation}, reduces: true, divisor: 1, slices: k}
			w.codec, _ = rivals.Find(pcclCodecs[quantisation])
			x.measured = append(x.measured, w)
		}
		all = append(all, x)
	}
	return all
}
