package userlink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/internal/thread"
	"testbed/shaping"
	"testbed/shaping/packetring"
	"testbed/shaping/tunnel"
)

// Router carries frames between the hub's ends of the nodes' interfaces, over
// the links of a plan, by destination MAC alone. It belongs in a process of its
// own: its thread must not wait for a busy Go scheduler.
type Router struct {
	ring    *packetring.Ring
	sender  *sender
	timer   int // timerfd, armed for the next due packet
	stop    int // eventfd
	all     int // epoll of the ring and the two above
	blind   int // epoll of those two only
	ahead   time.Duration
	clock   clock
	emptied time.Duration // when the ring was last found empty
	names   []string      // of the nodes
	ends    []int
	byMAC   map[shaping.MAC]int
	byIndex map[int]int
	htb     bool          // rates are the kernel's
	board   *Board        // nil for none
	raise   func(tid int) // nil for none
	remote  *remote       // nil if all nodes are on this host

	mu    sync.Mutex // held while packets are handled, never while waiting; guards ahead too
	links *Links[*buffer]
	free  []*buffer
	armed time.Duration
	shown time.Duration // when the board was last written
	stats Stats
	late  histogram // of all packets
	since histogram // of packets since the last call of Stats
	tid   int
}

const (
	// batch limits the work between two looks at the clock.
	batch = 64
	// maxCapacity limits the queue, in packets: 200 MB.
	maxCapacity = 1 << 17
	// spareProcs is the least GOMAXPROCS while a router runs. A thread that comes
	// back from waiting needs a P of the Go scheduler. It must never find them all
	// held by threads that the kernel has preempted: those have no priority, and
	// such a wait took 80 ms.
	spareProcs = 16
	// minGap is the least time between two wake-ups. A wake-up costs more than
	// carrying a packet. Under load this halves the router's work, and adds at
	// most this lateness.
	minGap = 100 * time.Microsecond
	// maxAhead limits lookAhead, so that the ring never fills unseen.
	maxAhead = 500 * time.Microsecond
	// boardGap is the least time between two updates of the board.
	boardGap = 500 * time.Microsecond
)

// Options are the settings beyond the plan.
type Options struct {
	// HTB reports that the kernel enforces rates and queues: the router's links
	// have none.
	HTB bool
	// Board, if set, receives the loads of the links.
	Board *Board
	// Tunnel, if set, leads to other hosts with nodes of the plan. Hosts has the
	// host of each node, and Self is this host. Run calls Opened when the tunnel
	// has proved fast enough. Nothing may be sent before.
	Tunnel *tunnel.Tunnel
	Hosts  []int
	Self   int
	Opened func()
	// Raise, if set, asks another process to give a thread priority, if this
	// process may not.
	Raise func(tid int)
}

// Open prepares a router in the network namespace of the calling thread, which
// must hold an interface named like each node of the plan that is on this host.
// Frames are received from now on, and carried once Run is called.
func Open(plan *shaping.Plan, o Options) (r *Router, err error) {
	r = &Router{
		timer: -1, stop: -1, all: -1, blind: -1, clock: newClock(),
		byMAC: make(map[shaping.MAC]int), byIndex: make(map[int]int), htb: o.HTB, board: o.Board, raise: o.Raise,
	}
	for _, n := range plan.Nodes {
		r.names = append(r.names, n.Name)
	}
	r.links = NewLinks[*buffer](r.shaped(plan), capacity(plan))
	r.links.Drop, r.links.Corrupt, r.links.Clone = r.drop, (*buffer).corrupt, r.clone
	if o.Tunnel != nil {
		r.openRemote(plan, o)
	}
	r.ahead = r.lookAhead(plan)
	defer func() {
		if err != nil {
			r.Close()
			r, err = nil, fmt.Errorf("opening the link router: %w", err)
		}
	}()
	if r.sender, err = openSender(plan, o.HTB); err != nil {
		return r, err
	}
	for i, node := range plan.Nodes {
		r.byMAC[node.MAC] = i
		r.ends = append(r.ends, 0)
		if r.remote.has(i) {
			continue
		}
		if r.ends[i], err = interfaceIndex(r.sender.fds[0], node.Name); err != nil {
			return r, err
		}
		r.byIndex[r.ends[i]] = i
	}
	if r.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK); err != nil {
		return r, os.NewSyscallError("timerfd_create", err)
	}
	if r.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return r, os.NewSyscallError("eventfd", err)
	}
	if r.ring, err = packetring.Open(false); err != nil {
		return r, err
	}
	wake := []unix.EpollEvent{
		{Fd: int32(r.stop), Events: unix.EPOLLIN},
		{Fd: int32(r.timer), Events: unix.EPOLLIN | unix.EPOLLET}, // never read
	}
	if r.blind, err = newEpoll(wake); err != nil {
		return r, err
	}
	wake = append(wake, unix.EpollEvent{Fd: int32(r.ring.FD()), Events: unix.EPOLLIN})
	if r.remote != nil {
		wake = append(wake, unix.EpollEvent{Fd: int32(o.Tunnel.FD()), Events: unix.EPOLLIN})
	}
	if r.all, err = newEpoll(wake); err != nil {
		return r, err
	}
	return r, nil
}

