#!/usr/bin/env bash
# Sets up the machine of the Vagrantfile (setup), or runs the two commands of
# the README in it (check). Run as root.
set -euo pipefail

project=${TESTBED_DIR:-/testbed}

setup() {
    export DEBIAN_FRONTEND=noninteractive
    # Debian's own Go is too old, that of its backports is not: since 1.21 the
    # go command fetches the version that go.mod asks for and checks it against
    # the public checksum database. So no version and no checksum is kept here.
    echo 'deb http://deb.debian.org/debian bookworm-backports main' \
        >/etc/apt/sources.list.d/backports.list
    apt-get update -q
    apt-get install -qy --no-install-recommends -t bookworm-backports golang-go
    # QEMU is for the test that boots a guest of its own.
    apt-get install -qy --no-install-recommends \
        ca-certificates iperf3 iproute2 iputils-ping qemu-system-x86

    # An ordinary user's sandbox cannot load modules.
    modules=(sch_netem sch_htb sch_tbf cls_u32 veth bridge tun)
    printf '%s\n' "${modules[@]}" >/etc/modules-load.d/testbed.conf
    modprobe --all "${modules[@]}"

    (cd "$project" && go version && go build -o /usr/local/bin/testbed ./cmd/testbed)
    testbed doctor
}

check() {
    cd "$project"
    go run ./cmd/testbed compare persistent_straggler
    go test -p 1 -timeout 20m ./...
}

case "${1:-}" in
    setup | check) "$1" ;;
    *)
        echo "usage: $0 setup|check" >&2
        exit 2
        ;;
esac
