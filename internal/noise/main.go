//go:build linux

// Noise takes a third of every processor away at irregular intervals, like the
// host of a virtual machine with overcommitted processors. A thread for each
// CPU is busy for about 10 ms at real-time priority, ahead of all other
// threads, and then sleeps for about 20. Tests that no busy machine can falsify
// must pass together with it:
//
//	go run ./internal/noise -for 15m & go test ./...
//
// Its share is far below the kernel's limit for real-time threads, 95 % of a
// second. It ends on SIGINT, on SIGTERM and with its parent.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const busy, idle = 10 * time.Millisecond, 20 * time.Millisecond // on average

func main() {
	length := flag.Duration("for", 24*time.Hour, "how long to load the processors")
	seed := flag.Uint64("seed", 1, "the seed of the random times of work and sleep")
	flag.Parse()
	var cpus unix.CPUSet
	check(unix.SchedGetaffinity(0, &cpus))
	check(unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
	runtime.GOMAXPROCS(cpus.Count() + 2) // each disturber keeps one while it sleeps, too
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	began, taken := time.Now(), new(atomic.Int64)
	for cpu, left := 0, cpus.Count(); left > 0; cpu++ {
		if cpus.IsSet(cpu) {
			left--
			go disturb(cpu, rand.New(rand.NewPCG(*seed, uint64(cpu))), taken)
		}
	}
	select {
	case <-ended:
	case <-time.After(*length):
	}
	share := float64(taken.Load()) / float64(time.Since(began)) / float64(cpus.Count())
	fmt.Fprintf(os.Stderr, "noise: took %.1f %% of %d CPUs for %v\n", 100*share, cpus.Count(), time.Since(began).Round(time.Second))
}

// disturb adds its busy nanoseconds to taken, and never returns. Its loop calls
// the kernel without the Go scheduler, which would take the thread's place away
// and return it through threads without priority.
func disturb(cpu int, random *rand.Rand, taken *atomic.Int64) {
	var lengths [1000][2]int64
	for i := range lengths { // uniformly, half to one and a half times the average
		lengths[i] = [2]int64{int64(idle/2) + random.Int64N(int64(idle)), int64(busy/2) + random.Int64N(int64(busy))}
	}
	runtime.LockOSThread()
	own := new(unix.CPUSet)
	own.Set(cpu)
	check(unix.SchedSetaffinity(0, own))
	check(unix.PthreadSigmask(unix.SIG_BLOCK, &unix.Sigset_t{Val: [16]uint64{1 << (unix.SIGURG - 1)}}, nil))
	check(unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 50}, 0))
	var now unix.Timespec // of this thread's processor time
	for i, done := 0, int64(0); ; i = (i + 1) % len(lengths) {
		sleep := unix.Timespec{Nsec: lengths[i][0]}
		unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&sleep)), 0, 0)
		for now.Nano()-done < lengths[i][1] {
			unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_THREAD_CPUTIME_ID, uintptr(unsafe.Pointer(&now)), 0)
		}
		taken.Add(now.Nano() - done)
		done = now.Nano()
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "noise: taking real-time priority: %v; run it as root, in a cgroup that has real-time runtime\n", err)
		os.Exit(1)
	}
}
