package userlink

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Board is memory in which a router shows the loads of its links to another
// process. Frequent looks cost the router nothing.
type Board struct {
	loads []boardLoad // up and down of each node
	mem   []byte
}

type boardLoad struct{ bytes, waiting atomic.Uint64 }

// NewBoard returns a board for that many nodes, and its file, for OpenBoard in
// the router's process.
func NewBoard(nodes int) (*Board, *os.File, error) {
	wrap := func(err error) error { return fmt.Errorf("making memory to share with the router: %w", err) }
	fd, err := unix.MemfdCreate("loads", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, wrap(os.NewSyscallError("memfd_create", err))
	}
	file := os.NewFile(uintptr(fd), "loads")
	if err := file.Truncate(int64(boardSize(nodes))); err != nil {
		file.Close()
		return nil, nil, wrap(err)
	}
	b, err := OpenBoard(file, nodes)
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return b, file, nil
}

// OpenBoard returns the board in the file. The file may be closed afterwards.
func OpenBoard(file *os.File, nodes int) (*Board, error) {
	mem, err := unix.Mmap(int(file.Fd()), 0, boardSize(nodes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("sharing memory with the router: %w", os.NewSyscallError("mmap", err))
	}
	return &Board{mem: mem, loads: unsafe.Slice((*boardLoad)(unsafe.Pointer(&mem[0])), 2*nodes)}, nil
}

func boardSize(nodes int) int { return 2 * nodes * int(unsafe.Sizeof(boardLoad{})) }

// Close releases the memory.
func (b *Board) Close() error { return unix.Munmap(b.mem) }

// Load is the state of a node's access link, a moment ago.
func (b *Board) Load(node int) (up, down Load) {
	return b.loads[2*node].get(), b.loads[2*node+1].get()
}

func (b *Board) show(node int, up, down Load) {
	b.loads[2*node].set(up)
	b.loads[2*node+1].set(down)
}

func (l *boardLoad) get() Load { return Load{l.bytes.Load(), l.waiting.Load()} }

func (l *boardLoad) set(to Load) {
	l.bytes.Store(to.Bytes)
	l.waiting.Store(to.Waiting)
}
