package main

import (
	"fmt"

	"testbed/emulation/cluster"
	"testbed/internal/errs"
)

// kubernetes is what --hosts is where Kubernetes has started all hosts, this one too.
const kubernetes = "kubernetes"

// inPod is the request of the leader, in its pod.
func inPod() (*cluster.Request, error) {
	p, err := Read()
	if err == nil && p.Index != 0 {
		err = fmt.Errorf("this is host %d, and host 0 leads; call testbed host here", p.Index)
	}
	if err != nil {
		return nil, errs.Usagef("--hosts %s: %w", kubernetes, err)
	}
	return &cluster.Request{Count: p.Count, Address: withPort(p.Address, defaultHostPort), Token: p.Token}, nil
}

// serves completes what a host in a pod has not been told on its command line.
func serves(m *cluster.HostOptions) error {
	p, err := Read()
	if err != nil {
		return errs.Usage(err)
	}
	m.Index, m.Count, m.Leader, m.Token = p.Index, p.Count, p.Leader, p.Token
	return nil
}
