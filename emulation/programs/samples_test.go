//go:build linux

package programs

import (
	"testing"
	"time"
)

func TestParseInterface(t *testing.T) {
	const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       7       1    0    0    0     0          0         0        7       1    0    0    0     0       0          0
  eth0: 123456     100    0    0    0     0          0         0   654321     200    0    0    0     0       0          0
`
	if sent, received, err := parseInterface(text); sent != 654321 || received != 123456 || err != nil {
		t.Errorf("%d, %d, %v", sent, received, err)
	}
	for _, text := range []string{"", "eth0: 1 2", "eth0: x 0 0 0 0 0 0 0 0"} {
		if _, _, err := parseInterface(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

func TestWaits(t *testing.T) {
	for _, c := range []struct {
		w    waits
		want float64
	}{
		{waits{began: time.Second, at: 3 * time.Second, before: time.Second, since: 2 * time.Second}, 0.5},
		{waits{began: time.Second, at: 1500 * time.Millisecond, since: time.Second}, 0}, // too short
	} {
		if got := c.w.share(); got != c.want {
			t.Errorf("%+v: %v, want %v", c.w, got, c.want)
		}
	}
}
