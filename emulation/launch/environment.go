package launch

import (
	"fmt"
	"slices"
	"strings"

	"testbed/emulation/programs"
)

// Environment variables of a program, in addition to those of package programs.
const (
	envWorker      = "TESTBED_WORKER"      // the number of the worker in the scenario
	envIncarnation = "TESTBED_INCARNATION" // number of earlier starts of its program
	envMarks       = "TESTBED_MARKS"       // the descriptor for writing marks
)

// marksFD is the descriptor for marks: the first that is not a standard file.
const marksFD = 3

// rank is the position of a worker's program among all.
type rank struct {
	Worker int    // its number in the scenario
	Rank   int    // from 0, in the order of the scenario
	World  int    // number of workers in the scenario
	Master string // the address of the worker with rank 0
	Port   int
}

// variables are the variables that launchers of distributed programs set, for
// one process in each node. torchrun (torch.distributed.run) sets the first
// group for the programs that it starts, and takes the PET_ group as its own
// flags (torch/distributed/argparse_util.py). JAX reads only its coordinator's
// address (jax/_src/distributed.py).
func (r rank) variables() []string {
	number := func(name string, value int) string { return fmt.Sprintf("%s=%d", name, value) }
	return []string{
		number("RANK", r.Rank), number("WORLD_SIZE", r.World),
		"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
		number("NODE_RANK", r.Rank), number("GROUP_RANK", r.Rank),
		"MASTER_ADDR=" + r.Master, number("MASTER_PORT", r.Port),

		number("PET_NNODES", r.World), "PET_NPROC_PER_NODE=1", number("PET_NODE_RANK", r.Rank),
		"PET_MASTER_ADDR=" + r.Master, number("PET_MASTER_PORT", r.Port),

		fmt.Sprintf("JAX_COORDINATOR_ADDRESS=%s:%d", r.Master, r.Port),
		number(envWorker, r.Worker),
	}
}

// interfaces make libraries use the node's interface.
var interfaces = []string{"GLOO_SOCKET_IFNAME=" + programs.Interface, "NCCL_SOCKET_IFNAME=" + programs.Interface, "TP_SOCKET_IFNAME=" + programs.Interface}

// environment is the environment of a node's program: the user's, then the
// network's and the launch's variables, which take precedence. r is nil for a
// program that is not a worker's.
func environment(users, network []string, r *rank) []string {
	env := slices.Concat(users, network, interfaces)
	// A node rarely has a processor of its own. The threads of several nodes would
	// wait for each other in turn.
	if !slices.ContainsFunc(users, func(v string) bool { return strings.HasPrefix(v, "OMP_NUM_THREADS=") }) {
		env = append(env, "OMP_NUM_THREADS=1")
	}
	if r != nil {
		env = append(env, r.variables()...)
	}
	return lastCounts(env)
}

// lastCounts keeps the last of variables with the same name: programs disagree
// about which one counts.
func lastCounts(env []string) (left []string) {
	at := map[string]int{}
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if k, is := at[name]; is {
			left[k] = v
			continue
		}
		at[name] = len(left)
		left = append(left, v)
	}
	return left
}
