#!/bin/sh
# Compiles the page's program anew, and takes the script that starts it from the
# same Go. `go generate ./report/estimates` runs this; its output is checked in,
# so that building needs no second step. A test says when it is out of date.
set -eu
cd "$(dirname "$0")"
temporary=$(mktemp)
trap 'rm -f "$temporary"' EXIT
GOOS=js GOARCH=wasm go build -trimpath -buildvcs=false -ldflags='-s -w -buildid=' -o "$temporary" .
gzip -9nc "$temporary" >estimate.wasm.gz
install -m 644 "$(go env GOROOT)/lib/wasm/wasm_exec.js" wasm_exec.js
install -m 644 "$(go env GOROOT)/LICENSE" LICENSE-go
ls -l estimate.wasm.gz
