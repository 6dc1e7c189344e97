package userlink

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"testbed/internal/testenv"
	"testbed/internal/thread"
	"testbed/shaping"
	"testbed/shaping/kernel"
)

// TestTheClockIsNeverBehindItsTimer: a timer that fires before its packet is due
// by the clock would wake the router in vain.
func TestTheClockIsNeverBehindItsTimer(t *testing.T) {
	for range 1000 {
		c := newClock()
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		if now := c.at(time.Now()); now < time.Duration(ts.Nano()) {
			t.Fatalf("the clock says %v where CLOCK_MONOTONIC was %v before", now, time.Duration(ts.Nano()))
		}
	}
}

// TestARouterOutlivesATimerThatFiresEarly: with a clock behind that of its timer
// the router once waited for ever for a timer that had fired, with packets at
// hand. The thread had been set aside between two readings of the clock, and the
// workers of a run never heard the coordinator.
func TestARouterOutlivesATimerThatFiresEarly(t *testing.T) {
	testenv.Need(t, kernel.Probe().Supports(kernel.BackendHTB))
	spec := shaping.Spec{Default: shaping.Properties{Path: shaping.Path{OneWayDelay: new(shaping.Duration(2 * time.Millisecond))}}}
	plan, err := shaping.NewPlan(spec, []string{"w0", "w1"}, 0, 42)
	if err != nil {
		t.Fatal(err)
	}
	testenv.InNewNamespace(t, func() {
		network, err := kernel.Build(plan, kernel.BackendUser, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer network.Close()
		router, err := Open(plan, Options{})
		if err != nil {
			t.Error(err)
			return
		}
		defer router.Close()
		router.clock.offset -= 300 * time.Microsecond
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- router.Run(ctx) }()
		here, there := udpIn(t, network, plan, 0), udpIn(t, network, plan, 1)
		if here != nil && there != nil {
			exchange(t, here, there)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// exchange sends packets both ways, at distances that have every relation to the
// links' delay, and wants to see all of them.
func exchange(t *testing.T, here, there *net.UDPConn) {
	const packets = 200 // as many as a receive buffer holds
	for i := range packets {
		for _, c := range [][2]*net.UDPConn{{here, there}, {there, here}} {
			if _, err := c[0].WriteTo([]byte{1}, c[1].LocalAddr()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Duration(i%30) * 50 * time.Microsecond)
		}
	}
	for name, c := range map[string]*net.UDPConn{"w0": here, "w1": there} {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		for got := range packets {
			if _, _, err := c.ReadFrom(make([]byte, 8)); err != nil {
				t.Errorf("%d of %d packets arrived at %s: %v", got, packets, name, err)
				break
			}
		}
	}
}

func udpIn(t *testing.T, network *kernel.Network, plan *shaping.Plan, node int) (conn *net.UDPConn) {
	var err error
	thread.Do(func() {
		if err = netns.Set(network.NS(plan.Nodes[node].Name)); err == nil {
			conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: plan.Nodes[node].Addr.Addr().AsSlice()})
		}
	})
	if err != nil {
		t.Error(errors.Join(errors.New("opening a socket in "+plan.Nodes[node].Name), err))
	}
	return conn
}
