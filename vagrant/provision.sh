#!/usr/bin/env bash
# Prepares the machine of the Vagrantfile (setup), installs testbed from the
# sources (build), or runs every test (check). Run as root.
set -euo pipefail

project=${TESTBED_DIR:-/testbed}

install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@"
}

setup() {
    # Debian's own Go is too old. The Go of its backports is new enough: since
    # 1.21 the go command downloads the version that go.mod names, and checks it
    # against the public checksum database. So this script needs no version and
    # no checksum.
    echo 'deb http://deb.debian.org/debian bookworm-backports main' \
        >/etc/apt/sources.list.d/backports.list
    apt-get update -q
    install -t bookworm-backports golang-go
    install ca-certificates iperf3 iproute2 iputils-ping kmod

    # An ordinary user's sandbox cannot load modules.
    modules=(sch_netem sch_hfsc sch_htb sch_tbf sch_ingress cls_u32 act_mirred ifb veth bridge tun)
    mkdir -p /etc/modules-load.d
    printf '%s\n' "${modules[@]}" >/etc/modules-load.d/testbed.conf
    if ischroot; then
        echo "no modules are loaded, because a chroot uses the kernel of its host"
    else
        modprobe --all "${modules[@]}"
    fi
}

build() {
    cd "$project"
    go version
    # The machine has the sources without their history.
    go build -buildvcs=false -ldflags "-X testbed/record.revision=${TESTBED_REVISION:-}" -o /usr/local/bin/testbed ./cmd/testbed
    # Vagrant runs this script as root, but an ordinary user will run testbed.
    runuser -u "${SUDO_USER:-root}" -- testbed doctor
}

check() {
    # The test of the guest boots QEMU.
    install qemu-system-x86
    cd "$project"
    go run ./cmd/testbed compare persistent_straggler
    go test -p 1 -timeout 20m ./...
}

case "${1:-}" in
    setup | build | check) "$1" ;;
    *)
        echo "usage: $0 setup|build|check" >&2
        exit 2
        ;;
esac
