package identity

import (
	"crypto/tls"
	"net"
	"testing"
	"time"
)

// TestCredentialsHoldWhateverTheClockShows: each end may have another time, and it may
// have been set since the credentials were made.
func TestCredentialsHoldWhateverTheClockShows(t *testing.T) {
	authority, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	end := func(name string, year int) *tls.Config {
		c, err := authority.Issue(name)
		if err != nil {
			t.Fatal(err)
		}
		config, err := c.TLS()
		if err != nil {
			t.Fatal(err)
		}
		config.Time = func() time.Time { return time.Date(year, 1, 2, 3, 4, 5, 0, time.UTC) }
		return config
	}
	for _, years := range [][2]int{{1970, 1970}, {2026, 1970}, {1970, 2026}, {2300, 1980}, {9999, 2026}} {
		a, b := net.Pipe()
		client := tls.Client(a, For(end("w0", years[0]), "x", "coordinator"))
		server := tls.Server(b, For(end("coordinator", years[1]), "x", ""))
		done := make(chan error, 1)
		go func() { done <- server.Handshake() }()
		if err := client.Handshake(); err != nil {
			t.Errorf("the worker is in %d, the coordinator in %d: %v", years[0], years[1], err)
			a.Close()
		}
		if err := <-done; err != nil {
			t.Errorf("the worker is in %d, the coordinator in %d: %v", years[0], years[1], err)
		}
		a.Close()
		b.Close()
	}
}
