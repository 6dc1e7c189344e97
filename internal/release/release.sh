#!/usr/bin/env bash
# Makes all artefacts of a release in dist/: archives, .deb and .rpm, wheels, the
# container image as an OCI layout, release notes, checksums. Needs Go, mmdebstrap
# (for the image) and a Python that has ./python[dev]; no container engine and no
# account. The same commit gives the same bytes, wheels aside.
#
#   internal/release/release.sh [PART…]    # of: archives packages image wheels
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0
parts=" ${*:-archives packages image wheels} "

version=$(sed -n 's/^const Version = "\(.*\)"$/\1/p' record/environment.go)
tag=$(git describe --exact-match --tags 2>/dev/null || true)
if [ -n "$tag" ] && [ "$tag" != "v$version" ]; then
    echo "release.sh: the tag is $tag, and record.Version is $version: make them agree" >&2
    exit 1
fi
if ! grep -qF "## [$version]" CHANGELOG.md; then
    echo "release.sh: CHANGELOG.md has no heading \"## [$version]\": add one" >&2
    exit 1
fi
if [ -n "$(git status --porcelain)" ]; then
    echo "release.sh: warning: there are changes that are not committed, and binaries say so" >&2
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
packed=(--sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH")

rm -rf build dist
mkdir -p build/completions build/man-gz dist

# The programs: static, without paths of this machine, with the revision in them.
targets="linux/amd64 linux/arm64"
case $parts in *" archives "*) targets="$targets darwin/amd64 darwin/arm64 windows/amd64 freebsd/amd64" ;; esac
for target in $targets; do
    os=${target%/*} arch=${target#*/}
    GOOS=$os GOARCH=$arch CGO_ENABLED=0 go build -buildvcs=true -trimpath -ldflags='-s -w' -o "build/testbed-$os-$arch" ./cmd/testbed
done

# What packages have beside the program.
go run ./cmd/testbed reference man build/man
for page in build/man/*; do
    gzip -9nc "$page" >"build/man-gz/$(basename "$page").gz"
done
for shell in bash zsh fish; do
    go run ./cmd/testbed completion "$shell" >"build/completions/testbed.$shell"
done

case $parts in *" archives "*)
    for program in build/testbed-*; do
        name=testbed_${version}_$(basename "$program" | sed 's/^testbed-//; s/-/_/')
        mkdir "build/$name"
        cp -r LICENSE README.md CHANGELOG.md build/man build/completions "build/$name"
        if [[ $name == *_windows_* ]]; then
            cp "$program" "build/$name/testbed.exe"
            "$python" - "build/$name" "dist/$name.zip" "$SOURCE_DATE_EPOCH" <<'ZIP'
import sys, time, zipfile
from pathlib import Path

folder, out, seconds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
    for p in sorted(folder.rglob("*")):
        if p.is_file():
            info = zipfile.ZipInfo(str(p.relative_to(folder.parent)), time.gmtime(seconds)[:6])
            info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            z.writestr(info, p.read_bytes())
ZIP
        else
            cp "$program" "build/$name/testbed"
            tar "${packed[@]}" --mode=u+rw,go+r,go-w -C build -cf - "$name" | gzip -9n >"dist/$name.tar.gz"
        fi
    done
esac

case $parts in *" packages "*)
    TESTBED_VERSION=$version TESTBED_DATE=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
    export TESTBED_VERSION TESTBED_DATE
    for arch in amd64 arm64; do
        for format in deb rpm; do
            # nfpm takes variables in paths alone of what it packs.
            sed "s|\${ARCH}|$arch|; s|\${TESTBED_DATE}|$TESTBED_DATE|" internal/release/nfpm.yaml >"build/nfpm-$arch.yaml"
            GOFLAGS='' go run "$nfpm" package -f "build/nfpm-$arch.yaml" -p "$format" -t dist
        done
    done
esac

case $parts in *" image "*)
    # busybox gives the image sh and tar, which pods and kubectl cp want.
    for arch in amd64 arm64; do
        mmdebstrap --quiet --variant=extract --architectures="$arch" --include=busybox-static bookworm "build/busybox-$arch.tar"
        tar -xf "build/busybox-$arch.tar" -C build --transform "s|.*/busybox\$|busybox-$arch|" --wildcards '*bin/busybox'
        cp "build/testbed-linux-$arch" "build/testbed-$arch"
    done
    (cd internal/release && go run ./image -version "$version" -time "$SOURCE_DATE_EPOCH" -in ../../build -out ../../build/image)
    tar "${packed[@]}" -C build/image -cf "dist/testbed_${version}_image.tar" .
esac

case $parts in *" wheels "*)
    "$python" python/tools/wheels.py build/wheels
    cp build/wheels/*.whl dist/
esac

# The notes are the version's part of the changelog.
awk -v v="## [$version]" 'index($0, v) == 1 {on = 1; next} /^## \[/ {on = 0} on' CHANGELOG.md >dist/notes.md
(cd dist && find . -type f ! -name notes.md ! -name checksums.txt -printf '%P\0' | sort -z | xargs -0r sha256sum -- >checksums.txt)
echo "release.sh: version $version is in dist/:"
cat dist/checksums.txt
