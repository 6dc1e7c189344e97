//go:build linux

// Package host is the door to what happens on the real network of one machine:
// it says what the machine can do (Ready, Doctor), and which jobs there are in a
// sandbox and which programs on its network.
//
// Three generations of processes are involved, all of this same binary. The
// user's process calls realrun.Play, shell.Run and the like; it only listens and
// writes files. Its child is the init of the sandbox (RunInside); it builds the
// network and starts processes on it. Theirs is the third generation (RunNode).
package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"testbed/node/host/benchmark"
	"testbed/node/host/emulation"
	"testbed/node/host/linkcheck"
	"testbed/node/host/process"
	"testbed/node/host/realrun"
	"testbed/node/host/sandbox"
	"testbed/node/host/share"
	"testbed/node/host/shell"
)

// Verbs under which the binary is started again, by itself.
const (
	VerbInside = emulation.VerbInside
	VerbNode   = emulation.VerbNode
)

// kindProbe is the kind of the job of Doctor.
const kindProbe = "probe"

// kindReady is the kind of the job of Ready.
const kindReady = "ready"

// jobs are what the init of a sandbox can do, by kind.
var jobs = map[string]func(s *emulation.Supervisor, spec json.RawMessage) error{
	realrun.KindScenario: realrun.RunScenario,
	shell.KindProgram:    shell.RunProgram,
	linkcheck.KindVerify: linkcheck.RunVerify,
	benchmark.KindRing:   benchmark.RunRing,
	emulation.KindShare:  share.Run,
	kindProbe:            runProbe,
	kindReady:            runReady,
}

// programs are what a process on the network can be, by kind.
var programs = map[string]func(*emulation.Self) error{
	emulation.KindRouter:    emulation.RunRouter,
	process.KindCoordinator: process.RunCoordinator,
	process.KindWorker:      process.RunWorker,
	process.KindStore:       process.RunStore,
	linkcheck.KindProber:    linkcheck.RunProber,
	shell.KindCapture:       shell.RunCapture,
	shell.KindGuest:         shell.RunGuest,
	benchmark.KindRank:      benchmark.RunRank,
}

// RunInside is what the binary does as the init of a sandbox.
func RunInside() error { return emulation.RunInit(jobs) }

// RunNode is what the binary does as a process on the network of a sandbox.
func RunNode() error { return emulation.RunChild(programs) }

// Ready says whether real runs are possible on this machine, on each of the link
// backends if some are named; if not, the error is an
// *emulation.UnsupportedError.
func Ready(links ...string) error {
	err := sandbox.Check()
	if unsupported, ok := errors.AsType[*sandbox.UnsupportedError](err); ok {
		return &emulation.UnsupportedError{Missing: unsupported.Missing, Mend: unsupported.Mend}
	}
	if err != nil || len(links) == 0 {
		return err
	}
	job, err := emulation.Start(context.Background(), emulation.JobSpec{Kind: kindReady, Spec: links}, sandbox.Config{Stderr: os.Stderr})
	if err != nil {
		return err
	}
	defer job.Close()
	var tried int
	return job.Result(&tried, nil)
}

// runReady is Ready in the sandbox.
func runReady(s *emulation.Supervisor, spec json.RawMessage) error {
	var links []string
	if err := json.Unmarshal(spec, &links); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	for _, name := range links {
		if err := emulation.Supports(name); err != nil {
			return err
		}
	}
	return s.Hand(len(links))
}
