package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"testbed/shaping"
)

// conn speaks netlink in one namespace. Raw is for what netlink.Handle
// cannot express: the limit of a bfifo, netem's 64-bit times and seed.
type conn struct {
	*netlink.Handle
	raw map[int]*nl.SocketHandle
}

// dial connects to the namespace of the current thread.
func dial() (*conn, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	return &conn{h, map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}}, nil
}

func (c *conn) close() {
	c.Handle.Close()
	c.raw[unix.NETLINK_ROUTE].Close()
}

// request starts a raw request; its answers have type res, zero for none.
func (c *conn) request(kind, flags int, res uint16, data ...nl.NetlinkRequestData) ([][]byte, error) {
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = c.raw
	for _, d := range data {
		req.AddData(d)
	}
	return req.Execute(unix.NETLINK_ROUTE, res)
}

// retry repeats a dump that a concurrent change has interrupted.
func retry[T any](dump func() (T, error)) (T, error) {
	const attempts = 20
	for i := 1; ; i++ {
		v, err := dump()
		if i == attempts || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return v, err
		}
	}
}

// install gives the device of that index the tree.
func (c *conn) install(index int, t tree) error {
	if t.leaf != nil {
		return c.addLeaf(index, netlink.HANDLE_ROOT, netlink.MakeHandle(2, 0), *t.leaf)
	}
	if len(t.classes) == 0 {
		return nil
	}
	root := netlink.MakeHandle(1, 0)
	htb := netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: index, Handle: root, Parent: netlink.HANDLE_ROOT})
	htb.Defcls = uint32(minorOf(0)) // nothing passes unshaped
	if err := c.QdiscAdd(htb); err != nil {
		return fmt.Errorf("adding an HTB: %w", asUnsupported(featureHTB, err))
	}
	if err := c.addClass(index, root, 1, t.rate, t.rate); err != nil {
		return err
	}
	for k, class := range t.classes {
		minor := minorOf(k)
		handle := netlink.MakeHandle(1, minor)
		if err := c.addClass(index, netlink.MakeHandle(1, 1), minor, class.rate, t.rate); err != nil {
			return err
		}
		if err := c.addLeaf(index, handle, netlink.MakeHandle(minor+0x10, 0), class.leaf); err != nil {
			return err
		}
		if err := c.addFilter(index, handle, t.offset, class.addr, class.mask); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) addClass(index int, parent uint32, minor uint16, rate, ceil shaping.Rate) error {
	if err := c.ClassAdd(htbClass(index, parent, minor, rate, ceil)); err != nil {
		return fmt.Errorf("adding the HTB class 1:%x of %v: %w", minor, rate, err)
	}
	return nil
}

func (c *conn) changeClass(index int, parent uint32, minor uint16, rate, ceil shaping.Rate) error {
	if err := c.ClassChange(htbClass(index, parent, minor, rate, ceil)); err != nil {
		return fmt.Errorf("changing the HTB class 1:%x to %v: %w", minor, rate, err)
	}
	return nil
}

func htbClass(index int, parent uint32, minor uint16, rate, ceil shaping.Rate) *netlink.HtbClass {
	rate = max(rate, minRate)
	return netlink.NewHtbClass(
		netlink.ClassAttrs{LinkIndex: index, Parent: parent, Handle: netlink.MakeHandle(1, minor)},
		netlink.HtbClassAttrs{
			Rate: uint64(rate), Ceil: uint64(ceil),
			Buffer: htbBurst(rate), Cbuffer: htbBurst(ceil), Quantum: shaping.Quantum,
		})
}

func (c *conn) addFilter(index int, class uint32, offset int32, addr, mask uint32) error {
	err := c.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.MakeHandle(1, 0), Priority: 1, Protocol: unix.ETH_P_IP},
		ClassId:     class,
		Sel: &netlink.TcU32Sel{
			Flags: netlink.TC_U32_TERMINAL,
			Keys:  []netlink.TcU32Key{{Mask: mask, Val: addr, Off: offset}},
		},
	})
	if err != nil {
		return fmt.Errorf("adding a u32 filter: %w", asUnsupported(featureU32, err))
	}
	return nil
}

func (c *conn) addLeaf(index int, parent, handle uint32, l leaf) error {
	return c.setLeaf(unix.NLM_F_CREATE|unix.NLM_F_EXCL, index, parent, handle, l)
}

