package shaping

import (
	"fmt"
	"net"
)

// MAC is an Ethernet address.
type MAC [6]byte

// UnmarshalText reads "02:54:42:00:00:01".
func (m *MAC) UnmarshalText(text []byte) error {
	hw, err := net.ParseMAC(string(text))
	if err != nil || len(hw) != len(m) {
		return fmt.Errorf("MAC address %q is not six bytes in hexadecimal, for example 02:54:42:00:00:01", text)
	}
	*m = MAC(hw)
	return nil
}

// MarshalText writes the address as UnmarshalText reads it.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }
