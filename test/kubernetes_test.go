//go:build linux

package test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"testbed/internal/testenv"
	"testbed/record"
)

// cluster is a Kubernetes cluster whose nodes are the hosts of a lab, but for the
// last, which controls it. API server and controllers are the real ones; the test
// plays scheduler, kubelet and name server.
type kubeCluster struct {
	*lab
	dir     string // everybody may read it
	client  http.Client
	control string // the address of the last host
}

// clusterToken is who the test is to the API server.
const clusterToken = "some-token"

// newCluster starts a cluster with that many nodes.
func newCluster(t *testing.T, nodes int) *kubeCluster {
	t.Helper()
	kubelab := findKubelab(t)
	c := &kubeCluster{control: nodeAddress(nodes)}
	begin := time.Now()
	c.lab = newLab(t, nodes+1, 1500)
	dir, err := os.MkdirTemp("", "kubernetes") // t.TempDir is root's alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c.dir = dir
	users := filepath.Join(dir, "users.csv")
	for _, err := range []error{
		os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "bin"), 0o755), copyProgram(filepath.Join(dir, "bin", "testbed")),
		os.WriteFile(users, []byte(clusterToken+",test,1,system:masters\n"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	key := filepath.Join(dir, "accounts.key")
	if err := writeKey(key); err != nil {
		t.Fatal(err)
	}
	c.client.Transport = &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // its certificate is of its own making
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = inNamespace(c.hosts[nodes], func() (err error) {
				conn, err = new(net.Dialer).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}
	t.Cleanup(c.client.CloseIdleConnections)
	c.service(t, "etcd", "--data-dir="+filepath.Join(dir, "etcd"), "--log-level=error", "--unsafe-no-fsync")
	c.service(t, kubelab, "--etcd-servers=http://127.0.0.1:2379", "--cert-dir="+filepath.Join(dir, "certificates"), "--secure-port=6443",
		"--advertise-address="+c.control, "--service-cluster-ip-range=10.96.0.0/24", "--token-auth-file="+users, "--authorization-mode=AlwaysAllow",
		"--allow-privileged", "--disable-admission-plugins=ServiceAccount", // nobody makes accounts
		"--service-account-issuer=https://lab", "--service-account-key-file="+key, "--service-account-signing-key-file="+key)
	waitFor(t, func() bool { _, err := c.call("GET", "/readyz", nil, nil); return err == nil })
	waitFor(t, func() bool { _, err := c.call("GET", "/api/v1/namespaces/default", nil, nil); return err == nil })
	for k := range nodes {
		c.must(t, "POST", "/api/v1/nodes", map[string]any{"metadata": map[string]any{"name": nodeName(k)}}, nil)
	}
	c.names(t)
	t.Logf("the cluster was up after %v", time.Since(begin).Round(time.Millisecond))
	return c
}

// writeKey writes a key with which a server would sign for accounts.
func writeKey(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func nodeName(k int) string { return fmt.Sprintf("node%d", k) }

// findKubelab says where the program of the API server is. If it has not been built
// the test is skipped, but in CI it is built.
func findKubelab(t *testing.T) string {
	t.Helper()
	needTool(t, "etcd")
	if os.Geteuid() != 0 {
		testenv.Need(t, errors.New("only root may play a cluster"))
	}
	build := exec.Command("../internal/kubelab/build.sh", "--cached")
	if os.Getenv("CI") == "true" {
		build.Args = build.Args[:1]
	}
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		testenv.Need(t, fmt.Errorf("there is no API server; internal/kubelab/build.sh builds it, in minutes: %w", err))
	}
	return strings.TrimSpace(string(out))
}

// service starts a program on the host that controls the cluster.
func (c *kubeCluster) service(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := inNamespace(c.hosts[len(c.hosts)-1], cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the only error is that it has ended
		_ = cmd.Wait()         // killed
		if t.Failed() {
			t.Logf("%s: %s", filepath.Base(name), output.Bytes()[max(0, output.Len()-5000):])
		}
	})
}

// call calls the API. body is a manifest, or what is to be JSON. The error has what
// the server says; warnings are those that it gives.
func (c *kubeCluster) call(method, path string, body, into any) (warnings []string, err error) {
	text, manifest := body.(string)
	kind := "application/yaml"
	if !manifest {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		text, kind = string(raw), "application/json"
	}
	if method == "PATCH" {
		kind = "application/merge-patch+json"
	}
	request, err := http.NewRequest(method, "https://127.0.0.1:6443"+path, strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+clusterToken)
	request.Header.Set("Content-Type", kind)
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(answer, into)
	}
	return response.Header["Warning"], err
}

func (c *kubeCluster) must(t *testing.T, method, path string, body, into any) {
	t.Helper()
	if _, err := c.call(method, path, body, into); err != nil {
		t.Fatal(err)
	}
}

// collections are where objects of a kind are made.
var collections = map[string]string{
	"Secret": "/api/v1/namespaces/%s/secrets", "ConfigMap": "/api/v1/namespaces/%s/configmaps", "Service": "/api/v1/namespaces/%s/services",
	"Job": "/apis/batch/v1/namespaces/%s/jobs", "Pod": "/api/v1/namespaces/%s/pods",
}

// apply makes the objects of manifests in a namespace, strictly, and returns what the
// server thinks of each.
func (c *kubeCluster) apply(manifests, namespace, options string) (errs []error) {
	for _, m := range strings.Split(manifests, "\n---\n")[1:] {
		_, after, _ := strings.Cut(m, "kind: ")
		kind, _, _ := strings.Cut(after, "\n")
		warnings, err := c.call("POST", fmt.Sprintf(collections[kind], namespace)+"?fieldValidation=Strict"+options, m, nil)
		if err == nil && warnings != nil {
			err = fmt.Errorf("%s: warnings %q", kind, warnings)
		}
		errs = append(errs, err)
	}
	return errs
}

// podObject is a pod, as far as a kubelet here needs to know it.
type podObject struct {
	Metadata struct {
		Name, DeletionTimestamp string
		Annotations, Labels     map[string]string
	}
	Spec struct {
		Hostname        string
		HostUsers       *bool
		SecurityContext struct{ RunAsUser, FSGroup int }
		Containers      []podContainer
		Volumes         []podVolume
	}
}

type podContainer struct {
	Name, WorkingDir string
	Command, Args    []string
	Env              []podEnv
	SecurityContext  struct{ ProcMount string }
	VolumeMounts     []struct{ Name, MountPath string }
}

type podEnv struct {
	Name, Value string
	ValueFrom   struct{ FieldRef struct{ FieldPath string } }
}

type podVolume struct {
	Name      string
	Secret    *struct{ SecretName string }
	ConfigMap *struct {
		Name  string
		Items []struct{ Key, Path string }
	}
}

// containerScript makes a container of a namespace: a root of its own, in $ROOT, with
// the system's programs, and no capability; then it runs a command. $MASK says
// whether parts of /proc are masked, and $MOUNTS what is mounted where.
const containerScript = `set -e
mount -t tmpfs tmpfs "$ROOT"
cd "$ROOT"
mkdir proc sys dev tmp run var etc opt
ln -s ../run var/run
for d in bin sbin lib lib64 usr; do
	if [ -L /$d ]; then cp -P /$d $d; elif [ -d /$d ]; then mkdir $d; mount --rbind /$d $d; fi
done
for d in sys dev; do mount --rbind /$d $d; done
mount -t proc proc proc
if [ "$MASK" = yes ]; then
	for f in keys timer_list interrupts; do [ ! -e proc/$f ] || mount --bind /dev/null proc/$f; done
	mount --bind proc/sys proc/sys
	mount -o remount,bind,ro proc/sys
fi
printf 'nameserver %s\nsearch %s\noptions ndots:5\n' "$NAMES" "$SEARCH" >etc/resolv.conf
echo "$MOUNTS" | while read -r from to; do
	[ -n "$from" ] || continue
	mkdir -p "./$to"
	mount --bind "$from" "./$to"
done
hostname "$NAME"
pivot_root . tmp
cd /
umount -l tmp
cd "$DIR"
export PATH=/opt:$PATH
exec setpriv --reuid="$RUNAS" --regid="$RUNAS" --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs -- "$@"
`

