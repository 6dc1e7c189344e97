//go:build linux

package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/internal/testenv"
	"testbed/record"
)

// slurmConf is that of a cluster whose hosts are namespaces of one machine. It needs
// no cgroup; %[1]s is a folder, %[2]s the name of the machine.
const slurmConf = `ClusterName=lab
SlurmctldHost=%[2]s(192.168.77.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[1]s/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
StateSaveLocation=%[1]s
SlurmdSpoolDir=%[1]s/spool.%%n
SlurmctldPidFile=%[1]s/slurmctld.pid
SlurmdPidFile=%[1]s/%%n.pid
KillWait=2
NodeName=h1 NodeAddr=192.168.77.2 CPUs=2 State=UNKNOWN
NodeName=h2 NodeAddr=192.168.77.3 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=h1,h2 Default=YES State=UP
`

// startSlurm has Slurm run on the hosts of a lab: its controller on h0, and the two
// others are its nodes. It returns a folder of an ordinary user's, with this program
// in it, and the environment that Slurm's commands need.
func (l *lab) startSlurm(t *testing.T) (dir string, env []string) {
	t.Helper()
	for _, tool := range []string{"srun", "slurmctld", "slurmd", "munged"} {
		needTool(t, tool)
	}
	if os.Geteuid() != 0 {
		testenv.Need(t, fmt.Errorf("only root may play a cluster"))
	}
	root, err := os.MkdirTemp("", "slurm") // t.TempDir is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(root, "user")
	for _, err := range []error{
		os.Chmod(root, 0o755),
		os.WriteFile(filepath.Join(root, "slurm.conf"), fmt.Appendf(nil, slurmConf, root, machine), 0o644),
		os.WriteFile(filepath.Join(root, "cgroup.conf"), []byte("CgroupAutomount=no\n"), 0o644),
		os.WriteFile(filepath.Join(root, "munge.key"), bytes.Repeat([]byte("munge"), 20), 0o600),
		os.Mkdir(dir, 0o755), os.Chown(dir, 65534, 65534), copyProgram(filepath.Join(dir, "testbed")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	env = append(os.Environ(), "SLURM_CONF="+filepath.Join(root, "slurm.conf"))
	service := func(host int, name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Env, cmd.SysProcAttr = env, &syscall.SysProcAttr{Setpgid: true}
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := inNamespace(l.hosts[host], cmd.Start); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // the only error is that it has ended
			_ = cmd.Wait()         // killed
			if t.Failed() {
				t.Logf("%s: %s", name, &output)
			}
		})
	}
	in := func(name string) string { return filepath.Join(root, name) }
	service(0, "munged", "--foreground", "--force", "--key-file="+in("munge.key"), "--socket="+in("munge.socket"),
		"--pid-file="+in("munge.pid"), "--log-file="+in("munge.log"), "--seed-file="+in("munge.seed"))
	waitFor(t, func() bool { _, err := os.Stat(in("munge.socket")); return err == nil })
	service(0, "slurmctld", "-D", "-i")
	for k := 1; k < len(l.hosts); k++ {
		// The end of unshare is that of the whole host.
		service(k, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "slurmd", "-D", "-N", fmt.Sprintf("h%d", k))
	}
	waitFor(t, func() bool {
		var idle bytes.Buffer
		cmd := exec.Command("sinfo", "--noheader", "--states=idle", "--format=%D")
		cmd.Env, cmd.Stdout = env, &idle
		err := inNamespace(l.hosts[0], cmd.Start)
		return err == nil && cmd.Wait() == nil && strings.TrimSpace(idle.String()) == "2"
	})
	return dir, env
}

// copyProgram puts the command where others may start it.
func copyProgram(to string) error {
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer from.Close()
	file, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, from); err != nil {
		return err
	}
	return file.Close()
}

