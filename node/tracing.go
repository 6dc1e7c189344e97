package node

import (
	"context"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlogwriter"
)

// Tracing gives the tracer of quic.Config for connections of a kind: "control",
// "ring" or "state". Nil records nothing.
type Tracing func(kind string) func(ctx context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace

// add has the connections of a configuration recorded.
func (t Tracing) add(c *quic.Config, kind string) *quic.Config {
	if t != nil {
		c.Tracer = t(kind)
	}
	return c
}