// container is a pod's process.
type container struct {
	process
	node  int
	dir   string // of its volumes
	path  string // of its pod in the API
	ended chan struct{}
	told  bool // the API server knows
}

// run starts the container of a pod on a node.
func (c *kubeCluster) run(t *testing.T, id, namespace string, node int, p podObject) *container {
	t.Helper()
	spec := p.Spec.Containers[0]
	k := &container{node: node, dir: filepath.Join(c.dir, namespace, p.Metadata.Name), ended: make(chan struct{})}
	var mounts strings.Builder
	for _, v := range p.Spec.Volumes {
		dir := filepath.Join(k.dir, v.Name)
		c.fill(t, namespace, dir, v, podUser+p.Spec.SecurityContext.FSGroup)
		for _, m := range spec.VolumeMounts {
			if m.Name == v.Name {
				fmt.Fprintln(&mounts, dir, m.MountPath)
			}
		}
	}
	fmt.Fprintln(&mounts, filepath.Join(c.dir, "bin"), "/opt")
	root := filepath.Join(k.dir, "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	mask := "yes"
	if spec.SecurityContext.ProcMount == "Unmasked" {
		mask = "no"
	}
	k.Cmd = exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", containerScript, "container"}, append(spec.Command, spec.Args...)...)...)
	k.Stdout, k.Stderr = &k.stdout, &k.stderr
	k.Env = []string{
		"ROOT=" + root, "MASK=" + mask, "MOUNTS=" + mounts.String(), "NAME=" + p.Spec.Hostname, "DIR=" + spec.WorkingDir,
		"KUBERNETES_SERVICE_HOST=" + c.control, "NAMES=" + c.control, "SEARCH=" + namespace + ".svc.cluster.local", "PATH=/usr/bin:/bin:/usr/sbin:/sbin",
		fmt.Sprintf("RUNAS=%d", p.Spec.SecurityContext.RunAsUser), mark + "=" + id,
	}
	for _, e := range spec.Env {
		value := e.Value
		switch field := e.ValueFrom.FieldRef.FieldPath; {
		case field == "status.podIP":
			value = nodeAddress(node)
		case field == "metadata.name":
			value = p.Metadata.Name
		case strings.HasPrefix(field, "metadata.annotations['"):
			value = p.Metadata.Annotations[strings.TrimSuffix(strings.TrimPrefix(field, "metadata.annotations['"), "']")]
		case strings.HasPrefix(field, "metadata.labels['"):
			value = p.Metadata.Labels[strings.TrimSuffix(strings.TrimPrefix(field, "metadata.labels['"), "']")]
		}
		k.Env = append(k.Env, e.Name+"="+value)
	}
	k.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	if p.Spec.HostUsers != nil && !*p.Spec.HostUsers {
		k.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		k.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: podUser, Size: 65536}}
		k.SysProcAttr.GidMappings, k.SysProcAttr.GidMappingsEnableSetgroups = k.SysProcAttr.UidMappings, true
		k.SysProcAttr.Credential = &syscall.Credential{} // root there
	}
	if err := inNamespace(c.hosts[node], k.Start); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = k.Wait() // the exit code says it
		close(k.ended)
	}()
	return k
}

// podUser is who root of a pod's user namespace is outside.
const podUser = 100000

func nodeAddress(k int) string { return fmt.Sprintf("192.168.77.%d", k+1) }

