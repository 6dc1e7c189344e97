package kernel

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"

	"testbed/shaping"
)

// Attributes of netem that netlink/nl has no names for (linux/pkt_sched.h).
const (
	tcaNetemLatency64 = 10
	tcaNetemJitter64  = 11
	tcaNetemSeed      = 14 // since Linux 6.7; older kernels ignore it
	netemLossGE       = 2  // in TCA_NETEM_LOSS: Gilbert-Elliott
)

// options are the queue's attributes for the kernel, including zero ones,
// because a change leaves missing attributes alone. Without withTable a new
// queue is uniform, and an existing one keeps its distribution.
func (n *netem) options(limit uint32, withTable bool) *nl.RtAttr {
	qopt := nl.TcNetemQopt{Limit: limit, Loss: n.loss, Duplicate: n.duplicate} // times follow, exactly
	if n.reorder > 0 {
		qopt.Gap = 1 // every packet may overtake
	}
	options := nl.NewRtAttr(nl.TCA_OPTIONS, qopt.Serialize())
	options.AddRtAttr(tcaNetemLatency64, nl.Uint64Attr(uint64(n.oneWayDelay)))
	options.AddRtAttr(tcaNetemJitter64, nl.Uint64Attr(uint64(n.jitter)))
	options.AddRtAttr(tcaNetemSeed, nl.Uint64Attr(n.seed))
	options.AddRtAttr(nl.TCA_NETEM_REORDER, (&nl.TcNetemReorder{Probability: n.reorder}).Serialize())
	options.AddRtAttr(nl.TCA_NETEM_CORRUPT, (&nl.TcNetemCorrupt{Probability: n.corrupt}).Serialize())
	options.AddRtAttr(nl.TCA_NETEM_RATE, (&nl.TcNetemRate{Rate: uint32(min(n.rate, 1<<32-1))}).Serialize())
	if n.rate > 1<<32-1 {
		options.AddRtAttr(nl.TCA_NETEM_RATE64, nl.Uint64Attr(n.rate))
	}
	if b := n.burst; b != (burst{}) {
		var words []byte
		for _, w := range []uint32{b.enter, b.leave, b.deliveredInside, b.lossOutside} {
			words = binary.NativeEndian.AppendUint32(words, w)
		}
		options.AddRtAttr(nl.TCA_NETEM_LOSS, nil).AddRtAttr(netemLossGE, words)
	}
	if withTable && n.jitter > 0 {
		var table []byte
		for _, v := range n.distribution.Table() {
			table = binary.NativeEndian.AppendUint16(table, uint16(v))
		}
		options.AddRtAttr(nl.TCA_NETEM_DELAY_DIST, table)
	}
	return options
}

// parseNetem reads the kernel's description of a netem queue.
func parseNetem(options []byte) (n *netem, limit uint32, hasSeed bool, err error) {
	if len(options) < nl.SizeofTcNetemQopt {
		return nil, 0, false, fmt.Errorf("reading a netem queue: the kernel's description is too short (bytes: %d)", len(options))
	}
	qopt := nl.DeserializeTcNetemQopt(options)
	n = &netem{loss: qopt.Loss, duplicate: qopt.Duplicate}
	attrs, err := nl.ParseRouteAttr(options[nl.SizeofTcNetemQopt:])
	if err != nil {
		return nil, 0, false, fmt.Errorf("reading a netem queue: %w", err)
	}
	word := func(b []byte, k int) uint32 { return binary.NativeEndian.Uint32(b[4*k:]) }
	for _, a := range attrs {
		switch v := a.Value; {
		case a.Attr.Type == tcaNetemLatency64 && len(v) >= 8:
			n.oneWayDelay = time.Duration(binary.NativeEndian.Uint64(v))
		case a.Attr.Type == tcaNetemJitter64 && len(v) >= 8:
			n.jitter = time.Duration(binary.NativeEndian.Uint64(v))
		case a.Attr.Type == tcaNetemSeed && len(v) >= 8:
			n.seed, hasSeed = binary.NativeEndian.Uint64(v), true
		case a.Attr.Type == nl.TCA_NETEM_REORDER && len(v) >= 4 && qopt.Gap > 0:
			n.reorder = word(v, 0)
		case a.Attr.Type == nl.TCA_NETEM_CORRUPT && len(v) >= 4:
			n.corrupt = word(v, 0)
		case a.Attr.Type == nl.TCA_NETEM_RATE && len(v) >= 4:
			n.rate = max(n.rate, uint64(word(v, 0)))
		case a.Attr.Type == nl.TCA_NETEM_RATE64 && len(v) >= 8:
			n.rate = max(n.rate, binary.NativeEndian.Uint64(v))
		case a.Attr.Type&^nl.NLA_F_NESTED == nl.TCA_NETEM_LOSS:
			models, err := nl.ParseRouteAttr(v)
			if err != nil {
				return nil, 0, false, fmt.Errorf("reading a netem queue: %w", err)
			}
			for _, m := range models {
				if m.Attr.Type == netemLossGE && len(m.Value) >= 16 {
					n.burst = burst{word(m.Value, 0), word(m.Value, 1), word(m.Value, 2), word(m.Value, 3)}
				}
			}
		}
	}
	return n, qopt.Limit, hasSeed, nil
}

// needsTable reports whether a new queue must be given its distribution.
func (n *netem) needsTable() bool { return n.distribution != shaping.Uniform }
