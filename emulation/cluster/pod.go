package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// The environment of a container of a run.
const (
	podIndex   = "JOB_COMPLETION_INDEX" // from Kubernetes, in the pods of an indexed Job
	podHosts   = "TESTBED_HOSTS"        // number of hosts
	podLeader  = "TESTBED_LEADER"       // name of the first host, which leads
	podAddress = "TESTBED_ADDRESS"      // of this pod
)

// TokenKey is the key of a run's token in its secret, which is mounted at tokenDir.
const (
	TokenKey = "token"
	tokenDir = "/var/run/secrets/testbed"
)

// podFix says how to create a pod of a run.
const podFix = "create the pods with: testbed manifests --image IMAGE --hosts 3 run SCENARIO … | kubectl create -f -"

// pod is a pod of a run.
type pod struct {
	index, count           int
	leader, address, token string
}

// inPod reports whether this process is in a pod of an indexed Job.
func inPod() bool { return os.Getenv(podIndex) != "" }

// readPod reads the settings of this process's pod.
func readPod() (pod, error) {
	k, noIndex := strconv.Atoi(os.Getenv(podIndex))
	count, noCount := strconv.Atoi(os.Getenv(podHosts))
	p := pod{index: k, count: count, leader: os.Getenv(podLeader), address: os.Getenv(podAddress)}
	if noIndex != nil || noCount != nil || p.leader == "" || p.address == "" {
		return p, fmt.Errorf("this pod does not belong to a run: one of the environment variables %s, %s, %s and %s is missing or invalid; %s", podIndex, podHosts, podLeader, podAddress, podFix)
	}
	token, err := os.ReadFile(tokenDir + "/" + TokenKey)
	if err != nil {
		return p, fmt.Errorf("reading the run's token from its Kubernetes secret: %w; %s", err, podFix)
	}
	p.token = strings.TrimSpace(string(token))
	return p, nil
}