// fill makes a volume. A group may write to one that is for data.
func (c *kubeCluster) fill(t *testing.T, namespace, dir string, v podVolume, group int) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var from struct{ Data, BinaryData map[string]string }
	write := func(name, content string) {
		to := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	plain := func(s string) string {
		raw, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	switch {
	case v.Secret != nil:
		c.must(t, "GET", fmt.Sprintf(collections["Secret"], namespace)+"/"+v.Secret.SecretName, nil, &from)
		for name, content := range from.Data {
			write(name, plain(content))
		}
	case v.ConfigMap != nil:
		c.must(t, "GET", fmt.Sprintf(collections["ConfigMap"], namespace)+"/"+v.ConfigMap.Name, nil, &from)
		for _, item := range v.ConfigMap.Items {
			content, ok := from.Data[item.Key]
			if !ok {
				content = plain(from.BinaryData[item.Key])
			}
			write(item.Path, content)
		}
	default:
		if err := errors.Join(os.Chown(dir, podUser, group), os.Chmod(dir, 0o775)); err != nil {
			t.Fatal(err)
		}
	}
}

// names answers what addresses hosts have, by the endpoints that are ready.
func (c *kubeCluster) names(t *testing.T) {
	t.Helper()
	var socket *net.UDPConn
	if err := inNamespace(c.hosts[len(c.hosts)-1], func() (err error) {
		socket, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(c.control), Port: 53})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := socket.ReadFromUDP(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m = dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RCode: dnsmessage.RCodeNameError}, Questions: m.Questions}
			if a, ok := c.lookUp(q.Name.String()); ok {
				m.RCode = dnsmessage.RCodeSuccess
				if q.Type == dnsmessage.TypeA {
					m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: &dnsmessage.AResource{A: a}}}
				}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = socket.WriteToUDP(answer, from) // who asked asks again
			}
		}
	}()
}

// lookUp finds HOST.SERVICE.NAMESPACE.svc.cluster.local.
func (c *kubeCluster) lookUp(name string) (a [4]byte, ok bool) {
	parts := strings.SplitN(name, ".", 4)
	if len(parts) != 4 || parts[3] != "svc.cluster.local." {
		return a, false
	}
	var slices struct {
		Items []struct {
			Endpoints []struct {
				Addresses  []string
				Hostname   string
				Conditions struct{ Ready bool }
			}
		}
	}
	_, err := c.call("GET", "/apis/discovery.k8s.io/v1/namespaces/"+parts[2]+"/endpointslices?labelSelector=kubernetes.io/service-name="+parts[1], nil, &slices)
	if err != nil {
		return a, false
	}
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			if e.Hostname == parts[0] && e.Conditions.Ready {
				return [4]byte(net.ParseIP(e.Addresses[0]).To4()), true
			}
		}
	}
	return a, false
}

// playPatience bounds how long a Job may take; a run's is seconds.
const playPatience = 3 * time.Minute

// play is the scheduler and the kubelets of a namespace until a Job has come to its
// end, in which condition, and its pods have, too. It returns their containers, by
// index.
func (c *kubeCluster) play(t *testing.T, id, namespace, job string) (all map[string]*container, condition string) {
	t.Helper()
	all = map[string]*container{}
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		var pods struct{ Items []podObject }
		c.must(t, "GET", fmt.Sprintf(collections["Pod"], namespace)+"?labelSelector=batch.kubernetes.io/job-name="+job, nil, &pods)
		for _, p := range pods.Items {
			index := p.Metadata.Annotations["batch.kubernetes.io/job-completion-index"]
			if k := all[index]; k == nil {
				all[index] = c.begin(t, id, namespace, index, p)
			} else {
				c.follow(t, k, p)
			}
		}
		var state struct {
			Status struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
		c.must(t, "GET", fmt.Sprintf(collections["Job"], namespace)+"/"+job, nil, &state)
		for _, s := range state.Status.Conditions {
			if s.Status == "True" && (s.Type == "Complete" || s.Type == "Failed") {
				condition = s.Type + " " + s.Message
			}
		}
		left := 0
		for _, k := range all {
			if !k.told {
				left++
			}
		}
		if condition != "" && left == 0 {
			t.Logf("the Job took %v: %s", time.Since(begin).Round(time.Millisecond), condition)
			return all, condition
		}
		if time.Since(begin) > playPatience {
			t.Fatalf("after %v there are %d containers left, and the Job is %+v", playPatience, left, state)
		}
	}
}

