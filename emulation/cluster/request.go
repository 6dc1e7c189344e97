//go:build linux

package cluster

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"testbed/internal/errs"
)

// Request asks for several hosts.
type Request struct {
	Count   int    // of hosts, including this one, the leader
	Address string // where the leader listens, as seen by the others
	Token   string
	// Slurm reports that Slurm is to start the others. Otherwise somebody else
	// starts them.
	Slurm bool
}

const (
	// defaultPort is the leader's default port.
	defaultPort = "7400"
	// slurm and kubernetes are the words of a request in place of a number of
	// hosts.
	slurm, kubernetes = "slurm", "kubernetes"
	// maxToken is the longest line read for a token, in bytes.
	maxToken = 4096
)

// ParseRequest reads a request in the format of the flag --hosts: N@ADDRESS,
// slurm[:N][@ADDRESS] or kubernetes; nil if it is empty. A token that only a
// person has is read from standard input, once for all requests of this
// process.
func ParseRequest(text string) (*Request, error) {
	if text == "" {
		return nil, nil
	}
	if text == kubernetes {
		return podRequest()
	}
	hosts, address, found := strings.Cut(text, "@")
	if hosts == slurm || strings.HasPrefix(hosts, slurm+":") {
		return slurmRequest(strings.TrimPrefix(strings.TrimPrefix(hosts, slurm), ":"), address)
	}
	count, err := strconv.Atoi(hosts)
	if !found || err != nil || count < 2 {
		return nil, errs.Usagef("--hosts %s: write N@ADDRESS, slurm, slurm:N or kubernetes; N counts all hosts (at least 2), and ADDRESS is where other hosts reach this one", text)
	}
	token, err := stdinToken()
	if err != nil {
		return nil, errs.Usagef("--hosts %s: %w", text, err)
	}
	return &Request{Count: count, Address: withPort(address, defaultPort), Token: token}, nil
}

// slurmRequest asks for hosts that Slurm starts. count and address may be empty.
func slurmRequest(count, address string) (r *Request, err error) {
	r = &Request{Slurm: true, Token: rand.Text()}
	if count == "" {
		r.Count, err = allocated()
	} else if r.Count, err = strconv.Atoi(count); err != nil || r.Count < 2 {
		err = errs.Usagef("--hosts slurm:%s: the number of hosts, including this one, must be at least 2", count)
	}
	if err != nil {
		return nil, err
	}
	if address == "" {
		own, err := ownAddress()
		if err != nil {
			return nil, err
		}
		address = own.String()
	}
	r.Address = withPort(address, "0")
	return r, nil
}

// podRequest is the request of the leader in its pod, whose other hosts
// Kubernetes has started.
func podRequest() (*Request, error) {
	p, err := readPod()
	if err == nil && p.index != 0 {
		err = fmt.Errorf("this pod is host %d, but only host 0 leads a run; call testbed host in this pod", p.index)
	}
	if err != nil {
		return nil, errs.Usagef("--hosts %s: %w", kubernetes, err)
	}
	return &Request{Count: p.count, Address: withPort(p.address, defaultPort), Token: p.token}, nil
}

// HostOptions identify this host in a run.
type HostOptions struct {
	Index  int // from 1; 0: from this process's Slurm task or pod
	Count  int
	Leader string // its address
	Token  string
	Name   string // of this host; its own if empty
}

// complete fills in values from Slurm, the pod or standard input, and checks
// them.
func (o *HostOptions) complete() (err error) {
	if index, in := slurmTask(); in && o.Index == 0 {
		o.Index = index
	}
	if inPod() && o.Leader == "" {
		p, err := readPod()
		if err != nil {
			return errs.Usage(err)
		}
		o.Index, o.Count, o.Leader, o.Token = p.index, p.count, p.leader, p.token
	}
	if o.Index < 1 || o.Index >= o.Count || o.Leader == "" {
		return errs.Usagef("--index %d --count %d --leader %q: --index must be from 1 to --count minus 1, and --leader must be an address", o.Index, o.Count, o.Leader)
	}
	o.Leader = withPort(o.Leader, defaultPort)
	if o.Token == "" {
		if o.Token, err = stdinToken(); err != nil {
			return errs.Usage(err)
		}
	}
	return nil
}

func withPort(address, otherwise string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(address, otherwise)
}

// stdinToken is the token on standard input, the same for all runs of this
// process.
var stdinToken = sync.OnceValues(func() (string, error) { return readToken(os.Stdin) })

// readToken reads the token that all hosts of a run share, a line.
func readToken(from io.Reader) (string, error) {
	var line []byte
	var err error
	next := make([]byte, 1) // no further than the line: the rest may be a program's
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
		return "", fmt.Errorf("standard input contains no token; give all hosts the same token, for example from openssl rand -hex 16")
	}
	return "", fmt.Errorf("reading the token from standard input: %w", err)
}
