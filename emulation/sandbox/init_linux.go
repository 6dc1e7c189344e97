package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"testbed/internal/thread"
)

// NetNSDir holds the names of network namespaces, for ip netns.
const NetNSDir = "/run/netns"

const (
	selfNetNS = "/proc/thread-self/ns/net"

	// lifelineLost is init's exit status when the outer process has gone. No
	// process is left to read it.
	lifelineLost = 1
)

// Inside is the sandbox in its PID 1.
//
// It waits for all children: PID 1 must reap orphans, and cannot do so without
// also reaping the children that other code waits for. So inside a sandbox,
// processes must be started with Inside.Start, not with os/exec.
type Inside struct {
	lifeline *os.File
	home     *surroundings // init's own namespaces
	dir      string        // working directory
	starts   chan startRequest

	mu       sync.Mutex // held while a child is started, reaped or signalled
	children map[int]*Process
	oomKills uint64                   // at the end of the last child
	machines map[uint64]*surroundings // by the inode of the network namespace
}

// Init makes this process the init of its sandbox. The program calls it first
// thing when Start has re-executed it. Init makes all mounts private, mounts a
// fresh /proc and an empty /run/netns (the rest of /run stays visible), and
// from then on ends the process when the outer one has ended, and reaps
// orphans. All network devices, including the loopback, are still down.
//
// The outer Start returns when Init does, with Init's error if there is one:
// the caller need only exit then.
func Init() (*Inside, error) {
	in, err := openLifeline()
	if err != nil {
		return nil, err
	}
	if err := in.setUp(); err != nil {
		return nil, errors.Join(err, in.report(err))
	}
	if err := in.report(nil); err != nil {
		return nil, err
	}
	return in, nil
}

// openLifeline takes over the lifeline and starts watching it, so that even a
// set-up that hangs ends with the outer process.
func openLifeline() (*Inside, error) {
	if os.Getpid() != 1 {
		return nil, errors.New("sandbox init: this process is not PID 1")
	}
	var st unix.Stat_t
	if err := unix.Fstat(lifelineFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("sandbox init: descriptor %d is not the connection to the outer process", lifelineFD)
	}
	unix.CloseOnExec(lifelineFD)
	if err := unix.SetNonblock(lifelineFD, true); err != nil {
		return nil, fmt.Errorf("sandbox init: opening the connection to the outer process: %w", err)
	}
	in := &Inside{
		lifeline: os.NewFile(lifelineFD, "lifeline"),
		starts:   make(chan startRequest),
		children: make(map[int]*Process),
		oomKills: OOMKills(),
		machines: make(map[uint64]*surroundings),
	}
	go func() {
		_, _ = io.Copy(io.Discard, in.lifeline) // returns at the outer process's end
		os.Exit(lifelineLost)
	}()
	return in, nil
}

func (in *Inside) report(err error) error {
	if err := newReport(err).send(in.lifeline); err != nil {
		return fmt.Errorf("sandbox init: reporting to the outer process: %w", err)
	}
	return nil
}

// setUp makes the sandbox's own mounts and starts the goroutines that live as
// long as the sandbox.
func (in *Inside) setUp() error {
	var err error
	if err = mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE); err != nil {
		return fmt.Errorf("sandbox init: making mounts private: %w", err)
	}
	if err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC); err != nil {
		return fmt.Errorf("sandbox init: %w", err)
	}
	if err := coverRun(); err != nil {
		return fmt.Errorf("sandbox init: covering /run: %w", err)
	}
	if err := coverSys(); err != nil {
		return fmt.Errorf("sandbox init: covering /sys: %w", err)
	}
	in.home = &surroundings{name: "the hub"}
	if err := in.home.open(); err != nil {
		return fmt.Errorf("sandbox init: %w", err)
	}
	if in.dir, err = os.Getwd(); err != nil {
		in.dir = "/"
	}

	childEnded := make(chan os.Signal, 1)
	signal.Notify(childEnded, unix.SIGCHLD)
	go in.reap(childEnded)
	go in.spawn()
	return nil
}