func newEpoll(events []unix.EpollEvent) (int, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("epoll_create1", err)
	}
	for _, e := range events {
		if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, int(e.Fd), &e); err != nil {
			unix.Close(fd)
			return -1, os.NewSyscallError("epoll_ctl", err)
		}
	}
	return fd, nil
}

// lookAhead is how long frames may lie in the ring while others come: they are
// stamped on arrival, and none is due before its path's delay is over.
func (r *Router) lookAhead(plan *shaping.Plan) time.Duration {
	ahead, looks := maxAhead, time.Duration(2)
	if r.remote != nil {
		looks = 4 // they wait at both ends, and between hosts they are under way
	}
	for i, row := range plan.Paths {
		for j, p := range row {
			switch {
			case i == j:
			case p.Reorder > 0:
				return 0 // overtaking packets are sent at once
			default:
				ahead = min(ahead, time.Duration(p.Fastest())/looks)
			}
		}
	}
	if ahead < minGap {
		return 0
	}
	return ahead
}

func interfaceIndex(fd int, name string) (int, error) {
	req, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req)
	}
	if err != nil {
		return 0, fmt.Errorf("finding the hub's end of node %s: %w", name, err)
	}
	return int(req.Uint32()), nil
}

// capacity is the most packets that the plan allows under way, doubled because
// not all are full frames, within maxCapacity.
func capacity(plan *shaping.Plan) int {
	const unlimited = 10e9
	total := 4096.0
	for i, node := range plan.Nodes {
		rate := float64(node.RateUp)
		if rate == 0 {
			rate = unlimited
		}
		var longest shaping.Duration
		for _, p := range plan.Paths[i] {
			longest = max(longest, p.Slowest())
		}
		total += 2 * rate / 8 * float64(longest) / 1e9 / shaping.FrameSize
	}
	return int(min(total, maxCapacity))
}

// Change gives the router another plan for the same nodes. It may be called at
// any time, even while Run runs, and takes effect for the next packet. Packets
// under way keep their due times, except on a path that is cut: they count as
// Lost. Packets that wait for a rate stay in its queue. Those in the queue of
// the receiver's rate_down have crossed the path and arrive. The plan must not
// be changed afterwards.
func (r *Router) Change(plan *shaping.Plan) error {
	if len(plan.Nodes) != len(r.ends) {
		return fmt.Errorf("changing the router's paths: the new plan has %d nodes, but the router has %d", len(plan.Nodes), len(r.ends))
	}
	for i, node := range plan.Nodes {
		if k, ok := r.byMAC[node.MAC]; !ok || k != i {
			return fmt.Errorf("changing the router's paths: node %d of the new plan, %s %v, differs from that node of the router", i, node.Name, node.MAC)
		}
	}
	if r.htb {
		if err := r.sender.reserve(plan); err != nil {
			return fmt.Errorf("changing the router's paths: %w", err)
		}
	}
	ahead, limit := r.lookAhead(plan), capacity(plan) // before the lock: both visit every pair
	shaped := r.shaped(plan)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ahead = ahead
	r.links.Change(shaped, limit)
	return nil
}

// Pace changes the rates of a node of the plan from the next packet on; zero
// means unlimited. It may be called at any time, even while Run runs.
func (r *Router) Pace(node int, up, down shaping.Rate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.htb {
		r.links.Pace(node, up, down)
	}
}

// shaped is the part of a plan that the router's own links carry out.
func (r *Router) shaped(plan *shaping.Plan) *shaping.Plan {
	if !r.htb {
		return plan
	}
	p := *plan
	p.Nodes = slices.Clone(plan.Nodes)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		n.RateUp, n.RateDown, n.PaceUp, n.PaceDown = 0, 0, 0, 0
	}
	return &p
}

// Close releases the router's sockets. Run must have returned.
func (r *Router) Close() error {
	if r.remote != nil {
		_ = r.remote.tunnel.Close() // its frames are lost, whatever the result
	}
	if r.ring != nil {
		r.ring.Close()
	}
	if r.sender != nil {
		r.sender.close()
	}
	for _, fd := range []int{r.timer, r.stop, r.all, r.blind} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	return nil
}

