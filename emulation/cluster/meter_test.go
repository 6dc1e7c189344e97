//go:build linux

package cluster

import (
	"net/netip"
	"sync"
	"testing"

	"testbed/shaping/tunnel"
)

// TestMega: rates are rounded, and fast ones have no exponent.
func TestMega(t *testing.T) {
	for rate, want := range map[float64]string{0: "0", 1.2345e6: "1.23", 999.4e6: "999", 999.7e6: "1000", 9.4126e9: "9413"} {
		if got := mega(rate); got != want {
			t.Errorf("%v bit/s: %s Mbit/s, want %s", rate, got, want)
		}
	}
}

// TestMeter: three hosts meet on loopback, and each hears of a burst what was sent
// to it, and nothing of what was not.
func TestMeter(t *testing.T) {
	const hosts = 3
	all := make([]Meter, hosts)
	c := tunnel.Config{Secret: make([]byte, tunnel.SecretSize)}
	for k := range all {
		socket, port, err := tunnel.Listen("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		all[k].Socket = socket
		defer all[k].Close()
		c.Hosts = append(c.Hosts, tunnel.Host{Name: string(rune('a' + k)), Addr: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)})
	}
	do := func(order func(host int) MeterOrder) []MeterAnswer {
		answers := make([]MeterAnswer, hosts)
		var done sync.WaitGroup
		for k := range all {
			done.Go(func() { answers[k] = all[k].Do(t.Context(), order(k)) })
		}
		done.Wait()
		for k, a := range answers {
			if a.Err != "" {
				t.Fatalf("host %d: %s", k, a.Err)
			}
		}
		return answers
	}
	if a := all[0].Do(t.Context(), MeterOrder{Repeat: true}); a.Err == "" {
		t.Error("a host that has met nobody has measured something")
	}
	for k, a := range do(func(host int) MeterOrder {
		own := c
		own.Self = host
		return MeterOrder{Open: &own}
	}) {
		for other, way := range a.OneWay {
			if (way > 0) != (other != k) {
				t.Errorf("from %d to %d it takes %v", k, other, way)
			}
		}
	}
	rates := [][]float64{{0, 20e6, 0}, {0, 0, 20e6}, {0, 20e6, 0}}
	for turn := range 2 {
		for to, a := range do(func(int) MeterOrder { return MeterOrder{Burst: &Burst{Number: turn + 1, Rates: rates}} }) {
			for from, carried := range a.Carried {
				if (carried > 0) != (rates[from][to] > 0) {
					t.Errorf("from %d to %d came %.0f bit/s, and %.0f were offered", from, to, carried, rates[from][to])
				}
			}
		}
	}
}
