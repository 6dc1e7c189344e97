#!/usr/bin/env bash
# Looks at what release.sh made, as somebody sees it who installs it: the .deb in a
# Debian root that has nothing else, the .rpm's contents, the image unpacked, the
# archives' programs where they can be started. Needs root and mmdebstrap.
set -euo pipefail
cd "$(dirname "$0")/../../dist"
version=$(sed -n 's/^const Version = "\(.*\)"$/\1/p' ../record/environment.go)
says() { # COMMAND… prints this version
    local line
    line=$("$@")
    [[ $line == "testbed $version "* ]] || { echo "check.sh: $* said: $line" >&2; exit 1; }
}
sha256sum --check --quiet checksums.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# 4 is doctor's exit code for a machine that cannot play runs, as a chroot may be.
deb=diloco-testbed_${version}_amd64.deb
mmdebstrap --quiet --variant=minbase --include=man-db,bash-completion \
    --customize-hook="copy-in $deb /tmp" \
    --customize-hook='chroot "$1" dpkg -i /tmp/'"$deb" \
    --customize-hook='chroot "$1" sh -c "testbed doctor >/tmp/doctor || [ \$? = 4 ]; grep -q . /tmp/doctor; cat /tmp/doctor"' \
    --customize-hook='chroot "$1" testbed simulate persistent_straggler --policy straggler' \
    --customize-hook='chroot "$1" sh -c "man -w testbed-simulate"' \
    --customize-hook='chroot "$1" dpkg --purge diloco-testbed' \
    --customize-hook='test ! -e "$1/usr/bin/testbed"' \
    bookworm "$work/root.tar"
[ "$(rpm -qp --nosignature --qf '%{NAME} %{VERSION}' "diloco-testbed-$version-1.x86_64.rpm")" = "diloco-testbed $version" ]
files=$(rpm -qlp --nosignature "diloco-testbed-$version-1.x86_64.rpm") # a pipe into grep -q would end rpm now and then
grep -qx /usr/bin/testbed <<<"$files"

# The archives: Linux natively and under emulation; of the others what file says.
for archive in testbed_"$version"_*.tar.gz; do tar -xzf "$archive" -C "$work"; done
says "$work/testbed_${version}_linux_amd64/testbed" version
says qemu-aarch64 "$work/testbed_${version}_linux_arm64/testbed" version

# The image: its layers one over the other are a root with sh, tar and testbed.
mkdir "$work/oci" "$work/image"
tar -xf "testbed_${version}_image.tar" -C "$work/oci"
python3 - "$work/oci" "$work/image" amd64 <<'UNPACK'
import json, subprocess, sys
from pathlib import Path

layout, out, arch = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
blob = lambda d: layout / "blobs" / d["digest"].replace(":", "/")
(index,) = json.loads((layout / "index.json").read_text())["manifests"]
index = json.loads(blob(index).read_text())
(of,) = [m for m in index["manifests"] if m["platform"]["architecture"] == arch]
for layer in json.loads(blob(of).read_text())["layers"]:
    subprocess.run(["tar", "-xzf", blob(layer), "-C", out], check=True)
UNPACK
says chroot "$work/image" /usr/local/bin/testbed version
chroot "$work/image" /bin/sh -c 'echo x >/tmp/a && tar -cf /tmp/a.tar -C /tmp a && tar -tf /tmp/a.tar'
echo "check.sh: packages, archives and the image of $version work"
