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

// conn speaks netlink in one namespace. raw is for requests that netlink.Handle
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

// request starts a raw request. Its answers have type res, zero for none.
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
	if err := c.addRoot(index, t.scheduler); err != nil {
		return err
	}
	if err := c.setClass(createClass, index, t.scheduler, 1, t.rate, t.rate); err != nil {
		return err
	}
	for k, class := range t.classes {
		minor := minorOf(k)
		handle := netlink.MakeHandle(1, minor)
		if err := c.setClass(createClass, index, t.scheduler, minor, class.rate, t.rate); err != nil {
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

// addRoot gives the device a scheduler. Nothing passes unshaped: packets that
// no filter matches are in the first class.
func (c *conn) addRoot(index int, s scheduler) error {
	attrs := netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	if s == hfsc {
		q := netlink.NewHfsc(attrs)
		q.Defcls = minorOf(0)
		if err := c.QdiscAdd(q); err != nil {
			return fmt.Errorf("adding an HFSC: %w", asUnsupported(featureHFSC, err))
		}
		return nil
	}
	q := netlink.NewHtb(attrs)
	q.Defcls = uint32(minorOf(0))
	if err := c.QdiscAdd(q); err != nil {
		return fmt.Errorf("adding an HTB: %w", asUnsupported(featureHTB, err))
	}
	return nil
}

const (
	createClass = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	changeClass = 0
)

// setClass makes or changes a class with that guaranteed rate, and most as its
// limit.
func (c *conn) setClass(flags, index int, s scheduler, minor uint16, rate, most shaping.Rate) error {
	parent := netlink.MakeHandle(1, 1)
	if minor == 1 {
		parent = netlink.MakeHandle(1, 0)
	}
	rate = max(rate, minRate)
	attrs := netlink.ClassAttrs{LinkIndex: index, Parent: parent, Handle: netlink.MakeHandle(1, minor)}
	var err error
	switch {
	case s == hfsc:
		err = c.setHFSC(flags, attrs, rate, hfscLimit(minor, most))
	case flags == createClass:
		err = c.ClassAdd(htbClass(attrs, rate, most))
	default:
		err = c.ClassChange(htbClass(attrs, rate, most))
	}
	if err != nil {
		return fmt.Errorf("setting the class 1:%x of %v: %w", minor, rate, err)
	}
	return nil
}

func htbClass(attrs netlink.ClassAttrs, rate, ceil shaping.Rate) *netlink.HtbClass {
	return netlink.NewHtbClass(attrs, netlink.HtbClassAttrs{
		Rate: uint64(rate), Ceil: uint64(ceil),
		Buffer: uint32(shaping.BucketBytes(rate)), Cbuffer: uint32(shaping.BucketBytes(ceil)), Quantum: shaping.Quantum,
	})
}

// setHFSC replaces netlink.HfscClass, which has only 32 bits for rates in bits.
func (c *conn) setHFSC(flags int, a netlink.ClassAttrs, share, limit shaping.Rate) error {
	_, err := c.request(unix.RTM_NEWTCLASS, flags|unix.NLM_F_ACK, 0,
		&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(a.LinkIndex), Handle: a.Handle, Parent: a.Parent},
		nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(string(hfsc))), hfscCurves(share, limit))
	return err
}

// hfscCurves are straight lines from the origin (struct tc_service_curve). A
// limit of zero means no limit.
func hfscCurves(share, limit shaping.Rate) *nl.RtAttr {
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	curve := func(kind int, r shaping.Rate) {
		options.AddRtAttr(kind, binary.NativeEndian.AppendUint32(make([]byte, 8), hfscBytes(r)))
	}
	if curve(nl.TCA_HFSC_FSC, share); limit > 0 {
		curve(nl.TCA_HFSC_USC, limit)
	}
	return options
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

// setLeaf makes a queue or, without NLM_F_CREATE, changes the existing one.
func (c *conn) setLeaf(flags, index int, parent, handle uint32, l leaf) error {
	kind, options := "bfifo", nl.NewRtAttr(nl.TCA_OPTIONS, binary.NativeEndian.AppendUint32(nil, l.limit))
	if l.netem != nil {
		// A change must replace the existing distribution.
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
	return nil
}

// redirect sends packets that arrive at one device through the queues of
// another, which is an ifb. Behind them they return as if they had just
// arrived.
func (c *conn) redirect(from, through int) error {
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: from, Parent: netlink.HANDLE_INGRESS, Handle: ingressHandle}}
	if err := c.QdiscAdd(ingress); err != nil {
		return fmt.Errorf("adding an ingress queue: %w", asUnsupported(featureRedirect, err))
	}
	err := c.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: from, Parent: ingressHandle, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{netlink.NewMirredAction(through)},
	})
	if err != nil {
		return fmt.Errorf("adding a redirection: %w", asUnsupported(featureRedirect, err))
	}
	return nil
}

const ingressHandle = 0xffff0000

// asUnsupported turns the kernel's "no such thing" errors into an
// *errs.UnsupportedError, and leaves other errors alone.
func asUnsupported(feature string, err error) error {
	for _, missing := range []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT} {
		if errors.Is(err, missing) {
			return unsupported(feature, err)
		}
	}
	return err
}

