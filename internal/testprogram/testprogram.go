//go:build linux

// Package testprogram is a user's own trainer for tests: its steps depend on
// everything that they may depend on, and it misbehaves as requested.
package testprogram

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"testbed/train/program/client"
	"testbed/train/program/wire"
)

// Main is the program. Its last argument determines its behaviour: "well", or
// "WHAT at PLACE", for one worker "WHAT at PLACE of 1"; or "computes
// MILLISECONDS". With "again, " before that it trains for one run after
// another.
func Main() {
	if err := trains(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(0)
}

// trains takes steps that depend on the outer parameters, the worker, the step, and
// a momentum that is its state.
func trains(how string) error {
	if how, again := strings.CutPrefix(how, "again, "); again {
		for run, err := range client.Runs() {
			if err == nil {
				err = trainsFor(run, how)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	run, err := client.Join()
	if err != nil {
		return err
	}
	return trainsFor(run, how)
}

func trainsFor(run *client.Run, how string) error {
	initial := []float32{1, 2, 3, 4, 5}
	if strings.HasPrefix(how, "another size") && run.Worker == 1 {
		initial = append(initial, 6)
	}
	if how == "NaN at once" {
		initial[3] = float32(math.NaN())
	}
	if how == "a size of its own" {
		initial = make([]float32, run.Seed)
	}
	if how != "no loss" {
		run.Validate = func(p []float32) float64 {
			misbehave(how, "validation")
			return float64(p[0])
		}
	}
	if n, is := strings.CutPrefix(how, "copies "); is {
		return copies(run, n)
	}
	if n, is := strings.CutPrefix(how, "computes "); is {
		return computes(run, n)
	}
	how, of, is := strings.Cut(how, " of ")
	if is && of != strconv.Itoa(run.Worker) {
		how = "well"
	}
	misbehave(how, "start")
	run.Init(initial)
	momentum := float32(0)
	for r := range run.Rounds() {
		if r.Restored {
			momentum = 0
			if r.State != nil {
				momentum = math.Float32frombits(binary.LittleEndian.Uint32(r.State))
			}
		}
		for step := range r.Steps() {
			misbehave(how, fmt.Sprintf("step %d", step))
			misbehave(how, fmt.Sprintf("round %d", r.Number))
			momentum = momentum/2 + float32(run.Worker+step)
			for i := range r.Params {
				r.Params[i] -= r.Params[i] / 8 * momentum
			}
			r.Done(float64(momentum))
		}
		r.State = binary.LittleEndian.AppendUint32(nil, math.Float32bits(momentum))
		if how == "NaN" && r.Number == 2 {
			r.Params[3] = float32(math.NaN())
		}
		misbehave(how, fmt.Sprintf("end %d", r.Number))
	}
	return run.Err()
}

// copies is for benchmarks: it computes nothing, with so many parameters.
func copies(run *client.Run, parameters string) error {
	n, err := strconv.Atoi(parameters)
	if err != nil {
		return err
	}
	model := make([]float32, n)
	run.Init(model)
	for r := range run.Rounds() {
		copy(model, r.Params)
		for range r.Steps() {
			r.Done(1)
		}
		r.Params = model
	}
	return run.Err()
}

// computes takes steps of so many milliseconds of processor time each.
func computes(run *client.Run, milliseconds string) error {
	n, err := strconv.Atoi(milliseconds)
	if err != nil {
		return err
	}
	runtime.LockOSThread() // its processor time counts
	used := func() time.Duration {
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now) // the clock exists
		return time.Duration(now.Nano())
	}
	run.Init([]float32{1, 2, 3, 4, 5})
	for r := range run.Rounds() {
		for range r.Steps() {
			for began := used(); used()-began < time.Duration(n)*time.Millisecond; {
			}
			r.Done(1)
		}
	}
	return run.Err()
}

// misbehave misbehaves as how demands, if it names this place: "WHAT at PLACE".
func misbehave(how, place string) {
	what, at, _ := strings.Cut(how, " at ")
	if at != place {
		return
	}
	fmt.Fprintln(os.Stderr, "now I", what)
	fd, _ := strconv.Atoi(os.Getenv(wire.EnvSocket))
	switch say, is := strings.CutPrefix(what, "say "); {
	case is:
		_, _ = syscall.Write(fd, []byte(say))
	case what == "crash":
		os.Exit(7)
	case what == "end":
		os.Exit(0)
	case what == "are killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case what == "fall silent":
		time.Sleep(time.Hour)
	case what == "hang up":
		syscall.Close(fd)
	case what == "flood":
		for {
			if _, err := syscall.Write(fd, []byte(`{"type":"done","loss":1}`)); err != nil {
				time.Sleep(time.Hour)
			}
		}
	}
	time.Sleep(100 * time.Millisecond) // the other side sees it first
}
