package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"testbed/internal/thread"
)

// MachineDir has a directory for each machine (Furnish) with links to its
// namespaces. It is in the sandbox's private /run.
const MachineDir = "/run/testbed-nodes"

// A Host is a name and an address for the file /etc/hosts of machines.
type Host struct{ Name, Addr string }

// Files of machines, in MachineDir. No node has these names.
const (
	hostsFile  = ".hosts"
	hubHosts   = ".hosts-hub"
	switchFile = ".nsswitch.conf"
	bootIDFile = ".boot_id-" // and the name of the node
	rootLink   = "root"      // among the links to namespaces
)

// surroundings are the namespaces of a machine, or of init.
type surroundings struct {
	name string
	own  []namespace // the last is the mount namespace
	root *os.File    // the root directory, which in a chroot differs from the mounts'
}

// A namespace is a namespace that is held open, so that it does not end.
type namespace struct {
	kind string // as in /proc/PID/ns
	flag int
	file *os.File
}

// machineKinds are the namespaces of a machine. The mount namespace is entered
// last, because it changes the meaning of paths.
var machineKinds = []namespace{{kind: "net", flag: unix.CLONE_NEWNET}, {kind: "uts", flag: unix.CLONE_NEWUTS}, {kind: "ipc", flag: unix.CLONE_NEWIPC}, {kind: "mnt", flag: unix.CLONE_NEWNS}}

// WriteHosts sets the names that machines know. It must be called before the
// first Furnish. The hub, where init is, knows them too, in addition to its
// own.
func (in *Inside) WriteHosts(hosts []Host) error {
	wrap := func(err error) error { return fmt.Errorf("naming the nodes: %w", err) }
	if err := os.MkdirAll(MachineDir, 0o755); err != nil {
		return wrap(err)
	}
	var nodes strings.Builder
	for _, h := range hosts {
		fmt.Fprintf(&nodes, "%s\t%s\n", h.Addr, h.Name)
	}
	const local = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	files := map[string]string{hostsFile: local + nodes.String()}
	before, err := os.ReadFile("/etc/hosts")
	if err != nil {
		before = []byte(local)
	}
	files[hubHosts] = strings.TrimRight(string(before), "\n") + "\n" + nodes.String()
	if text, err := os.ReadFile("/etc/nsswitch.conf"); err == nil {
		files[switchFile] = onlyFiles(string(text))
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(MachineDir, name), []byte(text), 0o644); err != nil {
			return wrap(err)
		}
	}
	if err := cover(hubHosts, "/etc/hosts"); err != nil {
		return wrap(err)
	}
	return nil
}

// onlyFiles is an nsswitch.conf that looks up host names in /etc/hosts alone:
// no server is reachable from a node, and a resolver of the machine would
// answer for the machine.
func onlyFiles(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "hosts:") {
			lines = append(lines, strings.TrimRight(line, "\n")+"\n")
		}
	}
	return strings.Join(append(lines, "hosts: files\n"), "")
}

// cover binds a file of MachineDir over one of the machine's, if that exists.
func cover(name, target string) error {
	if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
		return nil // nothing can be bound there, so this system does not use it
	}
	return mount(filepath.Join(MachineDir, name), target, "", unix.MS_BIND)
}

