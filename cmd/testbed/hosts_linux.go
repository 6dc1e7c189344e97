package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"testbed/emulation/cluster"
	"testbed/emulation/network"
	"testbed/internal/errs"
)

// port is where a leader listens if nothing else is said.
const defaultHostPort = "7400"

// maxToken is the longest line that is read for a token.
const maxToken = 4096

// token is that of standard input, which is the same for all runs of a command.
var token = sync.OnceValues(func() (string, error) { return readToken(os.Stdin) })

// Flag asks for several hosts.
func Flag(flags *pflag.FlagSet, flag *string) {
	flags.StringVar(flag, "hosts", "", "go over several hosts: N@ADDRESS, slurm, slurm:N or kubernetes; see docs/hosts.md")
}

// Ended makes an exit code 3 of the loss of a host, which it names.
func Ended(cmd *cobra.Command, err error) error {
	if lost, ok := errors.AsType[*network.LostError](err); ok {
		fmt.Fprintln(cmd.ErrOrStderr(), "testbed: "+lost.Why)
		return ErrInvalid
	}
	return err
}

// Request is what --hosts asks for, nil if it is empty.
func Request(flag string) (*cluster.Request, error) {
	if flag == "" {
		return nil, nil
	}
	wrong := func(format string, args ...any) (*cluster.Request, error) {
		return nil, errs.Usagef("--hosts %s: "+format, append([]any{flag}, args...)...)
	}
	if flag == kubernetes {
		return inPod()
	}
	who, address, found := strings.Cut(flag, "@")
	r := &cluster.Request{Slurm: who == slurm || strings.HasPrefix(who, slurm+":")}
	var err error
	if r.Slurm {
		return r, asSlurm(r, strings.TrimPrefix(strings.TrimPrefix(who, slurm), ":"), address)
	}
	if r.Count, err = strconv.Atoi(who); !found || err != nil || r.Count < 2 {
		return wrong("write N@ADDRESS, N being the number of hosts with this one, 2 at the least, and ADDRESS where the others reach it; or slurm, slurm:N, or kubernetes")
	}
	r.Address = withPort(address, defaultHostPort)
	if r.Token, err = token(); err != nil {
		return wrong("%w", err)
	}
	return r, nil
}

// slurm is what --hosts begins with where Slurm starts the others.
const slurm = "slurm"

// asSlurm completes a request for hosts of Slurm's; number and address may be empty.
func asSlurm(r *cluster.Request, number, address string) (err error) {
	r.Token = rand.Text()
	if number == "" {
		r.Count, err = cluster.Allocated()
	} else if r.Count, err = strconv.Atoi(number); err != nil || r.Count < 2 {
		err = errs.Usagef("--hosts slurm:%s: the number of hosts, with this one, is 2 at the least", number)
	}
	if err != nil {
		return err
	}
	if address == "" {
		own, err := cluster.OwnAddress()
		if err != nil {
			return err
		}
		address = own.String()
	}
	r.Address = withPort(address, "0")
	return nil
}

func withPort(address, otherwise string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(address, otherwise)
}

// readToken reads the token that all hosts of a run share, a line.
func readToken(from io.Reader) (string, error) {
	var line []byte
	var err error
	next := make([]byte, 1) // no further than the line: what follows may be a program's
	for len(line) < maxToken {
		if _, err = io.ReadFull(from, next); err != nil || next[0] == '\n' {
			break
		}
		line = append(line, next[0])
	}
	if token := strings.TrimSpace(string(line)); token != "" {
		return token, nil
	}
	if err == io.EOF || err == nil {
		return "", fmt.Errorf("standard input has no token; give the same one to all hosts, for example from openssl rand -hex 16")
	}
	return "", fmt.Errorf("reading the token from standard input: %w", err)
}

// hostCommand is testbed host.
func hostCommand() *cobra.Command {
	var m cluster.HostOptions
	var stay bool
	cmd := &cobra.Command{
		Use: "host --index I --count N --leader ADDRESS", Short: "Play a part of a run that goes over several hosts", Args: NoArguments,
		Long: `Is one host of a run that testbed run --hosts N@ADDRESS leads, until that run is
over. Reads the run's token from standard input. Needs what testbed run needs,
and that UDP passes between all hosts of the run; which nodes are here, and all
that is to be known of the scenario, the leader says.

If the leader is silent for three seconds it ends, and so does all that it has
started. Exits with 3 if the leader has gone, or if the run has failed elsewhere.

In a pod that testbed manifests describes it needs no flags and no token.`,
	}
	cmd.Flags().IntVar(&m.Index, "index", 0, "which host this is, from 1; the leader is 0 (default: that of the task in a step of Slurm's)")
	cmd.Flags().IntVar(&m.Count, "count", 0, "how many hosts there are, with the leader")
	cmd.Flags().StringVar(&m.Leader, "leader", "", "the leader's address")
	cmd.Flags().StringVar(&m.Name, "name", "", "what this host is called in the record (default: its own name)")
	cmd.Flags().BoolVar(&stay, "stay", false, "stay for the next run when one is over, until it is interrupted; for commands of several runs")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if index, ok := cluster.InStep(); ok && !cmd.Flags().Changed("index") {
			m.Index = index
		}
		if In() && m.Leader == "" {
			if err := serves(&m); err != nil {
				return err
			}
		}
		if m.Index < 1 || m.Index >= m.Count || m.Leader == "" {
			return errs.Usagef("--index %d --count %d --leader %q: give an index from 1 to the count less one, and the leader's address", m.Index, m.Count, m.Leader)
		}
		m.Leader = withPort(m.Leader, defaultHostPort)
		if m.Token == "" {
			m.Token, err = token()
		}
		if err != nil {
			return errs.Usage(err)
		}
		for err = cluster.Serve(cmd.Context(), m); stay && another(err) && cmd.Context().Err() == nil; err = cluster.Serve(cmd.Context(), m) {
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
			}
		}
		if _, ended := errors.AsType[*cluster.EndedError](err); ended {
			fmt.Fprintln(cmd.ErrOrStderr(), err)
			return ErrInvalid
		}
		return err
	}
	return cmd
}

// another says whether there may be another run after one that ended so.
func another(err error) bool {
	_, ended := errors.AsType[*cluster.EndedError](err)
	return err == nil || ended || errors.Is(err, cluster.ErrNoLeader)
}
