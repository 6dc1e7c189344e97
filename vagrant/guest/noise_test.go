//go:build linux

package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/internal/testenv"
	"testbed/record"
	"testbed/shaping"
	"testbed/shaping/kernel"
	"testbed/shaping/userlink"
)

// standstill is how the machine stalls again and again, as one does whose
// host runs others in its place.
type standstill struct {
	name string
	next func(*rand.Rand) (run, stop time.Duration)
}

var standstills = []standstill{
	{"none", nil},
	{"10 of 30 ms", func(*rand.Rand) (run, stop time.Duration) { return 20 * time.Millisecond, 10 * time.Millisecond }},
	{"30 of 100 ms", func(*rand.Rand) (run, stop time.Duration) { return 70 * time.Millisecond, 30 * time.Millisecond }},
	{"random, 25 %", func(r *rand.Rand) (run, stop time.Duration) {
		return time.Duration(r.ExpFloat64() * 30e6), time.Duration(r.ExpFloat64() * 10e6)
	}},
}

// The lines by which the guest asks for a standstill, and tells what came of it.
const (
	stopMark   = "noise: "
	goMark     = "noise: over"
	resultMark = "result: "
)

// noiseLength is how long each link is measured.
const noiseLength = 10 * time.Second

// BenchmarkNoise stops and continues the emulator while links in it are busy,
// and tells which share of their rate they carried by the guest's clock, which
// goes on meanwhile, and how far from the schedule frames were apart.
func BenchmarkNoise(b *testing.B) { inNoise(b, noiseGuest) }

// inNoise has a guest do something, and stops and continues it as it asks.
func inNoise(b *testing.B, what string) {
	ctx, cancel := context.WithTimeout(b.Context(), benchTimeout)
	defer cancel()
	g, err := prepare(ctx, b)
	if err != nil {
		b.Skip(err)
	}
	for b.Loop() {
		if err := stopAndGo(ctx, b, g, what); err != nil {
			b.Fatal(err)
		}
	}
}

// stopAndGo boots a guest that measures, with this machine's clock, and stops it
// when and as it asks.
func stopAndGo(ctx context.Context, b *testing.B, g guest, what string) error {
	console, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a console: %w", err)
	}
	defer console.Close()
	runtime.LockOSThread() // the kernel takes the end of the thread for the parent's death
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, g.qemu,
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-nic", "none",
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024",
		"-kernel", g.vmlinuz, "-initrd", g.initramfs,
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check tsc=reliable random.trust_cpu=on "+inGuest+"="+what,
		"-serial", "stdio")
	cmd.Stdout, cmd.Stderr = theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return err
	}
	quiet := func() {}
	for in := bufio.NewScanner(console); in.Scan(); {
		line := strings.TrimSpace(in.Text())
		switch {
		case strings.HasPrefix(line, resultMark):
			b.Log(strings.TrimPrefix(line, resultMark))
		case line == goMark:
			quiet()
			quiet = func() {}
		case strings.HasPrefix(line, stopMark):
			quiet = disturb(cmd.Process, strings.TrimPrefix(line, stopMark))
		default:
			b.Log("guest: ", line)
		}
	}
	quiet()
	return cmd.Wait()
}

// disturb stops and continues the process until end is called.
func disturb(p *os.Process, name string) (end func()) {
	for _, s := range standstills {
		if s.name == name && s.next != nil {
			over, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				random := rand.New(rand.NewPCG(1, 2))
				for {
					run, stop := s.next(random)
					select {
					case <-over:
						return
					case <-time.After(run):
					}
					_ = p.Signal(syscall.SIGSTOP)
					time.Sleep(stop)
					_ = p.Signal(syscall.SIGCONT)
				}
			}()
			return func() { close(over); <-ended }
		}
	}
	return func() {}
}

// TestUnderNoise is the guest's part of BenchmarkNoise.
func TestUnderNoise(t *testing.T) {
	if os.Getenv(inGuest) != noiseGuest {
		t.Skip("BenchmarkNoise runs this in the guest")
	}
	for _, backend := range []kernel.Backend{kernel.BackendUser, kernel.BackendHTB, kernel.BackendNetem} {
		for _, rate := range []float64{20, 100} {
			for _, s := range standstills {
				underNoise(t, backend, rate, s.name)
			}
		}
	}
}

