package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/allreduce"
	"testbed/allreduce/quicring"
)

// WorkerConfig is the configuration of a worker of the benchmark.
type WorkerConfig struct {
	Settings Settings
	Rank     int
	Peers    []quicring.Peer // by rank
	// ShortPaths is as in quicring.Config.
	ShortPaths bool
	Conn       net.PacketConn // the worker closes it
	TLS        *tls.Config
	Log        *slog.Logger
	// Interface is the network interface whose bytes are counted.
	Interface string
	// Timeout limits a reduction. Patience is as in quicring.Config.
	Timeout, Patience time.Duration
	// Orders are the worker's orders; it ends when they are closed.
	Orders <-chan Order
	Report func(Report)
}

// Order is the next order to a worker.
type Order struct {
	// Reduce takes part in reduction Epoch, which begins at Start, on
	// CLOCK_MONOTONIC. Without it the worker checks its last result.
	Reduce bool          `json:"reduce,omitempty"`
	Epoch  uint64        `json:"epoch,omitempty"`
	Start  time.Duration `json:"start_ns,omitempty"`
	// Ring has the ranks in the ring's order; nil is the naive one.
	Ring []int `json:"ring,omitempty"`
}

// Report is a worker's report.
type Report struct {
	Ready   bool     `json:"ready,omitempty"`   // it is ready for orders
	Reduced *Reduced `json:"reduced,omitempty"` // the answer to Reduce
	Checked *Checked `json:"checked,omitempty"` // the answer to an order to check
}

// RunWorker runs one rank of the benchmark until its orders end.
func RunWorker(ctx context.Context, cfg WorkerConfig) error {
	// Input and output count as live, so that by default as much garbage would
	// accumulate. They hold no pointers, so collecting costs next to nothing.
	debug.SetGCPercent(20)
	s := &cfg.Settings
	algorithm, err := s.algorithm()
	if err != nil {
		return err
	}
	w := &worker{WorkerConfig: cfg, algorithm: algorithm, data: make([]float32, s.Elements), out: make([]float32, s.Elements)}
	s.Data.Fill(w.data, s.Seed, cfg.Rank, 0)
	w.spoil()
	w.exact, w.shard = s.exactShard(cfg.Rank)
	w.sum, w.mean = make([]float64, len(w.exact)), make([]float32, len(w.exact))
	if s.ErrorFeedback && !s.Format().Exact() {
		w.residual = make([]float32, s.Elements)
	}
	// The kernel provides memory at the first write. Otherwise these vectors would
	// count as memory of the reductions.
	clear(w.sum)
	clear(w.mean)
	clear(w.residual)
	debug.FreeOSMemory()
	w.resident, _ = statusBytes("VmRSS")
	ring, err := quicring.Listen(quicring.Config{
		Conn: cfg.Conn, TLS: cfg.TLS, Logger: cfg.Log, Format: s.Format(), Connections: s.Connections,
		Entropy: s.Entropy, ShortPaths: cfg.ShortPaths, Patience: cfg.Patience,
	})
	if err != nil {
		return err
	}
	defer ring.Close()
	w.ring = ring
	cfg.Report(Report{Ready: true})
	for order := range cfg.Orders {
		if !order.Reduce {
			c, err := w.check()
			if err != nil {
				return err
			}
			cfg.Report(Report{Checked: &c})
			continue
		}
		r, err := w.reduce(ctx, order)
		if err != nil {
			return err
		}
		cfg.Report(Report{Reduced: &r})
	}
	return nil
}

type worker struct {
	WorkerConfig
	algorithm allreduce.Algorithm
	ring      *quicring.Endpoint
	data, out []float32
	exact     []float64 // of the shard that begins at shard
	shard     int
	residual  []float32 // with error feedback
	sum       []float64 // of all results, in the shard
	mean      []float32 // of them
	results   int
	resident  int64 // bytes, with the vectors alone
	measured  bool  // the peak is the last reduction's
	cpu       time.Duration
	wire      int64
}

