package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// What a container of a run has in its environment.
const (
	index   = "JOB_COMPLETION_INDEX" // from Kubernetes, in the pods of an indexed Job
	Hosts   = "TESTBED_HOSTS"        // how many hosts there are
	Leader  = "TESTBED_LEADER"       // the name of the first host, which leads
	Address = "TESTBED_ADDRESS"      // of this pod
)

// The token of a run is that key of a secret, which is mounted there.
const (
	TokenKey = "token"
	TokenDir = "/var/run/secrets/testbed"
)

// mend says how a pod of a run comes about.
const mend = "have testbed manifests write it: testbed manifests --image IMAGE --hosts 3 run SCENARIO … | kubectl create -f -"

// Pod is a pod of a run.
type Pod struct {
	Index, Count           int
	Leader, Address, Token string
}

// In says whether this process is in a pod of an indexed Job.
func In() bool { return os.Getenv(index) != "" }

// Read reads what this process's pod has been told.
func Read() (Pod, error) {
	k, noIndex := strconv.Atoi(os.Getenv(index))
	count, noCount := strconv.Atoi(os.Getenv(Hosts))
	p := Pod{Index: k, Count: count, Leader: os.Getenv(Leader), Address: os.Getenv(Address)}
	if noIndex != nil || noCount != nil || p.Leader == "" || p.Address == "" {
		return p, fmt.Errorf("this is no pod of a run: its environment lacks one of %s, %s, %s and %s; %s", index, Hosts, Leader, Address, mend)
	}
	token, err := os.ReadFile(TokenDir + "/" + TokenKey)
	if err != nil {
		return p, fmt.Errorf("reading the run's token, which a secret has: %w; %s", err, mend)
	}
	p.Token = strings.TrimSpace(string(token))
	return p, nil
}