// setLeaf makes a queue, or, without NLM_F_CREATE, changes the one there is.
func (c *conn) setLeaf(flags, index int, parent, handle uint32, l leaf) error {
	kind, options := "bfifo", nl.NewRtAttr(nl.TCA_OPTIONS, binary.NativeEndian.AppendUint32(nil, l.limit))
	if l.netem != nil {
		// A change must replace the distribution that there was.
		withTable := l.netem.needsTable() || flags&unix.NLM_F_CREATE == 0
		kind, options = "netem", l.netem.options(l.limit, withTable)
	}
	_, err := c.request(unix.RTM_NEWQDISC, flags|unix.NLM_F_ACK, 0,
		&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Handle: handle, Parent: parent},
		nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)), options)
	if err != nil && kind == "netem" {
		err = asUnsupported(featureNetem, err)
	}
	if err != nil {
		return fmt.Errorf("setting a %s queue: %w", kind, err)
	}
	if flags&unix.NLM_F_CREATE != 0 && l.queue != 0 {
		return c.setBehind(flags, index, handle, l.queue)
	}
	return nil
}

// setBehind makes or changes the bfifo behind the netem of that handle, or
// removes it if the limit is zero.
func (c *conn) setBehind(flags, index int, netem, limit uint32) error {
	msg := &nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: netem | 1} // its only class
	var err error
	if limit == 0 {
		_, err = c.request(unix.RTM_DELQDISC, unix.NLM_F_ACK, 0, msg)
	} else {
		_, err = c.request(unix.RTM_NEWQDISC, flags|unix.NLM_F_ACK, 0, msg, nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bfifo")),
			nl.NewRtAttr(nl.TCA_OPTIONS, binary.NativeEndian.AppendUint32(nil, limit)))
	}
	if err != nil {
		return fmt.Errorf("setting the queue behind a netem to %d bytes: %w", limit, err)
	}
	return nil
}

// asUnsupported turns the kernel's ways to say "no such thing" into an
// UnsupportedError, and leaves other errors alone.
func asUnsupported(feature string, err error) error {
	for _, missing := range []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT} {
		if errors.Is(err, missing) {
			return unsupported(feature, err)
		}
	}
	return err
}

// qdisc is one queue as the kernel holds it.
type qdisc struct {
	kind           string
	handle, parent uint32
	options        []byte
	packets        uint32
	bytes          uint64
	drops          uint32
	waiting        uint32 // packets in it
	backlog        uint32 // bytes of these
	behind         uint32 // drops of the queue behind a netem; see leaves
}

// qdiscs dumps the queues of all devices of the namespace, by interface index.
func (c *conn) qdiscs() (map[int][]qdisc, error) {
	msgs, err := retry(func() ([][]byte, error) {
		return c.request(unix.RTM_GETQDISC, unix.NLM_F_DUMP, unix.RTM_NEWQDISC, &nl.TcMsg{Family: nl.FAMILY_ALL})
	})
	if err != nil {
		return nil, fmt.Errorf("listing queues: %w", err)
	}
	all := make(map[int][]qdisc)
	for _, m := range msgs {
		q, index, err := parseQdisc(m)
		if err != nil {
			return nil, fmt.Errorf("listing queues: %w", err)
		}
		all[index] = append(all[index], q)
	}
	return all, nil
}

// qdisc looks at one queue of a device, the one in that place.
func (c *conn) qdisc(index int, parent uint32) (qdisc, error) {
	msgs, err := c.request(unix.RTM_GETQDISC, unix.NLM_F_ECHO, unix.RTM_NEWQDISC, // without echo nobody answers
		&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: parent})
	if err == nil && len(msgs) != 1 {
		err = fmt.Errorf("%d answers", len(msgs))
	}
	var q qdisc
	if err == nil {
		q, _, err = parseQdisc(msgs[0])
	}
	if err != nil {
		return qdisc{}, fmt.Errorf("looking at the queue in %x: %w", parent, err)
	}
	return q, nil
}