// TestMeasuredRunInSlurm: an ordinary user has Slurm start the hosts, who play the run; the
// job ends with it, and nothing is left. So do programs of the user's own.
func TestMeasuredRunInSlurm(t *testing.T) {
	testenv.MeasuredParallel(t)
	needSandbox(t)
	l := newLab(t, 3, 1500)
	dir, env := l.startSlurm(t)
	before := look(t)
	user := func(name string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		var stdout, stderr bytes.Buffer
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(env, mark+"="+t.Name(), "TESTBED="+filepath.Join(dir, "testbed")), &stdout, &stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if err := inNamespace(l.hosts[0], cmd.Start); err != nil {
			t.Fatal(err)
		}
		return cmd, &stdout, &stderr
	}
	testenv.Measure(t, func() func(testenv.Machine) error {
		os.RemoveAll(filepath.Join(dir, "run"))
		cmd, stdout, stderr := user(filepath.Join(dir, "testbed"), "run", "persistent_straggler", "--policy", "straggler", "--hosts", "slurm:3", "--out", "run", "--json")
		err := cmd.Wait()
		code := cmd.ProcessState.ExitCode()
		return func(m testenv.Machine) error {
			// An ordinary user's router has no priority: on a busy machine its packets
			// are late, and the run says so.
			busy := m != (testenv.Machine{}) && code == exitInvalid && strings.Contains(stderr.String(), "fidelity invalid")
			if err != nil && !busy {
				return fmt.Errorf("exit code %d\n%s", code, stderr)
			}
			var sum record.Summary
			if err := json.Unmarshal(stdout.Bytes(), &sum); err != nil || !sum.Complete || sum.BitIdentical == nil || !*sum.BitIdentical {
				return fmt.Errorf("complete %v, bit-identical %v, %v\n%s", sum.Complete, sum.BitIdentical, err, stderr)
			}
			if busy {
				return losesTheSlow(sum)
			}
			return evicts("4:w3straggler")(sum)
		}
	})
	l.runInBatch(t, dir, user)()
	cmd, stdout, stderr := user(filepath.Join(dir, "testbed"), "net", "made.yaml", "--hosts", "slurm:3", "--", "testbed", "in", "w3", "sh", "-c", "echo $TESTBED_NODE; exit 5")
	_ = cmd.Wait() // the exit code says it
	if code := cmd.ProcessState.ExitCode(); code != 5 || stdout.String() != "w3\n" {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	time.Sleep(100 * time.Millisecond)
	expectNothing(t, t.Name(), before)
}

// runInBatch plays a run as the batch script of docs/hosts.md does it, until end.
func (l *lab) runInBatch(t *testing.T, dir string, user func(string, ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer)) (end func()) {
	t.Helper()
	for to, from := range map[string]string{"sbatch.sh": filepath.Join(examples, "sbatch.sh"), "made.yaml": roomy(t, scenario(t, 4, "20mbit", ""))} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = testenv.WriteExecutable(filepath.Join(dir, to), text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd, job, stderr := user("sbatch", "--parsable", "--nodes=2", "--cpus-per-task=2", "--output=log", "sbatch.sh", "made.yaml", "--policy", "baseline")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("sbatch: %v\n%s", err, stderr)
	}
	return func() {
		var state, steps string
		waitFor(t, func() bool { // sbatch --wait would look every few seconds
			id := strings.TrimSpace(job.String())
			cmd, stdout, _ := user("scontrol", "--oneliner", "show", "step", id)
			_ = cmd.Wait() // what it says is looked at
			for line := range strings.Lines(stdout.String()) {
				if strings.Contains(line, "Name=testbed ") {
					steps = line
				}
			}
			cmd, stdout, _ = user("scontrol", "--oneliner", "show", "job", id)
			_ = cmd.Wait() // likewise
			state = stdout.String()
			return strings.Contains(state, "JobState=COMPLETED") || strings.Contains(state, "JobState=FAILED")
		})
		log, err := os.ReadFile(filepath.Join(dir, "log"))
		if err != nil || !contains(state, "ExitCode=0:0") && !contains(state, fmt.Sprintf("ExitCode=%d:0", exitInvalid)) || !contains(string(log), " of 3 outer steps") {
			t.Errorf("the batch job: %v\n%s\n%s", err, state, log)
		}
		// The task of the other host has both processors of its node, as the allocation
		// says. Some versions of Slurm give a step that overlaps all of them unasked.
		if !strings.Contains(steps, " Tasks=1 ") || !strings.Contains(steps, " CPUs=2 ") {
			t.Errorf("the step of the other host: %q", steps)
		}
	}
}
