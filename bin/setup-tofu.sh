#!/bin/sh
# Builds OpenTofu from the Go module proxy into a folder: for tests, on a machine with neither terraform nor tofu.
# Building inside the module's own source obeys its `replace` lines, which `go install` refuses.
set -eu

version=$1
target=$2
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
export GOPATH="$work/gopath" GOCACHE="$work/gocache" GOFLAGS=-mod=mod CGO_ENABLED=0

cd "$work"
source=$(go mod download -json "github.com/opentofu/opentofu@$version" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
chmod -R u+w "$source"
cd "$source"
go build -trimpath -ldflags '-s -w' -o "$work/tofu" ./cmd/tofu
mkdir -p "$target"
mv "$work/tofu" "$target/tofu"