// begin puts a pod on a node, and starts its container.
func (c *kubeCluster) begin(t *testing.T, id, namespace, index string, p podObject) *container {
	t.Helper()
	node, err := strconv.Atoi(index)
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf(collections["Pod"], namespace) + "/" + p.Metadata.Name
	c.must(t, "POST", path+"/binding", map[string]any{
		"metadata": map[string]string{"name": p.Metadata.Name}, "target": map[string]string{"kind": "Node", "name": nodeName(node)},
	}, nil)
	k := c.run(t, id, namespace, node, p)
	k.path = path
	c.tell(t, k, p, "Running", map[string]any{"running": map[string]any{}})
	return k
}

// follow says when a container has ended, and ends it if its pod has been deleted.
func (c *kubeCluster) follow(t *testing.T, k *container, p podObject) {
	t.Helper()
	deleted := p.Metadata.DeletionTimestamp != ""
	select {
	case <-k.ended:
		if code := k.ProcessState.ExitCode(); !k.told {
			k.told = true
			c.tell(t, k, p, map[bool]string{true: "Succeeded", false: "Failed"}[code == 0], map[string]any{"terminated": map[string]any{"exitCode": max(code, 0)}})
		}
		if deleted {
			_, _ = c.call("DELETE", k.path+"?gracePeriodSeconds=0", nil, nil) // it may be gone
		}
	default:
		if deleted {
			_ = k.Process.Signal(syscall.SIGTERM) // it may have ended
		}
	}
}

// tell tells the server how a pod is. It is never ready.
func (c *kubeCluster) tell(t *testing.T, k *container, p podObject, phase string, state any) {
	t.Helper()
	address := nodeAddress(k.node)
	c.must(t, "PATCH", k.path+"/status", map[string]any{"status": map[string]any{
		"phase": phase, "podIP": address, "podIPs": []any{map[string]string{"ip": address}},
		"conditions":        []any{map[string]string{"type": "Ready", "status": "False"}},
		"containerStatuses": []any{map[string]any{"name": p.Spec.Containers[0].Name, "image": "image", "imageID": "image", "ready": false, "restartCount": 0, "state": state}},
	}}, nil)
}

// writeManifests writes those of three hosts.
func writeManifests(t *testing.T, args ...string) string {
	t.Helper()
	r := testbed(t, append([]string{"manifests", "--image", "some/image", "--hosts", "3"}, args...)...)
	if r.code != 0 {
		t.Fatal(r.stderr)
	}
	return r.stdout
}