// qdisc is one queue in the kernel's state.
type qdisc struct {
	kind           string
	handle, parent uint32
	options        []byte
	packets        uint32
	bytes          uint64
	drops          uint32
	waiting        uint32 // packets in it
	backlog        uint32 // bytes of these
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

// rootQdisc reads a device's queue.
func (c *conn) rootQdisc(index int) (qdisc, error) {
	msgs, err := c.request(unix.RTM_GETQDISC, unix.NLM_F_ECHO, unix.RTM_NEWQDISC, // without echo there is no answer
		&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: netlink.HANDLE_ROOT})
	if err == nil && len(msgs) != 1 {
		err = fmt.Errorf("the kernel gave %d answers instead of one", len(msgs))
	}
	var q qdisc
	if err == nil {
		q, _, err = parseQdisc(msgs[0])
	}
	if err != nil {
		return qdisc{}, fmt.Errorf("looking at a device's queue: %w", err)
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

// describe describes a leaf in the format of leaf.text. seeded reports whether
// it has a seed.
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

// readTree describes the kernel's state of one device in the format of
// tree.lines, and reports whether it includes the seed of a netem queue.
func (c *conn) readTree(index int, qdiscs []qdisc) (all []string, seeds bool, err error) {
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
	for _, q := range qdiscs {
		text, seeded, err := q.describe()
		if err != nil {
			return nil, false, err
		}
		seeds = seeds || seeded
		switch {
		case q.kind == "noqueue":
		case q.kind == "ingress":
			lines, err := c.readFilters(link, q.handle)
			if err != nil {
				return nil, false, err
			}
			all = append(all, lines...)
		case q.kind == string(htb), q.kind == string(hfsc):
			lines, err := c.readClasses(link, q)
			if err != nil {
				return nil, false, err
			}
			all = append(all, lines...)
		case q.parent == netlink.HANDLE_ROOT:
			all = append(all, "root "+text)
		default:
			major, minor := netlink.MajorMinor(q.parent)
			all = append(all, fmt.Sprintf("class %x:%x %s", major, minor, text))
		}
	}
	return all, seeds, nil
}

func (c *conn) readClasses(link netlink.Link, q qdisc) ([]string, error) {
	s, index := scheduler(q.kind), link.Attrs().Index
	all := []string{s.rootLine(0)} // no default if none is reported
	if s == hfsc && len(q.options) >= 2 {
		all[0] = s.rootLine(binary.NativeEndian.Uint16(q.options))
	}
	if s == htb {
		attrs, err := nl.ParseRouteAttr(q.options)
		if err != nil {
			return nil, fmt.Errorf("reading an HTB: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type == nl.TCA_HTB_INIT {
				all[0] = s.rootLine(uint16(nl.DeserializeTcHtbGlob(a.Value).Defcls))
			}
		}
	}
	var lines []string
	var err error
	if s == htb {
		lines, err = c.readHTB(link)
	} else {
		lines, err = c.readHFSC(index)
	}
	if err != nil {
		return nil, fmt.Errorf("listing classes: %w", err)
	}
	filters, err := c.readFilters(link, q.handle)
	return append(append(all, lines...), filters...), err
}

func (c *conn) readHTB(link netlink.Link) (all []string, err error) {
	classes, err := retry(func() ([]netlink.Class, error) { return c.ClassList(link, netlink.HANDLE_NONE) })
	for _, class := range classes {
		if htb, ok := class.(*netlink.HtbClass); ok {
			_, minor := netlink.MajorMinor(htb.Handle)
			all = append(all, htbLine(minor, htb.Rate, htb.Ceil, htb.Quantum))
		}
	}
	return all, err
}

func (c *conn) readHFSC(index int) (all []string, err error) {
	msgs, err := retry(func() ([][]byte, error) {
		return c.request(unix.RTM_GETTCLASS, unix.NLM_F_DUMP, unix.RTM_NEWTCLASS, &nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index)})
	})
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		q, _, err := parseQdisc(m) // classes have the same format
		if err != nil {
			return nil, err
		}
		if _, minor := netlink.MajorMinor(q.handle); minor != 0 { // the root itself
			line, err := hfscText(minor, q.options)
			if err != nil {
				return nil, err
			}
			all = append(all, line)
		}
	}
	return all, nil
}

// hfscText describes a class whose curves are straight lines; for other classes
// it returns the bytes.
func hfscText(minor uint16, options []byte) (string, error) {
	attrs, err := nl.ParseRouteAttr(options)
	if err != nil {
		return "", err
	}
	var share, limit uint64
	for _, a := range attrs {
		straight := len(a.Value) == 12 && binary.NativeEndian.Uint64(a.Value) == 0
		switch {
		case straight && a.Attr.Type == nl.TCA_HFSC_FSC:
			share = uint64(binary.NativeEndian.Uint32(a.Value[8:]))
		case straight && a.Attr.Type == nl.TCA_HFSC_USC:
			limit = uint64(binary.NativeEndian.Uint32(a.Value[8:]))
		default:
			return fmt.Sprintf("class 1:%x curve %d %x", minor, a.Attr.Type, a.Value), nil
		}
	}
	return hfscLine(minor, share, limit), nil
}

// readFilters describes the u32 filters of a queue.
func (c *conn) readFilters(link netlink.Link, parent uint32) (all []string, err error) {
	filters, err := retry(func() ([]netlink.Filter, error) { return c.FilterList(link, parent) })
	if err != nil {
		return nil, fmt.Errorf("listing filters: %w", err)
	}
	for _, filter := range filters {
		f, ok := filter.(*netlink.U32)
		if !ok || f.Sel == nil || len(f.Sel.Keys) != 1 {
			continue
		}
		if len(f.Actions) > 0 {
			if to, ok := f.Actions[0].(*netlink.MirredAction); ok {
				all = append(all, redirectLine(to.Ifindex))
			}
			continue
		}
		_, minor := netlink.MajorMinor(f.ClassId)
		k := f.Sel.Keys[0]
		all = append(all, filterLine(k.Off, k.Val, k.Mask, minor))
	}
	return all, nil
}

func redirectLine(through int) string {
	return fmt.Sprintf("incoming packets are redirected to the interface with index %d", through)
}
