package main

import (
	"net/netip"
	"testing"
)

// TestServersAdvertiseWhatOthersReach: a name that stands for the loopback, as on
// Debian's machines, is not what others are told.
func TestServersAdvertiseWhatOthersReach(t *testing.T) {
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	own := addrs("127.0.0.1", "::1", "fe80::1", "2001:db8::5", "192.0.2.5")
	for _, c := range []struct {
		named, own []netip.Addr
		onlyIPv4   bool
		want       string
	}{
		{addrs("192.0.2.5"), own, false, "m"},
		{addrs("127.0.1.1", "192.0.2.5"), own, false, "m"},
		{addrs("127.0.1.1"), own, false, "192.0.2.5"},
		{addrs("::ffff:127.0.1.1"), own, false, "192.0.2.5"},
		{nil, own, false, "192.0.2.5"},
		{addrs("2001:db8::5"), own, true, "192.0.2.5"},
		{addrs("2001:db8::5"), own, false, "m"},
		{addrs("::1"), addrs("127.0.0.1", "fe80::1", "2001:db8::5"), false, "2001:db8::5"},
		{addrs("::1"), addrs("127.0.0.1", "2001:db8::5"), true, "localhost"},
		{addrs("127.0.1.1"), addrs("127.0.0.1"), false, "localhost"},
	} {
		if got := reachable("m", c.named, c.own, c.onlyIPv4); got != c.want {
			t.Errorf("named %v, with %v: %s, want %s", c.named, c.own, got, c.want)
		}
	}
}
