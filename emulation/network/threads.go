package network

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"testbed/internal/quota"
)

// WorkerEnv gives each worker a single thread for Go code if there are no more
// CPUs than workers. With more threads, their schedulers take turns looking for
// work that another process's thread is about to do. That took 40 % of the
// processor time of four rings on two CPUs.
func WorkerEnv(workers int) []string {
	if workers >= quota.Read().Processors(runtime.NumCPU()) {
		return []string{"GOMAXPROCS=1"}
	}
	return nil
}

// monitorSlack is the allowed lateness of the monitor thread's wake-ups, in
// nanoseconds.
const monitorSlack = 1_000_000

// slowMonitor makes the monitor thread of this process's Go runtime sleep
// longer if the process has a single thread for Go code. The monitor wakes
// every 20 µs while that thread works. It takes the processor from a thread
// whose system call lasts as long, such as sending a train of packets. That
// cost a tenth of the processor time of four rings on two CPUs. It still
// interrupts goroutines that run for more than 10 ms.
func slowMonitor() error {
	if runtime.GOMAXPROCS(0) > 1 {
		return nil
	}
	id, err := monitorThread()
	if err != nil {
		return fmt.Errorf("looking for the Go runtime's monitor thread: %w", err)
	}
	// Of another thread: proc_pid_timerslack_ns(5).
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", id), strconv.AppendInt(nil, monitorSlack, 10), 0); err != nil {
		return fmt.Errorf("setting the timer slack of the Go runtime's monitor thread: %w", err)
	}
	return nil
}

// monitorThread is the thread that the runtime starts before all others except
// the first. It has the least number, unless numbers have wrapped around: then
// a wrong thread has timers that are a little late.
func monitorThread() (int, error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, err
	}
	least := 0
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err == nil && id != os.Getpid() && (least == 0 || id < least) {
			least = id
		}
	}
	if least == 0 {
		return 0, errors.New("/proc/self/task lists only the main thread")
	}
	return least, nil
}
