package sandbox

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"testbed/internal/errs"
)

// Check reports whether a sandbox can be started on this machine, by starting
// one. If the machine forbids it, the error is an *errs.UnsupportedError.
func Check() error {
	s, err := Start(Config{Args: []string{checkArg}})
	if err != nil {
		return err
	}
	_, err = s.Wait()
	return err
}

// privileged reports whether this process may make namespaces and links
// without a user namespace. Root in a container often may not.
func privileged() bool {
	const needed = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_NET_ADMIN
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return os.Geteuid() == 0 && data[0].Effective&needed == needed
}

// A machine has the facts about why namespaces may be forbidden.
type machine struct {
	userNS    bool // the sandbox needs a user namespace
	nested    bool // this process is already in a user namespace
	container bool
	pod       bool              // the container belongs to Kubernetes
	sysctls   map[string]string // existing ones
	exhausted string            // member of limitSysctls that forbids one more namespace
}

const (
	apparmorSysctl = "kernel.apparmor_restrict_unprivileged_userns"
	cloneSysctl    = "kernel.unprivileged_userns_clone"
)

// Each new namespace counts against one of these, in the machine's and in every
// enclosing user namespace.
var limitSysctls = []string{
	"user.max_user_namespaces", "user.max_pid_namespaces", "user.max_net_namespaces",
	"user.max_mnt_namespaces", "user.max_uts_namespaces", "user.max_ipc_namespaces",
}

// limited are the limited kinds of namespaces. Each is made with a user
// namespace, if the sandbox needs one.
var limited = []uintptr{0, unix.CLONE_NEWPID, unix.CLONE_NEWNET, unix.CLONE_NEWNS, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC}

// exhausted finds the limit that forbids one more namespace, by trying each
// kind: the limits of enclosing user namespaces cannot be read.
func exhausted(userNS bool) string {
	for k, kind := range limited {
		if userNS {
			kind |= unix.CLONE_NEWUSER
		}
		// If the namespaces could be made, the process ends because there is no such
		// program.
		_, err := os.StartProcess("/proc/self/none", []string{argv0}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: kind}})
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS) {
			return limitSysctls[k]
		}
	}
	return ""
}

func inspect(userNS bool) machine {
	m := machine{userNS: userNS, sysctls: make(map[string]string), exhausted: exhausted(userNS)}
	for _, name := range append([]string{apparmorSysctl, cloneSysctl}, limitSysctls...) {
		value, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
		if err == nil {
			m.sysctls[name] = strings.TrimSpace(string(value))
		}
	}
	if uids, err := os.ReadFile("/proc/self/uid_map"); err == nil {
		m.nested = !slices.Equal(strings.Fields(string(uids)), []string{"0", "0", "4294967295"})
	}
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(mark); err == nil {
			m.container = true
		}
	}
	if _, ok := os.LookupEnv("KUBERNETES_SERVICE_HOST"); ok {
		m.container, m.pod = true, true
	}
	return m
}

// lacking names the file that this machine lacks and every sandbox needs.
func lacking(run, null string) *errs.UnsupportedError {
	if info, err := os.Stat(run); err != nil || !info.IsDir() {
		return &errs.UnsupportedError{Missing: "there is no folder " + run, Fix: "make it (mkdir " + run + "), or mount a tmpfs there", Err: err}
	}
	if info, err := os.Stat(null); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return &errs.UnsupportedError{Missing: "there is no device " + null, Fix: "make it (rm -f " + null + "; mknod -m 666 " + null + " c 1 3), or give the container one", Err: err}
	}
	return nil
}

// startError explains why init could not be started.
func startError(err error, userNS bool) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		switch errno {
		case unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EUSERS:
			missing, mend := inspect(userNS).explainClone(errno)
			return &errs.UnsupportedError{Missing: missing, Fix: mend, Err: fmt.Errorf("making namespaces: %w", err)}
		case unix.EINVAL, unix.ENOSYS:
			if missing, mend := lackingKinds(userNS); missing != "" {
				return &errs.UnsupportedError{Missing: missing, Fix: mend, Err: fmt.Errorf("making namespaces: %w", err)}
			}
		}
	}
	return fmt.Errorf("starting the sandbox: %w", err)
}

// lackingKinds names the kinds of namespace that the kernel does not have.
func lackingKinds(userNS bool) (missing, mend string) {
	kinds := []string{"pid", "net", "mnt", "uts", "ipc"}
	if userNS {
		kinds = append(kinds, "user")
	}
	kinds = slices.DeleteFunc(kinds, func(kind string) bool {
		_, err := os.Stat("/proc/self/ns/" + kind)
		return err == nil
	})
	if len(kinds) == 0 {
		return "", ""
	}
	return "the kernel has no namespaces of kind " + strings.Join(kinds, ", "),
		"use a kernel with CONFIG_NAMESPACES, and with CONFIG_…_NS for each of these kinds"
}

