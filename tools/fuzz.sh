#!/usr/bin/env bash
# Runs each fuzz target for the given time, one after the other. What it finds is kept in testdata/fuzz and fails every later test run. Of what longer runs
# came upon, testdata/fuzz has a few inputs that together reach what the targets' own seeds do not; every test run tries them.
set -euo pipefail
time=${1:-20s}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
grep -rl --include='*_test.go' '^func Fuzz' . | grep -v '^./benchmarks/' | xargs -n1 dirname | sort -u | while read -r dir; do
  cat "$dir"/*_test.go | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' | sort -u | while read -r target; do
    echo "fuzz $dir $target $time"
    status=0
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x "$dir" >"$out" 2>&1 </dev/null || status=$?
    # A worker that is in the middle of an input when the time is over may be reported as a failure without one (golang/go issue 75804, mended in Go 1.27).
    if [ "$status" -ne 0 ] && grep -q 'context deadline exceeded' "$out" && ! grep -q 'Failing input written' "$out"; then
      echo "ended in the middle of an input" >"$out"
      status=0
    fi
    tail -n 2 "$out"
    if [ "$status" -ne 0 ]; then
      cat "$out"
      exit "$status"
    fi
  done
done