// Run carries packets until ctx is done, and then returns nil. Packets still
// under way are lost. It may be called once. It raises GOMAXPROCS if that is
// below 16, and its thread's priority if allowed.
func (r *Router) Run(ctx context.Context) error {
	runtime.LockOSThread() // never unlocked: the thread keeps its priority
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), spareProcs))
	stopped := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(stopped)
		_, _ = unix.Write(r.stop, []byte{7: 1}) // can fail only if readable already
	})
	defer func() {
		if !cancel() {
			<-stopped
		}
	}()
	r.mu.Lock()
	r.tid = unix.Gettid()
	if r.stats.NoPriority = !raisePriority(); r.stats.NoPriority && r.raise != nil {
		r.raise(r.tid) // Stats checks whether it was granted
	}
	r.mu.Unlock()

	events := make([]unix.EpollEvent, 4)
	for ctx.Err() == nil {
		r.mu.Lock()
		poll, err := r.work()
		r.mu.Unlock()
		if err != nil {
			return fmt.Errorf("routing: %w", err)
		}
		n, err := unix.EpollWait(poll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("routing: %w", os.NewSyscallError("epoll_wait", err))
		}
		for _, e := range events[:max(n, 0)] {
			if int(e.Fd) == r.timer {
				r.armed = 0 // it has fired, and wakes nobody again
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look()
	r.tid = 0
	return nil
}

// look records the kernel's statistics of the router's thread.
func (r *Router) look() {
	r.stats.CPU = threadCPU(r.tid)
	r.stats.NoPriority = r.stats.NoPriority && !hasPriority(r.tid)
}

// MayPrioritise reports whether a router of this process gets priority over
// other programs, by itself or from raise (Options.Raise).
func MayPrioritise(raise func(tid int)) bool {
	const tries, pause = 30, 10 * time.Millisecond
	var may bool
	thread.Do(func() {
		tid := unix.Gettid()
		if may = raisePriority(); may {
			return
		}
		raise(tid)
		for try := 0; try < tries && !may; try++ {
			time.Sleep(pause)
			may = hasPriority(tid)
		}
	})
	return may
}

// hasPriority reports whether a thread has priority over other programs.
func hasPriority(tid int) bool {
	a, err := unix.SchedGetAttr(tid, 0)
	return err == nil && (a.Policy == unix.SCHED_RR || a.Nice == leastNice)
}

// leastNice is the highest priority of a thread without real-time priority.
const leastNice = -20

// raisePriority gives the thread priority over the programs that the router
// serves, because a late packet is an error of the emulation. An ordinary user
// may do so if limits allow it (RLIMIT_RTPRIO, RLIMIT_NICE). On a single CPU
// real-time priority would do harm: a thread that spins for the Go runtime's
// locks keeps out the one that holds them.
func raisePriority() (raised bool) {
	if runtime.NumCPU() > 1 {
		rr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}
		if unix.SchedSetAttr(0, &rr, 0) == nil {
			return true
		}
	}
	raised = unix.Setpriority(unix.PRIO_PROCESS, 0, leastNice) == nil
	// Among several sessions the thread's own nice value does not count (sched(7),
	// the autogroup feature).
	_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0)
	return raised
}

// work receives and sends all available frames, sets the timer, and returns
// what to wait for.
func (r *Router) work() (poll int, err error) {
	busy := false
	for {
		wall := time.Now()
		now := r.clock.at(wall)
		taken, sent := r.takeIn(now, wall), r.sendDue(now)
		some, more, err := r.exchange(now, wall)
		if err != nil {
			return r.all, err
		}
		busy = busy || taken > 0 || some
		if taken == batch || sent == batch || more {
			continue
		}
		due, ok := r.links.Next(r.ahead)
		due, ok = r.remote.next(due, ok)
		r.show(now, ok && due < now+boardGap)
		if busy && r.ahead > 0 {
			// More frames will come soon: let them accumulate.
			if !ok || due > now+r.ahead {
				due = now + r.ahead
			}
			return r.blind, r.arm(max(due, now+minGap))
		}
		if !ok {
			return r.all, nil
		}
		return r.all, r.arm(max(due, now+minGap))
	}
}

func (r *Router) sendDue(now time.Duration) (sent int) {
	for ; sent < batch; sent++ {
		b, to, due, ok := r.links.Pop(now)
		if !ok {
			break
		}
		r.send(b, to)
		r.late.add(now - due)
		r.since.add(now - due)
		r.free = append(r.free, b)
	}
	return sent
}

