//go:build linux

package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"testbed/internal/testenv"
	"testbed/record"
)

// nfs is a directory as NFS has it: a file that is removed while somebody has it open
// gets another name in its folder, which then is not empty, until it is closed.
type nfs struct {
	root    *fs.LoopbackRoot
	noLocks bool

	mu      sync.Mutex
	open    map[uint64]int    // descriptors, by the number of the inode
	removed map[uint64]string // hidden files, by the number of the inode
	hidden  int               // files so far
}

// folder or file of an nfs.
type nfsNode struct {
	fs.LoopbackNode
	of *nfs
}

type nfsFile struct {
	fs.FileHandle
	of    *nfs
	inode uint64
}

// WrapChild has every node be one of an nfs.
func (n *nfsNode) WrapChild(context.Context, fs.InodeEmbedder) fs.InodeEmbedder {
	return &nfsNode{fs.LoopbackNode{RootData: n.RootData}, n.of}
}

func (n *nfsNode) path(name string) string {
	return filepath.Join(n.of.root.Path, n.Path(n.Root()), name)
}

func (n *nfsNode) opened(h fs.FileHandle, path string) (fs.FileHandle, syscall.Errno) {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return nil, fs.ToErrno(err)
	}
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	n.of.open[st.Ino]++
	return &nfsFile{h, n.of, st.Ino}, 0
}

func (n *nfsNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, f, errno := n.LoopbackNode.Open(ctx, flags)
	if errno != 0 {
		return h, f, errno
	}
	h, errno = n.opened(h, n.path(""))
	return h, f, errno
}

func (n *nfsNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, h, f, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return inode, h, f, errno
	}
	h, errno = n.opened(h, n.path(name))
	return inode, h, f, errno
}

func (n *nfsNode) Unlink(ctx context.Context, name string) syscall.Errno {
	var st syscall.Stat_t
	if err := syscall.Lstat(n.path(name), &st); err != nil {
		return fs.ToErrno(err)
	}
	n.of.mu.Lock()
	defer n.of.mu.Unlock()
	if n.of.open[st.Ino] == 0 {
		return n.LoopbackNode.Unlink(ctx, name)
	}
	n.of.hidden++
	hidden := n.path(fmt.Sprintf(".nfs%08d", n.of.hidden))
	n.of.removed[st.Ino] = hidden
	return fs.ToErrno(os.Rename(n.path(name), hidden))
}

func (f *nfsFile) Release(ctx context.Context) syscall.Errno {
	errno := f.FileHandle.(fs.FileReleaser).Release(ctx)
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.of.open[f.inode]--; f.of.open[f.inode] == 0 {
		delete(f.of.open, f.inode)
		if hidden, is := f.of.removed[f.inode]; is {
			delete(f.of.removed, f.inode)
			return fs.ToErrno(os.Remove(hidden))
		}
	}
	return errno
}

func (f *nfsFile) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	return f.FileHandle.(fs.FileReader).Read(ctx, dest, off)
}

func (f *nfsFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	return f.FileHandle.(fs.FileWriter).Write(ctx, data, off)
}

func (f *nfsFile) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	return f.FileHandle.(fs.FileFsyncer).Fsync(ctx, flags)
}

func (f *nfsFile) Flush(ctx context.Context) syscall.Errno {
	return f.FileHandle.(fs.FileFlusher).Flush(ctx)
}

func (f *nfsFile) Getattr(ctx context.Context, out *fuse.AttrOut) syscall.Errno {
	return f.FileHandle.(fs.FileGetattrer).Getattr(ctx, out)
}

func (f *nfsFile) Setattr(ctx context.Context, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	return f.FileHandle.(fs.FileSetattrer).Setattr(ctx, in, out)
}

// Setlk is flock's, too. Without locks it fails as on NFS whose lock manager is away.
func (f *nfsFile) Setlk(ctx context.Context, owner uint64, lk *fuse.FileLock, flags uint32) syscall.Errno {
	if f.of.noLocks {
		return syscall.ENOLCK
	}
	return f.FileHandle.(fs.FileSetlker).Setlk(ctx, owner, lk, flags)
}

// mountNFS mounts an nfs, and returns its path.
func mountNFS(t *testing.T, noLocks bool) string {
	t.Helper()
	behind, at := t.TempDir(), t.TempDir()
	var st syscall.Stat_t
	if err := syscall.Stat(behind, &st); err != nil {
		t.Fatal(err)
	}
	n := &nfs{noLocks: noLocks, open: map[uint64]int{}, removed: map[uint64]string{}}
	n.root = &fs.LoopbackRoot{Path: behind, Dev: uint64(st.Dev)}
	top := &nfsNode{fs.LoopbackNode{RootData: n.root}, n}
	n.root.RootNode = top
	short := 10 * time.Millisecond
	server, err := fs.Mount(at, top, &fs.Options{
		AttrTimeout: &short, EntryTimeout: &short,
		MountOptions: fuse.MountOptions{Name: "nfs", FsName: "nfs", DirectMountStrict: true, EnableLocks: true, AllowOther: os.Getuid() == 0},
	})
	if err != nil {
		testenv.Need(t, fmt.Errorf("no file system in user space can be mounted: %w; root and /dev/fuse can", err))
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return at
}

// TestTheStandIn: the file system does what NFS does, or the tests below say nothing.
func TestTheStandInForNFS(t *testing.T) {
	at := mountNFS(t, true)
	folder := filepath.Join(at, "folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(folder, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.ENOLCK {
		t.Errorf("flock: %v", err)
	}
	if err := os.RemoveAll(folder); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("removed with a file that is open: %v", err)
	}
	file.Close()
	for range 100 { // the kernel releases it somewhat later
		if err = os.RemoveAll(folder); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("with the file closed: %v", err)
}

// TestARunOnNFS ends as it does elsewhere, leaves nothing of what it kept for its
// resumption, and does not take a file system without locks for a run that goes on.
func TestARunOnNFS(t *testing.T) {
	needSandbox(t)
	for _, noLocks := range []bool{false, true} {
		at := mountNFS(t, noLocks)
		file := scenario(t, 3, "100mbit", "  min_slack: 20s\n  parameters: 10000\n  checkpoint_every: 1\n")
		lengthen(t, file, 3)
		dir := filepath.Join(at, "run")
		r := testbed(t, "run", file, "--policy", "baseline", "--out", dir, "--json")
		var sum record.Summary
		if err := json.Unmarshal([]byte(r.stdout), &sum); err != nil || !sum.Complete || r.code != 0 && r.code != exitInvalid { // on a disturbed machine
			t.Fatalf("no locks %v: exit code %d, %v\n%s\n%s", noLocks, r.code, err, r.stdout, r.stderr)
		}
		if _, err := os.Stat(filepath.Join(dir, "resume")); err == nil {
			t.Errorf("no locks %v: what a killed run needs is left behind\n%s", noLocks, r.stderr)
		}
		if r := testbed(t, "report", dir); r.code != 0 {
			t.Errorf("no locks %v: report: exit code %d, %s", noLocks, r.code, r.stderr)
		}
	}
}
