//go:build linux

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"testbed/internal/errs"
)

// Slurm's environment variables for the processes of a job and of a step
// (srun(1)).
const (
	slurmJob   = "SLURM_JOB_ID"
	slurmNodes = "SLURM_JOB_NUM_NODES"
	slurmNode  = "SLURMD_NODENAME" // on a node of the job
	slurmProc  = "SLURM_PROCID"    // in a step, from 0
)

// slurmTask is the index of this Slurm task's host, if this is a task. The
// first task comes after the leader, which is in no step.
func slurmTask() (index int, ok bool) {
	task, err := strconv.Atoi(os.Getenv(slurmProc))
	return task + 1, err == nil
}

// allocated is the number of hosts for a run in the allocation that this
// process is in: all of its nodes, plus this host if it is not among them.
func allocated() (int, error) {
	nodes, err := strconv.Atoi(os.Getenv(slurmNodes))
	if err != nil || os.Getenv(slurmJob) == "" {
		return 0, errs.Usagef("--hosts slurm: not inside a Slurm allocation; use salloc or sbatch, or --hosts slurm:N, which makes an allocation")
	}
	if os.Getenv(slurmNode) == "" {
		nodes++
	}
	if nodes < 2 {
		return 0, errs.Usagef("--hosts slurm: the Slurm allocation has only this host; allocate at least 2 nodes, or leave --hosts out")
	}
	return nodes, nil
}

// ownAddress is the address at which others reach this host: its only one.
func ownAddress() (netip.Addr, error) {
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("looking for this host's address: %w", err)
	}
	var all []netip.Addr
	for _, i := range interfaces {
		if n, ok := i.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(n.IP.To4()); ok && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
				all = append(all, a)
			}
		}
	}
	if len(all) == 0 {
		return netip.Addr{}, errs.Usagef("this host has no IPv4 address that other hosts can reach; configure one")
	}
	if len(all) > 1 {
		return netip.Addr{}, errs.Usagef("this host has %d addresses (%s); name the one that the other hosts can reach: --hosts slurm@ADDRESS", len(all), strings.Trim(fmt.Sprint(all), "[]"))
	}
	return all[0], nil
}

// slurmStep is a step of Slurm, whose tasks are the other hosts of a run.
type slurmStep struct {
	command *exec.Cmd
	output  bytes.Buffer
	ended   chan struct{}
}

// startSlurmStep makes Slurm start the other hosts: in the allocation that this
// process is in, on its other nodes, or in a new one.
func startSlurmStep(r *Request, leader netip.AddrPort, failed func(error)) (*slurmStep, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting hosts with Slurm: %w", err)
	}
	n := strconv.Itoa(r.Count - 1)
	args := []string{"--nodes=" + n, "--ntasks=" + n, "--ntasks-per-node=1", "--kill-on-bad-exit=1", "--input=all", "--job-name=testbed", "--quiet"}
	if os.Getenv(slurmJob) != "" {
		args = append(args, "--overlap")
		if here := os.Getenv(slurmNode); here != "" {
			args = append(args, "--exclude="+here)
		}
	}
	args = append(args, cpuFlags()...)
	args = append(args, program, "host", "--leader", leader.String(), "--count", strconv.Itoa(r.Count))
	s := &slurmStep{command: exec.Command("srun", args...), ended: make(chan struct{})}
	s.command.Stdin = strings.NewReader(r.Token + "\n")
	s.command.Stdout, s.command.Stderr = &s.output, &s.output
	// srun signals its tasks when it receives a signal itself.
	s.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	s.command.WaitDelay = time.Second
	if err := s.command.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil, &errs.UnsupportedError{Missing: "srun is not installed", Fix: "install Slurm's client commands, or start testbed host on each host by hand (--hosts N@ADDRESS)"}
		}
		return nil, fmt.Errorf("starting hosts with Slurm: %w", err)
	}
	go func() {
		defer close(s.ended)
		err := s.command.Wait()
		failed(srunEnded(err, s.output.String()))
	}()
	return s, nil
}

// srunEnded is the error of an srun that has ended before the run. err is nil
// if it ended with status 0.
func srunEnded(err error, output string) error {
	how := "exit status 0"
	if err != nil {
		how = err.Error()
	}
	if output = strings.TrimSpace(output); output != "" {
		how += "\n" + output
	}
	return errors.New("srun, which started the hosts, ended unexpectedly: " + how)
}

// cpuFlags give each task all processors of its node in the allocation.
// Otherwise a step does not use the allocation's setting per task, and binds a
// task to a single processor.
func cpuFlags() []string {
	flags := []string{"--cpu-bind=none"}
	if n := os.Getenv("SLURM_CPUS_PER_TASK"); n != "" {
		flags = append(flags, "--cpus-per-task="+n)
	}
	return flags
}

// stepPatience limits how long a step may take to end after the run.
const stepPatience = 10 * time.Second

// end waits for the end of the step, whose tasks know that the run is over.
func (s *slurmStep) end() {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-s.ended:
			return
		case <-time.After(stepPatience):
			_ = s.command.Process.Signal(signal) // it may have ended
		}
	}
	<-s.ended
}
