#!/bin/sh
# Runs tests in random order, and fails if one fails or is skipped. "go vet" has looked before. The arguments are those of "go test";
# TESTLOG has those of tools/testlog, which judges the output. Without debug information linking takes a third less, and compiling a
# sixth less if its garbage collector runs only when it uses much memory. The tests' runs as always. The race detector needs C.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/bin again=
case " $* " in *" -race "*) export CGO_ENABLED=1 again="'$root/tools/race.sh'" ;; esac
# shellcheck disable=SC2086 # several words
GOGC=off GOMEMLIMIT=1GiB go test -exec "env -u GOGC -u GOMEMLIMIT $again" -json -vet=off -ldflags=-s -shuffle=on -count=1 -timeout=20m "$@" 2>&1 | "$bin/testlog" -failed "$bin/failed" ${TESTLOG-}
