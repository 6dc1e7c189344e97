//go:build linux

// Package emulation plays scenarios on the real network of one machine, or of
// several hosts, and reports what the machine can do (Ready, Doctor).
//
// Three generations of processes are involved, all of this same binary. The
// user's process calls Play, Resume, shell.Run and the like; it only listens
// and writes files (recorder). Its child is the init of the sandbox
// (RunInside): it builds the network, starts processes on it, and carries out
// the scenario's injects (player). The processes on the network are the third
// generation (RunNode).
package emulation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"testbed/emulation/bench"
	"testbed/emulation/cluster"
	"testbed/emulation/launch"
	"testbed/emulation/linkcheck"
	"testbed/emulation/network"
	"testbed/emulation/process"
	"testbed/emulation/programs"
	"testbed/emulation/sandbox"
	"testbed/emulation/shell"
)

// Verbs under which the binary is started again, by itself.
const (
	VerbInside = network.VerbInside
	VerbNode   = network.VerbNode
)

// kindProbe is the kind of the job of Doctor.
const kindProbe = "probe"

// kindReady is the kind of the job of Ready.
const kindReady = "ready"

// jobs are the jobs of a sandbox's init, by kind.
var jobs = map[string]func(s *network.Supervisor, spec json.RawMessage) error{
	KindScenario:         RunScenario,
	shell.KindProgram:    shell.RunProgram,
	launch.KindLaunch:    launch.RunLaunch,
	linkcheck.KindVerify: linkcheck.RunVerify,
	bench.KindRing:       bench.RunRing,
	cluster.KindHost:     cluster.RunHost,
	kindProbe:            runProbe,
	kindReady:            runReady,
}

// roles are the programs of processes on the network, by kind.
var roles = map[string]func(*network.Self) error{
	network.KindRouter:      network.RunRouter,
	process.KindCoordinator: process.RunCoordinator,
	process.KindWorker:      process.RunWorker,
	process.KindStore:       process.RunStore,
	linkcheck.KindProber:    linkcheck.RunProber,
	programs.KindCapture:    programs.RunCapture,
	launch.KindAgent:        launch.RunAgent,
	cluster.KindExec:        shell.RunExec,
	bench.KindRank:          bench.RunRank,
}

// RunInside runs the binary as the init of a sandbox.
func RunInside() error { return network.RunInit(jobs) }

// RunNode runs the binary as a process on the network of a sandbox.
func RunNode() error { return network.RunChild(roles) }

// Ready reports whether real runs are possible on this machine, on each of the
// link backends if some are named. If not, the error is an
// *errs.UnsupportedError.
func Ready(links ...string) error {
	if err := sandbox.Check(); err != nil || len(links) == 0 {
		return err
	}
	job, err := network.Start(context.Background(), network.JobSpec{Kind: kindReady, Spec: links}, sandbox.Config{Stderr: os.Stderr})
	if err != nil {
		return err
	}
	defer job.Close()
	var tried int
	return job.Result(&tried, nil)
}

// runReady is Ready in the sandbox.
func runReady(s *network.Supervisor, spec json.RawMessage) error {
	var links []string
	if err := json.Unmarshal(spec, &links); err != nil {
		return fmt.Errorf("internal error: parsing the sandbox's job, a check of this machine: %w", err)
	}
	for _, name := range links {
		if err := network.Supports(name); err != nil {
			return err
		}
	}
	return s.Hand(len(links))
}
