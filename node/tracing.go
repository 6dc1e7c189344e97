package node

import (
	"context"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlogwriter"
)

// Tracing gives the tracer of quic.Config for connections of a kind: "control",
// "ring" or "state". Nil records nothing.
type Tracing func(kind string) func(ctx context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace

// of is the tracer of a kind of connections, or nil.
func (t Tracing) of(kind string) func(ctx context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace {
	if t == nil {
		return nil
	}
	return t(kind)
}
