package kernel

import (
	"fmt"

	"testbed/internal/errs"
)

// Capability is one thing that links need. Err is nil if it is present, and
// otherwise an *errs.UnsupportedError.
type Capability struct {
	Feature string
	Err     error
}

// Capabilities are the results of Probe, in the order in which they are needed.
type Capabilities []Capability

// Supports returns nil if the backend works here, and otherwise the
// *errs.UnsupportedError of the first thing that it lacks.
func (c Capabilities) Supports(b Backend) error {
	if err := b.check(); err != nil {
		return err
	}
	for _, f := range c {
		ofNetem := f.Feature == featureNetem || f.Feature == featureHFSC || f.Feature == featureRedirect
		unneeded := b != BackendNetem && ofNetem ||
			b == BackendUser && (f.Feature == featureHTB || f.Feature == featureU32) ||
			b.Routed() && f.Feature == featureBridge || !b.Routed() && f.Feature == featurePacket
		if f.Err != nil && !unneeded {
			return f.Err
		}
	}
	return nil
}

const (
	featureNamespace = "network namespaces"
	featureVeth      = "veth interfaces"
	featureBridge    = "bridge interfaces"
	featureHTB       = "the HTB packet scheduler"
	featureU32       = "the u32 packet classifier"
	featureNetem     = "the netem packet scheduler"
	featureHFSC      = "the HFSC packet scheduler"
	featureRedirect  = "ifb interfaces"
	featurePacket    = "packet sockets"
	// Kernels since 2025, Debian's 6.1.192 among them, refuse a tree of
	// several netem queues of which one duplicates.
	featureDuplicate = "packet duplication with several netem queues on one interface"
)

// fixes say what to do about a missing feature.
var fixes = map[string]string{
	featureNamespace: "run as root, or allow unprivileged user namespaces: kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu) or kernel.unprivileged_userns_clone=1 (Debian) with sysctl",
	featureVeth:      "load it with modprobe veth, or use a kernel with CONFIG_VETH",
	featureBridge:    "load it with modprobe bridge, or use the link backend user",
	featureHTB:       "load it with modprobe sch_htb, or use a kernel with CONFIG_NET_SCH_HTB",
	featureU32:       "load it with modprobe cls_u32, or use a kernel with CONFIG_NET_CLS_U32",
	featureNetem:     "load it with modprobe sch_netem (on cloud images it is in linux-modules-extra), or use the link backend user",
	featureHFSC:      "load it with modprobe sch_hfsc (on cloud images it may be in linux-modules-extra), or use the link backend user",
	featureRedirect:  "load them with modprobe -a ifb act_mirred (on cloud images they may be in linux-modules-extra), or use the link backend user",
	featureDuplicate: "use the link backend user, or leave duplicate out",
	featurePacket:    "load them with modprobe af_packet, or use a kernel with CONFIG_PACKET",
}

func unsupported(feature string, err error) error { return lacking(feature, fixes[feature], err) }

// lacking is the error of a feature that the kernel refuses with an error.
func lacking(feature, fix string, err error) error {
	return &errs.UnsupportedError{Missing: fmt.Sprintf("%s: not available on this machine: %v", feature, err), Fix: fix, Err: err}
}