// Furnish turns the network namespace open at descriptor fd into a machine.
// Processes that start in it from then on, by Start or after EnterMachine, have
// a host name of their own, and System V and POSIX shared memory that they
// share with nothing outside. They find their own interfaces in /sys and the
// names of WriteHosts in /etc/hosts. The descriptor remains the caller's.
// Machines know the names in /run/netns that were bound before.
func (in *Inside) Furnish(name string, fd int) error {
	m := &surroundings{name: name}
	var err error
	thread.Do(func() { err = m.furnish(fd) }) // it leaves the thread in the machine
	if err != nil {
		return fmt.Errorf("setting up node %s: %w", name, err)
	}
	key, err := inode(fd)
	if err != nil {
		return fmt.Errorf("setting up node %s: %w", name, err)
	}
	dir := filepath.Join(MachineDir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("setting up node %s: %w", name, err)
	}
	for _, ns := range append(m.own, namespace{kind: rootLink, file: m.root}) {
		// Through init's descriptors: a bound file would not be visible from the
		// mount namespaces of other machines.
		if err := os.Symlink(fmt.Sprintf("/proc/1/fd/%d", ns.file.Fd()), filepath.Join(dir, ns.kind)); err != nil {
			return fmt.Errorf("setting up node %s: %w", name, err)
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.machines[key] = m
	return nil
}

// inode identifies the namespace open at a descriptor.
func inode(fd int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	return st.Ino, nil
}

// furnish moves the thread into the new machine.
func (m *surroundings) furnish(netNS int) error {
	if err := unix.Setns(netNS, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the network namespace: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making namespaces: %w", err)
	}
	if err := unix.Sethostname([]byte(m.name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := coverSys(); err != nil {
		return err
	}
	if err := coverShm(); err != nil {
		return err
	}
	// This mount only serves to look at queues of messages: they work without it.
	_ = mount("mqueue", "/dev/mqueue", "mqueue", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC)
	if err := coverNames(m.name); err != nil {
		return err
	}
	return m.open()
}

// open opens the namespaces of the thread.
func (m *surroundings) open() error {
	for _, ns := range machineKinds {
		file, err := os.Open("/proc/thread-self/ns/" + ns.kind)
		if err != nil {
			return err
		}
		ns.file = file
		m.own = append(m.own, ns)
	}
	var err error
	m.root, err = os.Open("/")
	return err
}

// coverSys shows the interfaces of the thread's network namespace in /sys,
// where programs look for them, with all mounts below it.
func coverSys() error {
	const sys, cgroups = "/sys", "/sys/fs/cgroup"
	old, err := os.Open(cgroups)
	if err == nil {
		defer old.Close()
	}
	// A machine that masks parts of /sys forbids ordinary users a new mount; then
	// the old one stays.
	if mount("sysfs", sys, "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY) != nil || old == nil {
		return nil
	}
	return mount(fmt.Sprintf("/proc/self/fd/%d", old.Fd()), cgroups, "", unix.MS_BIND|unix.MS_REC)
}

// coverShm gives the machine its own /dev/shm. Directories in it stay, like
// those elsewhere: a run's may be there. Shared memory is in files.
func coverShm() error {
	const shm = "/dev/shm"
	old, err := os.Open(shm)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer old.Close()
	entries, err := old.ReadDir(-1)
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", shm, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return &mountError{"tmpfs", shm, err}
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		target := filepath.Join(shm, e.Name())
		if err := bindBack(fmt.Sprintf("/proc/self/fd/%d/%s", old.Fd(), e.Name()), target, e.Type()); err != nil {
			_ = os.Remove(target) // as in coverRun
		}
	}
	return nil
}

// coverNames gives names their meaning in a network of machines.
func coverNames(name string) error {
	if _, err := os.Stat(filepath.Join(MachineDir, hostsFile)); err != nil {
		return nil // there was no WriteHosts
	}
	if err := cover(hostsFile, "/etc/hosts"); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(MachineDir, switchFile)); err == nil {
		if err := cover(switchFile, "/etc/nsswitch.conf"); err != nil {
			return err
		}
	}
	// The C library asks this server first, if it exists, and it answers for the
	// machine.
	if _, err := os.Stat("/run/nscd"); err == nil {
		if err := mount("tmpfs", "/run/nscd", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV); err != nil {
			return err
		}
	}
	return coverBootID(name)
}

// coverBootID gives the machine an identity of its own. Libraries (UCX, NCCL)
// take processes with the same identity for neighbours that need no network
// between them.
func coverBootID(name string) error {
	const bootID = "/proc/sys/kernel/random/boot_id"
	id, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		return nil // no /proc/sys, no identity
	}
	own := bootIDFile + name
	if err := os.WriteFile(filepath.Join(MachineDir, own), id, 0o444); err != nil {
		return err
	}
	return cover(own, bootID)
}

// enter moves the thread, whose file system attributes must be its own, into
// the machine. It keeps the working directory if the machine has it.
func (m *surroundings) enter(dir string) error {
	for _, ns := range m.own {
		if err := unix.Setns(int(ns.file.Fd()), ns.flag); err != nil {
			return fmt.Errorf("entering the %s namespace of %s: %w", ns.kind, m.name, err)
		}
	}
	if err := unix.Fchdir(int(m.root.Fd())); err != nil {
		return fmt.Errorf("entering the root directory of %s: %w", m.name, err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("entering the root directory of %s: %w", m.name, err)
	}
	changeDir(dir)
	return nil
}

// changeDir changes to a directory, or to the root if it does not exist.
func changeDir(dir string) {
	if unix.Chdir(dir) != nil {
		_ = unix.Chdir("/")
	}
}

// HasMachine reports whether there is a machine of that name in this sandbox.
// It may be called in any process of it.
func HasMachine(name string) bool {
	_, err := os.Lstat(filepath.Join(MachineDir, name))
	return err == nil
}

// EnterMachine moves the calling thread into a machine of the sandbox. The
// caller has locked the thread and never unlocks it. It works in any process of
// the sandbox, even of another machine.
func EnterMachine(name string) error {
	m := surroundings{name: name}
	for _, ns := range machineKinds {
		file, err := os.Open(filepath.Join(MachineDir, name, ns.kind))
		if err != nil {
			return err
		}
		defer file.Close()
		ns.file = file
		m.own = append(m.own, ns)
	}
	var err error
	if m.root, err = os.Open(filepath.Join(MachineDir, name, rootLink)); err != nil {
		return err
	}
	defer m.root.Close()
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // threads share the root directory
		return os.NewSyscallError("unshare", err)
	}
	return m.enter(dir)
}

// hostVariable is where shells keep the host's name; it is corrected if it is
// set.
const hostVariable = "HOSTNAME"

// MachineEnv is an environment in a machine.
func MachineEnv(env []string, name string) []string {
	own := make([]string, len(env))
	for k, v := range env {
		if strings.HasPrefix(v, hostVariable+"=") {
			v = hostVariable + "=" + name
		}
		own[k] = v
	}
	return own
}