func underNoise(t *testing.T, backend kernel.Backend, rate float64, name string) {
	// The queue has to outlast a standstill, or the link had nothing to send.
	spec := shaping.Spec{Default: shaping.Properties{
		Access: shaping.Access{RateUp: mbit(rate), Queue: &shaping.Queue{Time: shaping.Duration(200 * time.Millisecond)}},
		Path:   shaping.Path{OneWayDelay: ms(5)},
	}}
	plan, err := shaping.NewPlan(spec, []string{"w0", "w1"}, 0, 42)
	if err != nil {
		t.Fatal(err)
	}
	testenv.InNewNamespace(t, func() {
		network, err := kernel.Build(plan, backend, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer network.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stats := func() userlink.Stats { return userlink.Stats{} }
		if backend.Routed() {
			router, err := userlink.Open(plan, userlink.Options{HTB: backend == kernel.BackendHTB})
			if err != nil {
				t.Error(err)
				return
			}
			done := make(chan error)
			go func() { done <- router.Run(ctx) }()
			defer router.Close()
			defer func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			}()
			stats = router.Stats
		}
		l := &lab{t, plan, network}
		f := overload("w0", "w1", rate)
		f.packets = int(noiseLength / f.gap)
		fmt.Println(stopMark + name)
		all := l.send(f)[0]
		fmt.Println(goMark)
		s := stats()
		carried, apart := spacing(all, rate)
		fmt.Printf("%s%-5s %4.0f Mbit/s  %-12s  carried %.3f of the rate; distances off by %v (median), %v (90 %%); %d drops against the plan, router late by %v (median), %v (99 %%)\n",
			resultMark, backend, rate, name, carried, quantile(apart, 0.5), quantile(apart, 0.9), s.Unplanned(), s.LatenessP50, s.LatenessP99)
	})
}

// headlineGuest is the value of inGuest in the guest of BenchmarkHeadline, and
// headlineSteps what it does.
const headlineGuest = "headline"

var headlineSteps = []step{{"headline", "/init", []string{"-test.v", "-test.run=^TestHeadlineUnderNoise"}, benchTimeout}}

// BenchmarkHeadline stops and continues the emulator while the guest makes the
// comparison of README, and tells what came of it.
func BenchmarkHeadline(b *testing.B) { inNoise(b, headlineGuest) }

// TestHeadlineUnderNoise is the guest's part of BenchmarkHeadline. An emulated
// processor carries a tenth of the rate, and so of the parameters, and needs five
// times the time for all else. Delays are ten times as long: against stops of 10 ms
// shorter ones are not kept, and the verdict says so.
func TestHeadlineUnderNoise(t *testing.T) {
	if os.Getenv(inGuest) != headlineGuest {
		t.Skip("BenchmarkHeadline runs this in the guest")
	}
	for _, links := range []kernel.Backend{kernel.BackendUser, kernel.BackendNetem} {
		for _, s := range standstills[:2] {
			t.Run(fmt.Sprintf("%s, %s", links, s.name), func(t *testing.T) {
				fmt.Println(stopMark + s.name)
				defer fmt.Println(goMark)
				out, errs, err := testbedFor(t, benchTimeout, "compare", "persistent_straggler", "--links", string(links), "--json", "--time-scale", "1500",
					"--set", "real.parameters=100000", "--set", "real.links.default.one_way_delay=100ms",
					"--set", "real.links.default.rate_up=20mbit", "--set", "real.links.default.rate_down=20mbit")
				var c struct {
					Real map[string]record.Summary
				}
				if json.Unmarshal([]byte(out), &c) != nil { // invalid runs are an error, too
					t.Fatalf("%v\n%s%s", err, out, errs)
				}
				for _, policy := range []string{"baseline", "straggler"} {
					s := c.Real[policy]
					fmt.Printf("%s%s: %.1f s, sidelined %v, evicted %v, %s %q\n", resultMark, policy, float64(s.WallClock)*s.TimeScale/1e6, s.Sidelined, s.Evicted, s.Fidelity.Verdict, s.Fidelity.Reasons)
				}
			})
		}
	}
}

// spacing is the share of the rate that arrived, and by how much the distance of
// each frame from the one before was off, sorted. Mbit is 10⁶ bit/s.
func spacing(all []arrival, mbit float64) (carried float64, off []time.Duration) {
	if len(all) < 2 {
		return 0, []time.Duration{0}
	}
	slot := time.Duration(shaping.FrameSize * 8 / mbit * 1e3)
	for k := range all[1:] {
		off = append(off, (all[k+1].at.Sub(all[k].at) - slot).Abs())
	}
	slices.Sort(off)
	took := all[len(all)-1].at.Sub(all[0].at)
	return float64(len(all)-1) * slot.Seconds() / took.Seconds(), off
}