// TestMeasuredKubernetes: a real API server accepts manifests of every kind, and refuses
// what it does not know. In a namespace that allows no privileges pods play a run to
// its end, and decide as one host does.
func TestMeasuredKubernetes(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	c := newCluster(t, 3)
	const namespace = "baseline"
	c.must(t, "POST", "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": namespace, "labels": map[string]string{
		"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "baseline",
	}}}, nil)
	c.accepts(t, namespace)
	before := look(t)
	jobs := 0
	testenv.Measure(t, func() func(testenv.Machine) error {
		playAlone(t)
		jobs++
		name := fmt.Sprintf("run%d", jobs)
		run := writeManifests(t, "--name", name, "--keep", "1s", "run", "persistent_straggler", "--policy", "straggler", "--json")
		if err := errors.Join(c.apply(run, namespace, "")...); err != nil {
			t.Fatal(err)
		}
		all, condition := c.play(t, t.Name(), namespace, name)
		return func(m testenv.Machine) error {
			leader := all["0"]
			code, text := leader.ProcessState.ExitCode(), leader.stderr.String()
			// Its router has no priority, as in TestMeasuredRunInSlurm.
			busy := m != (testenv.Machine{}) && code == exitInvalid && strings.Contains(text, "fidelity invalid")
			if code != 0 && !busy || !busy && !strings.HasPrefix(condition, "Complete ") {
				return fmt.Errorf("the Job is %s, and its leader ended with exit code %d\n%s\nhost 1: %s", condition, code, text, &all["1"].stderr)
			}
			var three record.Summary
			if err := json.Unmarshal(leader.stdout.Bytes(), &three); err != nil || !alone.Complete || !three.Complete {
				return fmt.Errorf("complete %v on one host, %v in pods: %v\n%s", alone.Complete, three.Complete, err, text)
			}
			if busy || m != (testenv.Machine{}) && alone.Fidelity.Verdict != "valid" {
				return losesTheSlow(three)
			}
			if a, b := alone.decisions, decisions(t, filepath.Join(leader.dir, three.Dir)); fmt.Sprint(a) != fmt.Sprint(b) {
				return fmt.Errorf("on one host\n%s\nand in pods\n%s\n%v", strings.Join(a, "\n"), strings.Join(b, "\n"), three.Fidelity)
			}
			return nil
		}
	})
	c.masked(t)
	time.Sleep(100 * time.Millisecond)
	expectNothing(t, t.Name(), before)
}

// accepts has the server judge manifests, and make nothing of them.
func (c *kubeCluster) accepts(t *testing.T, namespace string) {
	t.Helper()
	file := scenario(t, 4, "100mbit", "  injects:\n    - {op: LinkTrace, at: 0, id: 2, direction: up, file: some/two.trace}\n")
	trace := filepath.Join(filepath.Dir(file), "some", "two.trace")
	if err := errors.Join(os.Mkdir(filepath.Dir(trace), 0o755), os.WriteFile(trace, []byte("1\n2\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	const dry = "&dryRun=All"
	for _, args := range [][]string{
		{"run", "persistent_straggler", "--policy", "straggler"},
		{"--cpus", "4", "--keep", "0s", "compare", file, "--repeat", "3"},
		{"--namespace", namespace, "--secret", "there", "sweep", "late_join", "--real", "--set", "inner_steps=1,2"},
	} {
		if err := errors.Join(c.apply(writeManifests(t, args...), namespace, dry)...); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	run := []string{"run", "persistent_straggler", "--policy", "straggler"}
	privileged := writeManifests(t, append([]string{"--privileged"}, run...)...)
	if err := errors.Join(c.apply(privileged, "default", dry)...); err != nil {
		t.Error(err)
	}
	if err := errors.Join(c.apply(privileged, namespace, dry)...); err == nil || !strings.Contains(err.Error(), "privileged") {
		t.Errorf("privileges where there are none to be had: %v", err)
	}
	wrong := strings.Replace(writeManifests(t, run...), "completionMode:", "completionMood:", 1)
	if err := errors.Join(c.apply(wrong, "default", dry)...); err == nil || !strings.Contains(err.Error(), "spec.completionMood") {
		t.Errorf("a misspelt field was taken: %v", err)
	}
}

// masked tries pods as Kubernetes makes them if it is not told otherwise: doctor says
// what they lack, and who mends it.
func (c *kubeCluster) masked(t *testing.T) {
	t.Helper()
	none := false
	p := podObject{}
	p.Metadata.Name, p.Spec.Hostname, p.Spec.HostUsers, p.Spec.SecurityContext.RunAsUser = "masked", "masked", &none, 1000
	p.Spec.Containers = []podContainer{{Command: []string{"testbed", "doctor"}, WorkingDir: "/tmp"}}
	k := c.run(t, t.Name(), "default", 0, p)
	<-k.ended
	if text := k.stdout.String(); k.ProcessState.ExitCode() != exitUnsupported || !strings.Contains(text, "procMount: Unmasked") {
		t.Errorf("exit code %d\n%s\n%s", k.ProcessState.ExitCode(), text, &k.stderr)
	}
}
