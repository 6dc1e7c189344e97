package memnet

import (
	"crypto/tls"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"testbed/node/identity"
)

// PacketSize is the largest UDP payload of nodes in virtual time, in bytes:
// quic-go 0.65 runs its pacer with 1280 bytes whatever the packet size. While
// its budget is between the two, it spins until time has passed, which in
// virtual time never happens.
const PacketSize = 1280

// Bubble runs f in a synctest bubble of its own. Deadlocks and leaked goroutines
// fail the test too.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if err := TryBubble(t, f); err != nil {
		t.Error(err)
	}
}

// TryBubble is Bubble for tests that judge deadlocks and leaked goroutines
// themselves. Failures on the inner t count as well.
func TryBubble(t *testing.T, f func(t *testing.T)) (problem error) {
	defer func() {
		if r := recover(); r != nil {
			all := make([]byte, 1<<20)
			problem = fmt.Errorf("%v\n%s", r, all[:runtime.Stack(all, true)])
		}
	}()
	synctest.Test(t, f)
	return nil
}

// secrets are credentials made inside a bubble. Every bubble begins at the same
// time, so one set serves all.
var secrets struct {
	sync.Mutex
	authority *identity.Authority
	made      map[string]identity.Credentials
}

// TLS returns the configuration of a node, for use inside bubbles.
func TLS(t testing.TB, name string) *tls.Config {
	secrets.Lock()
	defer secrets.Unlock()
	if secrets.authority == nil {
		a, err := identity.NewAuthority()
		if err != nil {
			t.Fatal(err)
		}
		secrets.authority, secrets.made = a, map[string]identity.Credentials{}
	}
	c, ok := secrets.made[name]
	if !ok {
		var err error
		if c, err = secrets.authority.Issue(name); err != nil {
			t.Fatal(err)
		}
		secrets.made[name] = c
	}
	tlsConfig, err := c.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return tlsConfig
}
