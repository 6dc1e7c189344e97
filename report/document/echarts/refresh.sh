#!/bin/sh
# Gets the chart library anew: the published file of the version below, as it
# is, with its licences. npm checks the packages against the registry's hashes.
# `go generate ./report/document` runs this. Afterwards put the hash that it prints into
# report/page_test.go, and look at a report.
set -eu
version=6.1.0
cd "$(dirname "$0")"
here=$PWD
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
cd "$temporary"
unpack() { # NAME@VERSION FILE...
    tar -xzf "$(npm pack --silent "$1" | tail -n 1)"
    shift
    for file; do
        install -m 644 "package/${file%%=*}" "$here/${file#*=}"
    done
    rm -rf package
}
unpack "echarts@$version" dist/echarts.min.js=echarts.min.js LICENSE=LICENSE NOTICE=NOTICE licenses/LICENSE-d3=LICENSE-d3
# The library that it draws with, which is part of the file.
unpack "zrender@$version" LICENSE=LICENSE-zrender
cd "$here"
sha256sum echarts.min.js