// coverRun gives the sandbox a /run/netns of its own. An ordinary user cannot
// create that directory, so a tmpfs covers all of /run, and its former content
// is bound back: a run directory, or even the programs of the system, may be
// below /run.
func coverRun() error {
	old, err := os.Open("/run")
	if err != nil {
		return err
	}
	defer old.Close()
	entries, err := old.ReadDir(-1)
	if err != nil {
		return err
	}
	if err := mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV); err != nil {
		return err
	}
	if err := os.Chmod("/run", 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == filepath.Base(NetNSDir) {
			continue
		}
		source := fmt.Sprintf("/proc/self/fd/%d/%s", old.Fd(), e.Name())
		target := filepath.Join("/run", e.Name())
		if err := bindBack(source, target, e.Type()); err != nil {
			// Entries that cannot be bound, such as mounts marked unbindable, or that
			// have gone meanwhile, are not visible in the sandbox.
			_ = os.Remove(target)
		}
	}
	return os.Mkdir(NetNSDir, 0o755)
}

func bindBack(source, target string, kind os.FileMode) error {
	switch {
	case kind.IsDir():
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
	case kind&os.ModeSymlink != 0:
		to, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return os.Symlink(to, target)
	default:
		if err := touch(target); err != nil {
			return err
		}
	}
	return mount(source, target, "", unix.MS_BIND|unix.MS_REC)
}

func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	return f.Close()
}

// BindNetNS gives the network namespace open at descriptor fd a name, under
// which ip netns exec, ip -n and tc -n find it inside the sandbox. The
// descriptor remains the caller's.
func (in *Inside) BindNetNS(name string, fd int) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("naming a network namespace: the name %q is invalid", name)
	}
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		return fmt.Errorf("naming the network namespace %s: descriptor %d is not a network namespace", name, fd)
	}
	target := filepath.Join(NetNSDir, name)
	if err := touch(target); err != nil {
		return fmt.Errorf("naming the network namespace %s: %w", name, err)
	}
	if err := mount(fmt.Sprintf("/proc/self/fd/%d", fd), target, "", unix.MS_BIND); err != nil {
		_ = os.Remove(target) // the mount's error is the one to report
		return fmt.Errorf("naming the network namespace %s: %w", name, err)
	}
	return nil
}

// A mountError is a mount that the kernel refused.
type mountError struct {
	source, target string
	err            error
}

func (e *mountError) Error() string {
	if e.source == "" {
		return fmt.Sprintf("changing the mount %s: %v", e.target, e.err)
	}
	return fmt.Sprintf("mounting %s on %s: %v", e.source, e.target, e.err)
}

func (e *mountError) Unwrap() error { return e.err }

func mount(source, target, fstype string, flags uintptr) error {
	if err := unix.Mount(source, target, fstype, flags, ""); err != nil {
		return &mountError{source, target, err}
	}
	return nil
}

// checkArg is the argument that makes a re-executed binary serve Check.
const checkArg = "sandbox-check"

// Check must work in any binary, even in one that does not call it, so its
// inner half runs here, before main.
func init() {
	if os.Getpid() != 1 || len(os.Args) != 2 || os.Args[0] != argv0 || os.Args[1] != checkArg {
		return
	}
	in, err := openLifeline()
	if err != nil {
		os.Exit(1)
	}
	err = in.setUp()
	if err == nil {
		err = in.tryBind()
	}
	if in.report(err) != nil || err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// tryBind makes and binds a network namespace, as a run does for every node.
func (in *Inside) tryBind() error {
	var err error
	thread.Do(func() {
		err = func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("making a network namespace: %w", err)
			}
			ns, err := os.Open(selfNetNS)
			if err != nil {
				return err
			}
			defer ns.Close()
			return in.BindNetNS("check", int(ns.Fd()))
		}()
	})
	return err
}