// parseQdisc reads a queue and the index of its device.
func parseQdisc(m []byte) (q qdisc, index int, err error) {
	msg := nl.DeserializeTcMsg(m)
	attrs, err := nl.ParseRouteAttr(m[msg.Len():])
	if err != nil {
		return qdisc{}, 0, err
	}
	q = qdisc{handle: msg.Handle, parent: msg.Parent}
	for _, a := range attrs {
		switch a.Attr.Type {
		case nl.TCA_KIND:
			q.kind = string(a.Value[:len(a.Value)-1])
		case nl.TCA_OPTIONS:
			q.options = a.Value
		case nl.TCA_STATS: // struct tc_stats: bytes, packets, drops, …
			if len(a.Value) >= 16 {
				q.bytes = binary.NativeEndian.Uint64(a.Value)
				q.packets = binary.NativeEndian.Uint32(a.Value[8:])
				q.drops = binary.NativeEndian.Uint32(a.Value[12:])
			}
			if len(a.Value) >= 32 {
				q.waiting = binary.NativeEndian.Uint32(a.Value[28:])
			}
			if len(a.Value) >= 36 {
				q.backlog = binary.NativeEndian.Uint32(a.Value[32:])
			}
		}
	}
	return q, int(msg.Ifindex), nil
}

// describe writes a leaf as leaf.text does; seeded says whether it has one.
func (q qdisc) describe() (text string, seeded bool, err error) {
	switch {
	case q.kind == "bfifo" && len(q.options) >= 4:
		return fifoLine(binary.NativeEndian.Uint32(q.options)), false, nil
	case q.kind == "netem":
		n, limit, hasSeed, err := parseNetem(q.options)
		if err != nil {
			return "", false, err
		}
		return n.text(limit, hasSeed), hasSeed, nil
	}
	return q.kind, false, nil
}

// readTree writes what the kernel holds for one device as tree.lines does,
// and says whether it told the seed of a netem queue.
func (c *conn) readTree(index int, qdiscs []qdisc) (all []string, seeds bool, err error) {
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
	fronts := make(map[uint32]uint16) // netem's handle, and the class it is in
	for _, q := range qdiscs {
		if q.kind == "netem" {
			_, fronts[q.handle] = netlink.MajorMinor(q.parent)
		}
	}
	for _, q := range qdiscs {
		text, seeded, err := q.describe()
		if err != nil {
			return nil, false, err
		}
		seeds = seeds || seeded
		switch {
		case q.kind == "noqueue":
		case q.kind == "htb":
			lines, err := c.readHTB(link, q)
			if err != nil {
				return nil, false, err
			}
			all = append(all, lines...)
		case q.parent == netlink.HANDLE_ROOT:
			all = append(all, "root "+text)
		default:
			major, minor := netlink.MajorMinor(q.parent)
			if class, behind := fronts[netlink.MakeHandle(major, 0)]; behind {
				all = append(all, behindLine(class, text))
				continue
			}
			all = append(all, fmt.Sprintf("class %x:%x %s", major, minor, text))
		}
	}
	return all, seeds, nil
}

func (c *conn) readHTB(link netlink.Link, q qdisc) ([]string, error) {
	var all []string
	attrs, err := nl.ParseRouteAttr(q.options)
	if err != nil {
		return nil, fmt.Errorf("reading an HTB: %w", err)
	}
	for _, a := range attrs {
		if a.Attr.Type == nl.TCA_HTB_INIT {
			all = append(all, htbLine(uint16(nl.DeserializeTcHtbGlob(a.Value).Defcls)))
		}
	}
	classes, err := retry(func() ([]netlink.Class, error) { return c.ClassList(link, netlink.HANDLE_NONE) })
	if err != nil {
		return nil, fmt.Errorf("listing classes: %w", err)
	}
	for _, class := range classes {
		if htb, ok := class.(*netlink.HtbClass); ok {
			_, minor := netlink.MajorMinor(htb.Handle)
			all = append(all, classLine(minor, htb.Rate, htb.Ceil, htb.Quantum))
		}
	}
	filters, err := retry(func() ([]netlink.Filter, error) { return c.FilterList(link, q.handle) })
	if err != nil {
		return nil, fmt.Errorf("listing filters: %w", err)
	}
	for _, filter := range filters {
		if f, ok := filter.(*netlink.U32); ok && f.Sel != nil && len(f.Sel.Keys) == 1 {
			_, minor := netlink.MajorMinor(f.ClassId)
			k := f.Sel.Keys[0]
			all = append(all, filterLine(k.Off, k.Val, k.Mask, minor))
		}
	}
	return all, nil
}