func (r *Router) takeIn(now time.Duration, wall time.Time) (taken int) {
	for ; taken < batch; taken++ {
		f, ok := r.ring.Read()
		if !ok {
			break
		}
		// The kernel's stamp is the arrival, so that time spent in the ring is part
		// of the delay.
		r.push(now-packetring.Waited(wall, f.At, now-r.emptied), f)
		r.ring.Release()
	}
	if taken < batch {
		r.emptied = now
	}
	return taken
}

func (r *Router) push(at time.Duration, f packetring.Frame) {
	if len(f.Data) < vnetHeader+etherHeader {
		r.stats.Unknown++
		return
	}
	from, okFrom := r.byIndex[f.Interface]
	to, okTo := r.byMAC[shaping.MAC(f.Data[vnetHeader:])]
	switch {
	case !okFrom || !okTo || from == to:
		r.stats.Unknown++
		return
	case f.Length > shaping.FrameSize || len(f.Data) != vnetHeader+f.Length:
		r.stats.Oversize++
		return
	}
	b := r.newBuffer()
	b.n = copy(b.data[:], f.Data)
	r.links.Push(at, from, to, f.Length, b)
	r.stats.MaxQueued = max(r.stats.MaxQueued, r.links.Len())
}

// drop counts a packet that the links dropped.
func (r *Router) drop(b *buffer, fate Fate) {
	switch fate {
	case Lost:
		r.stats.Lost++
	case Overflow:
		r.stats.Overflow++
	case QueueFull:
		r.stats.QueueFull++
	}
	r.free = append(r.free, b)
}

// show writes the loads on the board, unless it was written a moment ago and
// will be again soon.
func (r *Router) show(now time.Duration, soon bool) {
	if r.board == nil || soon && now < r.shown+boardGap {
		return
	}
	r.shown = now
	for i := range r.ends {
		up, down := r.links.Load(i)
		r.board.show(i, up, down)
	}
}

func (r *Router) newBuffer() *buffer {
	if len(r.free) == 0 {
		slab := make([]buffer, batch)
		for i := range slab {
			r.free = append(r.free, &slab[i])
		}
	}
	b := r.free[len(r.free)-1]
	r.free = r.free[:len(r.free)-1]
	return b
}

func (r *Router) clone(b *buffer) *buffer {
	twin := r.newBuffer()
	twin.n = copy(twin.data[:], b.data[:b.n])
	return twin
}

func (r *Router) send(b *buffer, to int) {
	switch r.sender.send(r.ends[to], b.data[:b.n]) {
	case 0:
		r.stats.Packets++
		r.stats.Bytes += uint64(b.n - vnetHeader)
	case unix.ENOBUFS:
		r.stats.QueueFull++
	default:
		r.stats.SendDrops++
	}
}

// arm sets the timer, unless it is already set to that time.
func (r *Router) arm(at time.Duration) error {
	if at == r.armed {
		return nil
	}
	r.armed = at
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
	_, _, errno := unix.RawSyscall6(unix.SYS_TIMERFD_SETTIME, uintptr(r.timer), unix.TFD_TIMER_ABSTIME, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("timerfd_settime", errno)
	}
	return nil
}

// Stats returns the counts so far, and restarts the counts called recent. It
// may be called at any time, even while Run runs.
func (r *Router) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.SocketDrops += r.ring.Drops()
	r.stats.Lateness, r.stats.Recent = r.late.lateness(), r.since.lateness()
	r.since = histogram{}
	if r.tid != 0 {
		r.look()
	}
	s := r.stats
	for i, name := range r.names {
		if d := r.links.Dropped(i); d != (Dropped{}) {
			s.Drops = append(s.Drops, NodeDrops{Node: name, Up: d.Up, Down: d.Down, Path: d.Path})
		}
	}
	r.remote.count(&s)
	return s
}

// clock converts times of this process to CLOCK_MONOTONIC, the clock of the
// timerfd, without a system call.
type clock struct {
	start  time.Time
	offset time.Duration
}

// newClock compares the two clocks until the thread is not preempted in
// between. The remaining error puts this clock ahead of the timerfd's, never
// behind it: a packet is due when the timer fires for it.
func newClock() (c clock) {
	shortest := time.Duration(math.MaxInt64)
	for range 16 {
		var ts unix.Timespec
		start := time.Now()
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail
		if took := time.Since(start); took < shortest {
			shortest, c = took, clock{start, time.Duration(ts.Nano())}
		}
	}
	return c
}

func (c clock) at(t time.Time) time.Duration { return c.offset + t.Sub(c.start) }

// threadCPU is the CPU time of a thread of this process.
func threadCPU(tid int) time.Duration {
	clock := int32(^tid<<3 | 6) // per thread, as the scheduler counts it
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
