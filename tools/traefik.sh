#!/bin/sh
# traefik.sh [FILE] builds Traefik, of which Debian has no package, from the Go module proxy: .tools/traefik/traefik unless FILE says otherwise. It takes some
# ten minutes on two cores, so only "make traefik" and "make long" do it. The tests of deploy run it wherever they find it.
set -eu
cd "$(dirname "$0")/.."
out=${1:-.tools/traefik/traefik}
[ ! -x "$out" ] || exit 0
mkdir -p "$(dirname "$out")"
out=$(cd "$(dirname "$out")" && pwd)/${out##*/}
go=${GO:-go}
version=v3.6.12 # of 3.7 the module proxy does not have all
src=$(mktemp -d)
trap 'rm -rf "$src"' EXIT
cd "$src"
# Its go.mod replaces modules, which "go install" refuses.
dir=$($go mod download -json "github.com/traefik/traefik/v3@$version" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')
cp -r "$dir" traefik
chmod -R u+w traefik
cd traefik
CGO_ENABLED=0 $go build -trimpath -ldflags "-X github.com/traefik/traefik/v3/pkg/version.Version=$version" -o "$out" ./cmd/traefik
"$out" version