// setUpError turns init's report into an error.
func setUpError(r report, userNS bool) error {
	err := error(&reportedError{r.Error, r.Errno})
	switch r.Errno {
	case unix.EPERM, unix.EACCES:
		if r.Target != "" {
			missing, mend := inspect(userNS).explainMount(r.Target)
			return &errs.UnsupportedError{Missing: missing, Fix: mend, Err: err}
		}
	case unix.ENOSPC, unix.EUSERS:
		if r.Target == "" { // a mount has other limits
			missing, mend := inspect(userNS).explainClone(r.Errno)
			return &errs.UnsupportedError{Missing: missing, Fix: mend, Err: err}
		}
	}
	return fmt.Errorf("starting the sandbox: %w", err)
}

// A reportedError is an error of init in the form that passes between
// processes: its text and error number.
type reportedError struct {
	text  string
	errno syscall.Errno
}

func (e *reportedError) Error() string { return e.text }

func (e *reportedError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

const (
	containerMend = "start the container with --privileged, or with --cap-add SYS_ADMIN --cap-add NET_ADMIN " +
		"--security-opt seccomp=unconfined --security-opt apparmor=unconfined"
	maskMend = "start the container with --security-opt systempaths=unconfined (Docker) or --security-opt unmask=ALL (Podman), " +
		"or run as root"

	podMend = "generate the pod with testbed manifests; add --privileged if the node's seccomp or AppArmor profile forbids namespaces or mounts"
	// Only a user namespace of its own allows a pod an unmasked /proc.
	podMaskMend = "give the pod hostUsers: false, and its container securityContext.procMount: Unmasked, as testbed manifests does; " +
		"or, on nodes without user namespaces for pods, use testbed manifests --privileged"
)

// setSysctl says how to set a sysctl.
func (m machine) setSysctl(name, value string) string {
	how := fmt.Sprintf("sudo sysctl -w %s=%s", name, value)
	if m.pod {
		how += " on the pod's node"
	}
	return how
}

// lift says how to lift a container's restriction.
func (m machine) lift() string {
	if m.pod {
		return podMend
	}
	return containerMend
}

// explainClone explains why the kernel refused to make the namespaces.
func (m machine) explainClone(errno syscall.Errno) (missing, mend string) {
	if errno == unix.ENOSPC || errno == unix.EUSERS {
		return m.explainLimit()
	}
	if missing, mend, ok := m.userNSForbidden(); ok {
		return missing, mend
	}
	if m.container {
		return "this container may not make namespaces (no CAP_SYS_ADMIN, or a seccomp profile)", m.lift()
	}
	if m.userNS {
		return "user namespaces are forbidden to this user, by seccomp, a security module or a chroot",
			"run as root, or lift that restriction"
	}
	return "a seccomp filter or security module does not allow root to make namespaces", "lift that restriction"
}

func (m machine) explainLimit() (missing, mend string) {
	for _, name := range limitSysctls {
		if m.sysctls[name] == "0" && (m.userNS || name != "user.max_user_namespaces") {
			return name + " is 0", m.setSysctl(name, "15000")
		}
	}
	if m.exhausted != "" {
		where := "on this machine"
		if m.pod {
			where = "on the pod's node"
		} else if m.nested {
			where = "here or outside this user namespace"
		}
		return m.exhausted + " allows no more namespaces", "raise this limit " + where + " with sysctl -w, or end programs that use namespaces"
	}
	return "a limit on namespaces is used up: one of " + strings.Join(limitSysctls, ", ") + ", or 32 nested levels",
		"raise that limit with sysctl -w, or end programs that use namespaces"
}

// userNSForbidden looks for a setting that forbids user namespaces.
func (m machine) userNSForbidden() (missing, mend string, ok bool) {
	switch {
	case !m.userNS:
		return "", "", false
	case m.sysctls[cloneSysctl] == "0":
		return "user namespaces are forbidden to ordinary users by " + cloneSysctl + "=0",
			m.setSysctl(cloneSysctl, "1") + ", or run as root", true
	case m.sysctls[apparmorSysctl] == "1":
		return "AppArmor restricts user namespaces of ordinary users (" + apparmorSysctl + "=1)",
			m.setSysctl(apparmorSysctl, "0") + ", or give the program an AppArmor profile with the userns rule, or run as root", true
	}
	return "", "", false
}

// explainMount explains why the kernel refused a mount on target.
func (m machine) explainMount(target string) (missing, mend string) {
	if missing, mend, ok := m.userNSForbidden(); ok {
		return missing, mend
	}
	if target == "/proc" && (m.userNS || m.nested) {
		// In a user namespace the kernel mounts /proc only if all of an older /proc
		// is visible.
		mend := maskMend
		if m.pod {
			mend = podMaskMend
		}
		return "a fresh /proc may not be mounted, because parts of the present /proc are masked", mend
	}
	if m.container {
		return "this container may not mount on " + target, m.lift()
	}
	return "a security module forbids mounting on " + target, "lift that restriction"
}