func (w *worker) reduce(ctx context.Context, order Order) (Reduced, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.Timeout, fmt.Errorf("the reduction took longer than its timeout of %v", w.Timeout))
	defer cancel()
	w.measured = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) == nil // resets the peak (proc(5))
	w.cpu, w.wire = processCPU(), sentBytes(w.Interface)
	if err := sleepUntil(order.Start); err != nil {
		return Reduced{}, err
	}
	began := Monotonic() - order.Start
	op := quicring.Op{
		Epoch: order.Epoch, Rank: w.Rank, Peers: w.Peers,
		Algorithm: w.algorithm, Groups: w.Settings.GroupNumbers(), Residual: w.residual,
	}
	if order.Ring != nil { // which has no groups
		op.Rank, op.Peers = slices.Index(order.Ring, w.Rank), nil
		for _, rank := range order.Ring {
			op.Peers = append(op.Peers, w.Peers[rank])
		}
	}
	r, err := w.ring.Reduce(ctx, op, w.data, w.out)
	if err != nil {
		return Reduced{}, err
	}
	return Reduced{Began: began, ReduceScatter: began + r.ReduceScatter, Total: Monotonic() - order.Start, FrameBytes: r.BytesSent, Connections: r.Connections, Coded: r.Coded}, nil
}

// check compares the result and then overwrites it, so that the next result
// cannot be this one.
func (w *worker) check() (Checked, error) {
	c := Checked{CPU: processCPU() - w.cpu, WireBytes: sentBytes(w.Interface) - w.wire, Memory: -1}
	if peak, err := statusBytes("VmHWM"); err == nil && w.measured {
		c.Memory = max(peak-w.resident, 0)
	}
	sum := sha256.Sum256(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w.out))), floatBytes*len(w.out)))
	c.Hash = hex.EncodeToString(sum[:8])
	c.Squares = compare(w.out[w.shard:], w.exact)
	if d := c.Squares.Error; math.IsNaN(d) || math.IsInf(d, 0) {
		return Checked{}, errors.New("the result contains values that are not finite")
	}
	w.results++
	for i := range w.sum {
		w.sum[i] += float64(w.out[w.shard+i])
		w.mean[i] = float32(w.sum[i] / float64(w.results))
	}
	c.Averaged = compare(w.mean, w.exact)
	if w.residual != nil {
		w.Settings.Data.Fill(w.data, w.Settings.Seed, w.Rank, 0)
		for i, lost := range w.residual {
			w.data[i] += lost
		}
	}
	w.spoil()
	runtime.GC() // no reduction pays for the one before, or is charged for its memory
	return c, nil
}

func (w *worker) spoil() {
	for i := range w.out {
		w.out[i] = float32(math.NaN())
	}
}

// Monotonic reads CLOCK_MONOTONIC, which all processes of a machine share.
func Monotonic() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
	return time.Duration(ts.Nano())
}

// sleepUntil sleeps in the kernel: a timer of Go may be a millisecond late.
func sleepUntil(at time.Duration) error {
	ts := unix.NsecToTimespec(int64(at))
	for {
		err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil)
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("clock_nanosleep", err)
		}
	}
}

// processCPU is the CPU time of this process so far.
func processCPU() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// statusBytes reads a size from /proc/self/status (proc_pid_status(5)).
func statusBytes(field string) (int64, error) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(data, []byte("\n"+field+":"))
	line, _, _ := strings.Cut(string(rest), "\n")
	kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 10, 64)
	return kib << 10, err
}

// sentBytes is the number of bytes that have left an interface of this
// process's network namespace, or 0 if there is no such interface.
func sentBytes(name string) int64 {
	f, err := os.Open("/proc/self/net/dev")
	if err != nil {
		return 0
	}
	defer f.Close()
	const sent = 8 // after eight fields about received traffic
	for in := bufio.NewScanner(f); in.Scan(); {
		device, counts, _ := strings.Cut(in.Text(), ":")
		fields := strings.Fields(counts)
		if strings.TrimSpace(device) != name || len(fields) <= sent {
			continue
		}
		n, _ := strconv.ParseInt(fields[sent], 10, 64)
		return n
	}
	return 0
}
