//go:build linux

package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/allreduce/bench"
	"testbed/internal/testenv"
)

// benchRing runs the benchmark and returns its result, which must be valid.
func benchRing(t *testing.T, args ...string) (bench.Ring, string) {
	t.Helper()
	return benchRingIn(t, nil, args...)
}

// benchRingIn is benchRing with variables of the environment.
func benchRingIn(t *testing.T, env []string, args ...string) (bench.Ring, string) {
	t.Helper()
	r := call(t, env, append([]string{program, "bench", "ring", "--json", "--elements", "100000", "--repeat", "2"}, args...)...)
	var ring bench.Ring
	in := json.NewDecoder(strings.NewReader(r.stdout))
	in.DisallowUnknownFields()
	if err := in.Decode(&ring); err != nil || r.code != 0 {
		t.Fatalf("exit code %d, stdout: %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	if len(ring.Seconds) != 2 || ring.SecondsMedian <= 0 || !ring.BitIdentical || len(ring.Ranks) != ring.Workers {
		t.Errorf("%+v", ring)
	}
	// Every worker sends its share of the codes, and a little more; shortened
	// ones are not half as long.
	codes := int64(2 * (ring.Workers - 1) * ring.Elements * ring.Bits / 8)
	least := codes
	if ring.CodedShare > 0 {
		least = codes / 2
	}
	if ring.FrameBytes < least || ring.FrameBytes > codes*11/10 || ring.BytesOnWire < ring.FrameBytes || ring.BytesOnWire > 2*ring.FrameBytes {
		t.Errorf("%d bytes of frames and %d on the wire carry %d of codes", ring.FrameBytes, ring.BytesOnWire, codes)
	}
	if ring.CPUSeconds <= 0 || ring.Machine.Cores < 1 || ring.Machine.Processor == "" {
		t.Errorf("%+v", ring)
	}
	phases := ring.Phases.StartSeconds + ring.Phases.ReduceScatterSeconds + ring.Phases.AllGatherSeconds
	if math.Abs(phases-ring.SecondsMedian) > 1e-6 { // of two, medians are means
		t.Errorf("phases take %v s, the whole %v s", phases, ring.SecondsMedian)
	}
	return ring, r.stderr
}

// TestBenchRing measures on a shaped bridge, on links with a delay, and beside
// programs that are not there.
func TestBenchRing(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	t.Run("bridge", func(t *testing.T) {
		without := "PATH=" + t.TempDir()
		ring, stderr := benchRingIn(t, []string{without}, "--workers", "3", "--rate", "50mbit", "--against", "iperf3")
		if bound := 4.0 / 3 * 100_000 * 8 / 50e6; ring.Links.Backend != "bridge" || math.Abs(*ring.BoundSeconds-bound) > 1e-9 {
			t.Errorf("links %+v, bound %v", ring.Links, *ring.BoundSeconds)
		}
		// A queue lets a burst through, but never half of it all.
		if r := *ring.RatioToBound; r < 0.5 {
			t.Errorf("the ring takes %v of the time that the wire needs", r)
		}
		if ring.RelativeError < 0.005 || ring.RelativeError > 0.02 {
			t.Errorf("relative error %v", ring.RelativeError)
		}
		if len(ring.Against) != 1 || !strings.Contains(ring.Against[0].Problem, "apt-get install iperf3") || !strings.Contains(stderr, ring.Against[0].Problem) {
			t.Errorf("against %+v\n%s", ring.Against, stderr)
		}
	})
	t.Run("fewer bits", func(t *testing.T) {
		ring, _ := benchRing(t, "--workers", "2", "--rate", "0", "--bits", "4", "--entropy", "on", "--error-feedback")
		if ring.CodedShare != 1 {
			t.Errorf("codes shortened in a share of %v", ring.CodedShare)
		}
		if plain := int64(2 * 50_000); ring.FrameBytes >= plain {
			t.Errorf("%d bytes, %d without entropy coding", ring.FrameBytes, plain)
		}
		if ring.AveragedError <= 0 || ring.AveragedError > ring.RelativeError*0.8 {
			t.Errorf("error %v, averaged %v", ring.RelativeError, ring.AveragedError)
		}
	})
	t.Run("delay", func(t *testing.T) {
		ring, _ := benchRing(t, "--workers", "2", "--rate", "0", "--one-way-delay", "20ms", "--data", "student3", "--block", "64",
			"--algorithm", "direct", "--connections", "2")
		// Whether a second connection is up in time for a frame is chance.
		if n := ring.ConnectionsUsed; ring.Algorithm != "direct" || ring.Connections != 2 || n < 2 || n > 2*2 {
			t.Errorf("%s over %d connections", ring.Algorithm, ring.ConnectionsUsed)
		}
		if ring.Links.Backend == "bridge" || ring.BoundSeconds != nil {
			t.Errorf("links %+v, bound %v", ring.Links, ring.BoundSeconds)
		}
		// Reduce-scatter and all-gather are a step each.
		if ring.SecondsMedian < 0.04 {
			t.Errorf("%v s, over two delays of 20 ms", ring.SecondsMedian)
		}
	})
	t.Run("groups", func(t *testing.T) {
		ring, _ := benchRing(t, "--workers", "4", "--rate", "0", "--groups", "2", "--group-delay", "40ms", "--algorithm", "hierarchical")
		// The sums cross from group to group, and the means; a third time would
		// be 120 ms.
		if ring.SecondsMedian < 0.08 || ring.Links.GroupDelay.String() != "40ms" || ring.Groups != 2 {
			t.Errorf("%v s, over two delays of 40 ms", ring.SecondsMedian)
		}
	})
	expectNothing(t, t.Name(), before)
}

// TestMeasuredGainOfARingsOrder: the ring that crosses between groups less often is
// faster.
func TestMeasuredGainOfARingsOrder(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	testenv.Measure(t, func() func(testenv.Machine) error {
		ring, _ := benchRing(t, "--workers", "4", "--rate", "0", "--groups", "2", "--group-delay", "40ms", "--order", "optimised")
		o := ring.Ordered
		if o == nil || !slices.Equal(slices.Sorted(slices.Values(o.Ring)), []int{0, 1, 2, 3}) || len(o.NaiveSeconds) != 2 {
			t.Fatalf("%+v", o)
		}
		// Three crossings in a row of six hops, in place of six.
		if o.MeasuredGain != o.NaiveSecondsMedian/ring.SecondsMedian {
			t.Errorf("gain %v, of medians of %v and %v s", o.MeasuredGain, o.NaiveSecondsMedian, ring.SecondsMedian)
		}
		return func(testenv.Machine) error {
			if gain := slices.Min(o.NaiveSeconds) / slices.Min(ring.Seconds); math.Abs(o.PredictedGain-2) > 1e-9 || gain < 1.2 {
				return fmt.Errorf("gain %v, predicted %v", gain, o.PredictedGain)
			}
			return nil
		}
	})
}

// TestBenchRingOfAScenario takes a scenario's links, whose nodes are no row of
// numbers and whose slowest rate is the bound.
func TestBenchRingOfAScenario(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	file := filepath.Join(t.TempDir(), "uneven.yaml")
	if err := os.WriteFile(file, []byte(unevenScenario), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"bench", "ring", file, "--elements", "100000", "--repeat", "2", "--warmup", "0", "--algorithm", "hierarchical", "--bits", "32", "--json"}
	r := testbed(t, args...)
	var ring bench.Ring
	if err := json.Unmarshal([]byte(r.stdout), &ring); err != nil || r.code != 0 {
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	if l := ring.Links; l.Scenario != "uneven" || l.SlowestRate != 40e6 || ring.Workers != 3 || !slices.Equal(ring.GroupOf, []int{0, 0, 1}) {
		t.Errorf("%+v, %+v", l, ring.Settings)
	}
	if bound := 4.0 / 3 * 100_000 * 8 / 40e6; math.Abs(*ring.BoundSeconds-bound) > 1e-9 || *ring.RatioToBound < 1 {
		t.Errorf("bound %v, ratio %v", *ring.BoundSeconds, *ring.RatioToBound)
	}
	// The sums cross from group to group and the means back, as float32.
	if ring.SecondsMedian < 0.03 || !ring.BitIdentical || ring.RelativeError > 1e-6 || ring.FrameBytes < 4*4*100_000 {
		t.Errorf("%v s, error %v, %d bytes", ring.SecondsMedian, ring.RelativeError, ring.FrameBytes)
	}
	expectNothing(t, t.Name(), before)
}

const unevenScenario = `
name: uneven
inner_steps: 1
target_outer_steps: 1
horizon: 1000000
base_latency: 0
bandwidth_bpus: 10
state_bytes: 100
heartbeat_period: 1000
heartbeat_miss_threshold: 5
seed: 1
workers:
  - {id: 2, join_at: 0, inner_step_mean: 1000}
  - {id: 5, join_at: 0, inner_step_mean: 1000}
  - {id: 7, join_at: 0, inner_step_mean: 1000}
real:
  links:
    default: {rate_up: 80mbit, rate_down: 80mbit, one_way_delay: 1ms}
    nodes:
      w5: {rate_up: 40mbit}
    groups:
      here: {nodes: [w2, w5]}
      there: {nodes: [w7]}
    paths:
      - {between: [here, there], one_way_delay: 15ms, loss_burst: {enter: 0.1%, leave: 50%, loss_inside: 50%}}
`

// TestBenchRingBesideOthers measures the rivals that this machine has.
func TestBenchRingBesideOthers(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	ring, stderr := benchRing(t, "--workers", "2", "--rate", "100mbit", "--warmup", "0", "--against", "iperf3,gloo")
	tcp := strings.Split(ring.Links.TCP, ",")
	if !slices.Equal(tcp, []string{"reno", "bbr"}) && !(slices.Equal(tcp, []string{"reno"}) && strings.Contains(strings.Join(ring.Notes, "\n"), "rivals were not measured with bbr")) {
		t.Errorf("congestion controls %q, notes %q", tcp, ring.Notes)
	}
	var measured []string
	for _, a := range ring.Against {
		switch {
		case strings.Contains(a.Problem, "not installed"):
			t.Log(a.Problem)
			for _, name := range tcp {
				measured = append(measured, a.Name+" "+name)
			}
			continue
		case a.Problem != "" || len(a.Seconds) != 2 || a.SecondsMedian <= 0 || a.Ratio <= 0 || a.Version == "":
			t.Errorf("%+v\n%s", a, stderr)
		// Sums of two float32 values are rounded once.
		case a.Name == "gloo" && (a.RelativeError == nil || *a.RelativeError > 1e-7 || !*a.BitIdentical):
			t.Errorf("%+v", a)
		}
		measured = append(measured, a.Name+" "+a.TCP)
	}
	var want []string
	for _, name := range []string{"iperf3", "gloo"} {
		for _, t := range tcp {
			want = append(want, name+" "+t)
		}
	}
	if !slices.Equal(measured, want) {
		t.Errorf("measured %q, want %q", measured, want)
	}
}

// fakePCCL is an environment in which a stand-in for PCCL misbehaves.
func fakePCCL(t *testing.T, mode string) []string {
	t.Helper()
	modules, err := filepath.Abs("testdata/pccl")
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	bin := filepath.Join(cache, "testbed", "stacks", "pccl", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "pccl-python"), []byte("#!/bin/sh\nPYTHONPATH='"+modules+"' exec python3 \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"XDG_CACHE_HOME=" + cache, "FAKE_PCCL=" + mode}
}

// TestBenchRingsRivalMisbehaves: whatever a rival does, its entry has one clear
// problem, the ring is measured, and nothing stays behind.
func TestBenchRingsRivalMisbehaves(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	for mode, want := range map[string]string{
		"no master": " failed: PCCLError: the master is not there",
		"wrong":     "the result is wrong: its relative error is ",
		"nothing":   "the result is wrong: its relative error is NaN %",
		"alone":     "failed: RuntimeError: only 1 of 2 peers took part",
		"hang":      "did not answer within 1.05s",
		"fatal":     "the PCCL program of w1 ended (exit status 1); its last line: 2026 - FATAL: a bug",
		"daemon":    "the PCCL program of w1 ended (exit status 1)",
	} {
		t.Run(mode, func(t *testing.T) {
			ring, stderr := benchRingIn(t, fakePCCL(t, mode), "--workers", "2", "--rate", "0", "--tcp", "reno", "--timeout", "1s", "--against", "pccl:connections=2:quantisation=min_max")
			if len(ring.Against) != 1 || !strings.Contains(ring.Against[0].Problem, want) || ring.Against[0].Seconds != nil || strings.Count(stderr, ring.Against[0].Problem) != 1 {
				t.Errorf("against %+v\n%s", ring.Against, stderr)
			}
			if a := ring.Against[0]; a.Connections != 2 || a.Quantisation != "min_max" || a.TCP != "reno" || a.Version != "pypccl 0" {
				t.Errorf("against %+v", a)
			}
		})
	}
	t.Run("no such congestion control", func(t *testing.T) {
		r := testbed(t, "bench", "ring", "--workers", "2", "--elements", "1000", "--tcp", "no_such", "--against", "gloo")
		if r.code != exitUnsupported || !strings.Contains(lastLine(r.stderr), "the TCP congestion control no_such in a namespace") {
			t.Errorf("exit code %d, %s", r.code, r.stderr)
		}
	})
	t.Run("not installed", func(t *testing.T) {
		ring, _ := benchRingIn(t, []string{"XDG_CACHE_HOME=" + t.TempDir()}, "--workers", "2", "--rate", "0", "--against", "pccl,pccl:connections=2")
		if len(ring.Against) != 1 || ring.Against[0].Problem != "PCCL is not installed; run testbed stacks install pccl (120 MB, about a minute)" {
			t.Errorf("against %+v", ring.Against)
		}
	})
	expectNothing(t, t.Name(), before)
}

// TestKilledBenchWithARivalLeavesNothing: a benchmark that is killed takes the
// rival's programs with it, and their children.
func TestKilledBenchWithARivalLeavesNothing(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	cmd := command(t, t.Context(), t.Name(), "bench", "ring", "--workers", "2", "--rate", "0", "--elements", "100000", "--tcp", "reno", "--against", "pccl:connections=1")
	cmd.Env = append(cmd.Env, fakePCCL(t, "hang")...)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for in := bufio.NewScanner(stderr); in.Scan() && !strings.HasPrefix(in.Text(), "warm-up 1 of 1"); {
	}
	time.Sleep(200 * time.Millisecond) // the rival hangs now
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	expectNothing(t, t.Name(), before)
}

// TestMeasuredPCCLBesideTheRing: PCCL reduces on small links, with right results,
// and no faster than the links carry its bytes.
func TestMeasuredPCCLBesideTheRing(t *testing.T) {
	testenv.Measured(t)
	needSandbox(t)
	needStack(t, "pccl")
	before := look(t)
	const workers, elements, rate = 3, 300_000, 20e6
	testenv.Measure(t, func() func(testenv.Machine) error {
		ring, stderr := benchRing(t, "--workers", fmt.Sprint(workers), "--elements", fmt.Sprint(elements), "--rate", "20mbit", "--one-way-delay", "1ms",
			"--against", "pccl:connections=1,pccl:connections=4:quantisation=min_max")
		var labels []string
		for _, a := range ring.Against {
			labels = append(labels, a.Label())
			if a.Problem != "" || a.RelativeError == nil || len(a.Seconds) != 2 || a.CPUSeconds <= 0 || !*a.BitIdentical {
				t.Fatalf("%+v\n%s", a, stderr)
			}
			least, most := 0.0, 2e-7
			switch a.Quantisation {
			case "min_max":
				least, most = 0.02, 0.08
			case "zero_point_scale":
				least, most = 0.015, 0.025
			}
			if *a.RelativeError <= least || *a.RelativeError > most {
				t.Errorf("%s: relative error %v, want %v to %v", a.Label(), *a.RelativeError, least, most)
			}
		}
		want := []string{}
		for _, name := range strings.Split(ring.Links.TCP, ",") {
			want = append(want, "pccl, 1 connection, float32, "+name, "pccl, 1 connection, uint8 zero_point_scale, "+name, "pccl, 4 connections, uint8 min_max, "+name)
		}
		if !slices.Equal(labels, want) {
			t.Errorf("%q, want %q", labels, want)
		}
		return func(testenv.Machine) error {
			for _, a := range ring.Against {
				bytes := 2 * (workers - 1) * elements / float64(workers)
				if a.Quantisation == "none" {
					bytes *= 4
				}
				// A queue lets a burst through.
				if least := 0.9 * bytes * 8 / rate; a.SecondsMedian < least {
					return fmt.Errorf("%s took %v s, and the links need %v s", a.Label(), a.SecondsMedian, least)
				}
				if a.Quantisation == "none" && a.Ratio > 0.7 {
					return fmt.Errorf("the ring took %v of the time of %s, which sends four times as much", a.Ratio, a.Label())
				}
			}
			return nil
		}
	})
	expectNothing(t, t.Name(), before)
}

// TestBenchRingAsAnOrdinaryUser: no network of the benchmark needs root.
func TestBenchRingAsAnOrdinaryUser(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	if os.Geteuid() != 0 {
		return // as all others
	}
	cmd := command(t, t.Context(), t.Name(), "bench", "ring", "--workers", "2", "--elements", "1000", "--repeat", "1", "--json")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	var ring bench.Ring
	if err != nil || json.Unmarshal(out, &ring) != nil || !ring.BitIdentical {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestInterruptedBenchLeavesNothing ends a benchmark in the middle.
func TestInterruptedBenchLeavesNothing(t *testing.T) {
	needSandbox(t)
	t.Parallel()
	before := look(t)
	cmd := command(t, t.Context(), t.Name(), "bench", "ring", "--rate", "1mbit", "--elements", "10000000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // interrupted
	if cmd.ProcessState.ExitCode() != exitError {
		t.Errorf("%v", cmd.ProcessState)
	}
	expectNothing(t, t.Name(), before)
}

func TestBenchKernel(t *testing.T) {
	t.Parallel()
	r := testbed(t, "bench", "kernel", "--json", "--sizes", "64KiB", "--rounds", "2", "--cores", "1", "--route", "go", "--against", "torchft_fp8")
	var kernels []bench.Kernel
	if err := json.Unmarshal([]byte(r.stdout), &kernels); err != nil || r.code != 0 || len(kernels) < 5 {
		t.Fatalf("exit code %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	for _, k := range kernels {
		if reference := k.Kernel == "memcpy" || k.Kernel == "read"; (k.Route == "go") == reference || k.Bytes != 64<<10 || k.Ratio <= 0 {
			t.Errorf("%+v", k)
		}
	}
}

// TestBenchKernelAnswers: by default with the machine and what auto is worth, with --all with
// every route and format.
func TestBenchKernelAnswers(t *testing.T) {
	t.Parallel()
	processor := bench.ThisMachine().Processor
	r := testbed(t, "bench", "kernel", "--sizes", "4KiB,16KiB", "--rounds", "1")
	lines := strings.Split(r.stdout, "\n")
	if r.code != 0 || !strings.HasPrefix(r.stdout, processor) || strings.Count(r.stdout, "\nauto takes the fastest route in ") != 1 ||
		strings.Count(r.stdout, "KiB ") < 18 || !strings.Contains(r.stdout, "\nerror of int8") || len(lines) > 28 || strings.Contains(r.stdout, "prime") {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	r = testbed(t, "bench", "kernel", "--sizes", "4KiB", "--rounds", "1", "--all")
	for _, want := range []string{processor, "\nauto takes the fastest route in ", "ring_step_prime", "torchft_fp8", "× one core"} {
		if r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("exit code %d, no %q\n%s\n%s", r.code, want, r.stdout, r.stderr)
		}
	}
}

// TestBenchKernelOnAFile takes one's own values, and refuses those of a type
// that it does not read.
func TestBenchKernelOnAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mine.npy")
	write := func(dtype string) {
		header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (4,), }", dtype)
		header += strings.Repeat(" ", 117-len(header)) + "\n" // a whole number of 64 bytes
		b := append([]byte("\x93NUMPY\x01\x00\x76\x00"), header...)
		if err := os.WriteFile(file, append(b, 0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 64, 64, 0, 0, 0, 0), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"bench", "kernel", "--sizes", "4KiB", "--rounds", "1", "--cores", "1", "--route", "go", "--against", "prime", "--data", file}
	write("<f4")
	r := testbed(t, args...)
	if r.code != 0 || !strings.Contains(r.stdout, "mine.npy") || !strings.Contains(r.stdout, "ring_step_prime") {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	r = testbed(t, append(args, "--format", "go")...)
	if r.code != 0 || !strings.Contains(r.stdout, "BenchmarkKernel/kernel=quantise/route=go/size=4KiB/cores=1-") {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	write("<i4")
	r = testbed(t, args...)
	want := fmt.Sprintf("testbed: --data: %s: the dtype is \"<i4\"; only <f4 and <f8 are supported: save the array with numpy.save(file, a.astype('<f4'))\n", file)
	if r.code != exitUsage || r.stderr != want {
		t.Errorf("exit code %d, stderr %q, want %q", r.code, r.stderr, want)
	}
}

func TestBenchUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"bench disk":                       "unknown benchmark",
		"bench ring 4 5":                   "one scenario at most",
		"bench ring headline --rate 5mbit": "--rate cannot be combined with a scenario",
		"bench ring persistent_straggler --algorithm hierarchical": "is in no group",
		"bench ring --workers 1":                                   "--workers 1 must lie between",
		"bench ring --workers 256 --elements 1000000000":           "of memory",
		"bench ring --elements 0":                                  "--elements 0",
		"bench ring --repeat 0":                                    "--repeat 0",
		"bench ring --rate 100":                                    "--rate",
		"bench ring --loss 2":                                      "--loss",
		"bench ring --one-way-delay 5":                             "--one-way-delay",
		"bench ring --one-way-delay 2m":                            "above the limit",
		"bench ring --jitter 5ms":                                  "jitter",
		"bench ring --data uniform":                                "--data uniform: choose",
		"bench ring --algorithm tree":                              "--algorithm tree: choose from ring, direct, hierarchical",
		"bench ring --groups 5":                                    "--groups 5",
		"bench ring --group-delay 5ms":                             "there is only one group: set groups to at least 2",
		"bench ring --order best":                                  "--order best: choose",
		"bench ring --order optimised --algorithm direct":          "only the ring",
		"bench ring --connections 65":                              "--connections 65",
		"bench ring --bits 2":                                      "--bits is 2: choose",
		"bench ring --bits 32 --entropy on":                        "--entropy is on, but values of 32 bits have no codes",
		"bench ring --entropy yes":                                 "--entropy is \"yes\": choose one of",
		"bench ring --block 7":                                     "--block is 7",
		"bench ring --links carrier":                               "--links carrier",
		"bench ring --links bridge --loss 1%":                      "--links bridge neither delays",
		"bench ring --against nccl":                                "--against nccl: choose from iperf3, gloo, pccl",
		"bench ring --tcp reno":                                    "--tcp applies only to the programs of --against",
		"bench ring --against gloo:connections=2":                  "gloo has no options",
		"bench ring --against pccl:connections=17":                 "connections must be a number between 1 and 16",
		"bench ring --against pccl:quantisation=int4":              "choose the quantisation from none, min_max and zero_point_scale",
		"bench ring --against pccl:bits=8":                         "pccl has the options connections and quantisation",
		"bench ring --against pccl --elements 20":                  "needs at least 64; choose more elements, or fewer connections",
		"bench ring --json --row":                                  "choose one",
		"bench ring --format go --row":                             "choose one",
		"bench ring --format csv":                                  "--format csv: choose text or go",
		"bench ring --timeout 0s":                                  "--timeout",
		"bench ring --no-such":                                     "--no-such",
		"bench kernel --sizes 256kb":                               "--sizes",
		"bench kernel --route sse":                                 "--route sse: this machine has",
		"bench kernel --cores 0":                                   "--cores 0",
		"bench kernel --rounds 0":                                  "--rounds 0",
		"bench kernel --json --format go":                          "choose one",
		"bench kernel --against nccl":                              "--against nccl: choose from float32, bf16, prime",
		"bench kernel --data uniform":                              "--data uniform: choose one of",
		"bench kernel --data none.npy":                             "--data: open none.npy: no such file",
	} {
		r := testbed(t, strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, stderr %q, want %q", args, r.code, r.stderr, want)
		}
	}
}
