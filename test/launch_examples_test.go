//go:build linux

package test

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"testbed/record"
)

// launched is the file of an example for testbed launch.
func launched(t *testing.T, name string) string {
	t.Helper()
	file, err := filepath.Abs("../docs/examples/launch/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// weights are what the workers of an example say that they have learnt. All say the same.
func weights(t *testing.T, r result, workers int) string {
	t.Helper()
	all := regexp.MustCompile(`(?m)^w\d+: .*weights (-?\d+\.\d+)$`).FindAllStringSubmatch(r.stdout, -1)
	if r.code != 0 || len(all) != workers {
		t.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	for _, m := range all {
		if m[1] != all[0][1] {
			t.Errorf("the workers have learnt different things:\n%s", r.stdout)
		}
	}
	return all[0][1]
}

// TestLaunchExamples: unmodified PyTorch programs train on the network, started by Python
// and by torchrun, and learn the same.
func TestLaunchExamples(t *testing.T) {
	needSandbox(t)
	needPython(t, "torch")
	needTool(t, "torchrun")
	t.Parallel()
	plain := weights(t, testbed(t, "launch", "homogeneous", "--", "/usr/bin/python3", launched(t, "ddp.py")), 4)
	// Debian's torch 1.13 fails with Python 3.11 where it may redirect the program of rank
	// 0; that of rank 1 does not exist.
	r := testbed(t, "launch", "homogeneous", "--", "torchrun", "--redirects", "1:1", "--tee", "1:1", launched(t, "ddp.py"))
	if elastic := weights(t, r, 4); elastic != plain {
		t.Errorf("by torchrun the workers have learnt %s, by Python %s", elastic, plain)
	}
}

// TestLaunchPostLocalSGD: a program that marks what it does starts the clock of the
// scenario, and what it has marked is on record.
func TestLaunchPostLocalSGD(t *testing.T) {
	needSandbox(t)
	needPython(t, "torch")
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	weights(t, testbed(t, "launch", "persistent_straggler", "--clock", "mark", "--out", out, "--", "/usr/bin/python3", launched(t, "post_local_sgd.py")), 4)
	counts := map[string]int{}
	for _, e := range programEvents(t, out) {
		if e.Type == record.ProgramMark {
			counts[e.Node+" "+e.Mark]++
		}
	}
	for _, node := range []string{"w0", "w1", "w2", "w3"} {
		got := []int{counts[node+" start"], counts[node+" arrive"], counts[node+" reduced"], counts[node+" step"]}
		if !slices.Equal(got, []int{1, 5, 5, 22}) {
			t.Errorf("%s marked %v", node, got)
		}
	}
	if clock := happened(programEvents(t, out), record.ProgramClock); len(clock) != 1 {
		t.Errorf("%q", clock)
	}
}

// TestNetMPI: mpirun starts an MPI program in the nodes, and what it reduces goes over the
// links.
func TestNetMPI(t *testing.T) {
	needSandbox(t)
	needPython(t, "mpi4py")
	needTool(t, "mpirun.openmpi")
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	r := call(t, []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}, program, "net", "homogeneous", "--at", "coordinator", "--out", out, "--",
		"mpirun.openmpi", "--mca", "plm_rsh_agent", launched(t, "mpi_agent.sh"), "--host", "w0,w1,w2,w3", "/usr/bin/python3", launched(t, "mpi.py"))
	want := []string{"rank 0 of 4 on w0: 6", "rank 1 of 4 on w1: 6", "rank 2 of 4 on w2: 6", "rank 3 of 4 on w3: 6"}
	if got := programLines(r.stdout); r.code != 0 || !slices.Equal(got, want) {
		t.Fatalf("exit code %d, %q\n%s", r.code, got, r.stderr)
	}
	sent := uint64(0)
	for _, e := range programEvents(t, out) {
		if e.Type == record.ProgramSample && e.Node == "w2" {
			sent = *e.BytesSent
		}
	}
	if sent < 2*250_000*8*3/4 { // the least of an all-reduce, in whatever order
		t.Errorf("w2 has sent %d bytes: less than its part", sent)
	}
}
